"""Merges a whole staging table by one statement. Any bad record makes the merge fail.

If a record makes the statement fail, the merge runs again with the sorter (merge_sorting.py), until the sorter finds a
record that fails with the same SQLSTATE. The error names this record. The second run is rolled back.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import psycopg

from penstock.core.connect.connection import Connection
from penstock.core.connect.errors import rolled_back
from penstock.core.connect.search_path import users_settings
from penstock.core.errors import PenstockError
from penstock.core.sql import table_identifier
from penstock.loading.land.merge import COUNTING, MergeCounts, MergeParts, count_staged, read_plan
from penstock.loading.land.merge_errors import explain_merge, name_by_number, refuse_duplicates
from penstock.loading.land.merge_sorting import MergeSorter, settle
from penstock.loading.rejects.sorting import find_hindrance

if TYPE_CHECKING:
    from psycopg import sql

    from penstock.loading.land.merge_errors import NameRecord, RecordPosition

_log = logging.getLogger(__name__)

# How many bytes the sorter merges by one statement. A small portion is enough, because the sorter stops between
# portions once it has found one bad record.
_PORTION_BYTES = 1024 * 1024


def merge_whole(connection: Connection, parts: MergeParts, *, name_record: NameRecord = name_by_number) -> MergeCounts:
    """Store all staged records in the table; without a key, in file order.

    Unlike COPY, the statement works with row-level security: its policies apply. A key with a null equals no other key,
    unless the index is NULLS NOT DISTINCT. `name_record` describes a record's position in errors. Raises DuplicateKey,
    DataError, TargetError, ServerError. Needs the rights that check_key checks; without a key, only INSERT on the
    columns.
    """
    if parts.key is None:
        # Do not count with RETURNING as other merges do, because it would need SELECT privileges and policies.
        inserted = _run(connection, parts, parts.compose(), name_record=name_record).rowcount
        staged = count_staged(connection, parts.staging) if parts.target.suppressing_triggers else inserted
        return MergeCounts(staged=staged, inserted=inserted, suppressed=staged - inserted)
    if parts.refuses_duplicates:
        refuse_duplicates(connection, parts.staging, parts.key, name_record=name_record)
    row = _run(connection, parts, COUNTING + parts.compose(), name_record=name_record).fetchone()
    assert row is not None
    plan = row[0][0]["Plan"]
    _log.debug("merged by plan %s", plan)
    return parts.count(read_plan(plan))


def _run(
    connection: Connection, parts: MergeParts, statement: sql.Composed, *, name_record: NameRecord
) -> psycopg.Cursor[Any]:
    with (
        explain_merge(
            connection,
            parts.columns,
            what=f"{'merging' if parts.key else 'inserting'} into {parts.target.name}",
            name_record=name_record,
            find_refused=lambda sqlstate: _find_refused(connection, parts, sqlstate),
            has_key=parts.key is not None,
        ),
        users_settings(connection),
    ):
        return connection.execute(statement)


def _find_refused(connection: Connection, parts: MergeParts, sqlstate: str) -> RecordPosition | None:
    """Return a record that the table refuses with an SQLSTATE, or None if the sorter cannot be used or finds none."""
    table = table_identifier(parts.target.name).as_string(connection)
    found: RecordPosition | None = None
    # Errors here are ignored, because the original error is reported.
    with suppress(psycopg.Error, PenstockError), rolled_back(connection):
        if find_hindrance(connection, table) is None:
            sorter = MergeSorter(connection, parts, number=0, own_codes=[sqlstate], portion_bytes=_PORTION_BYTES)
            sorter.merge(limit=0)
            if not sorter.noted:
                settle([sorter])
            for record in sorter.refused.read():
                found = record.position
                break
    return found
