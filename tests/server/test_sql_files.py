"""Every .sql file runs on every server and returns what its header says."""

from __future__ import annotations

import re
import shlex
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import penstock
from penstock.core.sql import choose_file, to_parameters

if TYPE_CHECKING:
    from penstock.core.connect.connection import Connection

pytestmark = pytest.mark.versions

FOLDER = Path(penstock.__file__).parent
FILES = sorted(path.relative_to(FOLDER).as_posix() for path in FOLDER.glob("*/sql/*.sql"))
HEADER = re.compile(
    r"-- (?P<file>\S+): .+\n"
    r"-- returns (?P<module>[\w.]+)\.(?P<row>\w+); needs .+; PostgreSQL (?P<since>\d+)\+\n"
    r"-- psql(?P<variables>(?: -v \w+=\S+)*) -f (?P=file)\n"
)


def read_header(file: str) -> re.Match[str]:
    """Return the parts of a file's header."""
    header = HEADER.match((FOLDER / file).read_text())
    assert header is not None, f"{file} has no header in the common form"
    return header


def test_there_are_sql_files() -> None:
    """The files are part of the package."""
    assert "core/sql/server.sql" in FILES


@pytest.mark.parametrize("file", FILES)
def test_header_names_its_file_and_variables(file: str) -> None:
    """The variables that the header sets for psql are those that the text uses."""
    header = read_header(file)
    used = set(re.findall(r":'(\w+)'", (FOLDER / file).read_text()))
    assert header["file"] == file.rpartition("/")[2]
    assert set(re.findall(r"-v (\w+)=", header["variables"])) == used


@pytest.mark.parametrize("file", FILES)
def test_columns_are_the_row_types_fields(connection: Connection, file: str) -> None:
    """Each column of the result is a field of the class named in the header."""
    header = read_header(file)
    if connection.info.server_version < int(header["since"]) * 10_000:
        pytest.skip(f"{file} is for PostgreSQL {header['since']} and later")
    connection.execute("CREATE TABLE public.t (id serial)")
    row_type = getattr(import_module(f"penstock.{header['module']}"), header["row"])
    variables = dict(word.split("=", 1) for word in shlex.split(header["variables"]) if word != "-v")
    cursor = connection.execute(to_parameters((FOLDER / file).read_text()).encode(), variables)
    assert [column.name for column in cursor.description or ()] == [field.name for field in fields(row_type)]


@pytest.mark.parametrize(
    ("major", "chosen"), [(14, "a.sql"), (16, "a.pg16.sql"), (17, "a.pg16.sql"), (18, "a.pg18.sql")]
)
def test_newest_variant_that_fits_is_taken(major: int, chosen: str) -> None:
    """A server never gets a variant for a later version."""
    assert choose_file(["a.sql", "a.pg16.sql", "a.pg18.sql", "ab.pg17.sql"], "a", major=major) == chosen


def test_casts_and_percent_signs_survive() -> None:
    """Only psql's quoted variables become parameters."""
    text = "SELECT ':'::text, :'name'::text LIKE 'a%'"
    assert to_parameters(text) == "SELECT ':'::text, %(name)s::text LIKE 'a%%'"
