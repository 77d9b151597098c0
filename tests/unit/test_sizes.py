"""How large functions may be."""

from __future__ import annotations

import ast
from pathlib import Path

import penstock

_MOST_LINES = 60
_MOST_PARAMETERS = 12
# To be divided.
_LARGER = {"compose_sorting"}


def test_functions_fit_a_screen_and_take_few_parameters() -> None:
    """Of every room."""
    source = Path(penstock.__file__).parent
    over = [
        f"{path.relative_to(source)}:{each.lineno} {each.name}: {lines} lines, {count} parameters"
        for path in source.rglob("*.py")
        for each in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef)) and each.name not in _LARGER
        if (lines := (each.end_lineno or 0) - each.lineno + 1) > _MOST_LINES
        or (count := len(each.args.posonlyargs + each.args.args + each.args.kwonlyargs)) > _MOST_PARAMETERS
    ]
    assert over == []
