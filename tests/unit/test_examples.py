"""The examples in docstrings."""

from __future__ import annotations

import doctest
from importlib import import_module
from pathlib import Path

import pytest

import penstock

_SOURCE = Path(penstock.__file__).parent
_MODULES = sorted(
    ".".join(("penstock", *path.relative_to(_SOURCE).with_suffix("").parts)).removesuffix(".__init__")
    for path in _SOURCE.rglob("*.py")
    if ">>> " in path.read_text(encoding="utf-8")
)


@pytest.mark.parametrize("name", _MODULES)
def test_examples_in_docstrings_hold(name: str) -> None:
    """What a docstring shows is what happens."""
    results = doctest.testmod(import_module(name), optionflags=doctest.ELLIPSIS)
    assert (results.failed, results.attempted > 0) == (0, True)
