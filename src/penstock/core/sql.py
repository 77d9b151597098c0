"""Runs queries and returns their rows as dataclasses: the .sql files, by name and server version, and short queries.

The query "temp/place" is the file temp/sql/place.sql. A file runs in psql unchanged; its header says how
(`psql -v name=value ... -f file`). psql's `:'name'` becomes a parameter here. `table.pg17.sql` is the variant for
PostgreSQL 17 and later. The newest variant that the server can run is used.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any, LiteralString, TypeVar

from psycopg.rows import class_row
from psycopg.sql import SQL, Composed, Identifier

from penstock.core.connect.connection import Connection
from penstock.core.frozen import frozen

if TYPE_CHECKING:
    from psycopg.abc import Params

    from penstock.core.values.table import TableName


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
    """Replace psql's variables in a text by psycopg's parameters.

    >>> to_parameters("SELECT :'oid'::oid % 2")
    'SELECT %(oid)s::oid %% 2'
    """
    return _VARIABLE.sub(r"%(\g<name>)s", text.replace("%", "%%"))


@frozen
class NameRow:
    """The row of a query with a single column."""

    name: str


def table_identifier(name: TableName) -> Identifier:
    """Return a table's name as SQL. Without a schema, search_path applies."""
    return Identifier(name.name) if name.schema is None else Identifier(name.schema, name.name)


def list_identifiers(names: Iterable[str]) -> Composed:
    """Return names as SQL, separated by commas."""
    return SQL(", ").join(map(Identifier, names))


def fetch_one(
    connection: Connection, query: LiteralString | bytes | SQL | Composed, parameters: Params | None = None
) -> tuple[Any, ...]:
    """Run a query that returns exactly one row, and return that row."""
    row = connection.execute(query, parameters).fetchone()
    assert row is not None
    return row


def fetch_as(
    connection: Connection, row_type: type[Row], query: SQL | Composed, parameters: Params | None = None
) -> list[Row]:
    """Run a query and return its rows. Each column becomes the field of the same name."""
    return connection.cursor(row_factory=class_row(row_type)).execute(query, parameters).fetchall()


def change_setting(connection: Connection, name: str, value: str) -> str:
    """Change a setting until the end of the transaction, and return its old value."""
    query = "SELECT pg_catalog.current_setting(%s), pg_catalog.set_config(%s, %s, true)"
    return str(fetch_one(connection, query, [name, name, value])[0])


def fetch_rows(connection: Connection, query: str, row_type: type[Row], **parameters: object) -> list[Row]:
    """Run a named query and return its rows. Each column becomes the field of the same name."""
    return send_query(connection, query, row_type, **parameters)()


def fetch_names(connection: Connection, query: str, **parameters: object) -> list[str]:
    """Run a named query that returns a column `name`, and return its values."""
    return [row.name for row in fetch_rows(connection, query, NameRow, **parameters)]


def send_query(
    connection: Connection, query: str, row_type: type[Row], **parameters: object
) -> Callable[[], list[Row]]:
    """Send a named query as `fetch_rows` does.

    The returned function returns the rows. In a pipeline this does not wait.

    Call that function after the end of the pipeline. Within the pipeline, it would cost its own round trip.
    """
    statement = _load(query, connection.info.server_version // 10_000)
    return connection.cursor(row_factory=class_row(row_type)).execute(statement, parameters).fetchall


def fetch_many(connection: Connection, queries: Iterable[tuple[str, type]], **parameters: object) -> list[list[Any]]:
    """Run named queries with the same parameters in one round trip. Return the rows of each as its row type."""
    with connection.pipeline():
        fetches: list[Callable[[], list[Any]]] = [
            send_query(connection, query, row_type, **parameters) for query, row_type in queries
        ]
    return [fetch() for fetch in fetches]


@cache
def _load(query: str, major: int) -> bytes:
    feature, _, file = query.partition("/")
    folder = resources.files(f"penstock.{feature}") / "sql"
    name = choose_file((entry.name for entry in folder.iterdir()), file, major=major)
    return to_parameters((folder / name).read_text(encoding="utf-8")).encode()
