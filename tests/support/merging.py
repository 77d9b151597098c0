"""Merges a staging table as a load does at its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.ledger.values import MergeCounts
from penstock.loading.land.merge import find_parts
from penstock.loading.land.merge_errors import name_by_number
from penstock.loading.land.merges import merge_whole

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.core.connect.connection import Connection
    from penstock.core.values.job import Keep
    from penstock.core.values.table import TableFacts, TableName
    from penstock.loading.land.merge_errors import NameRecord


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
