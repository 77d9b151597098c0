"""Every .sql file runs on every server and returns what its header says."""

from __future__ import annotations

import re
import subprocess
from dataclasses import fields, is_dataclass
from importlib import import_module
from typing import TYPE_CHECKING

import psycopg
import pytest

from penstock.core.sql import choose_file, split_statements, to_names, to_parameters
from penstock.ledger.ledger import Ledger
from penstock.ledger.values import LoaderProcess
from support.sql_files import FILES, FOLDER, read_header, read_text, read_variables

if TYPE_CHECKING:
    from penstock.core.connect.connection import Connection
    from support.servers import ServerPool

pytestmark = pytest.mark.versions

# The load in the headers of the ledger's files.
_LOAD = "00000000-0000-0000-0000-000000000001"
_NEWEST_MAJOR = 18


def find_columns(file: str, returns: str) -> list[str]:
    """Return the columns that a header promises: those in parentheses, or the fields of a class of the package."""
    if returns == "nothing":
        return []
    if returns.startswith("("):
        return re.findall(r"\w+", returns)
    module, _, name = returns.rpartition(".")
    row_type = getattr(import_module(f"{file.partition('/')[0]}.{module}"), name)
    return [field.name for field in fields(row_type)] if is_dataclass(row_type) else list(row_type._fields)


def prepare(connection: Connection) -> None:
    """Create what the headers name: a table, a ledger with a load, and a schema with what extensions would make."""
    connection.execute("CREATE TABLE public.t (id serial)")
    connection.execute("CREATE SCHEMA other")
    connection.execute(
        "CREATE TABLE other.pg_stat_statements (userid oid, dbid oid, queryid bigint, query text, calls bigint,"
        " total_exec_time float8, temp_blks_written bigint)"
    )
    connection.execute(
        "CREATE FUNCTION other.pg_prewarm(regclass, text, text, bigint, bigint) RETURNS bigint RETURN $5 - $4 + 1"
    )
    Ledger().ensure(connection)
    process = LoaderProcess(client="c", lock="0011223344556677")
    Ledger().begin(
        connection,
        load_id=_LOAD,
        identity="i",
        lock="0011223344556677",
        process=process,
        tables=[],
        meaning="{}",
        job=None,
        objects=[],
    )


@pytest.mark.part("rest")
def test_columns_are_what_the_header_says(connection: Connection, subtests: pytest.Subtests) -> None:
    """Each column of a result is one of the file's header, or a field of the class named there."""
    prepare(connection)
    for file in FILES:
        header, variables = read_header(file), read_variables(file)
        if connection.info.server_version < int(header["since"]) * 10_000:
            continue
        text = to_names(to_parameters(read_text(file)), variables)
        with subtests.test(file):
            with connection.transaction(force_rollback=True):
                cursor = connection.execute(text.encode(), variables)
            columns = [column.name for column in cursor.description or ()]
            assert columns == find_columns(file, re.sub(r"\n-- +", " ", header["returns"]))


@pytest.mark.part("rest")
def test_files_run_in_psql(database18: str, servers: ServerPool, subtests: pytest.Subtests) -> None:
    """A file runs as its header says, in its folder."""
    with psycopg.connect(database18, autocommit=True) as connection:
        prepare(connection)
    psql = [servers.installation(_NEWEST_MAJOR).program("psql"), "-X", "-q", "-d", database18, "-v", "ON_ERROR_STOP=1"]
    for file in FILES:
        values = [word for name, value in read_variables(file).items() for word in ("-v", f"{name}={value}")]
        path = FOLDER / file
        command = [*psql, *values, "-c", "BEGIN", "-f", path.name, "-c", "ROLLBACK"]
        with subtests.test(file):
            ran = subprocess.run(command, cwd=path.parent, capture_output=True, text=True, check=False)
            assert (ran.returncode, ran.stderr) == (0, "")


@pytest.mark.parametrize(
    ("major", "chosen"), [(14, "a.sql"), (16, "a.pg16.sql"), (17, "a.pg16.sql"), (18, "a.pg18.sql")]
)
def test_newest_variant_that_fits_is_taken(major: int, chosen: str) -> None:
    """A server never gets a variant for a later version."""
    assert choose_file(["a.sql", "a.pg16.sql", "a.pg18.sql", "ab.pg17.sql"], "a", major=major) == chosen


def test_comments_are_no_statements() -> None:
    """A semicolon within a line ends nothing."""
    text = "-- a;\nCREATE TABLE t (\n    -- b;\n    c text DEFAULT ';'\n);\n\nSELECT 1;\n"
    assert split_statements(text) == ["CREATE TABLE t (\n    c text DEFAULT ';'\n)", "SELECT 1"]


def test_names_are_quoted() -> None:
    """A value for an identifier cannot be more than an identifier."""
    assert to_names('SELECT FROM :"a".b', {"a": 'x"; DROP'}) == 'SELECT FROM "x""; DROP".b'


def test_casts_and_percent_signs_survive() -> None:
    """Only psql's quoted variables become parameters."""
    text = "SELECT ':'::text, :'name'::text LIKE 'a%'"
    assert to_parameters(text) == "SELECT ':'::text, %(name)s::text LIKE 'a%%'"
