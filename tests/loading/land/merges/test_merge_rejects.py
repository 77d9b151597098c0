"""Records that a merge refuses are rejected as they are in their file; all others land, in one transaction."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pytest
from psycopg.conninfo import make_conninfo

from penstock.core.errors import DataError, SourceError
from penstock.core.values.job import LoadRules
from penstock.loading.files import local
from penstock.loading.land import merges
from penstock.loading.land.merge_sorting import MergeSorter
from support.codes import has_code
from support.loads import Loads, Row, find_sums, target
from support.modes import landing_tables, mode_target

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.loading.values.outcome import LoadOutcome

pytestmark = pytest.mark.versions

REJECT = LoadRules(retry_for=0.0, on_error="reject")

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

# What replaces a good record, the code of its error, and the column that the error names.
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
    loads = Loads(database, piece_bytes=333, setup=f"{SETUP} CREATE TABLE t ({COLUMNS})")
    loads.execute("CREATE TRIGGER refuse BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION refuse()")
    return loads


def find_rejects(loads: Loads) -> list[Row]:
    """Return object, line, offset, SQLSTATE, column and bytes of what is rejected, in the order of the files."""
    return loads.execute(
        'SELECT object, line, start, sqlstate, "column", raw FROM penstock.rejects ORDER BY object, start'
    )


REASONS = "SELECT message FROM penstock.rejects ORDER BY object, start"


def find_counts(loads: Loads) -> Row:
    """Return what became of the records that were staged and not rejected."""
    return loads.execute("SELECT staged, inserted, updated, duplicates, existing, suppressed FROM penstock.targets")[0]


def write_records(path: Path, records: list[str], header: str = "k,d,s,p,u,e") -> Path:
    """Write a csv file and return its path."""
    path.write_text("\n".join([header, *records]))
    return path


@pytest.mark.parametrize("mode", ["upsert", "insert-new", "truncate"])
@pytest.mark.parametrize("sessions", [1, 3])
def test_what_a_merge_refuses_is_rejected_byte_for_byte(loads: Loads, tmp_path: Path, mode: str, sessions: int) -> None:
    """With the line, the offset and the reason; what COPY into staging refused stands beside it."""
    records = [f"{n},2020-01-01,ok,1,{n},mild" for n in range(120)]
    for number, (record, _, _) in BAD.items():
        records[number] = record
    paths = [
        write_records(tmp_path / "good", [f"{n},,good,,{n}," for n in range(1000, 1100)]),
        write_records(tmp_path / "bad", records),
    ]
    job = mode_target(paths, mode, format="csv", has_header=True, key=() if mode == "truncate" else ("k",))
    rules = LoadRules(retry_for=0.0, on_error="reject", atomic=True)
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


def run_upsert(loads: Loads, *paths: Path, rules: LoadRules = REJECT, **options: Any) -> LoadOutcome:
    """Upsert into t by k."""
    return loads.run(mode_target(paths, "upsert", key=("k",), format="csv", has_header=True, **options), rules=rules)


@pytest.mark.parametrize("keep", ["first", "last"])
def test_records_of_a_refused_key_are_rejected_with_it(loads: Loads, tmp_path: Path, keep: str) -> None:
    """`keep` chooses one record of each key; if the table refuses it, the others say so and are rejected too."""
    records = ["1,,no,,,", "1,,good,,,", "1,,no,,,", "2,,good,,,", "2,,good,,,"]
    outcome = run_upsert(loads, write_records(tmp_path / "file", records), keep=keep)
    assert loads.execute("SELECT k FROM t") == [(2,)]
    assert (outcome.rows, outcome.rejected, outcome.duplicates) == (1, 3, 1)
    assert [(line, code) for _, line, _, code, *_ in find_rejects(loads)] == [(n, "23514") for n in (2, 3, 4)]
    told = [reason.startswith("another record with this key") for (reason,) in loads.execute(REASONS)]
    assert told == ([False, True, True] if keep == "first" else [True, True, False])


def test_record_behind_blank_lines_is_told_from_the_next_one(loads: Loads, tmp_path: Path) -> None:
    """In JSON Lines, COPY's reject begins behind the blank lines that its record has; the merge's is another one."""
    records = ['{"k": 1, "s": "ok"}', "", '{"k": "x", "s": "ok"}', '{"k": 2, "s": "no"}', '{"k": 3, "s": "ok"}']
    path = write_records(tmp_path / "file.jsonl", records[1:], header=records[0])
    outcome = loads.run(mode_target(path, "upsert", key=("k",), format="jsonl"), rules=REJECT)
    assert (outcome.rows, outcome.rejected) == (2, 2)
    assert [(line, code, raw) for _, line, _, code, _, raw in find_rejects(loads)] == [
        (3, "22P02", b'{"k": "x", "s": "ok"}\n'),
        (4, "23514", b'{"k": 2, "s": "no"}\n'),
    ]


def test_records_without_a_key_are_refused_one_by_one(loads: Loads, tmp_path: Path) -> None:
    """Where the key is NOT NULL: none of them gives way unseen to another."""
    outcome = run_upsert(
        loads, write_records(tmp_path / "file", [",,ok,,,", ",,ok,,,", "1,,ok,,,", ",,no,,,"]), keep="last"
    )
    assert (outcome.rows, outcome.rejected, outcome.duplicates) == (1, 3, 0)
    assert [(code, column) for _, _, _, code, column, _ in find_rejects(loads)] == [("23502", "k")] * 3


def test_records_without_a_key_are_refused_together(
    loads: Loads, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None of them waits for another's turn, which would look at all that is staged for each."""
    begun = []
    take_on = MergeSorter._take_on
    monkeypatch.setattr(MergeSorter, "_take_on", lambda *given, **named: begun.append(1) or take_on(*given, **named))
    path = write_records(tmp_path / "file", [f"{n if n % 2 else ''},,ok,,," for n in range(200)])
    outcome = run_upsert(loads, path, keep="last")
    assert (outcome.rows, outcome.rejected) == (100, 100)
    assert len(begun) == 1


@pytest.mark.parametrize("nulls", ["", pytest.param("NULLS NOT DISTINCT", marks=pytest.mark.pg(">= 15"))])
def test_refused_record_without_a_value_in_its_key(loads: Loads, tmp_path: Path, nulls: str) -> None:
    """Two nulls are one key only if the index says so; otherwise each record has a key of its own."""
    loads.execute(f"CREATE TABLE n (a int NOT NULL, b int, v text CHECK (v <> 'no'), UNIQUE {nulls} (a, b))")
    path = write_records(tmp_path / "file", ["1,,no", "1,,x", "1,,y", "2,2,no", "2,2,z"], header="a,b,v")
    job = mode_target(path, "upsert", into="n", key=("a", "b"), keep="first", format="csv", has_header=True)
    outcome = loads.run(job, rules=REJECT)
    assert (outcome.rejected, outcome.duplicates) == (5 if nulls else 3, 0)
    assert loads.rows("n") == ([] if nulls else [(1, None, "x"), (1, None, "y")])


def test_children_wait_for_parents_of_other_targets(loads: Loads, tmp_path: Path) -> None:
    """In whatever order the tables are merged; an orphan whose parent is refused is refused too."""
    loads.execute("ALTER TABLE parent ADD CHECK (id <> 13)")
    children = write_records(tmp_path / "children", [f"{n},,ok,{n},," for n in range(10, 20)])
    parents = write_records(tmp_path / "parents", [str(n) for n in range(10, 20)], header="id")
    outcome = loads.run(
        mode_target(children, "upsert", key=("k",), format="csv", has_header=True),
        mode_target(parents, "insert-new", into="parent", key=("id",), format="csv", has_header=True),
        rules=REJECT,
    )
    assert (outcome.rows, outcome.rejected) == (18, 2)
    assert [(number, code, raw) for number, _, _, code, _, raw in find_rejects(loads)] == [
        (0, "23503", b"13,,ok,13,,\n"),
        (1, "23514", b"13\n"),
    ]


def test_rows_that_refer_to_each_other_go_in(loads: Loads, tmp_path: Path) -> None:
    """Though neither can before the other, and a constraint that is checked at the commit is checked in time."""
    loads.execute("ALTER TABLE t ADD FOREIGN KEY (u) REFERENCES t, ADD UNIQUE (e) DEFERRABLE INITIALLY DEFERRED")
    records = [f"{n},,ok,,{n ^ 1},{n}" for n in range(40)] + ["100,,ok,,100,7"]
    outcome = run_upsert(loads, write_records(tmp_path / "file", records))
    assert (outcome.rows, outcome.rejected) == (40, 1)
    assert [(code, raw) for _, _, _, code, _, raw in find_rejects(loads)] == [("23505", b"100,,ok,,100,7")]


def test_rows_that_a_policy_refuses_are_rejected(loads: Loads, tmp_path: Path) -> None:
    """Row-level security, by which a load goes through a staging table."""
    role = "merge_reader"
    loads.execute(
        f"DROP ROLE IF EXISTS {role}; CREATE ROLE {role} LOGIN; GRANT INSERT, SELECT ON t TO {role};"
        f" GRANT SELECT ON parent TO {role}; ALTER TABLE t ENABLE ROW LEVEL SECURITY;"
        f" CREATE POLICY p ON t TO {role} USING (true) WITH CHECK (k < 50)"
    )
    database = loads.execute("SELECT current_database()")[0][0]
    loads.execute(f'GRANT CREATE ON DATABASE "{database}" TO {role}')
    path = write_records(tmp_path / "file", ["1,,ok,,,", "51,,ok,,,", "2,,drop,,,", "3,,no,,,"])
    limited = Loads(make_conninfo(loads.conninfo, user=role))
    outcome = limited.run(target(path, format="csv", has_header=True), rules=REJECT)
    assert (outcome.rows, outcome.rejected, outcome.suppressed) == (1, 2, 1)
    assert [(code, raw) for _, _, _, code, _, raw in find_rejects(loads)] == [
        ("42501", b"51,,ok,,,\n"),
        ("23514", b"3,,no,,,"),
    ]
    assert find_sums(loads) == [(0, 4, 2, 0, 2)]
    assert find_counts(loads) == (2, 1, 0, 0, 0, 1)
    loads.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")


@pytest.mark.part("rest")
def test_limit_ends_the_load_and_a_higher_one_goes_on(loads: Loads, tmp_path: Path) -> None:
    """Nothing has landed then, and the error quotes the first ones; COPY's rejects count too."""
    records = ["x,,ok,,,", *(f"{n},,no,,," for n in range(10)), *(f"{n},,ok,99,," for n in range(10, 13)), "20,,ok,,,"]
    path = write_records(tmp_path / "file", records)
    with pytest.raises(DataError, match="more than 13 records were rejected") as caught:
        run_upsert(loads, path, rules=LoadRules(retry_for=0.0, on_error="reject", max_rejects=13))
    assert f"{path} line 3: new row" in (caught.value.detail or "")
    assert loads.count() == 0
    with pytest.raises(DataError, match="more than 5 records were rejected"):
        run_upsert(loads, path, rules=LoadRules(retry_for=0.0, on_error="reject", max_rejects=5))
    outcome = run_upsert(loads, path, rules=LoadRules(retry_for=0.0, on_error="reject", max_rejects=14))
    assert (outcome.rows, outcome.rejected) == (1, 14)
    assert find_sums(loads) == [(0, 15, 1, 0, 14)]


@pytest.mark.part("rest")
def test_object_that_was_changed_since_is_staged_anew(loads: Loads, tmp_path: Path) -> None:
    """Bytes that are not what was staged are no rejects; the load says so, and goes on with what is there."""
    path = write_records(tmp_path / "file", ["1,,ok,,,", "2,,no,,,", "3,,ok,,,"])

    def change(connection: Any, **values: Any) -> Any:
        path.write_text(path.read_text().replace("2,,no", "2,,XX"))
        return fetch(connection, **values)

    fetch = merges.check_constraints_at_once
    with patch.object(merges, "check_constraints_at_once", change), pytest.raises(SourceError):
        run_upsert(loads, path)
    assert loads.count() == 0
    outcome = run_upsert(loads, path, rules=LoadRules(retry_for=0.0, on_error="reject", changed="load"))
    assert (outcome.rows, outcome.rejected) == (3, 0)


def test_checksums_tell_a_changed_object(loads: Loads, tmp_path: Path) -> None:
    """Where its version does not, as on a file system that keeps no time of change."""
    path = write_records(tmp_path / "file", ["1,,ok,,,", "2,,no,,,", "3,,ok,,,"])

    def change(connection: Any, **values: Any) -> Any:
        before = path.stat()
        path.write_text(path.read_text().replace("3,,ok", "3,,XX"))
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        return fetch(connection, **values)

    fetch, version = merges.check_constraints_at_once, local.file_version
    with (
        patch.object(local, "file_version", lambda status: f"{version(status).rpartition(':')[0]}:0"),
        patch.object(merges, "check_constraints_at_once", change),
        pytest.raises(DataError, match="has changed since its records were staged"),
    ):
        run_upsert(loads, path)
    assert loads.count() == 0


def test_role_without_temporary_tables_is_told_of_them(loads: Loads, tmp_path: Path) -> None:
    """Then the first bad record ends the load, as it does without --on-error reject; good ones land."""
    role = "merge_plain"
    database = loads.execute("SELECT current_database()")[0][0]
    loads.execute(
        f"DROP ROLE IF EXISTS {role}; CREATE ROLE {role} LOGIN; GRANT INSERT, SELECT, UPDATE ON t TO {role};"
        f' GRANT CREATE ON DATABASE "{database}" TO {role}; REVOKE TEMPORARY ON DATABASE "{database}" FROM PUBLIC'
    )
    limited = Loads(make_conninfo(loads.conninfo, user=role))
    with pytest.raises(DataError, match="violates check constraint") as caught:
        run_upsert(limited, write_records(tmp_path / "bad", ["1,,no,,,"]))
    assert "TEMPORARY" in (caught.value.hint or "")
    assert run_upsert(limited, write_records(tmp_path / "good", ["1,,ok,,,"])).rows == 1
    loads.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")


def test_pipe_is_to_be_spooled(loads: Loads, tmp_path: Path) -> None:
    """Its bytes are gone when the merge refuses a record."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_text("k,d,s,p,u,e\n1,,no,,,\n2,,ok,,,\n"))
    writer.start()
    with pytest.raises(DataError, check=has_code("23514")) as caught:
        run_upsert(loads, pipe)
    writer.join()
    assert "--spool" in (caught.value.hint or "")
    assert loads.count() == 0


def test_names_like_our_own_are_no_hindrance(loads: Loads, tmp_path: Path) -> None:
    """Columns called as what a refused record is noted with, or as the statement's variables."""
    loads.execute(
        "CREATE TABLE odd (code int PRIMARY KEY, first int, bad int CHECK (bad > 0), penstock_state int,"
        ' penstock_sqlstate text, words text, "percent %s" int)'
    )
    header = "code,first,bad,penstock_state,penstock_sqlstate,words,percent %s"
    path = write_records(tmp_path / "file", ["1,1,1,1,1,1,1", "2,1,0,1,1,1,1", "3,2,2,2,2,2,2"], header=header)
    job = mode_target(path, "upsert", into="odd", key=("code",), keep="first", format="csv", has_header=True)
    assert loads.run(job, rules=REJECT).rejected == 1
    assert loads.rows("odd") == [(1, 1, 1, 1, "1", "1", 1), (3, 2, 2, 2, "2", "2", 2)]
