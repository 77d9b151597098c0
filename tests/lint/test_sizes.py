"""How large functions may be."""

from __future__ import annotations

import ast

from support.repository import parsed_sources

_MOST_LINES = 60
_MOST_PARAMETERS = 12


def test_functions_fit_a_screen_and_take_few_parameters() -> None:
    """Of every room."""
    over = [
        f"{path}:{each.lineno} {each.name}"
        for path, tree in parsed_sources()
        for each in ast.walk(tree)
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
        and (_count_lines(each) > _MOST_LINES or _count_parameters(each) > _MOST_PARAMETERS)
    ]
    assert over == []


def _count_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return (function.end_lineno or 0) - function.lineno + 1


def _count_parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return len([*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs])
