"""The examples in docstrings."""

from __future__ import annotations

import doctest
from importlib import import_module
from typing import TYPE_CHECKING

from support.repository import TESTS, name_module, source_files

if TYPE_CHECKING:
    import pytest


def test_examples_in_docstrings_hold(subtests: pytest.Subtests) -> None:
    """What a docstring of a package, or of what tests have in common, shows is what happens."""
    named = {name_module(path): path for path in source_files()}
    named |= {f"support.{path.stem}": path for path in (TESTS / "support").glob("*.py")}
    modules = [name for name, path in named.items() if ">>> " in path.read_text(encoding="utf-8")]
    assert len(modules) > 80
    for name in modules:
        with subtests.test(name):
            results = doctest.testmod(import_module(name), optionflags=doctest.ELLIPSIS)
            assert (results.failed, results.attempted > 0) == (0, True)
