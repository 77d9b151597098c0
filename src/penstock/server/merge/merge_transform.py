"""Runs the user's own statement for staged records: `--transform FILE.sql`.

The file contains one INSERT or MERGE that uses `:staging` as the name of the staging table, as in psql (`psql -v
staging=schema.table -f FILE.sql` runs the file unchanged). The columns of the staging table have type text and the
names of the file's columns. They are followed by the columns of model/load/landing.py, which show which of two records
comes first.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import psycopg
from psycopg import sql

from penstock.errors import PenstockError, UsageError
from penstock.model.load.job import Transform
from penstock.model.server.table import TableName
from penstock.server.connect.connection import Connection
from penstock.server.connect.errors import to_penstock_error
from penstock.server.connect.search_path import users_settings

PLACEHOLDER = ":staging"

# The placeholder is not replaced in these tokens: strings, quoted names, dollar quotes, comments (which nest, see
# below). `::staging` is a cast. Source: src/bin/psql/psqlscan.l, src/backend/parser/scan.l
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
    """The server's command tag of a statement, and the row count in it."""

    text: str
    rows: int


def check_transform(connection: Connection, transform: Transform, *, staging: TableName) -> None:
    """Make the server plan a statement without running it, so that errors are found before anything is loaded.

    Raises UsageError if it is not one INSERT or MERGE that uses `:staging`. Raises the server's errors with the
    position in the file: TargetError, DataError (for a constant of the wrong type), ServerError.
    """
    rows = _execute(connection, transform, staging, prefix=_EXPLAIN).fetchall()
    # A rule may rewrite one statement to several.
    operations = [plan["Plan"].get("Operation") for (value,) in rows for plan in value if "Plan" in plan]
    if not any(operation in _OPERATIONS for operation in operations):
        raise UsageError(
            f"the statement of {transform.name} is neither an INSERT nor a MERGE",
            detail="No other statement reports how many rows it stored.",
            hint=_HOW,
        )


def run_transform(connection: Connection, transform: Transform, *, staging: TableName) -> CommandTag:
    """Run a statement on a staging table and return the server's command tag.

    check_transform runs first, so the statement cannot end the caller's transaction. Raises the same as
    check_transform.
    """
    check_transform(connection, transform, staging=staging)
    cursor = _execute(connection, transform, staging, prefix="")
    return CommandTag(text=cursor.statusmessage or "", rows=cursor.rowcount)


def place_table(text: str, table: str) -> tuple[str, list[int]]:
    r"""Replace each placeholder by the table's name. Return the new text and the placeholders' old positions.

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


def find_position(text: str, position: int) -> tuple[int, int]:
    r"""Return the line and column, both from 1, of a character's index in a text.

    >>> find_position("SELECT 1\n  FROM x", 11)
    (2, 3)
    """
    before = text[:position]
    return before.count("\n") + 1, position - (before.rfind("\n") + 1) + 1


def to_original(position: int, *, table: str, found: list[int]) -> int:
    """Return the position in the file for a position in the text that place_table returned.

    A character of the table's name has the position of its placeholder. `found` are the placeholders' positions in the
    file.

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
            line, column = find_position(transform.text, max(index, 0))
            place = f"{transform.name} line {line}, column {column}"
        raise _name_place(explained, place) from error


def _name_place(error: PenstockError, place: str) -> PenstockError:
    error.detail = f"{place}.\n{error.detail}"
    if error.sqlstate == "42601":
        # A syntax error is caused by the file, not by the target.
        return UsageError(
            error.message,
            detail=error.detail,
            hint="Correct the statement; it must be one INSERT or MERGE.",
            sqlstate=error.sqlstate,
        )
    return error
