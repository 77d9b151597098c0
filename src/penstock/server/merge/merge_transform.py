"""The user's own statement that takes records from a staging table on: `--transform FILE.sql`.

The file holds one INSERT or MERGE in which `:staging` stands for the staging table, as psql would have it
(`psql -v staging=schema.table -f FILE.sql` runs the file as it stands). The table's columns are text, named as the
file's, and followed by those of model/load/landing.py, by which a statement can tell which of two records came first.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg
from psycopg import sql

from penstock.errors import PenstockError, UsageError
from penstock.model.load.job import Transform
from penstock.server.connect.errors import to_penstock_error
from penstock.server.connect.search_path import users_path

if TYPE_CHECKING:
    from penstock.model.server.table import TableName
    from penstock.server.connect.connection import Connection

__all__ = ["PLACEHOLDER", "Transform", "check_transform", "find_place", "place_table", "run_transform", "to_original"]

PLACEHOLDER = ":staging"

# What the placeholder is not looked for in: strings, quoted names, dollar quotes, comments (which nest, see below).
# `::staging` is a cast. Source: src/bin/psql/psqlscan.l, src/backend/parser/scan.l
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

# The statements that take rows somewhere and report how many, as EXPLAIN names them.
_OPERATIONS = ("Insert", "Merge")

_HOW = "Write INSERT INTO ... SELECT ... FROM :staging."

_EXPLAIN = "EXPLAIN (FORMAT JSON) "


class CommandTag(NamedTuple):
    """What the server says of a statement that it has run, and the number of rows in that."""

    text: str
    rows: int


def check_transform(connection: Connection, transform: Transform, *, staging: TableName) -> None:
    """Have the server plan a statement without running it, so that a slip shows before anything is loaded.

    Raises UsageError where it is not one INSERT or MERGE that mentions `:staging`, and what the server objects to with
    its place in the file: TargetError, DataError (a constant of the wrong type), ServerError.
    """
    rows = _execute(connection, transform, staging, prefix=_EXPLAIN).fetchall()
    # A rule may make several statements of one.
    operations = [plan["Plan"].get("Operation") for (value,) in rows for plan in value if "Plan" in plan]
    if not any(operation in _OPERATIONS for operation in operations):
        raise UsageError(
            f"the statement of {transform.name} is neither an INSERT nor a MERGE",
            detail="No other statement reports how many rows it stored.",
            hint=_HOW,
        )


def run_transform(connection: Connection, transform: Transform, *, staging: TableName) -> CommandTag:
    """Run a statement on a staging table and return what the server reports of it.

    It is planned first and runs only where check_transform has nothing to say, so it cannot end the caller's
    transaction. Raises what check_transform does.
    """
    check_transform(connection, transform, staging=staging)
    cursor = _execute(connection, transform, staging, prefix="")
    return CommandTag(text=cursor.statusmessage or "", rows=cursor.rowcount)


def place_table(text: str, table: str) -> tuple[str, list[int]]:
    r"""Return the text with the table's name for each placeholder, and where in the text the placeholders stood.

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


def find_place(text: str, position: int) -> tuple[int, int]:
    r"""Return line and column, both from 1, of a character's index in a text.

    >>> find_place("SELECT 1\n  FROM x", 11)
    (2, 3)
    """
    before = text[:position]
    return before.count("\n") + 1, position - (before.rfind("\n") + 1) + 1


def to_original(position: int, *, table: str, found: list[int]) -> int:
    """Return where in the file a character of the placed text stands; one of the table's name at its placeholder.

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
        with users_path(connection):
            # The extended protocol, which a binary result asks for, takes one statement only.
            return connection.cursor().execute((prefix + statement).encode(), binary=True)
    except psycopg.Error as error:
        explained = to_penstock_error(error, f"running {transform.name}")
        position = error.diag.statement_position
        place = transform.name
        if position is not None:
            index = to_original(int(position) - 1 - len(prefix), table=table, found=found)
            line, column = find_place(transform.text, max(index, 0))
            place = f"{transform.name} line {line}, column {column}"
        raise _name_place(explained, place) from error


def _name_place(error: PenstockError, place: str) -> PenstockError:
    error.detail = f"{place}.\n{error.detail}"
    if error.sqlstate == "42601":
        # A syntax error is the file's, whatever the target looks like.
        return UsageError(
            error.message,
            detail=error.detail,
            hint="Correct the statement; it must be one INSERT or MERGE.",
            sqlstate=error.sqlstate,
        )
    return error
