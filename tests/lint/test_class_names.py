"""A class name has one owner."""

from __future__ import annotations

import ast
from collections import defaultdict

from support.repository import ROOT, source_files


def test_no_class_name_is_defined_twice() -> None:
    """In all of src, private classes and those of the Rust module's stub included."""
    owners: dict[str, list[str]] = defaultdict(list)
    for path in (*source_files(), *source_files("*.pyi")):
        for each in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(each, ast.ClassDef):
                owners[each.name].append(f"{path.relative_to(ROOT)}:{each.lineno}")
    assert {name: places for name, places in owners.items() if len(places) > 1} == {}
