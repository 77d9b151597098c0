"""Tests that the tests pass tuning in, and patch no constant."""

from __future__ import annotations

import ast
import re

import pytest

from support.repository import TESTS

_CONSTANT = re.compile(r"_?[A-Z][A-Z0-9_]*")


def find_patched(source: str) -> list[str]:
    """Return the constants that a module patches: by setattr, patch or patch.object, or by an assignment to them."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, (ast.Attribute, ast.Name)):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
            if called in ("setattr", "patch", "object"):
                texts = [arg.value for arg in node.args[:2] if isinstance(arg, ast.Constant)]
                found += [text.rpartition(".")[2] for text in texts if isinstance(text, str)]
        elif isinstance(node, ast.Assign):
            found += [each.attr for each in node.targets if isinstance(each, ast.Attribute)]
    return [name for name in found if _CONSTANT.fullmatch(name)]


def test_no_test_patches_a_constant() -> None:
    """What a test needs larger or smaller is a parameter, or a field of LoadTuning."""
    found = {str(path.relative_to(TESTS)): find_patched(path.read_text("utf-8")) for path in TESTS.rglob("*.py")}
    assert {path: names for path, names in found.items() if names} == {}


@pytest.mark.parametrize(
    "statement",
    [
        'monkeypatch.setattr(module, "_LIMIT", 1)',
        'monkeypatch.setattr("package.module._LIMIT", 1)',
        'patch.object(module, "_LIMIT", 1)',
        'patch("package.module._LIMIT", 1)',
        "module._LIMIT = 1",
    ],
)
def test_patched_constant_is_found(statement: str) -> None:
    """In each of the ways to patch one."""
    assert find_patched(statement) == ["_LIMIT"]
