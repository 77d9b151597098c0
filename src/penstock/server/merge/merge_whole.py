"""Merges a whole staging table by one statement: upsert, insert new, insert all. Any bad record makes the merge fail.

If a record makes the statement fail, the merge runs again with the sorter (merge_sorting.py), until the sorter finds a
record that fails with the same SQLSTATE. The error names this record. The second run is rolled back.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING

import psycopg

from penstock.errors import PenstockError
from penstock.server.connect.errors import rolled_back
from penstock.server.connect.search_path import users_path
from penstock.server.copy.sorting import find_hindrance
from penstock.server.merge.merge import COUNTING, MergeCounts, MergeParts, count_staged, find_parts, read_plan
from penstock.server.merge.merge_errors import explain_merge, name_by_number, refuse_duplicates
from penstock.server.merge.merge_key import table_identifier
from penstock.server.merge.merge_locate import RecordPosition
from penstock.server.merge.merge_sorting import MergeSorter, settle

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.model.load.job import Keep
    from penstock.model.server.table import TableFacts, TableName
    from penstock.server.connect.connection import Connection
    from penstock.server.merge.merge_errors import NameRecord

_log = logging.getLogger(__name__)

# How many bytes the sorter merges by one statement. They are few, because one bad record is enough and the sorter stops
# between portions.
_PORTION_BYTES = 1024 * 1024


def merge_upsert(
    connection: Connection,
    *,
    staging: TableName,
    target: TableFacts,
    columns: Sequence[str],
    key: Sequence[str],
    keep: Keep,
    name_record: NameRecord = name_by_number,
) -> MergeCounts:
    """Insert each staged record, or update the row with its key, in the file's columns except the key.

    `keep` decides, by file order, which of several records with the same key is used; with "error", such records raise
    DuplicateKey. A key with a null equals no other key, unless the index is NULLS NOT DISTINCT. `name_record` describes
    a record's position in errors. Raises DataError, TargetError, ServerError. Needs the rights that check_key checks.
    """
    parts = find_parts(connection, staging=staging, target=target, columns=columns, mode="upsert", key=key, keep=keep)
    assert parts.key is not None
    if keep == "error":
        refuse_duplicates(connection, staging, parts.key, name_record=name_record)
    return _run(connection, parts, name_record=name_record)


def merge_insert_new(
    connection: Connection,
    *,
    staging: TableName,
    target: TableFacts,
    columns: Sequence[str],
    key: Sequence[str],
    name_record: NameRecord = name_by_number,
) -> MergeCounts:
    """Insert the staged records whose key no row has; of several with the same key, the first in file order.

    Raises DataError, TargetError, ServerError. Needs the rights that check_key checks.
    """
    parts = find_parts(connection, staging=staging, target=target, columns=columns, mode="insert-new", key=key)
    return _run(connection, parts, name_record=name_record)


def insert_all(
    connection: Connection,
    *,
    staging: TableName,
    target: TableFacts,
    columns: Sequence[str],
    name_record: NameRecord = name_by_number,
) -> MergeCounts:
    """Insert all staged records in file order. Unlike COPY, INSERT works with row-level security; its policies apply.

    Raises DataError, TargetError, ServerError. Needs only INSERT on the columns.
    """
    parts = MergeParts(staging=staging, target=target, columns=tuple(columns))
    with (
        explain_merge(
            connection,
            columns,
            what=f"inserting into {target.name}",
            name_record=name_record,
            find_refused=lambda sqlstate: _find_refused(connection, parts, sqlstate),
            has_key=False,
        ),
        users_path(connection),
    ):
        # Other merges count with RETURNING. It is not used here, because it would need SELECT privileges and policies.
        inserted = connection.execute(parts.compose()).rowcount
    staged = count_staged(connection, staging) if target.suppressing_triggers else inserted
    return MergeCounts(staged=staged, inserted=inserted, suppressed=staged - inserted)


def _run(connection: Connection, parts: MergeParts, *, name_record: NameRecord) -> MergeCounts:
    with (
        explain_merge(
            connection,
            parts.columns,
            what=f"merging into {parts.target.name}",
            name_record=name_record,
            find_refused=lambda sqlstate: _find_refused(connection, parts, sqlstate),
        ),
        users_path(connection),
    ):
        row = connection.execute(COUNTING + parts.compose()).fetchone()
    assert row is not None
    plan = row[0][0]["Plan"]
    _log.debug("merged by plan %s", plan)
    return parts.count(read_plan(plan))


def _find_refused(connection: Connection, parts: MergeParts, sqlstate: str) -> RecordPosition | None:
    """Return a record that the table refuses with an SQLSTATE, or None if the sorter cannot be used or finds none."""
    table = table_identifier(parts.target).as_string(connection)
    found: RecordPosition | None = None
    # Errors here are ignored: the original error is the one to report.
    with suppress(psycopg.Error, PenstockError), rolled_back(connection):
        if find_hindrance(connection, table) is None:
            sorter = MergeSorter(connection, parts, number=0, own_codes=[sqlstate], portion_bytes=_PORTION_BYTES)
            sorter.merge(limit=0)
            if not sorter.noted:
                settle([sorter])
            for record in sorter.refused.read():
                found = RecordPosition(
                    object_number=record.object_number, block_start=record.block_start, record=record.record
                )
                break
    return found
