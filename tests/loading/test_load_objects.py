"""What goes wrong between objects, sessions and the file's encoding, and must not."""

from __future__ import annotations

import gzip
import lzma
from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from penstock.core.errors import DataError
from penstock.core.values.job import LoadJob
from support.files import write_to
from support.loads import Loads, target

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def loads(ledger18: str) -> Loads:
    """Provide loads into a database with table t (a int, b text)."""
    return Loads(ledger18, setup="CREATE TABLE t (a int, b text)")


@pytest.mark.parametrize("file_format", ["tsv", "csv"])
def test_constants_and_nulls_are_in_the_encoding_of_the_file(loads: Loads, tmp_path: Path, file_format: str) -> None:
    """They are sent among its bytes, and the server reads all of them alike."""
    loads.execute("CREATE TABLE u (a text, b text, c text)")
    path = write_to(tmp_path / "file", "a\tb\n1\tné\n2\tx\n".encode("latin-1"))
    loads.run(
        target(
            path,
            into="u",
            constants={"c": "Zürich"},
            format=file_format,
            delimiter="\t",
            nulls=("\\N", "né"),
            encoding="LATIN1",
        )
    )
    assert loads.rows("u") == [("1", None, "Zürich"), ("2", "x", "Zürich")]


def test_first_record_of_a_later_object_is_not_dropped_unseen(loads: Loads, tmp_path: Path) -> None:
    """With --columns nobody looks at headers; only the first object has shown one."""
    (tmp_path / "1.csv").write_text("a,b\n1,2\n")
    (tmp_path / "2.csv").write_text("3,4\n5,6\n")
    error = loads.refuse(target([tmp_path / "1.csv", tmp_path / "2.csv"], columns=["a", "b"]))
    assert isinstance(error, DataError)
    assert "2.csv line 1" in (error.detail or "")


@pytest.mark.parametrize("nothing", [b"", b"\xef\xbb\xbf", gzip.compress(b"")], ids=["empty", "mark", "gzip"])
def test_object_without_text_tells_no_dialect(loads: Loads, tmp_path: Path, nothing: bytes) -> None:
    """An export whose first part has no rows: the header of the next is one all the same."""
    loads.execute("CREATE TABLE u (a text, b text)")
    paths = [tmp_path / "part-0", tmp_path / "part-1"]
    paths[0].write_bytes(nothing)
    paths[1].write_text("b;a\n2;1\n")
    loads.run(target(paths, into="u"))
    assert loads.rows("u") == [("1", "2")]


@pytest.mark.parametrize(
    ("first", "is_told"), [("sensor1,unknown", True), ("A,value", False), ("x,B", False)], ids=["data", "table", "list"]
)
def test_first_record_that_is_left_out_unknown_is_told(
    loads: Loads, tmp_path: Path, first: str, *, is_told: bool
) -> None:
    """With --columns nobody looks at its names, so that it may well have been data."""
    loads.execute("CREATE TABLE u (a text, b text)")
    path = write_to(tmp_path / "file", f"{first}\nsensor2,3.4\nsensor3,4.5\n")
    loads.run(target(path, into="u", columns=["a", "b"]))
    assert loads.count("u") == 2
    assert ("first line is treated as a header and not loaded" in [each.message for each in loads.warnings]) is is_told


def test_referenced_objects_are_loaded_first_however_slow(loads: Loads, tmp_path: Path) -> None:
    """The child waits until the last of its parents has been sent."""
    loads.execute("CREATE TABLE p (id int PRIMARY KEY); CREATE TABLE c (id int REFERENCES p)")
    rows = 300_000
    text = "id\n" + "".join(f"{number}\n" for number in range(rows))
    (tmp_path / "parent.xz").write_bytes(lzma.compress(text.encode(), preset=0))
    (tmp_path / "child.csv").write_text(f"id\n{rows - 1}\n")
    loads.run(target(tmp_path / "parent.xz", into="p"), target(tmp_path / "child.csv", into="c"), sessions=None)
    assert (loads.count("p"), loads.count("c")) == (rows, 1)


def test_error_without_a_line_names_no_object_that_may_be_innocent(loads: Loads, tmp_path: Path) -> None:
    """A foreign key fails at the end of the command, which carried two objects."""
    loads.execute("CREATE TABLE p (id int PRIMARY KEY); INSERT INTO p VALUES (1); CREATE TABLE c (id int REFERENCES p)")
    (tmp_path / "1.csv").write_text("id\n99\n")
    (tmp_path / "2.csv").write_text("id\n1\n")
    error = loads.refuse(target([tmp_path / "1.csv", tmp_path / "2.csv"], into="c", has_header=True), sessions=1)
    assert error.sqlstate == "23503"
    assert "One of 2 objects" in (error.detail or "")


@pytest.mark.parametrize("text", ["1,a\n2,b\nx,c", "x,c"])
def test_last_record_without_its_line_end_has_a_line(loads: Loads, tmp_path: Path, text: str) -> None:
    """Its line is the file's last."""
    path = write_to(tmp_path / "file.csv", text)
    error = loads.refuse(target(path, format="csv", has_header=False))
    assert f"file.csv line {text.count(chr(10)) + 1}, column" in (error.detail or "")


def test_value_that_fills_pages_is_cut_short(loads: Loads, tmp_path: Path) -> None:
    """The server repeats it whole in its message."""
    path = write_to(tmp_path / "file.csv", "x" * 1_000_000 + ",b\n")
    error = loads.refuse(target(path, format="csv", has_header=False))
    assert error.sqlstate == "22P02"
    assert len(str(error)) < 1000


def test_bad_constant_is_not_blamed_on_the_file(loads: Loads, tmp_path: Path) -> None:
    """The value is --set's own."""
    path = write_to(tmp_path / "file.csv", "b\nx\n")
    error = loads.refuse(target(path, constants={"a": "many"}, has_header=True))
    assert (error.detail or "").startswith('--set a: "many"')


@pytest.mark.part("rest")
def test_warnings_of_a_trigger_do_not_stop_the_load(loads: Loads, tmp_path: Path) -> None:
    """A server that waits for its notices to be read would otherwise wait for ever, and we for it."""
    loads.execute("""
        CREATE FUNCTION warn() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN RAISE WARNING '%', repeat('x', 3000); RETURN new; END $$;
        CREATE TRIGGER warn BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION warn()
    """)
    path = write_to(tmp_path / "file.csv", "".join(f"{number},b\n" for number in range(60_000)))
    assert loads.run(target(path, format="csv", has_header=False), sessions=1).rows == 60_000


def test_sessions_that_cannot_connect_leave_the_work_to_the_first(database18: str, tmp_path: Path) -> None:
    """Others may take the connections that were free when the load was planned."""
    loads = Loads(database18, setup="CREATE TABLE t (a int, b text)")
    name = sql.Identifier(conninfo_to_dict(database18)["dbname"])
    path = write_to(tmp_path / "file.csv", "".join(f"{number},b\n" for number in range(50_000)))
    with loads.loader() as loader, psycopg.connect(make_conninfo(database18, dbname="postgres")) as admin:
        admin.autocommit = True
        plan = loader.plan(LoadJob(targets=(target(path, format="csv", has_header=False),), sessions=4))
        admin.execute(sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS false").format(name))
        outcome = loader.run(plan)
        admin.execute(sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS true").format(name))
    assert (outcome.rows, outcome.sessions) == (50_000, 1)


def test_sequence_that_is_gone_at_the_end_does_not_fail_the_load(loads: Loads, tmp_path: Path) -> None:
    """The rows are in by then, and whoever read of a failure would load them again."""
    loads.execute("CREATE TABLE s (id serial, b text)")
    path = write_to(tmp_path / "file.csv", "id,b\n" + "".join(f"{number},b\n" for number in range(50_000)))
    with loads.loader() as loader:
        plan = loader.plan(LoadJob(targets=(target(path, into="s"),)))
        loads.execute("DROP SEQUENCE s_id_seq CASCADE")
        outcome = loader.run(plan)
    assert outcome.rows == 50_000
    assert [(warning.code, "sequences were not advanced" in warning.message) for warning in outcome.warnings] == [
        ("sequences", True)
    ]
