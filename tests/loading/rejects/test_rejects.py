r"""Records that a table refuses are rejected with place, reason and bytes; all others load."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import psycopg
import pytest

from penstock.core.errors import DataError
from penstock.core.values.job import LoadRules
from support.codes import has_code
from support.files import write_to
from support.loads import Loads, share_ledger, target, write_csv

if TYPE_CHECKING:
    from pathlib import Path

REJECT = LoadRules(retry_for=0.0, on_error="reject")


@pytest.fixture
def loads(database: str) -> Loads:
    """Provide loads in tiny blocks into a database with table t (a int primary key, b text), on each version."""
    return Loads(
        database,
        piece_bytes=501,
        setup="CREATE TABLE t (a int PRIMARY KEY, b varchar(20) NOT NULL CHECK (b <> 'wrong'))",
    )


def read_rejects(loads: Loads) -> list[tuple[int, str | None, str | None, bytes]]:
    """Return line, SQLSTATE, column and bytes of what is rejected, in the order of the file."""
    return loads.execute('SELECT line, sqlstate, "column", raw FROM penstock.rejects ORDER BY object, start')  # type: ignore[return-value]


@pytest.mark.parametrize("into", ["t", "made"])
def test_record_that_is_not_utf8_is_rejected_without_encoding(loads: Loads, tmp_path: Path, into: str) -> None:
    """One such record early in the file does not prove that the file is in another encoding."""
    (tmp_path / "file.csv").write_bytes(b"a,b\n1,x\n2,Jos\xe9\n3,z\n")
    outcome = loads.run(target(tmp_path / "file.csv", into=into, create=into == "made"), rules=REJECT)
    assert (outcome.rows, outcome.rejected, loads.count(into)) == (2, 1, 2)
    assert read_rejects(loads) == [(3, "22021", None, b"2,Jos\xe9\n")]


BAD = {
    100: ("x1,y", "22P02", "a"),
    101: ("17000000000,y", "22003", "a"),
    300: ("5", "22P04", None),
    301: ("5,y,z", "22P04", None),
    500: ("6,", "23502", "b"),
    700: ("7,wrong", "23514", None),
    900: ("100099,twice", "23505", None),
    1100: ("8," + "z" * 30, "22001", "b"),
}


@pytest.mark.part("rest")
@pytest.mark.parametrize("chunk_bytes", [100, 4000, 10**9])
@pytest.mark.parametrize("sessions", [1, 3])
def test_every_kind_is_rejected_with_its_reason(loads: Loads, tmp_path: Path, chunk_bytes: int, sessions: int) -> None:
    """Types, count of columns, NOT NULL, CHECK and keys, in one file; whatever commands and sessions part it."""
    loads.chop(chunk_bytes)
    records = [f"{100_000 + n},value {n}" for n in range(1500)]
    for number, (record, _, _) in BAD.items():
        records[number] = record
    path = write_to(tmp_path / "file.csv", "a,b\n" + "".join(f"{record}\n" for record in records))
    outcome = loads.run(target(path, format="csv"), sessions=sessions, rules=REJECT)
    assert (outcome.rows, outcome.rejected, loads.count()) == (1500 - len(BAD), len(BAD), 1500 - len(BAD))
    found = read_rejects(loads)
    twice = next(item for item in found if item[1] == "23505")
    # Which of two duplicates stays is open.
    assert twice[0] in (101, 902)
    assert [item for item in found if item is not twice] == [
        (number + 2, sqlstate, column, f"{record}\n".encode())
        for number, (record, sqlstate, column) in BAD.items()
        if sqlstate != "23505"
    ]


@pytest.mark.parametrize(
    ("column_type", "bad", "good"),
    [("tsvector", "a:b:c'", "a"), ("jsonpath", "$.[", "$.a"), ("regclass", "nowhere", "pg_class")],
)
def test_value_that_its_type_calls_a_syntax_error_is_rejected(
    loads: Loads, tmp_path: Path, column_type: str, bad: str, good: str
) -> None:
    """Or a relation that does not exist: the codes that types give are not those of bad data alone."""
    loads.execute(f"CREATE TABLE v (a int, b {column_type})")
    path = tmp_path / "file"
    path.write_text("".join(f"{number};{bad if number % 20 == 7 else good}\n" for number in range(400)))
    job = target(path, into="v", format="csv", delimiter=";", has_header=False)
    error = loads.refuse(job)
    assert isinstance(error, DataError)
    line = re.search(r"file line (\d+),", str(error.detail))
    # Of two sessions either may come to one first.
    assert line is not None and int(line[1]) % 20 == 8
    assert str(error.hint).startswith("Correct the value in the file")
    outcome = loads.run(job, rules=REJECT)
    assert (outcome.rows, outcome.rejected) == (380, 20)
    assert {row[2] for row in read_rejects(loads)} == {"b"}


def test_null_that_a_domain_refuses_is_told_so(loads: Loads, tmp_path: Path) -> None:
    """With the domain's own words, not those for a value of the wrong form."""
    loads.execute("CREATE DOMAIN given AS text NOT NULL; CREATE DOMAIN known AS int CHECK (VALUE IS NOT NULL)")
    loads.execute("CREATE TABLE n (a int, b given, c known)")
    path = write_to(tmp_path / "file.csv", "a,b,c\n1,x,1\n2,,1\n3,x,\n4,x,y\n")
    assert loads.run(target(path, into="n", format="csv"), rules=REJECT).rejected == 3
    found = loads.execute("SELECT line, sqlstate, message FROM penstock.rejects ORDER BY start")
    assert found == [
        (3, "23502", "domain given does not allow null values"),
        (4, "23514", 'value for domain known violates check constraint "known_check"'),
        (5, "22P02", 'invalid input syntax for type integer: "y"'),
    ]


def test_value_that_a_domains_check_refuses_is_told_with_its_column(loads: Loads, tmp_path: Path) -> None:
    """A CHECK of the table names no column, although it has the same code."""
    loads.execute("CREATE DOMAIN positive AS int CHECK (VALUE > 0)")
    loads.execute("CREATE TABLE n (a int, b positive, c positive, CHECK (a < 9))")
    path = write_to(tmp_path / "file.csv", "a,b,c\n1,1,1\n2,1,-1\n3,-1,1\n9,1,1\n")
    assert loads.run(target(path, into="n", format="csv"), rules=REJECT).rejected == 3
    found = loads.execute('SELECT line, "column", sqlstate FROM penstock.rejects ORDER BY start')
    assert found == [(3, "c", "23514"), (4, "b", "23514"), (5, None, "23514")]


@pytest.mark.parametrize("constants", [{}, {"c": "x"}], ids=["untouched", "rewritten"])
def test_place_and_bytes_are_the_records_own(loads: Loads, tmp_path: Path, constants: dict[str, str]) -> None:
    """Behind records of several lines; the line is the one that the record begins on."""
    loads.execute("ALTER TABLE t ADD c text DEFAULT 'c'")
    records = [f'{n},"two\nlines"' if n % 3 == 0 else f"{n},one" for n in range(300)]
    records[100] = 'bad,"with\ntwo lines"'
    records[299] = "worse,x"
    path = tmp_path / "file.csv"
    data = "a,b\n" + "\n".join(records)
    path.write_text(data)
    columns = ("a", "b")
    outcome = loads.run(
        target(path, format="csv", columns=columns, has_header=True, constants=constants), sessions=1, rules=REJECT
    )
    assert outcome.rejected == 2
    found = loads.execute("SELECT line, start, raw FROM penstock.rejects ORDER BY start")
    first, last = data.index("bad"), data.index("worse")
    assert found == [
        (data[:first].count("\n") + 1, first, b'bad,"with\ntwo lines"\n'),
        (data[:last].count("\n") + 1, last, b"worse,x"),
    ]


def test_rows_kept_out_by_triggers_are_told_from_rejected_ones(loads: Loads, tmp_path: Path) -> None:
    """For each object: records cut are rows, suppressed and rejected."""
    loads.execute(
        "CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " IF NEW.a % 2 = 0 THEN RAISE NOTICE 'at line 1'; RETURN NULL; END IF; RETURN NEW; END $$"
    )
    loads.execute("CREATE TRIGGER keep BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION keep()")
    paths = [
        write_csv(tmp_path / f"{name}.csv", [f"{first + n},x" for n in range(100)] + ["bad,x", "1,", "2"])
        for name, first in (("one", 1000), ("two", 2000))
    ]
    outcome = loads.run(target(paths, format="csv"), rules=REJECT)
    assert (outcome.rows, outcome.suppressed, outcome.rejected) == (100, 100, 6)
    assert loads.execute("SELECT object, sum(records), sum(rejected) FROM penstock.ranges GROUP BY 1 ORDER BY 1") == [
        (0, 103, 3),
        (1, 103, 3),
    ]


def test_table_that_refuses_everything_has_all_rejected(loads: Loads, tmp_path: Path) -> None:
    """Nothing loops, and nothing is left out."""
    path = write_csv(tmp_path / "file.csv", [f"x{n},y" for n in range(2000)])
    outcome = loads.run(target(path, format="csv"), rules=REJECT)
    assert (outcome.rows, outcome.rejected) == (0, 2000)
    assert [line for line, *_ in read_rejects(loads)] == list(range(2, 2002))


@pytest.mark.part("rest")
def test_duplicates_across_sessions_are_sorted_out(loads: Loads, tmp_path: Path) -> None:
    """Sessions that wait for each other's keys: one of each pair goes in, and the other is rejected."""
    path = write_csv(tmp_path / "file.csv", [f"{n % 1500},x" for n in range(3000)])
    outcome = loads.run(target(path, format="csv"), sessions=3, rules=REJECT)
    assert (outcome.rows, outcome.rejected, loads.count()) == (1500, 1500, 1500)
    assert {code for _, code, _, _ in read_rejects(loads)} == {"23505"}


def test_deferred_constraints_are_a_records_own_too(loads: Loads, tmp_path: Path) -> None:
    """They are checked while it is known whose they are."""
    loads.execute("CREATE TABLE d (a int UNIQUE DEFERRABLE INITIALLY DEFERRED, b text)")
    path = write_csv(tmp_path / "file.csv", [f"{n},x" for n in range(300)] + ["17,again", "18,again"])
    outcome = loads.run(target(path, into="d", format="csv"), sessions=1, rules=REJECT)
    assert (outcome.rows, outcome.rejected) == (300, 2)


# ---------------------------------------------------------------- limits, faults


def test_more_rejects_than_allowed_end_the_load(loads: Loads, tmp_path: Path) -> None:
    """Nothing uncommitted stays, and the error shows some of them."""
    path = write_csv(tmp_path / "file.csv", [f"{n},x" for n in range(500)] + ["bad,x"] * 4)
    rules = LoadRules(retry_for=0.0, on_error="reject", max_rejects=3)
    with pytest.raises(DataError, match="more than 3 records were rejected") as caught:
        loads.run(target(path, format="csv"), rules=rules)
    assert "file.csv line 502" in str(caught.value.detail)
    assert "No rows were loaded." in str(caught.value.detail)
    assert loads.count() == 0
    allowed = LoadRules(retry_for=0.0, on_error="reject", max_rejects=4)
    assert loads.run(target(path, format="csv"), rules=allowed).rejected == 4


def test_rejects_of_an_earlier_run_count(loads: Loads, tmp_path: Path) -> None:
    """A load that stopped at its limit goes on with a higher one, and what was rejected is not rejected again."""
    path = write_csv(tmp_path / "file.csv", [f"{n},x" if n % 100 else f"bad {n},x" for n in range(1000)])
    rules = LoadRules(retry_for=0.0, on_error="reject", max_rejects=6)
    with pytest.raises(DataError):
        loads.run(target(path, format="csv"), sessions=1, rules=rules, batch_bytes=700)
    assert 0 < loads.count() < 990
    with pytest.raises(DataError):
        loads.run(target(path, format="csv"), sessions=1, rules=rules, batch_bytes=700)
    outcome = loads.run(target(path, format="csv"), sessions=1, rules=REJECT, batch_bytes=700)
    assert (outcome.rows + outcome.rows_before, outcome.rejected, loads.count()) == (990, 10, 990)
    assert [line for line, *_ in read_rejects(loads)] == [2 + 100 * n for n in range(10)]


def test_load_that_stopped_at_a_bad_record_goes_on_rejecting(loads: Loads, tmp_path: Path) -> None:
    """The rules may change from run to run."""
    path = write_csv(tmp_path / "file.csv", [f"{n},x" if n != 700 else "bad,x" for n in range(1000)])
    with pytest.raises(DataError, check=has_code("22P02")):
        loads.run(target(path, format="csv"), sessions=1, batch_bytes=700)
    outcome = loads.run(target(path, format="csv"), sessions=1, rules=REJECT, batch_bytes=700)
    assert (loads.count(), outcome.rejected) == (999, 1)


# ---------------------------------------------------------------- who may read them


def test_rejects_are_read_by_who_loaded_alone(loads: Loads, tmp_path: Path, user_name: str) -> None:
    """Another role sees none of them, though the ledger's tables are granted to it."""
    share_ledger(loads, f'"{user_name}"')
    loads.run(target(write_csv(tmp_path / "file.csv", ["bad,x"]), format="csv"), rules=REJECT)
    assert len(read_rejects(loads)) == 1
    with psycopg.connect(loads.conninfo) as connection:
        connection.execute(f'SET ROLE "{user_name}"')  # type: ignore[call-overload]
        assert connection.execute("SELECT count(*) FROM penstock.rejects").fetchall() == [(0,)]


def test_role_that_may_use_the_ledger_rejects(loads: Loads, tmp_path: Path, user_name: str, database: str) -> None:
    """Its rejects are its own."""
    share_ledger(loads, f'"{user_name}"')
    loads.execute(f'GRANT ALL ON t TO "{user_name}"')
    theirs = Loads(database, role=user_name)
    assert theirs.run(target(write_csv(tmp_path / "file.csv", ["bad,x"]), format="csv"), rules=REJECT).rejected == 1
    assert loads.execute("SELECT owner::text FROM penstock.rejects") == [(user_name,)]
