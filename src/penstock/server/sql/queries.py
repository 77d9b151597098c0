"""The .sql files: found by name and server version, run, and turned into typed rows.

A file runs in psql as it stands; its header says how (`psql -v name=value ... -f file`). psql's `:'name'`
becomes a parameter here. `table.pg17.sql` is the variant for PostgreSQL 17 and later: the newest that fits
the server is taken.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any, TypeVar

from psycopg.rows import class_row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from penstock.server.connect.connection import Connection

Row = TypeVar("Row")

_FILE_NAME = re.compile(r"(?P<query>[a-z_]+)(?:\.pg(?P<major>\d+))?\.sql")
_VARIABLE = re.compile(r"(?<!:):'(?P<name>[a-z_]+)'")


def choose_file(file_names: Iterable[str], query: str, *, major: int) -> str:
    """Return the newest variant of `query` that a server of `major` version can run.

    >>> choose_file(["a.sql", "a.pg16.sql", "a.pg18.sql"], "a", major=17)
    'a.pg16.sql'
    """
    variants = {
        int(match["major"] or 0): match[0]
        for match in map(_FILE_NAME.fullmatch, file_names)
        if match and match["query"] == query
    }
    return variants[max(since for since in variants if since <= major)]


def to_parameters(text: str) -> str:
    """Return psql's text with its variables as psycopg's parameters.

    >>> to_parameters("SELECT :'oid'::oid % 2")
    'SELECT %(oid)s::oid %% 2'
    """
    return _VARIABLE.sub(r"%(\g<name>)s", text.replace("%", "%%"))


def fetch_rows(connection: Connection, query: str, row_type: type[Row], **parameters: object) -> list[Row]:
    """Run a named query and return its rows; each column becomes the field of that name."""
    return send_query(connection, query, row_type, **parameters)()


def send_query(
    connection: Connection, query: str, row_type: type[Row], **parameters: object
) -> Callable[[], list[Row]]:
    """Do as `fetch_rows`, where the connection is in a pipeline without waiting; what is returned gives the rows.

    Ask for them behind the pipeline: within it, that is a round trip of its own.
    """
    statement = _load(query, connection.info.server_version // 10_000)
    return connection.cursor(row_factory=class_row(row_type)).execute(statement, parameters).fetchall


def fetch_many(connection: Connection, queries: Iterable[tuple[str, type]], **parameters: object) -> list[list[Any]]:
    """Run named queries that take the same parameters in one round trip; return the rows of each as its row type."""
    with connection.pipeline():
        fetches: list[Callable[[], list[Any]]] = [
            send_query(connection, query, row_type, **parameters) for query, row_type in queries
        ]
    return [fetch() for fetch in fetches]


@cache
def _load(query: str, major: int) -> bytes:
    folder = resources.files("penstock.server") / "sql"
    name = choose_file((entry.name for entry in folder.iterdir()), query, major=major)
    return to_parameters((folder / name).read_text(encoding="utf-8")).encode()
