"""Composes and runs the statements that store staged records: merges and the user's transforms. Reads their counts.

The merge runs in the caller's transaction, in which the caller records what was merged and drops the staging table. The
position in the files decides which one of several records with the same key is used. The table's unique index decides
whether two keys are equal (merge_key.py). merges.py runs the statement once, merge_sorting.py in stretches.
The server counts what the statement does with each record: EXPLAIN ANALYZE runs it and returns how many records were
proposed, how many conflicted with a row of their key, and how many were stored (docs/decisions/0009).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import psycopg
from psycopg import sql

from penstock.core.catalogue.staging import POSITION_COLUMNS
from penstock.core.connect.connection import Connection
from penstock.core.connect.errors import to_penstock_error, translate_errors
from penstock.core.connect.search_path import users_settings
from penstock.core.errors import PenstockError, TargetError, UsageError
from penstock.core.slotted import slotted
from penstock.core.sql import fetch_one, list_identifiers, table_identifier
from penstock.core.values.job import Keep, Transform
from penstock.core.values.table import TableFacts, TableName
from penstock.ledger.values import MergeCounts
from penstock.loading.land.merge_key import Key, conflict_target, find_key, key_order, key_terms, tell_unequal

_COMMA = sql.SQL(", ")

# The beginning of a statement that makes the server count its records. Without times and buffers, counting costs almost
# nothing.
COUNTING = sql.SQL("EXPLAIN (ANALYZE, VERBOSE OFF, COSTS OFF, BUFFERS OFF, TIMING OFF, SUMMARY OFF, FORMAT JSON) ")

# The values of "Parent Relationship" in EXPLAIN for a node whose rows its parent node reads. Other values, such as
# InitPlan and SubPlan, mean subqueries (explain.c).
_INPUTS = ("Outer", "Subquery")


def hold_count(table: TableName, stored: int, *, records: int) -> None:
    """Raise TargetError unless `stored`, the number of records that a statement has stored or skipped, is `records`.

    `records` is the number of records that were sent to the staging table.
    """
    if stored != records:
        raise TargetError(
            f'{stored:,} of {records:,} records were stored in table "{table}"',
            detail="Rows of the staging table were removed or added, or the statement was rewritten.",
            hint="Look for rules on the table: COPY ignores them, INSERT does not.",
        )


@slotted
class PlanCounts:
    """The counts in EXPLAIN ANALYZE's plan of INSERT ... SELECT ... ON CONFLICT ... RETURNING."""

    # The rows that were read.
    staged: int
    # The rows that reached the table.
    proposed: int
    # The proposed rows that met a row with their key.
    conflicts: int
    # The rows that were returned.
    stored: int


@slotted
class MergeParts:
    """The parts of the statement that merges a staging table into its target, and of its variants."""

    staging: TableName
    target: TableFacts
    columns: tuple[str, ...]
    # The key by which records are merged, None if all records are inserted.
    key: Key | None = None
    # Whether a record updates the row with its key. If not, the record is skipped.
    updates: bool = False
    # Whether the last of several records with the same key is used, not the first.
    keeps_last: bool = False
    # Whether two records with the same key are an error.
    refuses_duplicates: bool = False

    def compose_order(self, *, is_rejecting: bool = False) -> tuple[sql.Composable, sql.Composed]:
        """Return what follows SELECT, and what follows ORDER BY, in the query that chooses the records for the table.

        The first is DISTINCT ON with a key, and empty without one. With a key, the records are in the key's order, so
        that two concurrent merges lock rows in the same order. Without a key, they are in file order. `is_rejecting`
        says that the merge continues if the table refuses records.
        """
        if self.key is None:
            return sql.SQL(""), list_identifiers(POSITION_COLUMNS)
        # Records with null in a NOT NULL column are no duplicates of each other if each of them is refused separately,
        # or if a trigger may replace the null.
        with_not_null = is_rejecting or bool(self.target.suppressing_triggers)
        unequal = tell_unequal(self.key, with_not_null=with_not_null)
        direction = sql.SQL(" DESC" if self.keeps_last else "")
        positions = (sql.Identifier(name) + direction for name in POSITION_COLUMNS)
        distinct = sql.SQL("DISTINCT ON ({})").format(_COMMA.join([*key_terms(self.key), *unequal]))
        return distinct, _COMMA.join([*key_order(self.key), *unequal, *positions])

    def compose_group(self, chosen: sql.Identifier) -> tuple[sql.Composed, sql.Composable]:
        """Return the statement that stores records of table `chosen`, in two parts: before and after its WHERE clause.

        The alias of `chosen` is s. With a key, the statement is an EXPLAIN ANALYZE, whose plan has the server's counts.
        """
        insert = _compose_insert(self.target, self.columns)
        select = sql.SQL(" SELECT {} FROM {} AS s").format(list_identifiers(self.columns), chosen)
        if self.key is None:
            return insert + select, sql.SQL("")
        return COUNTING + insert + select, self._compose_conflict()

    def compose(self) -> sql.Composed:
        """Return the INSERT that stores all staged records, one for each key. It does not count them."""
        distinct, order = self.compose_order()
        select = sql.SQL(" SELECT {} {} FROM {} ORDER BY {}").format(
            distinct, list_identifiers(self.columns), table_identifier(self.staging), order
        )
        statement = _compose_insert(self.target, self.columns) + select
        return statement if self.key is None else statement + self._compose_conflict()

    def count(self, counted: PlanCounts) -> MergeCounts:
        """Return how many records the statement inserted, updated, skipped and so on, given the server's counts."""
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
    """Return the parts of the statement that merges a staging table into a table. Without a key, it only inserts.

    `columns` are the columns of the files, `key` those of the key. `keep` decides, by file order, which of several
    records with the same key updates the row. If the merge does not update rows, the first of them is inserted. Raises
    TargetError if there is no unique index on the key, and ServerError.
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
    """Make the server plan a merge by EXPLAIN, without running it, before anything is staged.

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
    """Return the counts of an ON CONFLICT DO UPDATE. `has_insert_triggers` says that triggers on INSERT may skip rows.

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
    """Return the counts of an ON CONFLICT DO NOTHING, which skips every record that conflicts with a row."""
    return MergeCounts(
        staged=counted.staged,
        duplicates=counted.staged - counted.proposed,
        inserted=counted.stored,
        existing=counted.conflicts,
        suppressed=counted.proposed - counted.conflicts - counted.stored,
    )


def read_plan(plan: Mapping[str, Any]) -> PlanCounts:
    """Return the counts in the plan of an INSERT ... SELECT from one table.

    `plan` is the member "Plan" of what EXPLAIN (ANALYZE, FORMAT JSON) returns.
    """
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


def read_changed(plan: Mapping[str, Any]) -> tuple[int, int]:
    """Return how many rows a DELETE or UPDATE with RETURNING found, and how many it changed.

    `plan` is the member "Plan" of what EXPLAIN (ANALYZE, FORMAT JSON) returns.
    """
    source = _find_input(plan)
    found = 0 if source is None else round(source["Actual Rows"] * source["Actual Loops"])
    return found, round(plan["Actual Rows"])


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


PLACEHOLDER = ":staging"

# Finds each placeholder, and the tokens in which it means nothing: strings, quoted names,
# dollar quotes, the beginning of a comment (comments nest, see _COMMENT_ENDS), and `::`, as in `::staging`. Source:
# src/bin/psql/psqlscan.l, src/backend/parser/scan.l
_TOKENS = re.compile(
    r"""
      (?<![\w$])[eE]'(?:[^'\\]|\\.|'')*'
    | '(?:[^']|'')*'
    | "(?:[^"]|"")*"
    | (?<![\w$])\$(?P<tag>(?:[^\W\d]\w*)?)\$.*?\$(?P=tag)\$
    | --[^\n]*
    | (?P<comment>/\*)
    | ::
    | (?P<placeholder>:staging)(?![\w])
    """,
    re.VERBOSE | re.DOTALL,
)
_COMMENT_ENDS = re.compile(r"/\*|\*/")

# The operations that store rows and report their number, in EXPLAIN's words.
_OPERATIONS = ("Insert", "Merge")

_HOW = "Write INSERT INTO ... SELECT ... FROM :staging."

_EXPLAIN = "EXPLAIN (FORMAT JSON) "


class CommandTag(NamedTuple):
    """The server's command tag of a statement, such as INSERT 0 5, and the row count in it."""

    text: str
    rows: int


def check_transform(connection: Connection, transform: Transform, *, staging: TableName) -> None:
    """Make the server plan a transform's statement without running it, so that errors are found before the load.

    Raises UsageError if the statement is not one INSERT or MERGE that uses `:staging`. Raises the server's errors with
    the line and column in the transform's file: TargetError, DataError (for a constant of the wrong type), ServerError.
    """
    rows = _execute(connection, transform, staging, prefix=_EXPLAIN).fetchall()
    # Look at all plans, because a rule may rewrite one statement to several.
    operations = [plan["Plan"].get("Operation") for (value,) in rows for plan in value if "Plan" in plan]
    if not any(operation in _OPERATIONS for operation in operations):
        raise UsageError(
            f"the statement of {transform.name} is neither an INSERT nor a MERGE",
            detail="No other statement reports how many rows it stored.",
            hint=_HOW,
        )


def run_transform(connection: Connection, transform: Transform, *, staging: TableName) -> CommandTag:
    """Run a transform's statement on a staging table and return the server's command tag.

    check_transform is called first, so the statement cannot end the caller's transaction. Raises the same errors as
    check_transform.
    """
    check_transform(connection, transform, staging=staging)
    cursor = _execute(connection, transform, staging, prefix="")
    return CommandTag(text=cursor.statusmessage or "", rows=cursor.rowcount)


def place_table(text: str, table: str) -> tuple[str, list[int]]:
    r"""Replace each `:staging` outside of strings and comments by a table's name.

    Return the new text, and the index of each `:staging` in the old text.

    >>> place_table("SELECT ':staging' FROM :staging s", '"a"."b"')
    ('SELECT \':staging\' FROM "a"."b" s', [23])
    """
    parts, found = [], []
    start = at = 0
    while token := _TOKENS.search(text, at):
        at = token.end()
        if token["comment"]:
            at = _end_of_comment(text, at)
        elif token["placeholder"]:
            found.append(token.start())
            parts += [text[start : token.start()], table]
            start = at
    return "".join([*parts, text[start:]]), found


def remove_literals(text: str) -> str:
    """Return a statement with a blank in the place of each comment, and an empty string for each string or quoted name.

    >>> remove_literals("DELETE FROM a WHERE op = 'delete' -- delete")
    "DELETE FROM a WHERE op = ''  "
    """
    parts = []
    start = at = 0
    while token := _TOKENS.search(text, at):
        at = _end_of_comment(text, token.end()) if token["comment"] else token.end()
        if not token["placeholder"] and token[0] != "::":
            is_comment = token["comment"] or token[0].startswith("--")
            parts += [text[start : token.start()], " " if is_comment else "''"]
            start = at
    return "".join([*parts, text[start:]])


def locate_character(text: str, position: int) -> tuple[int, int]:
    r"""Return the line and column, both from 1, of the character at index `position` in a text.

    >>> locate_character("SELECT 1\n  FROM x", 11)
    (2, 3)
    """
    before = text[:position]
    return before.count("\n") + 1, position - (before.rfind("\n") + 1) + 1


def to_original(position: int, *, table: str, found: list[int]) -> int:
    """Return the index in the transform's file for an index in the text that place_table returned.

    A character of the table's name has the index of its placeholder. `table` and `found` are what place_table was given
    and returned.

    >>> to_original(25, table='"a"."b"', found=[10])
    26
    """
    shift = 0
    for start in found:
        placed = start + shift
        if position < placed:
            break
        if position < placed + len(table):
            return start
        shift += len(table) - len(PLACEHOLDER)
    return position - shift


def _end_of_comment(text: str, at: int) -> int:
    depth = 1
    while depth and (mark := _COMMENT_ENDS.search(text, at)):
        depth += 1 if mark[0] == "/*" else -1
        at = mark.end()
    return at if not depth else len(text)


def _execute(
    connection: Connection, transform: Transform, staging: TableName, *, prefix: str
) -> psycopg.Cursor[tuple[Any, ...]]:
    assert staging.schema is not None
    table = sql.Identifier(staging.schema, staging.name).as_string(connection)
    statement, found = place_table(transform.text, table)
    if not found:
        raise UsageError(
            f"{transform.name} does not use {PLACEHOLDER}",
            detail=f"{PLACEHOLDER} stands for the table that holds the files' records.",
            hint=_HOW,
        )
    try:
        with users_settings(connection):
            # A binary result requires the extended protocol, which accepts only one statement.
            return connection.cursor().execute((prefix + statement).encode(), binary=True)
    except psycopg.Error as error:
        explained = to_penstock_error(error, f"running {transform.name}")
        position = error.diag.statement_position
        place = transform.name
        if position is not None:
            index = to_original(int(position) - 1 - len(prefix), table=table, found=found)
            line, column = locate_character(transform.text, max(index, 0))
            place = f"{transform.name} line {line}, column {column}"
        raise _name_place(explained, place) from error


def _name_place(error: PenstockError, place: str) -> PenstockError:
    error.detail = f"{place}.\n{error.detail}"
    if error.sqlstate == "42601":
        # Raise UsageError for a syntax error, because the file causes it, not the target.
        return UsageError(
            error.message,
            detail=error.detail,
            hint="Correct the statement; it must be one INSERT or MERGE.",
            sqlstate=error.sqlstate,
        )
    return error
