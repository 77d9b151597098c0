"""The package itself: what `import penstock` gives, and what it costs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import penstock
from penstock.api.connect import connect_to
from penstock.api.functions import load
from penstock.loading.loader import Loader


def test_public_names_are_those_of_the_stub() -> None:
    """All of them can be had, and type checkers know them."""
    assert (penstock.load, penstock.Loader, penstock.connect_to) == (load, Loader, connect_to)
    assert all(getattr(penstock, name) is not None for name in penstock.__all__)
    stub = Path(penstock.__file__).with_suffix(".pyi").read_text(encoding="utf-8")
    known = {first or second for first, second in re.findall(r" as (\w+)$|^(\w+) = ", stub, re.MULTILINE)}
    assert {*known, "__version__"} == set(penstock.__all__) <= set(dir(penstock))


def test_unknown_name_is_an_attribute_error() -> None:
    """As of any module."""
    with pytest.raises(AttributeError, match="has no attribute 'unload'"):
        _ = penstock.unload


def test_importing_the_package_alone_is_light() -> None:
    """The command line asks it for the version only."""
    program = "import sys, penstock; print(*(name for name in sys.modules if name.startswith('penstock.')))"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == ""
