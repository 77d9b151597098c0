r"""Runs queries and returns their rows as dataclasses: the .sql files, by name and server version, and short queries.

The query "temp/place" is the file temp/sql/place.sql; a package outside penstock is named whole, as
"penstock_lab.topology/received". A file runs in psql unchanged; its header says how (`psql -v
name=value ... -f file`). This module replaces psql's `:'name'` by a parameter, and `:"name"` by the value of `name` as
a quoted identifier. `table.pg17.sql` is the variant for PostgreSQL 17 and later. The newest variant that the server can
run is used.

Text that several files share is in a file of sql/parts. After "\set name `cat parts/name.sql`", `:name` in the file
stands for that text. The text can contain `:name` of another part, if the file sets that part too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from importlib import resources
from typing import TYPE_CHECKING, Any, LiteralString, TypeVar

from psycopg.rows import class_row, kwargs_row, tuple_row
from psycopg.sql import SQL, Composed, Identifier

from penstock.core.connect.connection import Connection
from penstock.core.slotted import slotted
from penstock.core.values.table import TableName

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

    import psycopg
    from psycopg.abc import Params


Row = TypeVar("Row")

_FILE_NAME = re.compile(r"(?P<query>[a-z_]+)(?:\.pg(?P<major>\d+))?\.sql")
# The patterns of psql's variables. Each pattern begins with the colon and only then looks back for the second colon of
# a cast, because a search for a fixed first character is fast. A load searches about 20 files when it begins.
_VARIABLE = re.compile(r":(?<!::)'(?P<name>[a-z_]+)'")
_IDENTIFIER = re.compile(r':(?<!::)"(?P<name>[a-z_]+)"')
_PART = re.compile(r"^\\set (?P<name>[a-z_]+) `cat (?P<file>[a-z_./]+)`\n", re.MULTILINE)
_USE = re.compile(r":(?<!::)(?P<name>[a-z_]+)")
_COMMENT = re.compile(r"^ *--.*\n", re.MULTILINE)


def choose_file(file_names: Iterable[str], query: str, *, major: int) -> str:
    """Return the name of the newest variant of a query's file that a server of major version `major` can run.

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
    """Return a text with psycopg's parameters in place of psql's variables.

    >>> to_parameters("SELECT :'oid'::oid % 2")
    'SELECT %(oid)s::oid %% 2'
    """
    return _VARIABLE.sub(r"%(\g<name>)s", text.replace("%", "%%"))


def to_names(text: str, values: Mapping[str, object]) -> str:
    """Return a text with `values`, as quoted identifiers, in place of psql's variables for identifiers.

    >>> to_names('SELECT FROM :"ledger".loads', {"ledger": "Loads of 2026"})
    'SELECT FROM "Loads of 2026".loads'
    """
    quoted = {name: Identifier(str(value)).as_string(None) for name, value in values.items()}
    return _IDENTIFIER.sub(lambda found: quoted[found["name"]], text)


def put_parts(text: str, read: Callable[[str], str]) -> str:
    r"""Return a text with the contents of files in place of the variables that the text sets from these files.

    `read` returns the contents of a file. The files are in sql/parts.

    >>> put_parts("\\set now `cat parts/now.sql`\nSELECT :now, 1::int\n", {"parts/now.sql": "now()\n"}.get)
    'SELECT now(), 1::int\n'
    """
    parts = {found["name"]: _COMMENT.sub("", read(found["file"])).strip() for found in _PART.finditer(text)}
    if not parts:
        return text

    def put(found: re.Match[str]) -> str:
        part = parts.get(found["name"])
        return found[0] if part is None else _USE.sub(put, part)

    return _USE.sub(put, _PART.sub("", text))


def split_statements(text: str) -> list[str]:
    r"""Return the statements of a text, without comments. In the text, each ends with a semicolon at the end of a line.

    >>> split_statements("-- Two:\nCREATE TABLE t ();\nDROP TABLE t;\n")
    ['CREATE TABLE t ()', 'DROP TABLE t']
    """
    return [each.strip() for each in _COMMENT.sub("", text).split(";\n") if each.strip()]


@slotted
class NameRow:
    """The row of a query with a single column `name`."""

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


def run_query(
    connection: psycopg.Connection[Any], query: str, /, **parameters: object
) -> psycopg.Cursor[tuple[Any, ...]]:
    """Run the query of a .sql file, and return the cursor, whose rows are tuples. Raises psycopg.Error.

    `query` names the file: "temp/place" is temp/sql/place.sql. `parameters` are the values of the file's psql
    variables. In a pipeline, this does not wait for the server.
    """
    return connection.cursor(row_factory=tuple_row).execute(_prepare(connection, query, parameters), parameters)


def fetch_rows(connection: Connection, query: str, row_type: Callable[..., Row], /, **parameters: object) -> list[Row]:
    """Run the query of a .sql file, and return each row as an object that `row_type` makes.

    `query` names the file: "temp/place" is temp/sql/place.sql. Each column is passed to `row_type` as the argument of
    the same name. `parameters` are the values of the file's psql variables. Raises psycopg.Error.
    """
    return send_query(connection, query, row_type, **parameters)()


def fetch_names(connection: Connection, query: str, **parameters: object) -> list[str]:
    """Run the query of a .sql file, and return the values of its column `name`. Raises psycopg.Error."""
    return [row.name for row in fetch_rows(connection, query, NameRow, **parameters)]


def send_query(
    connection: Connection, query: str, row_type: Callable[..., Row], /, **parameters: object
) -> Callable[[], list[Row]]:
    """Send the query of a .sql file, and return a function that fetches its rows. `fetch_rows` has the parameters.

    In a pipeline, sending does not wait for the server. Call the returned function after the end of the pipeline:
    within the pipeline, the call would cost a round trip of its own.
    """
    cursor = connection.cursor(row_factory=kwargs_row(row_type))
    return cursor.execute(_prepare(connection, query, parameters), parameters).fetchall


def fetch_many(connection: Connection, queries: Iterable[tuple[str, type]], **parameters: object) -> list[list[Any]]:
    """Run the queries of several .sql files in one round trip, and return the rows of each query.

    `queries` has the name of each file and the type of its rows. `parameters` are the values of the psql variables of
    every file. Raises psycopg.Error.
    """
    with connection.pipeline():
        fetches: list[Callable[[], list[Any]]] = [
            send_query(connection, query, row_type, **parameters) for query, row_type in queries
        ]
    return [fetch() for fetch in fetches]


def read_query(connection: Connection, query: str) -> SQL:
    """Return the text of a .sql file without parameters, to be composed into another query."""
    return SQL(_load(query, _major(connection)).rstrip().removesuffix(";"))


def read_statements(query: str, **names: str) -> list[SQL]:
    """Return the statements of a .sql file that contains several.

    `names` are the values of its psql variables for identifiers. The file has no parameters, and no variants for
    versions of the server. It may be in a folder of sql/, as "ledger/upgrades/10" is.
    """
    feature, _, file = query.partition("/")
    text = put_parts(_read(feature, f"{file}.sql"), partial(_read, feature))
    return [SQL(to_names(each, names)) for each in split_statements(text)]


def _prepare(connection: psycopg.Connection[Any], query: str, parameters: Mapping[str, object]) -> SQL:
    major = _major(connection)
    return _name(query, major, tuple((name, str(parameters[name])) for name in _find_names(query, major)))


def _major(connection: psycopg.Connection[Any]) -> int:
    return connection.info.server_version // 10_000


@cache
def _name(query: str, major: int, names: tuple[tuple[str, str], ...]) -> SQL:
    values = {name: value.replace("%", "%%") for name, value in names}
    return SQL(to_names(to_parameters(_load(query, major)), values))


@cache
def _find_names(query: str, major: int) -> list[str]:
    return sorted(set(_IDENTIFIER.findall(_load(query, major))))


@cache
def _load(query: str, major: int) -> str:
    feature, _, file = query.partition("/")
    variants = [name for name in _list_files(feature) if name.startswith(f"{file}.")]
    return put_parts(_read(feature, choose_file(variants, file, major=major)), partial(_read, feature))


@cache
def _list_files(feature: str) -> list[str]:
    return [entry.name for entry in _folder(feature).iterdir()]


@cache
def _read(feature: str, name: str) -> str:
    """Return the text of a file; `name` is relative to the feature's folder."""
    return (_folder(feature) / name).read_text(encoding="utf-8")


@cache
def _folder(feature: str) -> Traversable:
    return resources.files(feature if "." in feature else f"penstock.{feature}") / "sql"
