"""Deletes the rows that the files of --mode sync do not have.

Deletions may delete or change other rows by ON DELETE CASCADE, SET NULL or SET DEFAULT. These may not be rows of a
table that the same load fills, because a record of the files might be among them (`refuse_reached`).

The rows are deleted after the merges of all targets, in the same transaction, or before them if one of them has a
unique value that a record needs (staging.py). The promise of a sync is checked there too: no row is left without a
record, and no record without a row.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import cached_property
from operator import attrgetter
from typing import Any, Final

import psycopg
from psycopg import sql

from penstock.core.connect.connection import Connection
from penstock.core.connect.errors import to_penstock_error, translate_errors
from penstock.core.connect.search_path import users_settings
from penstock.core.errors import DeleteLimitError, TargetError
from penstock.core.slotted import slotted
from penstock.core.sql import fetch_names, fetch_rows, table_identifier
from penstock.core.units import count_nouns, format_count
from penstock.core.values.mode import EVENT_BITS
from penstock.core.values.notice import Notice
from penstock.core.values.table import TableName
from penstock.loading.land.context import LandingContext, TargetLanding, refuse_unended
from penstock.loading.land.merge import COUNTING, read_changed
from penstock.loading.land.merge_key import find_key, lacks_record
from penstock.loading.values.plan import TargetPlan

_INSUFFICIENT_PRIVILEGE = "42501"
# The violations of a foreign key. ON DELETE RESTRICT has an SQLSTATE of its own since PostgreSQL 18.
_REFERENCED = ("23503", "23001")
_FREE_THEM = "Load the other table by the same job with --mode sync."

# The actions that change a row which refers to a deleted one: pg_constraint.confdeltype.
_ACTIONS: Final = {"c": "ON DELETE CASCADE", "n": "ON DELETE SET NULL", "d": "ON DELETE SET DEFAULT"}


@slotted
class ForeignKeyRow:
    """The row of foreign_keys_to.sql: a foreign key to a table from which rows are deleted, itself or by a cascade."""

    name: str
    # pg_constraint.confdeltype.
    action: str
    # Whether it refers to the table itself, not only to a table from which rows are deleted by ON DELETE CASCADE.
    is_direct: bool
    # The referencing table.
    oid: int
    schema: str
    table: str
    # The OIDs of the referencing table, its partitions and its parents.
    line: list[int]

    @property
    def changes_rows(self) -> bool:
        """Return whether ON DELETE changes or deletes the referencing rows. If not, it refuses the deletion."""
        return self.action in _ACTIONS

    @property
    def deed(self) -> str:
        """Return the key's ON DELETE clause, such as ON DELETE SET NULL. Raises KeyError unless `changes_rows`."""
        return _ACTIONS[self.action]


def find_foreign_keys(connection: Connection, oid: int) -> list[ForeignKeyRow]:
    """Return the foreign keys that refer to a table, or to a table from which ON DELETE CASCADE deletes rows.

    `oid` is the OID of the table from which rows are to be deleted. Raises ServerError.
    """
    with translate_errors("looking up the foreign keys that refer to a table"):
        return fetch_rows(connection, "loading/foreign_keys_to", ForeignKeyRow, oid=oid)


def describe_cascades(foreign_keys: Iterable[ForeignKeyRow]) -> tuple[str, ...]:
    """Return the referencing tables whose rows ON DELETE changes, such as `public.orders (ON DELETE CASCADE)`."""
    return tuple(dict.fromkeys(f"{key.schema}.{key.table} ({key.deed})" for key in foreign_keys if key.changes_rows))


def refuse_reached(table: TableName, foreign_keys: Iterable[ForeignKeyRow], targets: Sequence[TargetPlan]) -> None:
    """Raise TargetError if deletions of a sync may delete or change, by ON DELETE, rows of a table that the load fills.

    `table` is synced, `foreign_keys` are those of `find_foreign_keys`, and `targets` are all targets of the load.
    """
    for key in filter(attrgetter("changes_rows"), foreign_keys):
        for facts in [each.facts for each in targets if each.facts is not None]:
            # If the load drops the key meanwhile, the deletions would leave records that the key refuses.
            if facts.oid in key.line:
                raise TargetError(
                    f'cannot sync table "{table}" and fill table "{facts.name}" by the same load',
                    detail=f'Rows that the sync deletes may delete or change records of "{facts.name}" by foreign key '
                    f'"{key.name}", {key.deed}.',
                    hint="Use --mode upsert for the first table here, and sync it by a later load of its own; or give "
                    "the key ON DELETE NO ACTION: a sync deletes in the order that such keys need.",
                )


class MissingRows:
    """The missing rows of a sync: rows of a target's table whose keys no staged record has.

    Methods raise PenstockError.
    """

    def __init__(self, connection: Connection, landing: TargetLanding, staging: TableName | None) -> None:
        assert staging is not None
        self._connection = connection
        self.landing = landing
        self._job, self._name = landing.target.job, landing.facts.name
        self._staging = table_identifier(staging)
        # Tables that inherit from the table are not synced. Partitions are.
        self._table = sql.SQL("ONLY " if landing.facts.kind == "r" else "") + table_identifier(self._name)
        self._key = find_key(connection, landing.facts, self._job.key)
        self._condition = lacks_record(self._key, self._staging, self._name.name)
        self._statement = sql.SQL("DELETE FROM {} WHERE {}").format(self._table, self._condition)
        # The foreign keys by which the deletions are refused or change other rows.
        self.foreign_keys = find_foreign_keys(connection, landing.facts.oid)
        # The number of missing rows before the merge, and the number of all rows if --max-delete is below 100 %.
        self.expected = 0
        self._all: int | None = None
        self._deleted = 0

    @property
    def may_go_first(self) -> bool:
        """Return whether rows are missing that may be deleted before the merge: no foreign key refers to the table."""
        return self.expected > 0 and not any(key.is_direct for key in self.foreign_keys)

    def check(self) -> None:
        """Make the server plan the DELETE without running it, before anything is staged."""
        self._execute(sql.SQL("EXPLAIN ") + self._statement)

    def foresee(self) -> None:
        """Set `expected` to the number of missing rows before the merge. Raises DeleteLimitError if they are too many.

        --max-delete is the limit, in percent of the table's rows.
        """
        self.expected = self._count(self._table, self._condition)
        if self._job.max_delete < 100 and (self.expected or self._code):
            self._all = self._count(self._table, sql.SQL("true"))
            self._refuse_too_many(self.expected)

    def delete(self, context: LandingContext) -> int:
        """Delete the missing rows, and return their number. Raises DeleteLimitError as `foresee` does."""
        # A trigger may have added rows since they were counted. So may a session for which the merge has waited.
        if not self.expected and not self._code:
            self.foresee()
            if not self.expected:
                return 0
        # Look before and behind the deletion: a load may commit rows just before it, and another one may end meanwhile.
        refuse_unended(context, self.landing.facts, verb="sync")
        row = self._execute(COUNTING + self._statement + sql.SQL(" RETURNING 1")).fetchone()
        assert row is not None
        found, deleted = read_changed(row[0][0]["Plan"])
        refuse_unended(context, self.landing.facts, verb="sync")
        self._deleted += deleted
        self._refuse_too_many(self._deleted)
        if found != deleted:
            # Other sessions may have deleted the others.
            self._refuse_left()
        return deleted

    def confirm(self, *, suppressed: int) -> None:
        """After merges and deletions, raise TargetError if a row has no record with its key, or a record no row.

        Nothing is checked if the table has no triggers and policies, because then the server's counts prove both.
        `suppressed` is how many records triggers have skipped.
        """
        if not self._code:
            return
        self._refuse_left()
        # A record whose update was skipped has its row.
        skipped = suppressed if self.landing.facts.suppressing_triggers else 0
        lacking = self._count_lacking()
        if lacking > skipped:
            raise TargetError(
                f'cannot sync table "{self._name}": {count_nouns(lacking - skipped, "record")} of the files would '
                "have no row with its key",
                detail=f"After the merge, the key was changed or the row deleted by {self._describe_code()}.",
                hint="Disable the trigger, or use --mode upsert, which promises no equality.",
            )

    @cached_property
    def _code(self) -> tuple[str, ...]:
        """Triggers and policies, which may keep, add or change rows, also those of tables that cascades reach."""
        reached = [key.oid for key in self.foreign_keys if key.changes_rows]
        with translate_errors("looking up triggers"):
            oids = sorted([self.landing.facts.oid, *reached])
            events = sum(EVENT_BITS.values())
            triggers = fetch_names(self._connection, "loading/user_triggers", oids=oids, events=events)
        return (*triggers, *(("row-level security",) if self.landing.facts.row_security_applies else ()))

    def _describe_code(self) -> str:
        return f"code of the table: {', '.join(self._code)}" if self._code else "another session"

    def _refuse_left(self) -> None:
        left = self._count(self._table, self._condition)
        if left:
            raise TargetError(
                f'cannot sync table "{self._name}": {count_nouns(left, "row")} that the files do not have could not be '
                "deleted",
                detail=f"They were kept by {self._describe_code()}.",
                hint="Disable the trigger, or use --mode upsert, which keeps such rows.",
            )

    def _count_lacking(self) -> int:
        """Return how many keys of records no row has."""
        keys = sql.SQL(", ").join(sql.Identifier("s", name) for name in self._key.names)
        query = sql.SQL("SELECT pg_catalog.count(DISTINCT ROW({})) FROM {} AS s WHERE {}").format(
            keys, self._staging, lacks_record(self._key, self._table, "s")
        )
        return int(self._execute(query).fetchall()[0][0])

    def describe_kept(self, lack: str) -> Notice:
        """Return the warning that no row is deleted, because the load lacks records. `lack` says which, in words."""
        return Notice(
            code="not-deleted",
            message=f'no row of table "{self._name}" is deleted, because the load is incomplete: {lack}',
            hint="Every record of every source must be loaded: see penstock rejects.",
        )

    def _refuse_too_many(self, missing: int) -> None:
        if self._all is None or missing * 100 <= self._all * self._job.max_delete:
            return
        needed = min(100, math.ceil(missing * 100 / self._all))
        raise DeleteLimitError(
            f'cannot sync table "{self._name}": {format_count(missing)} of its {count_nouns(self._all, "row")}'
            f" are not in the files, which is more than {self._job.max_delete:g}%",
            hint="Check that the sources are complete. To delete these rows, run the same load command again with "
            f"--max-delete {needed}%.",
        )

    def _count(self, table: sql.Composable, condition: sql.Composable) -> int:
        query = sql.SQL("SELECT pg_catalog.count(*) FROM {} WHERE {}").format(table, condition)
        return int(self._execute(query).fetchall()[0][0])

    def _execute(self, statement: sql.Composed) -> psycopg.Cursor[Any]:
        try:
            with users_settings(self._connection):
                # A binary result requires the extended protocol, which accepts only one statement.
                return self._connection.cursor().execute(statement, binary=True)
        except psycopg.Error as error:
            explained = to_penstock_error(error, f"syncing {self._name}")
            if error.sqlstate in _REFERENCED:
                explained.hint = _FREE_THEM
            elif error.sqlstate == _INSUFFICIENT_PRIVILEGE and not error.diag.message_hint:
                explained.hint = self._hint_right()
            raise explained from error

    def _hint_right(self) -> str:
        grant = sql.SQL("GRANT SELECT, DELETE ON {} TO ...;").format(table_identifier(self._name))
        return f"Have the owner run {grant.as_string(None)}"
