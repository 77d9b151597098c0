"""Loads whose columns get the types of the values of files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from penstock.model.load.job import TargetJob
from penstock.model.server.names import parse_table_name
from support.loads import Loads

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def loads(database18: str) -> Loads:
    """Provide loads into an empty database."""
    return Loads(database18)


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Provide a function (text, name="f.csv") that writes a file and returns its path."""

    def write(text: str, name: str = "f.csv") -> Path:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8", newline="")
        return path

    return write


def make_target(*paths: Path | str, into: str = "t", **options: Any) -> TargetJob:
    """Return a target that finds types, unless other options are given."""
    options = {"create": True, "types": "infer"} | options
    return TargetJob(sources=tuple(map(str, paths)), into=parse_table_name(into), **options)


def types_of(loads: Loads, table: str = "t") -> list[str]:
    """Return the types of a table's columns, in order."""
    query = """
        SELECT format_type(atttypid, atttypmod) FROM pg_attribute
         WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped ORDER BY attnum
    """
    return [row[0] for row in loads.execute(query.replace("%s", f"'{table}'"))]
