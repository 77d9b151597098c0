"""How large functions may be."""

from __future__ import annotations

import ast
from pathlib import Path

import penstock

_MOST_LINES = 60
_MOST_PARAMETERS = 12


def test_functions_fit_a_screen_and_take_few_parameters() -> None:
    """Of every room."""
    source = Path(penstock.__file__).parent
    over = [
        f"{path.relative_to(source)}:{each.lineno} {each.name}"
        for path in source.rglob("*.py")
        for each in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
        and (_count_lines(each) > _MOST_LINES or _count_parameters(each) > _MOST_PARAMETERS)
    ]
    assert over == []


def _count_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return (function.end_lineno or 0) - function.lineno + 1


def _count_parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return len([*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs])
