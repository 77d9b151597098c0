"""Records that a merge refuses are put aside as they are in their file; all others land, in one transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.model.job import LoadRules
from support.loads import Loads, Row
from support.modes import landing_tables, mode_target

if TYPE_CHECKING:
    from pathlib import Path

REJECT = LoadRules(retry_for_s=0.0, on_error="reject")

COLUMNS = """
    k int PRIMARY KEY,
    d date,
    s varchar(6) NOT NULL CHECK (s NOT IN ('no', E'n\\no')),
    p int REFERENCES parent,
    u int UNIQUE,
    e soft
"""
SETUP = """
    CREATE TABLE parent (id int PRIMARY KEY);
    INSERT INTO parent VALUES (1);
    CREATE DOMAIN soft AS text CHECK (VALUE <> 'hard');
    CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        IF NEW.s = 'raise' THEN RAISE EXCEPTION 'not this one' USING ERRCODE = 'P0042'; END IF;
        IF NEW.s = 'drop' THEN RETURN NULL; END IF;
        RETURN NEW;
    END $$;
"""

# What is put in place of a good record, its code, and the column that is told.
BAD = {
    3: ("3,2020-01-01,,1,3,mild", "23502", "s"),
    40: ("40,2020-01-01,no,1,40,mild", "23514", None),
    41: ("41,2020-01-01,raise,1,41,mild", "P0042", None),
    70: ("70,2020-01-01,ok,99,70,mild", "23503", None),
    # Refused by COPY already.
    71: ("seventy-one,2020-01-01,ok,1,71,mild", "22P02", "k"),
    72: ("72,2020-01-01,ok,1", "22P04", None),
    73: ('73,2020-01-01,"n\no",1,71,mild', "23514", None),
    90: ("90,2020-01-01,ok,1,89,mild", "23505", None),
    119: ('119,2020-01-01,"no",1,119,mild', "23514", None),
}


@pytest.fixture
def loads(database: str) -> Loads:
    """Provide loads in tiny blocks into a database with table t, on each version."""
    loads = Loads(database, piece_bytes=333)
    loads.execute(f"{SETUP} CREATE TABLE t ({COLUMNS})")
    loads.execute("CREATE TRIGGER refuse BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION refuse()")
    return loads


def find_rejects(loads: Loads) -> list[Row]:
    """Return object, line, offset, SQLSTATE, column and bytes of what is put aside, in the order of the files."""
    return loads.execute(
        'SELECT object, line, start, sqlstate, "column", raw FROM penstock.rejects ORDER BY object, start'
    )


def find_sums(loads: Loads) -> list[Row]:
    """Return records, rows, suppressed and rejected of each object in the ledger."""
    return loads.execute(
        "SELECT object, sum(records)::int, sum(rows)::int, sum(suppressed)::int, sum(rejected)::int"
        " FROM penstock.ranges GROUP BY 1 ORDER BY 1"
    )


def find_counts(loads: Loads) -> Row:
    """Return what became of the records that were staged and not rejected."""
    return loads.execute("SELECT staged, inserted, updated, duplicates, existing, suppressed FROM penstock.targets")[0]


def write_records(path: Path, records: list[str], header: str = "k,d,s,p,u,e") -> Path:
    """Write a csv file and return its path."""
    path.write_text("\n".join([header, *records]))
    return path


@pytest.mark.parametrize("mode", ["upsert", "insert-new", "truncate"])
@pytest.mark.parametrize("sessions", [1, 3])
def test_what_a_merge_refuses_is_put_aside_byte_for_byte(
    loads: Loads, tmp_path: Path, mode: str, sessions: int
) -> None:
    """With the line, the offset and the reason; what COPY into staging refused stands beside it."""
    records = [f"{n},2020-01-01,ok,1,{n},mild" for n in range(120)]
    for number, (record, _, _) in BAD.items():
        records[number] = record
    paths = [
        write_records(tmp_path / "good", [f"{n},,good,,{n}," for n in range(1000, 1100)]),
        write_records(tmp_path / "bad", records),
    ]
    job = mode_target(paths, mode, format="csv", has_header=True, key=() if mode == "truncate" else ("k",))
    rules = LoadRules(retry_for_s=0.0, on_error="reject", is_atomic=True)
    outcome = loads.run(job, sessions=sessions, rules=rules)
    assert (outcome.rows, outcome.rejected, loads.count()) == (220 - len(BAD), len(BAD), 220 - len(BAD))
    data = paths[1].read_bytes()
    expected, start = [], data.index(b"\n") + 1
    for number, record in enumerate(records):
        raw = record.encode() + (b"\n" if number < 119 else b"")
        if number in BAD:
            _, code, column = BAD[number]
            expected.append((1, data[:start].count(b"\n") + 1, start, code, column, raw))
        start += len(raw)
    assert find_rejects(loads) == expected
    assert find_sums(loads) == [(0, 100, 100, 0, 0), (1, 120, 120 - len(BAD), 0, len(BAD))]
    assert find_counts(loads) == (220 - len(BAD), 220 - len(BAD), 0, 0, 0, 0)
    assert landing_tables(loads) == []
