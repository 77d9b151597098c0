"""Records that are as good as certain to be refused are put off, so that they cost the others nothing; none is lost."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from penstock.loading import salvage
from penstock.model.job import LoadRules
from penstock.server.copy import CopySession
from penstock.server.sorting import Sorted, Sorter
from support.loads import Loads, chop_commands, target

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.model.block import CopySpec

REJECT = LoadRules(retry_for_s=0.0, on_error="reject")

Reject = tuple[int, str, str | None]


@pytest.fixture
def loads(database: str) -> Loads:
    """Provide loads into a database without tables, on each version."""
    return Loads(database)


@pytest.fixture
def sorts(monkeypatch: pytest.MonkeyPatch) -> list[Sorted]:
    """Provide a list of how each sorting has ended."""
    ended: list[Sorted] = []
    sort = Sorter.sort

    def note(self: Sorter) -> Sorted:
        ended.append(found := sort(self))
        return found

    monkeypatch.setattr(Sorter, "sort", note)
    return ended


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Provide a list of the COPY commands' tables."""
    begun: list[str] = []
    start = CopySession.start_copy

    def note(self: CopySession, spec: CopySpec) -> None:
        begun.append(spec.table)
        start(self, spec)

    monkeypatch.setattr(CopySession, "start_copy", note)
    return begun


def write(path: Path, records: list[str], *, line_end: str = "\n") -> Path:
    """Write a file of records and return its path."""
    path.write_bytes("".join(f"{record}{line_end}" for record in records).encode())
    return path


def load(loads: Loads, path: Path, *columns: str, into: str = "t") -> tuple[int, int]:
    """Load a csv file in one session; return how many rows and rejects there are."""
    job = target(path, into=into, format="csv", has_header=False, columns=columns)
    outcome = loads.run(job, sessions=1, rules=REJECT)
    assert loads.count(into) == outcome.rows
    return outcome.rows, outcome.rejected


def read_rejects(loads: Loads) -> list[Reject]:
    """Return line, SQLSTATE and detail of what is put aside."""
    return loads.execute(  # type: ignore[return-value]
        "SELECT line, sqlstate, detail FROM penstock.rejects ORDER BY object, start"
    )


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_each_record_that_breaks_a_constraint_is_rejected_with_the_tables_words(
    loads: Loads, tmp_path: Path, sorts: list[Sorted], line_end: str
) -> None:
    """By its own line, where records have several."""
    loads.execute("CREATE TABLE t (a int, b text, CHECK (a % 10 <> 3), CHECK (b <> 'x' OR a < 500))")
    records = [f'{n},"{"x" if n % 100 == 99 else "y" + line_end}"' for n in range(1000)]
    path = write(tmp_path / "file", records, line_end=line_end)
    assert load(loads, path, "a", "b") == (895, 105)
    assert sorts
    broken = [n for n in range(1000) if n % 10 == 3 or (n % 100 == 99 and n >= 500)]
    assert [(line, code) for line, code, _ in read_rejects(loads)] == [(1 + 2 * n - n // 100, "23514") for n in broken]
    assert str(read_rejects(loads)[0][2]).startswith("Failing row contains (3, y")


def test_last_record_that_breaks_a_constraint_may_lack_its_line_end(loads: Loads, tmp_path: Path) -> None:
    """In tsv too, where some records are written again."""
    loads.execute("CREATE TABLE t (a int CHECK (a > 0), b text)")
    path = tmp_path / "file"
    path.write_bytes(b"".join(b"%d\tb\\%d\n" % (n % 5, n) for n in range(100)) + b"0\tend\\")
    outcome = loads.run(target(path, format="tsv", has_header=False, columns=("a", "b")), sessions=1, rules=REJECT)
    assert (outcome.rows, outcome.rejected) == (80, 21)
    raws = loads.execute("SELECT raw FROM penstock.rejects ORDER BY start DESC LIMIT 2")
    assert raws == [(b"0\tend\\",), (b"0\tb\\95\n",)]


@pytest.mark.parametrize(
    "table",
    [
        # The server computes one of its columns.
        "a int, b text, c int GENERATED ALWAYS AS (a * 2) STORED CHECK (c % 20 <> 6)",
        # It sees the whole row.
        "a int, b text, CONSTRAINT whole CHECK (is_good(t))",
        # It depends on more than the row.
        "a int, b text, CHECK (is_new(a))",
        # A column that the file does not have.
        "a int, b text, c int DEFAULT 3, CHECK (a % 10 <> c)",
        # It fails for some rows.
        "a int, b text, CHECK (1 / (a % 10 - 3) < 5)",
    ],
    ids=["generated", "whole row", "volatile", "default", "failing"],
)
def test_constraints_that_cannot_be_looked_at_judge_as_ever(loads: Loads, tmp_path: Path, table: str) -> None:
    """What they refuse is put aside, and nothing else."""
    loads.execute("CREATE TABLE t (a int, b text)")
    loads.execute("CREATE FUNCTION is_good(t) RETURNS boolean IMMUTABLE LANGUAGE sql AS 'SELECT $1.a % 10 <> 3'")
    loads.execute("CREATE FUNCTION is_new(int) RETURNS boolean LANGUAGE sql AS 'SELECT $1 % 10 <> 3'")
    if "whole" in table:
        loads.execute("ALTER TABLE t ADD CHECK (is_good(t))")
    else:
        loads.execute(f"DROP FUNCTION is_good; DROP TABLE t; CREATE TABLE t ({table})")
    path = write(tmp_path / "file", [f"{n},y" for n in range(500)])
    assert load(loads, path, "a", "b") == (450, 50)
    assert loads.execute("SELECT count(*) FROM t WHERE a % 10 = 3") == [(0,)]


def test_trigger_that_mends_rows_is_waited_for(loads: Loads, tmp_path: Path) -> None:
    """Constraints are not looked at before it."""
    loads.execute("CREATE TABLE t (a int CHECK (a <> 3), b text)")
    loads.execute(
        "CREATE FUNCTION mend() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " IF NEW.b = 'mend' THEN NEW.a := 0; END IF; RETURN NEW; END $$"
    )
    loads.execute("CREATE TRIGGER mend BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION mend()")
    path = write(tmp_path / "file", [f"{n % 10},{'mend' if n % 20 == 3 else 'y'}" for n in range(500)])
    assert load(loads, path, "a", "b") == (475, 25)


KEYS = {
    "pair": "a int, b text, c int, PRIMARY KEY (a, b)",
    "several": "a int UNIQUE, b text, c int UNIQUE",
    "collated": 'a int, b text COLLATE "C", c int, UNIQUE (a, b)',
    "partial": "a int, b text, c int",
    "deferrable": "a int UNIQUE DEFERRABLE, b text, c int",
    "partitioned": "a int PRIMARY KEY, b text, c int",
}


@pytest.mark.parametrize("kind", KEYS)
def test_taken_keys_are_found_whatever_index_has_them(loads: Loads, tmp_path: Path, kind: str) -> None:
    """Keys that are in the table, that several records have, and nulls, which are no key."""
    loads.execute(f"CREATE TABLE t ({KEYS[kind]}){' PARTITION BY RANGE (a)' if kind == 'partitioned' else ''}")
    if kind == "partitioned":
        loads.execute("CREATE TABLE t1 PARTITION OF t FOR VALUES FROM (0) TO (700)")
        loads.execute("CREATE TABLE t2 PARTITION OF t FOR VALUES FROM (700) TO (100000)")
    if kind == "partial":
        loads.execute("CREATE UNIQUE INDEX ON t (a) WHERE b = 'y'")
    loads.execute("INSERT INTO t SELECT n, 'y', -n FROM generate_series(0, 1900, 100) AS n")
    keys = [n - n % 3 if n % 50 < 3 else n for n in range(2000)]
    records = [f"{key},y,{n}" for n, key in enumerate(keys)]
    path = write(tmp_path / "file", records)
    distinct = {*keys, *range(0, 2000, 100)}
    stored = len(distinct) - 20
    job = target(path, format="csv", has_header=False, columns=("a", "b", "c"))
    outcome = loads.run(job, sessions=1, rules=REJECT)
    assert (outcome.rows, outcome.rejected) == (stored, 2000 - stored)
    assert loads.count() == len(distinct)
    assert {code for _, code, _ in read_rejects(loads)} == {"23505"}
    # Each with the table's own words of which key it is.
    assert all("already exists" in str(detail) for _, _, detail in read_rejects(loads))


@pytest.mark.parametrize("place", ["in the table", "in the file"])
def test_records_with_taken_keys_do_not_undo_others(
    loads: Loads, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """A sequence counts how many rows the table was given: of 200 taken keys each would cost some 20 others."""
    monkeypatch.setattr(salvage, "_FAILURES_BEFORE_SORTING", 1)
    loads.execute('CREATE TABLE t (a int PRIMARY KEY, b text COLLATE "C" UNIQUE, tries bigserial)')
    stored = 0
    if place == "in the table":
        stored = 200
        loads.execute("INSERT INTO t SELECT n, n, 0 FROM generate_series(1000, 5975, 25) AS n")
    keys = [n - 1 if n % 25 == 0 and not stored else n for n in range(1000, 6000)]
    path = write(tmp_path / "file", [f"{key},{key}" for key in keys])
    job = target(path, format="csv", has_header=False, columns=("a", "b"))
    outcome = loads.run(job, sessions=1, rules=REJECT)
    assert outcome.rejected == (200 if stored else 199)
    assert loads.count() == stored + outcome.rows
    ((tries,),) = loads.execute("SELECT last_value FROM t_tries_seq")
    assert tries < 6500


def test_null_keys_are_not_taken(loads: Loads, tmp_path: Path) -> None:
    """However many there are."""
    loads.execute("CREATE TABLE t (a int UNIQUE, b text)")
    path = write(tmp_path / "file", [f"{'' if n % 5 == 0 else n - n % 4},y" for n in range(1000)])
    keys = {n - n % 4 for n in range(1000) if n % 5}
    assert load(loads, path, "a", "b") == (200 + len(keys), 800 - len(keys))


def test_key_of_a_refused_record_is_free(loads: Loads, tmp_path: Path) -> None:
    """The first record with it breaks a constraint: the second goes in."""
    loads.execute("CREATE TABLE t (a int PRIMARY KEY, b text CHECK (b <> 'x'))")
    path = write(tmp_path / "file", [f"{n - n % 2},{'x' if n % 4 == 0 else 'y'}" for n in range(1000)])
    assert load(loads, path, "a", "b") == (500, 500)
    assert loads.execute("SELECT count(*) FROM t") == [(500,)]


def test_next_command_takes_records_straight_to_where_they_are_sorted(
    loads: Loads, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, commands: list[str]
) -> None:
    """Where many of the last one were bad, until few are."""
    chop_commands(monkeypatch, 4000)
    loads._piece_bytes = 2000
    loads.execute("CREATE TABLE t (a int PRIMARY KEY, b text)")
    keys = [n - n % 2 if n < 2000 else n for n in range(8000)]
    path = write(tmp_path / "file", [f"{key},y" for key in keys])
    assert load(loads, path, "a", "b") == (7000, 1000)
    assert commands[0] == "t"
    first = commands.index("penstock_stage")
    assert commands[first : first + 3] == ["penstock_stage"] * 3
    assert commands[-3:] == ["t"] * 3


def test_records_that_cannot_be_read_are_told_from_those_beside_them(
    loads: Loads, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind a command with many bad ones too, where they meet the sorting first."""
    chop_commands(monkeypatch, 4000)
    loads._piece_bytes = 2000
    loads.execute("CREATE TABLE t (a int PRIMARY KEY, b text)")
    path = write(tmp_path / "file", [f"{n - n % 2},y{',z' if n % 500 == 499 else ''}" for n in range(2000)])
    assert load(loads, path, "a", "b") == (1000, 1000)
    assert [code for _, code, _ in read_rejects(loads)].count("22P04") == 4


def test_bad_values_and_bad_rows_take_turns(
    loads: Loads, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sorts: list[Sorted]
) -> None:
    """Before 17 the sorting reads texts where types refuse values, and values where they do not."""
    chop_commands(monkeypatch, 4000)
    loads._piece_bytes = 2000
    loads.execute("CREATE TABLE t (a int PRIMARY KEY, b text)")
    records = [f"{n - n % 2},y" if n // 1000 % 2 else f"{'x' if n % 10 == 5 else ''}{n},y" for n in range(4000)]
    path = write(tmp_path / "file", records)
    assert load(loads, path, "a", "b") == (2800, 1200)
    assert sorts
    found = loads.execute('SELECT sqlstate, "column", count(*) FROM penstock.rejects GROUP BY 1, 2 ORDER BY 1')
    assert found == [("22P02", "a", 200), ("23505", None, 1000)]


def test_tables_that_are_sorted_by_turns(loads: Loads, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One session's commands of one transaction are for either."""
    chop_commands(monkeypatch, 2000)
    monkeypatch.setattr(salvage, "_FEWEST_SORTED", 1)
    loads._piece_bytes = 2000
    jobs = []
    for name in ("s", "t"):
        loads.execute(f"CREATE TABLE {name} (a int PRIMARY KEY, b text CHECK (b <> 'x'))")
        for number in range(3):
            records = [f"{n - n % 2},{'x' if n % 10 == 3 else 'y'}" for n in range(number * 500, number * 500 + 500)]
            path = write(tmp_path / f"{name}{number}", records)
            jobs.append(target(path, into=name, format="csv", has_header=False, columns=("a", "b")))
    outcome = loads.run(*jobs, sessions=1, rules=REJECT)
    assert (outcome.rows, outcome.rejected) == (1500, 1500)
    assert (loads.count("s"), loads.count("t")) == (750, 750)


def test_records_put_aside_together_are_not_those_that_were_put_off(
    loads: Loads, tmp_path: Path, sorts: list[Sorted]
) -> None:
    """Each is noted once, though among those that refer to nothing some break a constraint or have a taken key."""
    loads.execute("CREATE TABLE parent (id int PRIMARY KEY); INSERT INTO parent VALUES (0)")
    loads.execute("CREATE TABLE t (a int UNIQUE, c int CHECK (c > 0), p int REFERENCES parent)")
    records = [f"{n % 300},{n % 4},{0 if n % 100 < 50 else 7}" for n in range(600)]
    path = write(tmp_path / "file", records)
    job = target(path, format="csv", has_header=False, columns=("a", "c", "p"))
    outcome = loads.run(job, sessions=1, rules=replace(REJECT, indexes="keep"))
    assert sorts and any(row.sqlstate == "23503" for row in sorts[0].refused)
    for found in sorts:
        assert len({row.place for row in found.refused}) == len(found.refused)
    good = {n % 300 for n in range(600) if n % 4 and n % 100 < 50}
    assert (outcome.rows, outcome.rejected) == (len(good), 600 - len(good))
    assert loads.execute("SELECT a FROM t ORDER BY a") == [(n,) for n in sorted(good)]
