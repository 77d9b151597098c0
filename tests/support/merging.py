"""Merges a staging table as a load does at its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.server.merge.merge import MergeCounts, find_parts
from penstock.server.merge.merge_errors import name_by_number
from penstock.server.merge.merge_whole import merge_whole

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.model.load.job import Keep
    from penstock.model.server.table import TableFacts, TableName
    from penstock.server.connect.connection import Connection
    from penstock.server.merge.merge_errors import NameRecord


def merge(
    connection: Connection,
    *,
    staging: TableName,
    target: TableFacts,
    columns: Sequence[str],
    key: Sequence[str] = (),
    updates: bool = False,
    keep: Keep = "error",
    name_record: NameRecord = name_by_number,
) -> MergeCounts:
    """Merge all staged records; without a key, insert them."""
    parts = find_parts(connection, staging=staging, target=target, columns=columns, key=key, updates=updates, keep=keep)
    return merge_whole(connection, parts, name_record=name_record)
