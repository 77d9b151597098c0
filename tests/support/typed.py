"""Targets whose columns get the types of the values of files, and the types that a table has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.core.values.job import TargetJob
from penstock.core.values.names import parse_table_name

if TYPE_CHECKING:
    from pathlib import Path

    from support.loads import Loads


def make_target(*paths: Path | str, into: str = "t", **options: Any) -> TargetJob:
    """Return a target that finds types, unless other options are given."""
    options = {"create": True, "types": "infer"} | options
    return TargetJob(sources=tuple(map(str, paths)), into=parse_table_name(into), **options)


def types_of(loads: Loads, table: str = "t") -> list[str]:
    """Return the types of a table's columns, in order."""
    query = """
        SELECT format_type(atttypid, atttypmod) FROM pg_attribute
         WHERE attrelid = to_regclass('{}') AND attnum > 0 AND NOT attisdropped ORDER BY attnum
    """
    return [row[0] for row in loads.execute(query.format(table))]
