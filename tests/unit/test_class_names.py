"""A class name has one owner."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import penstock


def test_no_class_name_is_defined_twice() -> None:
    """In all of src, private classes and those of the Rust module's stub included."""
    source = Path(penstock.__file__).parent
    owners: dict[str, list[str]] = defaultdict(list)
    for path in sorted((*source.rglob("*.py"), *source.rglob("*.pyi"))):
        for each in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(each, ast.ClassDef):
                owners[each.name].append(f"{path.relative_to(source)}:{each.lineno}")
    assert {name: places for name, places in owners.items() if len(places) > 1} == {}
