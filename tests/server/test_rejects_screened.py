"""Records that penstock finds bad itself, once the server refused one such: as the server would, and all at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.model.job import LoadRules
from penstock.server.copy import CopySession
from support.loads import Loads, target

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.model.block import CopySpec

REJECT = LoadRules(retry_for_s=0.0, on_error="reject")

GOOD = b"1,one,2020-01-31\n"
BAD = {
    "too few": b"2,two\n",
    "too many": b"2,two,2020-01-31,more\n",
    "null": b"2,,2020-01-31\n",
    "bytes": b"2,\xe9t\xe9,2020-01-31\n",
    "nul": b"2,t\0o,2020-01-31\n",
}


@pytest.fixture
def loads(database: str) -> Loads:
    """Provide loads into table t (a, b NOT NULL, c), on each version."""
    loads = Loads(database)
    loads.execute("CREATE TABLE t (a int, b text NOT NULL, c date)")
    return loads


def read_reasons(loads: Loads) -> list[tuple[int, str, str, str | None]]:
    """Return line, SQLSTATE, message and column of what is put aside, in the order of the file."""
    query = 'SELECT line, sqlstate, message, "column" FROM penstock.rejects ORDER BY object, start'
    return loads.execute(query)  # type: ignore[return-value]


@pytest.mark.parametrize("kind", BAD)
def test_reasons_are_the_servers(loads: Loads, tmp_path: Path, kind: str) -> None:
    """Of two records alike the server judges the first, and penstock the second."""
    path = tmp_path / "file"
    path.write_bytes(GOOD * 10 + BAD[kind] + GOOD * 10 + BAD[kind] + GOOD * 10)
    job = target(path, format="csv", has_header=False, encoding="UTF8")
    assert loads.run(job, sessions=1, rules=REJECT).rejected == 2
    first, second = read_reasons(loads)
    assert (first[0], second[0], loads.count()) == (11, 22, 30)
    assert second[1:4:2] == first[1:4:2]
    # The server shows the bytes too.
    assert first[2].startswith(second[2])
    assert kind in {"bytes", "nul"} or first[2] == second[2]


@pytest.mark.parametrize("kind", BAD)
def test_many_cost_few_commands(loads: Loads, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """One fails, one carries what is good; the blocks that follow are looked at before they are sent."""
    commands: list[CopySpec] = []
    start_copy = CopySession.start_copy

    def count(session: CopySession, spec: CopySpec) -> None:
        commands.append(spec)
        start_copy(session, spec)

    monkeypatch.setattr(CopySession, "start_copy", count)
    path = tmp_path / "file"
    path.write_bytes((GOOD * 49 + BAD[kind]) * 12_000)
    job = target(path, format="csv", has_header=False, encoding="UTF8")
    outcome = loads.run(job, sessions=1, rules=REJECT)
    assert (outcome.rows, outcome.rejected) == (49 * 12_000, 12_000)
    assert loads.count() == 49 * 12_000
    # 10 MB in commands of 4 MiB.
    assert len(commands) <= 6


def test_nulls_that_a_trigger_fills_are_loaded(loads: Loads, tmp_path: Path) -> None:
    """Whether they are refused is the server's to say."""
    loads.execute(
        "CREATE FUNCTION fill() RETURNS trigger LANGUAGE plpgsql AS"
        " 'BEGIN IF NEW.a = 2 THEN NEW.b := ''filled''; END IF; RETURN NEW; END';"
        "CREATE TRIGGER fill BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION fill()"
    )
    path = tmp_path / "file"
    path.write_bytes(GOOD + b"3,,\n" + BAD["too few"] + GOOD + BAD["null"] * 2 + b"3,,\n")
    outcome = loads.run(target(path, format="csv", has_header=False), sessions=1, rules=REJECT)
    assert (outcome.rows, outcome.rejected) == (4, 3)
    assert loads.execute("SELECT count(*) FROM t WHERE b = 'filled'") == [(2,)]


@pytest.mark.parametrize("file_format", ["csv", "text", "tsv"])
def test_columns_are_named_whatever_their_order(loads: Loads, tmp_path: Path, file_format: str) -> None:
    """Fields that are skipped and columns that are constants count as what they are."""
    null = b"" if file_format == "csv" else b"\\N"
    path = tmp_path / "file"
    records = [b"one", b"x\tone", b"x\t" + null + b"\t1", b"x\tone\t1\tmore", b"x\tone\t1"]
    path.write_bytes(b"other\tb\ta\n" + b"\n".join(records * 2) + b"\n")
    job = target(
        path,
        format=file_format,
        delimiter="\t",
        has_header=True,
        skip=("other",),
        constants={"c": "2020-01-31"},
    )
    assert loads.run(job, sessions=1, rules=REJECT).rejected == 8
    reasons = [(code, column, message) for _, code, message, column in read_reasons(loads)]
    assert reasons[4:] == [
        ("22P04", None, 'missing data for column "b"'),
        ("22P04", None, 'missing data for column "a"'),
        ("23502", "b", 'null value in column "b" of relation "t" violates not-null constraint'),
        ("22P04", None, "extra data after last expected column"),
    ]
    assert loads.execute("SELECT DISTINCT a, b, c::text FROM t") == [(1, "one", "2020-01-31")]


def test_last_record_of_a_command_may_be_found_without_the_server(loads: Loads, tmp_path: Path) -> None:
    """Nothing is left of that command then, and something of those that follow it."""
    loads.execute("CREATE TABLE few (a int CHECK (a > 0), b text)")
    records = [f"{n},x" for n in range(100)]
    # The first is found by its failure, and the next command has 16 records.
    records[16] = "16"
    path = tmp_path / "file.csv"
    path.write_text("".join(f"{record}\n" for record in records))
    job = target(path, into="few", format="csv", has_header=False, columns=("a", "b"))
    outcome = loads.run(job, sessions=1, rules=REJECT)
    assert (outcome.rows, outcome.rejected, loads.count("few")) == (98, 2, 98)
    found = loads.execute("SELECT line, sqlstate FROM penstock.rejects ORDER BY start")
    assert found == [(1, "23514"), (17, "22P04")]
