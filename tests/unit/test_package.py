"""The package itself: what `import penstock` gives, and what it costs."""

from __future__ import annotations

import subprocess
import sys

import pytest

import penstock
from penstock import api


def test_public_names_are_those_of_the_api() -> None:
    """Whichever way they are reached."""
    assert (penstock.load, penstock.Loader, penstock.connect_to) == (api.load, api.Loader, api.connect_to)
    assert set(penstock.__all__) <= set(dir(penstock))


def test_unknown_name_is_an_attribute_error() -> None:
    """As of any module."""
    with pytest.raises(AttributeError, match="has no attribute 'unload'"):
        _ = penstock.unload


def test_importing_the_package_alone_is_light() -> None:
    """The command line asks it for the version only."""
    program = "import sys, penstock; print(*(name for name in sys.modules if name.startswith('penstock.')))"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == ""
