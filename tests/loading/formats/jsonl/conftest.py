"""Fixtures for loads of JSON Lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.loads import Loads

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def loads(ledger18: str) -> Loads:
    """Provide loads into a database with nothing but a ledger."""
    return Loads(ledger18)


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Provide a function (text, name="f.jsonl") that writes a file and returns its path."""

    def write(text: str, name: str = "f.jsonl") -> Path:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8", newline="")
        return path

    return write
