"""The statements of a merge from a staging table, and the counts that the server returns for them.

The merge runs in the caller's transaction, in which the caller records what was merged and drops the staging table. The
position in the files decides which one of several records with the same key is used. The table's unique index decides
whether two keys are equal (merge_key.py). merge_whole.py runs the statement once, merge_sorting.py in stretches.
The server counts what the statement does with each record: EXPLAIN ANALYZE runs it and returns how many records were
proposed, how many conflicted with a row of their key, and how many were stored (docs/decisions/0009).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from psycopg import sql

from penstock.frozen import frozen
from penstock.model.load.job import Keep
from penstock.model.load.landing import POSITION_COLUMNS
from penstock.model.load.ledger import LandedCounts
from penstock.model.server.table import TableFacts, TableName
from penstock.server.connect.connection import Connection
from penstock.server.connect.errors import translate_errors
from penstock.server.connect.search_path import users_settings
from penstock.server.merge.merge_key import (
    Key,
    conflict_target,
    find_key,
    key_order,
    key_terms,
    tell_unequal,
)
from penstock.server.sql.queries import fetch_one, list_identifiers, table_identifier

_COMMA = sql.SQL(", ")

# This makes the server count the records. Without times and buffers, counting costs almost nothing.
COUNTING = sql.SQL("EXPLAIN (ANALYZE, VERBOSE OFF, COSTS OFF, BUFFERS OFF, TIMING OFF, SUMMARY OFF, FORMAT JSON) ")

# A node has this "Parent Relationship" in EXPLAIN if its parent node reads its rows. Other values, such as InitPlan and
# SubPlan, mean subqueries (explain.c).
_INPUTS = ("Outer", "Subquery")


@frozen
class MergeCounts:
    """What happened to the records of a staging table."""

    # The sum of the other counts.
    staged: int
    # Dropped because another staged record with the same key was chosen.
    duplicates: int = 0
    # If triggers on both INSERT and UPDATE may have skipped records, only the sum of this and the next count is
    # correct.
    inserted: int = 0
    # Records that updated a row with their key.
    updated: int = 0
    # Left out because the table already had a row with the same key.
    existing: int = 0
    # Skipped by triggers.
    suppressed: int = 0

    def landed(self, *, number: int, target_oid: int) -> LandedCounts:
        """Return these counts as the counts of a load's target."""
        return LandedCounts(number=number, target_oid=target_oid, **asdict(self))


@frozen
class PlanCounts:
    """EXPLAIN ANALYZE's counts of INSERT ... SELECT ... ON CONFLICT ... RETURNING."""

    # The rows that were read.
    staged: int
    # The rows that reached the table.
    proposed: int
    # The proposed rows that met a row with their key.
    conflicts: int
    # The rows that were returned.
    stored: int


@frozen
class MergeParts:
    """The parts of a merge."""

    staging: TableName
    target: TableFacts
    columns: tuple[str, ...]
    # None if all records are inserted.
    key: Key | None = None
    # Whether a record updates the row with its key. If not, the record is left out.
    updates: bool = False
    keeps_last: bool = False
    # Whether two records with the same key are an error.
    refuses_duplicates: bool = False
    # Whether records that the table refuses are rejected, and the merge continues.
    is_sorted_out: bool = False

    def compose_order(self) -> tuple[sql.Composable, sql.Composed]:
        """Return what follows SELECT, and what follows ORDER BY, in the query that chooses the records for the table.

        With a key, the records are in the key's order, so that two concurrent merges lock rows in the same order.
        Without a key, they are in file order.
        """
        if self.key is None:
            return sql.SQL(""), list_identifiers(POSITION_COLUMNS)
        # Records with null in a NOT NULL column are also distinguished if each is refused separately or if a trigger
        # may replace the null.
        with_not_null = self.is_sorted_out or bool(self.target.suppressing_triggers)
        unequal = tell_unequal(self.key, with_not_null=with_not_null)
        direction = sql.SQL(" DESC" if self.keeps_last else "")
        positions = (sql.Identifier(name) + direction for name in POSITION_COLUMNS)
        distinct = sql.SQL("DISTINCT ON ({})").format(_COMMA.join([*key_terms(self.key), *unequal]))
        return distinct, _COMMA.join([*key_order(self.key), *unequal, *positions])

    def compose_group(self, chosen: sql.Identifier) -> tuple[sql.Composed, sql.Composable]:
        """Return the statement that stores chosen records, in two parts: before and after its WHERE condition.

        The alias of the chosen records is s. With a key, the statement returns a plan with the server's counts.
        """
        insert = _compose_insert(self.target, self.columns)
        select = sql.SQL(" SELECT {} FROM {} AS s").format(list_identifiers(self.columns), chosen)
        if self.key is None:
            return insert + select, sql.SQL("")
        return COUNTING + insert + select, self._compose_conflict()

    def compose(self) -> sql.Composed:
        """Return the statement that stores all records."""
        distinct, order = self.compose_order()
        select = sql.SQL(" SELECT {} {} FROM {} ORDER BY {}").format(
            distinct, list_identifiers(self.columns), table_identifier(self.staging), order
        )
        statement = _compose_insert(self.target, self.columns) + select
        return statement if self.key is None else statement + self._compose_conflict()

    def count(self, counted: PlanCounts) -> MergeCounts:
        """Return what the statement did with the records, computed from the server's counts."""
        if self.key is None:
            suppressed = counted.staged - counted.stored
            return MergeCounts(staged=counted.staged, inserted=counted.stored, suppressed=suppressed)
        if self._updated:
            return count_upserted(counted, has_insert_triggers=bool(self.target.suppressing_triggers))
        return count_new(counted)

    @property
    def _updated(self) -> list[str]:
        """Return the columns that an update sets: the file's columns except the key's."""
        assert self.key is not None
        return [name for name in self.columns if name not in self.key.names] if self.updates else []

    def _compose_conflict(self) -> sql.Composed:
        assert self.key is not None
        action: sql.Composable = sql.SQL("NOTHING")
        if self._updated:
            action = sql.SQL("UPDATE SET {}").format(
                _COMMA.join(
                    sql.SQL("{} = EXCLUDED.{}").format(sql.Identifier(name), sql.Identifier(name))
                    for name in self._updated
                )
            )
        return sql.SQL(" ON CONFLICT ({}) DO {} RETURNING 1").format(conflict_target(self.key), action)


def find_parts(
    connection: Connection,
    *,
    staging: TableName,
    target: TableFacts,
    columns: Sequence[str],
    key: Sequence[str] = (),
    updates: bool = False,
    keep: Keep = "error",
) -> MergeParts:
    """Return the parts of a merge. Without a key, all records are inserted.

    `keep` decides, by file order, which of several records with the same key updates the row. If the merge does not
    update rows, the first of them is inserted. Raises TargetError if there is no index for the key, and ServerError.
    """
    return MergeParts(
        staging=staging,
        target=target,
        columns=tuple(columns),
        key=find_key(connection, target, key) if key else None,
        updates=updates,
        keeps_last=updates and keep == "last",
        refuses_duplicates=updates and keep == "error",
    )


def check_merge(connection: Connection, parts: MergeParts) -> None:
    """Make the server plan a merge without running it, before anything is staged.

    The server then refuses what it would refuse at the load's end, such as a missing privilege or a rule. Raises
    TargetError, ServerError.
    """
    with translate_errors(f"planning the merge into {parts.target.name}"), users_settings(connection):
        connection.execute(sql.SQL("EXPLAIN ") + parts.compose())


def count_staged(connection: Connection, staging: TableName) -> int:
    """Return the number of records in a staging table. Raises ServerError."""
    with translate_errors(f"counting the records of {staging}"):
        query = sql.SQL("SELECT pg_catalog.count(*) FROM {}").format(table_identifier(staging))
        return int(fetch_one(connection, query)[0])


def count_upserted(counted: PlanCounts, *, has_insert_triggers: bool) -> MergeCounts:
    """Return what an upsert did. `has_insert_triggers` is whether triggers on INSERT may skip a row.

    >>> counted = PlanCounts(staged=9, proposed=8, conflicts=3, stored=8)
    >>> counts = count_upserted(counted, has_insert_triggers=False)
    >>> counts.duplicates, counts.inserted, counts.updated
    (1, 5, 3)
    """
    unmatched = counted.proposed - counted.conflicts
    suppressed = counted.proposed - counted.stored
    not_inserted = min(suppressed, unmatched) if has_insert_triggers else 0
    return MergeCounts(
        staged=counted.staged,
        duplicates=counted.staged - counted.proposed,
        inserted=unmatched - not_inserted,
        updated=counted.conflicts - (suppressed - not_inserted),
        suppressed=suppressed,
    )


def count_new(counted: PlanCounts) -> MergeCounts:
    """Return what ON CONFLICT DO NOTHING did. Every record that conflicted with a row was left out."""
    return MergeCounts(
        staged=counted.staged,
        duplicates=counted.staged - counted.proposed,
        inserted=counted.stored,
        existing=counted.conflicts,
        suppressed=counted.proposed - counted.conflicts - counted.stored,
    )


def read_plan(plan: Mapping[str, Any]) -> PlanCounts:
    """Return the counts in the plan of an INSERT from one table, as EXPLAIN (ANALYZE, FORMAT JSON) returns it."""
    source = _find_input(plan)
    assert source is not None
    scan = source
    while (below := _find_input(scan)) is not None:
        scan = below
    return PlanCounts(
        staged=round(scan["Actual Rows"] * scan["Actual Loops"]),
        proposed=round(source["Actual Rows"]),
        conflicts=round(plan["Conflicting Tuples"]),
        stored=round(plan["Actual Rows"]),
    )


def _find_input(plan: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the child node from which a node reads rows.

    Other children are subqueries of row-level security policies.
    """
    return next((below for below in plan.get("Plans", ()) if below["Parent Relationship"] in _INPUTS), None)


def _compose_insert(target: TableFacts, columns: Sequence[str]) -> sql.Composed:
    # As in COPY, given values are stored in columns that are GENERATED ALWAYS AS IDENTITY.
    is_overriding = any(column.identity == "a" and column.name in columns for column in target.columns)
    return sql.SQL("INSERT INTO {} ({}){}").format(
        table_identifier(target.name),
        list_identifiers(columns),
        sql.SQL(" OVERRIDING SYSTEM VALUE" if is_overriding else ""),
    )
