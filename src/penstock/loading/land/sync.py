"""Deletes the rows that the files of --mode sync do not have, or changes them as --sync-delete says.

The rows are deleted after the merges of all targets, in the same transaction. The user's assignments have the rights of
the load's role. They cannot change other rows: the server takes one statement, parentheses match, and a second WHERE is
an error.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql

from penstock.core.connect.connection import Connection
from penstock.core.connect.errors import to_penstock_error
from penstock.core.connect.search_path import users_settings
from penstock.core.errors import DeleteLimitError, UsageError
from penstock.core.sql import table_identifier
from penstock.core.units import count_nouns, format_count
from penstock.core.values.dialect import Notice
from penstock.core.values.job import DELETE
from penstock.loading.formats.columns import DEFAULT_PLACEHOLDER, FILENAME_PLACEHOLDER, NULL_PLACEHOLDER
from penstock.loading.land.context import refuse_unended
from penstock.loading.land.merge import split_list
from penstock.loading.land.merge_key import find_key, lacks_record

if TYPE_CHECKING:
    from penstock.core.values.job import TargetJob
    from penstock.core.values.table import TableName
    from penstock.loading.land.context import LandingContext, TargetLanding

# A column and its expression. A name without quotes is folded to lower case.
_ASSIGNMENT = re.compile(r'\s*(?:"((?:[^"]|"")+)"|([^\W\d][\w$]*))\s*=(.+)', re.DOTALL)
_HOW = "Use delete, or SET COLUMN = EXPRESSION, as in SET deleted_at = now()."

_SYNTAX_ERROR = "42601"
# The violations of a foreign key. ON DELETE RESTRICT has an SQLSTATE of its own since PostgreSQL 18.
_REFERENCED = ("23503", "23001")
_FREE_THEM = "Load the other table by the same job with --mode sync, or use --sync-delete 'SET deleted_at = now()'."


def read_assignments(text: str) -> Mapping[str, str]:
    """Return the columns that --sync-delete sets, each with its expression. Without any, rows are deleted.

    Raises UsageError.

    >>> read_assignments("SET Gone = coalesce(gone, now()), by = 'x'")
    {'gone': ' coalesce(gone, now())', 'by': " 'x'"}
    """
    if text == DELETE:
        return {}
    parts = split_list(text[4:]) if re.match(r"(?i)set\s", text) else []
    matches = [match for match in map(_ASSIGNMENT.fullmatch, parts) if match is not None]
    found = {match[1].replace('""', '"') if match[1] else match[2].lower(): match[3] for match in matches}
    if not found or len(found) < len(parts):
        raise UsageError(f"invalid value {shlex.quote(text)} for --sync-delete", hint=_HOW)
    return found


def check_assignments(job: TargetJob) -> None:
    """Raise UsageError if --set gives a column of --sync-delete no constant value for the rows that the files have."""
    for column in read_assignments(job.sync_delete):
        value = job.set.get(column, DEFAULT_PLACEHOLDER)
        if value == DEFAULT_PLACEHOLDER or FILENAME_PLACEHOLDER in value:
            raise UsageError(
                f'column "{column}" of --sync-delete needs a value by --set',
                detail="Rows that the files have get this value, and only rows that have it are changed.",
                hint=f"Use --set {shlex.quote(f'{column}={NULL_PLACEHOLDER}')} if it is null in these rows.",
            )


class MissingRows:
    """The rows of one target's table whose keys no staged record has. Methods raise PenstockError."""

    def __init__(self, connection: Connection, landing: TargetLanding, staging: TableName | None) -> None:
        assert staging is not None
        self._connection = connection
        self.landing = landing
        self._job, self._name = landing.target.job, landing.facts.name
        # Tables that inherit from the table are not synced. Partitions are.
        self._table = sql.SQL("ONLY " if landing.facts.kind == "r" else "") + table_identifier(self._name)
        self._assignments = read_assignments(self._job.sync_delete)
        absent = lacks_record(find_key(connection, landing.facts, self._job.key), staging, self._name.name)
        self._condition = sql.SQL(" AND ").join([absent, *map(self._is_unmarked, self._assignments)])
        # The number of missing rows before the merge, and the number of all rows if --max-delete is below 100 %.
        self.expected = 0
        self._all: int | None = None

    def check(self) -> None:
        """Make the server plan the statement without running it, before anything is staged."""
        self._execute(sql.SQL("EXPLAIN ") + self._compose())

    def foresee(self) -> None:
        """Count the missing rows before the merge. Raises DeleteLimitError if --max-delete allows fewer."""
        self.expected = self._count(sql.SQL(" WHERE ") + self._condition)
        if self.expected and self._job.max_delete < 100:
            self._all = self._count(sql.SQL(""))
            self._refuse_too_many(self.expected)

    def delete(self, context: LandingContext) -> int:
        """Delete or change the missing rows, and return their number. Call it after the merges."""
        if not self.expected:
            return 0
        refuse_unended(context, self.landing.facts, verb="sync")
        deleted = self._execute(self._compose()).rowcount
        self._refuse_too_many(deleted)
        return deleted

    def describe_kept(self, lack: str) -> Notice:
        """Return the warning that no row is deleted, because the load lacks records of its sources."""
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

    def _is_unmarked(self, column: str) -> sql.Composed:
        """Return the condition that a column has the value that --set gives it in rows that the files have."""
        value = self._job.set[column]
        known = sql.SQL("NULL") if value == NULL_PLACEHOLDER else sql.Literal(value)
        return sql.SQL("{} IS NOT DISTINCT FROM {}").format(sql.Identifier(self._name.name, column), known)

    def _compose(self) -> sql.Composed:
        if not self._assignments:
            return sql.SQL("DELETE FROM {} WHERE {}").format(self._table, self._condition)
        # The line break ends a comment.
        sets = [sql.SQL("{} ={}\n").format(sql.Identifier(name), sql.SQL(to)) for name, to in self._assignments.items()]
        return sql.SQL("UPDATE {} SET {} WHERE {}").format(self._table, sql.SQL(", ").join(sets), self._condition)

    def _count(self, where: sql.Composable) -> int:
        query = sql.SQL("SELECT pg_catalog.count(*) FROM {}{}").format(self._table, where)
        return int(self._execute(query).fetchall()[0][0])

    def _execute(self, statement: sql.Composed) -> psycopg.Cursor[Any]:
        try:
            with users_settings(self._connection):
                # A binary result requires the extended protocol, which accepts only one statement.
                return self._connection.cursor().execute(statement, binary=True)
        except psycopg.Error as error:
            explained = to_penstock_error(error, f"syncing {self._name}")
            if error.sqlstate == _SYNTAX_ERROR:
                raise UsageError(f"--sync-delete: {explained.message}", hint=_HOW, sqlstate=error.sqlstate) from error
            if error.sqlstate in _REFERENCED:
                explained.hint = _FREE_THEM
            raise explained from error
