"""A whole staging table merged by one statement: upsert, insert what is new, insert all. The first bad record ends it.

If the statement fails for a record, the merge is run once more with the sorter (merge_sorting.py) until that finds a
record that fails in the same way, which the error names. Nothing of that second run stays.
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
from penstock.server.merge.merge_locate import RecordPlace
from penstock.server.merge.merge_sorting import MergeSorter, settle

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.model.load.job import Keep
    from penstock.model.server.table import TableFacts, TableName
    from penstock.server.connect.connection import Connection
    from penstock.server.merge.merge_errors import NameRecord

_log = logging.getLogger(__name__)

# One bad record is enough, so the sorter need not sort out many before it looks.
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
    """Insert each staged record, or update the row that has its key, in what the file has besides the key.

    Of records with the same key `keep` says which counts, by file order; with "error" there must be none. A key with a
    null is no other's, unless the index says NULLS NOT DISTINCT. `name_record` says in errors where a record stood.
    Raises DataError, TargetError, ServerError. Needs what check_key looks for.
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
    """Insert the staged records whose key no row has; of several with the same key the first by file order.

    Raises DataError, TargetError, ServerError. Needs what check_key looks for.
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
    """Insert all staged records in file order, as INSERT does it: by row-level security's policies where there are any.

    Raises DataError, TargetError, ServerError. Needs INSERT on the columns and nothing else.
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
        # RETURNING, by which merges count, would need policies and privileges for SELECT.
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


def _find_refused(connection: Connection, parts: MergeParts, sqlstate: str) -> RecordPlace | None:
    """Return a record that the table refuses with an SQLSTATE; None if the sorter cannot be used or finds none."""
    table = table_identifier(parts.target).as_string(connection)
    found: RecordPlace | None = None
    # The error at hand matters, not that nothing more is known about it.
    with suppress(psycopg.Error, PenstockError), rolled_back(connection):
        if find_hindrance(connection, table) is None:
            sorter = MergeSorter(connection, parts, number=0, own_codes=[sqlstate], portion_bytes=_PORTION_BYTES)
            sorter.merge(limit=0)
            if not sorter.noted:
                settle([sorter])
            for record in sorter.refused.read():
                found = RecordPlace(
                    object_number=record.object_number, block_start=record.block_start, record=record.record
                )
                break
    return found
