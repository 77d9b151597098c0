"""One stray quote costs the line that it is in, with --on-error reject: no line is lost, and none is loaded twice."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import psycopg
import pytest

from penstock.api.connect import connect_to
from penstock.api.ledger_view import LedgerView
from penstock.core.errors import DataError
from penstock.core.values.job import LoadRules
from support.files import write_to
from support.loads import Loads, target
from support.modes import mode_target
from support.torn_model import make_file, read_model

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

REJECT = LoadRules(retry_for=0.0, on_error="reject")

# Line 4 and 9 have a quote too many, line 6 spans lines as it should, and of line 11 nobody knows where it ends.
STRAY = 'a,b,c\n1,x,y\n2,x,y\n3,x",y\n4,"x",y\n5,"x\nx",y\n6,x,y\n7,x,"y""\n8,x,y\n9,"x,y\n10,x,y\n'


@pytest.fixture
def loads(ledger: str) -> Loads:
    """Provide loads in tiny blocks into a database with table t."""
    return Loads(ledger, piece_bytes=50, setup="CREATE TABLE t (a text, b text, c text)")


def find_rejects(loads: Loads) -> list[tuple[object, ...]]:
    """Return line, bytes and reason of each rejected record in the order of the file."""
    return loads.execute("SELECT line, convert_from(raw, 'UTF8'), message FROM penstock.rejects ORDER BY start")


def test_stray_quote_costs_its_line(loads: Loads, tmp_path: Path) -> None:
    """What a quote would swallow is cut again from the next line on."""
    outcome = loads.run(target(write_to(tmp_path / "file", STRAY), format="csv"), rules=REJECT, sessions=3)
    assert find_rejects(loads) == [
        (4, '3,x",y\n', "record spans 3 lines: expected 3 columns, found 2"),
        (9, '7,x,"y""\n', "record spans 3 lines: expected 3 columns, found 4"),
        (11, '9,"x,y\n', "unterminated CSV quoted field"),
    ]
    assert (outcome.rows, outcome.rejected) == (7, 3)
    assert sorted(row[0] for row in loads.rows()) == ["1", "10", "2", "4", "5", "6", "8"]


def test_quote_that_passes_the_longest_record_costs_its_line(loads: Loads, tmp_path: Path) -> None:
    """The load goes on before the end of the file is known."""
    rules = LoadRules(retry_for=0.0, on_error="reject", max_record=1_000_000)
    rest = "2,x,y\n" * 200_000
    loads.piece_bytes = 300_000
    loads.run(target(write_to(tmp_path / "file", f'a,b,c\n1,"x,y\n{rest}3,"x,y\n'), format="csv"), rules=rules)
    assert find_rejects(loads) == [
        (2, '1,"x,y\n', "a record is longer than 1.00 MB"),
        (200_003, '3,"x,y\n', "unterminated CSV quoted field"),
    ]
    assert loads.count() == 200_000


@pytest.mark.parametrize("file_format", ["csv", "text", "tsv"])
@pytest.mark.parametrize("value", ["y" * 2_000_000, '"' + "y" * 2_000_000 + '"', "x", '"x'], ids=len)
def test_line_that_is_longer_than_a_record_may_be_is_rejected(
    loads: Loads, tmp_path: Path, file_format: str, value: str
) -> None:
    """With --max-record; a record that is not is loaded, and one whose quote has no end is rejected in csv."""
    rules = LoadRules(retry_for=0.0, on_error="reject", max_record=1_000_000)
    lines = [",".join(["a", "b", "c"]), "1,x,y", f"2,{value},y", "3,x,y"]
    text = "".join(f"{line}\n" for line in lines)
    path = write_to(tmp_path / "file", text if file_format == "csv" else text.replace(",", "\t"))
    loads.piece_bytes = 300_000
    outcome = loads.run(target(path, format=file_format, has_header=True), rules=rules)
    is_rejected = len(value) > 1_000_000 or (file_format == "csv" and value == '"x')
    assert outcome.rejected == is_rejected
    assert [row[0] for row in loads.rows()] == ["1", "2", "3"][:: 2 if is_rejected else 1]


def test_without_rejects_a_stray_quote_ends_the_load(loads: Loads, tmp_path: Path) -> None:
    """Nothing is guessed where nobody asked for it."""
    error = loads.refuse(target(write_to(tmp_path / "file", STRAY), format="csv"))
    assert "line" in str(error.detail)


def test_check_reports_each_torn_line(loads: Loads, tmp_path: Path) -> None:
    """As the load would reject them."""
    path = write_to(tmp_path / "file", STRAY)
    outcome = loads.check(target(path, format="csv"), rules=REJECT)
    assert [(problem.line, problem.sqlstate) for problem in outcome.problems] == [
        (4, "22P04"),
        (9, "22P04"),
        (11, "22P04"),
    ]
    assert outcome.rows == 10


def _expect_rows(loads: Loads, data: bytes, parts: Sequence[tuple[int, int]]) -> list[tuple[object, ...]]:
    """Return the rows that PostgreSQL's own COPY makes of parts of a file."""
    with psycopg.connect(loads.conninfo, autocommit=True) as connection:
        connection.execute("CREATE TABLE copied (LIKE t)")
        with connection.cursor().copy("COPY copied FROM STDIN (FORMAT csv)") as copy:
            copy.write(b"".join(data[start:end] for start, end in parts))
    return loads.rows("copied")


@pytest.mark.parametrize("seed", range(12))
def test_each_line_is_loaded_or_rejected_once_and_after_a_resume(loads: Loads, tmp_path: Path, seed: int) -> None:
    """As the model has it, at one to three sessions; what COPY makes of the good records is in the table."""
    rng = random.Random(seed)
    data = b"a,b,c\n" + b"".join(make_file(rng, "\n") for _ in range(8))
    path = write_to(tmp_path / "file", data)
    loads.piece_bytes = rng.choice([7, 60, 1000])
    loads.chop(rng.choice([1, 100, 10_000]))
    for max_rejects in (rng.choice([0, 5, None]), None):
        rules = LoadRules(retry_for=0.0, on_error="reject", max_rejects=max_rejects)
        try:
            job = target(path, format="csv", delimiter=",", quote='"', has_header=True, encoding="UTF8")
            loads.run(job, rules=rules, sessions=rng.randint(1, 3), batch_bytes=rng.choice([1, 200, 10_000]))
        except DataError as error:
            assert "rejected" in error.message, error
    parts = read_model(data, b"\n", b'"', limit_bytes=10_000)[1:]
    rejected = {
        start: (line, raw) for start, line, raw in loads.execute("SELECT start, line, raw FROM penstock.rejects")
    }
    found = {part.start: (part.line, data[part.start : part.end]) for part in parts}
    assert {part.start for part in parts if part.is_torn} <= rejected.keys()
    assert rejected == {start: found[start] for start in rejected}
    good = [(part.start, part.end) for part in parts if part.start not in rejected]
    assert loads.rows() == _expect_rows(loads, data, good)
    assert loads.execute("SELECT sum(records)::int, sum(rejected)::int FROM penstock.ranges") == [
        (len(parts), len(rejected))
    ]


def test_torn_lines_are_retried_one_by_one(loads: Loads, tmp_path: Path) -> None:
    """One that is still torn does not swallow the corrected one behind it."""
    outcome = loads.run(target(write_to(tmp_path / "file", STRAY), format="csv"), rules=REJECT)
    assert outcome.load_id is not None
    file = tmp_path / "rejects"
    with LedgerView(connect_to(loads.conninfo)) as ledger:
        assert ledger.retry(outcome.load_id).left == 3
        ledger.write_rejects(outcome.load_id, file)
        file.write_text(file.read_text().replace('"y""', "y").replace('x"', "x"))
        done = ledger.retry(outcome.load_id, file)
    assert (done.rows, done.left) == (2, 1)
    assert [raw for _, raw, _ in find_rejects(loads)] == ['9,"x,y\n']


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
def test_reject_file_of_torn_lines_goes_in_as_it_is_and_corrected(loads: Loads, tmp_path: Path, line_end: str) -> None:
    """It is cut as it was written: by the dialect the first quote ends where the next line has its own."""
    loads.execute("ALTER TABLE t ADD CHECK (b <> 'no')")
    data = 'a,b,c\n1,x",y\n2,x",z",y\n3,x",y\n4,no,"z\nz"\n5,"x,y'.replace("\n", line_end)
    outcome = loads.run(target(write_to(tmp_path / "file", data), format="csv", has_header=True), rules=REJECT)
    assert outcome.load_id is not None
    before = find_rejects(loads)
    assert [line for line, _, _ in before] == [2, 4, 5, 7]
    file = tmp_path / "rejects"
    with LedgerView(connect_to(loads.conninfo)) as ledger:
        ledger.write_rejects(outcome.load_id, file)
        assert ledger.retry(outcome.load_id, file).left == 4
        assert [raw for _, raw, _ in find_rejects(loads)] == [raw for _, raw, _ in before]
        file.write_bytes(file.read_bytes().replace(b'3,x"', b"3,x").replace(b'5,"x', b"5,x"))
        done = ledger.retry(outcome.load_id, file)
    assert (done.rows, done.left) == (2, 2)
    assert [row[0] for row in loads.rows()] == ["2", "3", "5"]


def test_merge_finds_what_it_refuses_between_torn_lines(loads: Loads, tmp_path: Path) -> None:
    """The file is read again, and torn again at the same lines."""
    loads.execute("CREATE TABLE m (a text PRIMARY KEY, b text CHECK (b <> 'no'), c text)")
    path = write_to(tmp_path / "file", STRAY.replace("6,x", "6,no").replace("10,x", "10,no"))
    outcome = loads.run(mode_target(path, "upsert", into="m", key=("a",), format="csv"), rules=REJECT)
    assert [line for line, _, _ in find_rejects(loads)] == [4, 8, 9, 11, 12]
    assert (outcome.rows, loads.count("m")) == (5, 5)
