"""Rejected records that are tried again: when what they refer to has landed, on request, and as a file has them."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

import penstock
from penstock.api.connect import connect_to
from penstock.api.ledger_view import LedgerView
from penstock.core.errors import DataError, PenstockError, TargetError
from penstock.core.values.job import LoadRules, Transform
from penstock.core.values.names import parse_table_name
from penstock.loading.copy.copy import CopySession
from support.files import write_to
from support.loads import IMPATIENT, Loads, await_end_of_backends, find_sums, target
from support.modes import Killed, mode_target

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penstock.core.values.job import TargetJob
    from penstock.loading.values.outcome import LoadOutcome

REJECT = LoadRules(retry_for=0.0, on_error="reject")


@pytest.fixture
def loads(ledger18: str) -> Loads:
    """Provide loads in tiny blocks into a database with tables parent and child, and tree, which refers to itself."""
    loads = Loads(ledger18, piece_bytes=501, setup="CREATE TABLE parent (id int PRIMARY KEY)")
    loads.execute("CREATE TABLE child (id int PRIMARY KEY, parent int REFERENCES parent)")
    loads.execute("CREATE TABLE tree (id int PRIMARY KEY, parent int REFERENCES tree)")
    return loads


@pytest.fixture
def ledger(loads: Loads) -> Iterator[LedgerView]:
    """Provide what the ledger of the database says."""
    with LedgerView(connect_to(loads.conninfo)) as view:
        yield view


def write(path: Path, header: str, records: list[str]) -> Path:
    """Write a csv file and return its path."""
    path.write_text("".join(f"{record}\n" for record in [header, *records]))
    return path


def run_id(outcome: LoadOutcome) -> str:
    """Return the load's id."""
    assert outcome.load_id is not None
    return outcome.load_id


# ---------------------------------------------------------------- foreign keys


@pytest.mark.parametrize("chunk_bytes", [100, 2000, 10**9])
def test_children_before_their_parents_go_in(loads: Loads, tmp_path: Path, chunk_bytes: int) -> None:
    """Whatever the order of the job; orphans alone are rejected."""
    loads.chop(chunk_bytes)
    parents = write(tmp_path / "parents", "id", [str(n) for n in range(100)])
    orphans = {17: "17,1000", 500: "500,2000"}
    children = write(tmp_path / "children", "id,parent", [orphans.get(n, f"{n},{n % 100}") for n in range(700)])
    outcome = loads.run(
        target(children, into="child", format="csv"),
        target(parents, into="parent", format="csv", has_header=True),
        sessions=3,
        rules=REJECT,
    )
    assert (outcome.rows, outcome.rejected) == (798, 2)
    assert (loads.count("parent"), loads.count("child")) == (100, 698)
    found = loads.execute("SELECT line, sqlstate, raw, detail FROM penstock.rejects ORDER BY line")
    assert [row[:3] for row in found] == [(19, "23503", b"17,1000\n"), (502, "23503", b"500,2000\n")]
    assert "(1000)" in found[0][3]
    assert find_sums(loads) == [(0, 700, 698, 0, 2), (1, 100, 100, 0, 0)]


@pytest.mark.parametrize("batch_bytes", [None, 600])
def test_tree_that_is_written_leaves_first_goes_in(loads: Loads, tmp_path: Path, batch_bytes: int | None) -> None:
    """A table that refers to itself; a branch without a root is rejected with all that hangs on it."""
    loads.chop(300)
    records = [f"{n},{n // 2 if n > 1 else ''}" for n in range(400, 0, -1)]
    records += ["1002,1001", "1001,1000"]
    path = write(tmp_path / "tree", "id,parent", records)
    outcome = loads.run(target(path, into="tree", format="csv"), rules=REJECT, batch_bytes=batch_bytes)
    assert (outcome.rows, outcome.rejected, loads.count("tree")) == (400, 2, 400)


def test_orphans_count_at_the_end_alone(loads: Loads, tmp_path: Path) -> None:
    """Children that wait for their parents are no rejects yet; those that are left are."""
    parents = write(tmp_path / "parents", "id", [str(n) for n in range(100)])
    children = write(tmp_path / "children", "id,parent", [f"{n},{n % 100}" for n in range(300)])
    job = (
        target(children, into="child", format="csv"),
        target(parents, into="parent", format="csv", has_header=True),
    )
    assert loads.run(*job, rules=LoadRules(retry_for=0.0, on_error="reject", max_rejects=0)).rejected == 0
    orphans = write(tmp_path / "orphans", "id,parent", ["1000,1000", "1001,1001"])
    rules = LoadRules(retry_for=0.0, on_error="reject", max_rejects=1)
    with pytest.raises(DataError, match="more than 1 record was rejected"):
        loads.run(target(orphans, into="child", format="csv"), rules=rules)


# ---------------------------------------------------------------- on request


def test_rejects_go_in_once_the_table_takes_them(loads: Loads, ledger: LedgerView, tmp_path: Path) -> None:
    """What is refused again stays; nothing goes in twice."""
    path = write(tmp_path / "children", "id,parent", ["1,1", "2,2", "x,"])
    outcome = loads.run(target(path, into="child", format="csv"), rules=REJECT)
    assert (outcome.rows, outcome.rejected) == (0, 3)
    loads.execute("INSERT INTO parent VALUES (1), (2)")
    done = ledger.retry(run_id(outcome))
    assert (done.rows, done.left, loads.count("child")) == (2, 1, 2)
    again = ledger.retry(run_id(outcome))
    assert (again.rows, again.left, loads.count("child")) == (0, 1, 2)
    assert find_sums(loads) == [(0, 3, 2, 0, 1)]
    assert loads.execute("SELECT rows FROM penstock.loads") == [(2,)]
    record, (item,) = ledger.load(run_id(outcome))
    assert (record.rows, item.rows, item.rejected) == (2, 2, 1)


def test_a_retry_fires_no_triggers_that_its_load_has_disabled(loads: Loads, ledger: LedgerView, tmp_path: Path) -> None:
    """It is refused until they are disabled by hand."""
    loads.execute(
        "CREATE FUNCTION shout() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'fired'; END $$;"
        "CREATE TRIGGER shouts BEFORE INSERT ON child FOR EACH ROW EXECUTE FUNCTION shout();"
        "CREATE TRIGGER quiet BEFORE UPDATE ON child FOR EACH ROW EXECUTE FUNCTION shout()"
    )
    path = write(tmp_path / "children", "id,parent", ["1,1", "2,"])
    outcome = loads.run(target(path, into="child", format="csv"), rules=replace(REJECT, triggers="disable"))
    assert (outcome.rows, outcome.rejected) == (1, 1)
    loads.execute("INSERT INTO parent VALUES (1)")
    with pytest.raises(TargetError, match="would fire triggers that did not fire for the load") as caught:
        ledger.retry(run_id(outcome))
    assert str(caught.value.detail) == "Triggers: shouts ON public.child."
    loads.execute("ALTER TABLE child DISABLE TRIGGER shouts")
    _await_unlocked(loads)
    assert (ledger.retry(run_id(outcome)).rows, loads.count("child")) == (1, 2)


def test_nothing_is_retried_while_a_killed_load_has_dropped_the_key(
    loads: Loads, ledger: LedgerView, tmp_path: Path
) -> None:
    """It is the key that refuses the record. The hint is followed."""
    outcome = loads.run(target(write(tmp_path / "f", "id", ["1", "1"]), into="parent"), rules=REJECT)
    assert outcome.rejected == 1
    child = loads.run(target(write(tmp_path / "h", "id,parent", ["1,", "x,"]), into="child"), rules=REJECT)

    def die(_number: int) -> None:
        raise Killed

    loads.at_piece = die
    with pytest.raises(Killed):
        loads.run(
            target(write(tmp_path / "g", "id", ["2"]), into="parent"), rules=LoadRules(retry_for=0.0, indexes="rebuild")
        )
    loads.at_piece = None
    await_end_of_backends(loads)
    with pytest.raises(TargetError, match=r'keys or triggers of table "public[.]parent" are not') as caught:
        ledger.retry(run_id(outcome))
    assert "penstock repair" in str(caught.value.hint)
    with pytest.raises(TargetError, match=r'keys or triggers of table "public[.]child" are not'):
        ledger.retry(run_id(child))
    loads.repair().raise_first()
    assert ledger.retry(run_id(outcome)).left == 1
    assert loads.rows("parent") == [(1,)]


@pytest.mark.part("rest")
def test_retry_does_not_bring_back_what_was_truncated_since(loads: Loads, ledger: LedgerView, tmp_path: Path) -> None:
    """The load's other rows are gone from the table, and the rejected one belonged to them."""
    path = write(tmp_path / "f", "id,parent", ["1,", "2,7"])
    outcome = loads.run(target(path, into="child"), rules=REJECT)
    loads.run(mode_target(write(tmp_path / "g", "id,parent", ["3,"]), "truncate", into="child"))
    loads.execute("INSERT INTO parent VALUES (7)")
    with pytest.raises(TargetError, match="has emptied, replaced or synced table"):
        ledger.retry(run_id(outcome))
    assert loads.rows("child") == [(3, None)]


@pytest.mark.parametrize("change", ["ALTER TABLE t RENAME TO old", "DROP TABLE t"])
def test_records_do_not_go_into_another_table_that_has_the_name_now(
    loads: Loads, ledger: LedgerView, tmp_path: Path, change: str
) -> None:
    """A load of the same file into that table would store them once more."""
    loads.execute("CREATE TABLE t (a int)")
    path = write(tmp_path / "a.csv", "a", ["1", "x"])
    load_id = run_id(loads.run(target(path, format="csv", has_header=True), rules=REJECT))
    loads.execute(f"{change}; CREATE TABLE t (a text)")
    with pytest.raises(TargetError, match=f"is not the one that load {load_id} has filled"):
        ledger.retry(load_id)
    assert loads.count() == 0
    if "RENAME" in change:
        loads.execute("DROP TABLE t; ALTER TABLE old RENAME TO t; ALTER TABLE t ALTER a TYPE text")
        assert ledger.retry(load_id).rows == 1


def test_what_a_retry_has_loaded_is_safe_when_it_says_so(
    loads: Loads, ledger: LedgerView, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No end of a load follows, which would make durable what sessions have committed before it."""
    waits: list[str] = []
    commit = CopySession.commit

    def note(self: CopySession, *given: Any) -> None:
        with self.between_copies() as connection:
            waits.append(connection.execute("SHOW synchronous_commit").fetchone()[0])
        commit(self, *given)

    path = write_to(tmp_path / "file.csv", "id,p\n1,1\n")
    loads.execute("CREATE TABLE s (id int, p int CHECK (p > 1))")
    load_id = loads.run(target(path, into="s", format="csv"), rules=REJECT).load_id
    loads.execute("ALTER TABLE s DROP CONSTRAINT s_p_check")
    monkeypatch.setattr(CopySession, "commit", note)
    assert load_id is not None
    assert ledger.retry(load_id).rows == 1
    assert waits == ["on"]


def test_edited_file_takes_the_place_of_the_rejects(loads: Loads, ledger: LedgerView, tmp_path: Path) -> None:
    """Corrected records go in; one that is refused again stays as it is now; the file cannot go in twice."""
    path = write(tmp_path / "children", "id,parent", ["1,", "x,", "y,", '"z\n",', "5,"])
    outcome = loads.run(target(path, into="child", format="csv"), rules=REJECT)
    file = tmp_path / "rejects.csv"
    assert ledger.write_rejects(run_id(outcome), file) == [file]
    assert file.read_bytes() == b'id,parent\nx,\ny,\n"z\n",\n'
    file.write_text("id,parent\n2,\nstill wrong,\n4,")
    done = ledger.retry(run_id(outcome), file)
    assert (done.rows, done.left) == (2, 1)
    assert sorted(row[0] for row in loads.rows("child")) == [1, 2, 4, 5]
    assert loads.execute("SELECT raw FROM penstock.rejects") == [(b"still wrong,\n",)]
    with pytest.raises(TargetError, match="the file has 3 records, and the load has 1"):
        ledger.retry(run_id(outcome), file)


@pytest.mark.parametrize(
    ("setting", "value", "column", "text"),
    [("DateStyle", "ISO,DMY", "date", "03/04/2026"), ("TimeZone", "Asia/Tokyo", "timestamptz", "2026-01-01 10:00")],
)
def test_retry_that_would_read_values_otherwise_is_refused(
    loads: Loads, tmp_path: Path, setting: str, value: str, column: str, text: str
) -> None:
    """The rows of the load were read by the settings that it had."""
    loads.execute(f"CREATE TABLE s (n int, v {column})")
    path = write(tmp_path / "a.csv", "n,v", ["1,2026-01-01", f"x,{text}"])
    other = make_conninfo(loads.conninfo, options=f"-c {setting}={value}")
    load_id = penstock.load(path, into="s", to=other, on_error="reject").load_id
    assert load_id is not None
    file = write_to(tmp_path / "r.csv", f"n,v\n2,{text}\n")
    with pytest.raises(TargetError, match="has read its values by other settings") as caught:
        penstock.retry(load_id, file, to=loads.conninfo)
    assert f"{setting} was" in str(caught.value.detail)
    assert penstock.retry(load_id, file, to=other).rows == 1


def test_retry_advances_sequences_as_its_load_did(loads: Loads, ledger: LedgerView, tmp_path: Path) -> None:
    """The next row gets a key that no retried one has."""
    loads.execute("CREATE TABLE s (id serial PRIMARY KEY, n int)")
    path = write(tmp_path / "a.csv", "id,n", ["1,1", "7,x"])
    load_id = run_id(loads.run(target(path, into="s", format="csv"), rules=REJECT))
    outcome = ledger.retry(load_id, write_to(tmp_path / "r.csv", "id,n\n7,2\n"))
    assert (outcome.rows, outcome.warnings) == (1, ())
    assert loads.execute("SELECT nextval('s_id_seq')") == [(8,)]


@pytest.mark.parametrize("header", ["id,parent", None])
def test_byte_order_mark_that_a_program_adds_to_a_reject_file_is_no_data(
    loads: Loads, ledger: LedgerView, tmp_path: Path, header: str | None
) -> None:
    """With a header and without."""
    loads.execute("CREATE TABLE s (id text CHECK (id <> 'x'), parent text)")
    path = write_to(tmp_path / "a.csv", "".join(f"{line}\n" for line in (header, "1,", "x,") if line))
    job = target(path, into="s", format="csv", has_header=header is not None, columns=("id", "parent"))
    load_id = run_id(loads.run(job, rules=REJECT))
    file = write_to(tmp_path / "r.csv", "\ufeff" + "".join(f"{line}\n" for line in (header, "2,") if line))
    assert ledger.retry(load_id, file).rows == 1
    assert loads.execute("SELECT id FROM s ORDER BY id") == [("1",), ("2",)]


def test_reject_files_that_differ_in_how_lines_end_are_told_apart(
    loads: Loads, ledger: LedgerView, tmp_path: Path
) -> None:
    """Each goes to the records of its own file."""
    loads.execute("CREATE TABLE s (id int, parent int)")
    ends = ((1, "\n"), (2, "\r\n"))
    paths = [write_to(tmp_path / f"{n}.csv", f"id,parent{end}{n},{end}x,{end}".encode()) for n, end in ends]
    load_id = run_id(loads.run(target(paths, into="s", format="csv", has_header=True), rules=REJECT))
    files = ledger.write_rejects(load_id, tmp_path / "r.csv")
    assert len(files) == 2
    for number, file in enumerate(files, 3):
        write_to(file, file.read_bytes().replace(b"x", str(number).encode()))
        assert ledger.retry(load_id, file).rows == 1
    assert loads.execute("SELECT id FROM s ORDER BY id") == [(n,) for n in (1, 2, 3, 4)]


def test_record_that_is_blanked_in_a_reject_file_of_json_lines_is_an_error(
    loads: Loads, ledger: LedgerView, tmp_path: Path
) -> None:
    """It is neither corrected nor left as it was."""
    loads.execute("CREATE TABLE s (id int)")
    path = write_to(tmp_path / "a.jsonl", '{"id": 1}\n{"id": "x"}\n{"id": "y"}\n')
    load_id = run_id(loads.run(target(path, into="s", format="jsonl"), rules=REJECT))
    with pytest.raises(TargetError, match=r"a record of .* is empty"):
        ledger.retry(load_id, write_to(tmp_path / "r.jsonl", '\n{"id": 2}\n'))
    assert loads.count("s") == 1


def test_reject_file_is_read_as_the_objects_were(loads: Loads, ledger: LedgerView, tmp_path: Path) -> None:
    """With their own dialect, columns in another order, left out ones and constants."""
    loads.execute("CREATE TABLE odd (id int, name text, source text)")
    path = write_to(tmp_path / "odd.txt", b"name;extra;id\r\n'caf\xe9 ; x';1;one\r\n'b';2;2")
    job = target(
        path,
        into="odd",
        format="csv",
        delimiter=";",
        quote="'",
        encoding="LATIN1",
        constants={"source": "{filename}"},
        skip=["extra"],
    )
    outcome = loads.run(job, rules=REJECT)
    assert (outcome.rows, outcome.rejected) == (1, 1)
    file = tmp_path / "rejects.txt"
    ledger.write_rejects(run_id(outcome), file)
    assert file.read_bytes() == b"name;extra;id\r\n'caf\xe9 ; x';1;one\r\n"
    file.write_bytes(file.read_bytes().replace(b"one", b"1"))
    assert ledger.retry(run_id(outcome), file).left == 0
    assert loads.rows("odd") == [(1, "café ; x", "odd.txt"), (2, "b", "odd.txt")]


def test_record_that_cannot_be_written_stays(loads: Loads, ledger: LedgerView, tmp_path: Path) -> None:
    """Where values are added to each record, one with too few fields never comes to the server."""
    loads.execute("CREATE TABLE odd (id int, name text, source text)")
    path = write(tmp_path / "odd", "id,name", ["1", "x,b", "3,c"])
    job = target(path, into="odd", format="csv", has_header=True, constants={"source": "x"})
    load_id = run_id(loads.run(job, rules=REJECT))
    file = tmp_path / "rejects"
    ledger.write_rejects(load_id, file)
    file.write_text(file.read_text().replace("x,b", "2,b"))
    done = ledger.retry(load_id, file)
    assert (done.rows, done.left, loads.count("odd")) == (1, 1, 2)
    assert loads.execute("SELECT line, sqlstate, raw FROM penstock.rejects") == [(2, "22P04", b"1\n")]


def test_rejects_of_unlike_files_are_written_to_files_of_their_own(
    loads: Loads, ledger: LedgerView, tmp_path: Path
) -> None:
    """One for each header."""
    one = write(tmp_path / "one", "id,parent", ["x,"])
    two = write(tmp_path / "two", "parent,id", [",y"])
    outcome = loads.run(target([one, two], into="child", format="csv", has_header=True), rules=REJECT)
    paths = ledger.write_rejects(run_id(outcome), tmp_path / "rejects.csv")
    assert [path.name for path in paths] == ["rejects.csv", "rejects-2.csv"]
    assert [path.read_text() for path in paths] == ["id,parent\nx,\n", "parent,id\n,y\n"]
    assert ledger.retry(run_id(outcome)).left == 2
    paths[1].write_text("parent,id\n,7\n")
    done = ledger.retry(run_id(outcome), paths[1])
    assert (done.rows, done.left, loads.rows("child")) == (1, 1, [(7, None)])
    with pytest.raises(TargetError, match="has 1 record, and the load has 0"):
        ledger.retry(run_id(outcome), paths[1])
    paths[0].write_text("id,parent\n8,\n")
    assert (ledger.retry(run_id(outcome), paths[0]).left, loads.count("child")) == (0, 2)


def test_file_without_the_header_is_no_reject_file(loads: Loads, ledger: LedgerView, tmp_path: Path) -> None:
    """Its columns may be others, and another load's file is not taken for this load's."""
    outcome = loads.run(target(write(tmp_path / "one", "id,parent", ["x,"]), into="child", format="csv"), rules=REJECT)
    with pytest.raises(TargetError, match="is no reject file of load"):
        ledger.retry(run_id(outcome), write(tmp_path / "other", "parent,id", ["1,2"]))
    assert loads.count("child") == 0


def test_table_of_a_file_is_named_if_several_have_its_header(loads: Loads, ledger: LedgerView, tmp_path: Path) -> None:
    """Records never go into a table by guess."""
    jobs = [
        target(write(tmp_path / table, "id,parent", [f"bad {table},"]), into=table, format="csv")
        for table in ("child", "tree")
    ]
    load_id = run_id(loads.run(*jobs, rules=REJECT))
    paths = ledger.write_rejects(load_id, tmp_path / "rejects.csv")
    assert len(paths) == 2
    corrected = write(tmp_path / "corrected", "id,parent", ["5,"])
    with pytest.raises(TargetError, match="may belong to several reject files") as caught:
        ledger.retry(load_id, corrected)
    assert "--into" in (caught.value.hint or "")
    done = ledger.retry(load_id, corrected, into=parse_table_name("tree"))
    assert (done.rows, done.left, loads.rows("tree"), loads.rows("child")) == (1, 1, [(5, None)], [])


def test_load_that_has_not_ended_is_not_retried(loads: Loads, ledger: LedgerView, tmp_path: Path) -> None:
    """It is to be resumed first."""
    path = write(tmp_path / "children", "id,parent", [f"{n}," if n % 20 else f"bad {n}," for n in range(400)])
    rules = LoadRules(retry_for=0.0, on_error="reject", max_rejects=9)
    with pytest.raises(DataError, match="more than 9"):
        loads.run(target(path, into="child", format="csv", has_header=True), sessions=1, rules=rules, batch_bytes=300)
    (load_id,) = loads.execute("SELECT id::text FROM penstock.loads")[0]
    with pytest.raises(TargetError, match="has not ended"):
        ledger.retry(load_id)


def test_causes_are_grouped_and_counted(loads: Loads, ledger: LedgerView, tmp_path: Path) -> None:
    """Values in messages do not part them; the most frequent comes first, with its first record."""
    path = write(tmp_path / "children", "id,parent", ["1,x", "a,1", "2,y", "3,z", "4,4,4"])
    outcome = loads.run(target(path, into="child", format="csv", has_header=True), rules=REJECT)
    first, *others = ledger.rejects(run_id(outcome))
    assert (first.sqlstate, first.column, first.count, first.line) == ("22P02", "parent", 3, 2)
    assert first.message == 'invalid input syntax for type integer: "..."'
    assert (first.example, first.raw) == ('invalid input syntax for type integer: "x"', b"1,x\n")
    assert sorted((cause.sqlstate, cause.column, cause.count) for cause in others) == [
        ("22P02", "id", 1),
        ("22P04", None, 1),
    ]


def test_records_of_a_table_that_is_created_are_rejected_and_retried(
    loads: Loads, ledger: LedgerView, tmp_path: Path
) -> None:
    """The name is without its schema, and found without the user's search_path."""
    outcome = loads.run(
        target(write(tmp_path / "file", "a,b", ["1,2", "1", "3,4"]), into="made", create=True), rules=REJECT
    )
    assert (outcome.rows, outcome.rejected) == (2, 1)
    file = tmp_path / "rejects"
    ledger.write_rejects(run_id(outcome), file)
    file.write_text(file.read_text().replace("\n1\n", "\n1,5\n"))
    assert ledger.retry(run_id(outcome), file).rows == 1
    assert loads.rows("made") == [("1", "2"), ("1", "5"), ("3", "4")]


# ---------------------------------------------------------------- targets that are merged, transformed or replaced

ORIGIN = "SELECT o.uri, r.line, r.raw FROM penstock.rejects AS r JOIN penstock.objects AS o"
ORIGIN += " ON o.load = r.load AND o.number = r.object ORDER BY o.uri, r.line"
COUNTS = "SELECT number, staged, inserted, updated, duplicates, existing FROM penstock.targets ORDER BY number"


def upsert(path: Path, into: str, **options: Any) -> TargetJob:
    """Return a target that is merged by id."""
    return mode_target(path, "upsert", into=into, key=("id",), format="csv", has_header=True, **options)


def load_two_upserts(loads: Loads, folder: Path) -> tuple[str, Path]:
    """Upsert children, then parents, two bad records of each; return the load's id and the children's file."""
    children = write(folder / "children", "id,parent", ["1,1", "x,1", "3,2", "4,1"])
    parents = write(folder / "parents", "id", ["1", "two", "3", "-4"])
    loads.execute("ALTER TABLE parent ADD CONSTRAINT positive CHECK (id > 0)")
    outcome = loads.run(upsert(children, "child"), upsert(parents, "parent"), rules=REJECT)
    assert (outcome.rows, outcome.rejected) == (4, 4)
    return run_id(outcome), children


@pytest.mark.part("rest")
def test_several_merged_targets_are_retried_under_their_load(loads: Loads, ledger: LedgerView, tmp_path: Path) -> None:
    """Parents go in before their children; what is still wrong keeps its place in the first load's own file."""
    load_id, children = load_two_upserts(loads, tmp_path)
    assert ledger.retry(load_id).left == 4
    loads.execute("ALTER TABLE parent DROP CONSTRAINT positive")
    files = ledger.write_rejects(load_id, tmp_path / "r.csv")
    texts = {path.read_text(): path for path in files}
    children_file, parents_file = texts["id,parent\nx,1\n3,2\n"], texts["id\ntwo\n-4\n"]
    parents_file.write_text("id\n2\n-4\n")
    done = ledger.retry(load_id, parents_file)
    # A child waits for the corrected parent, and goes in with it.
    assert (done.load_id, done.rows, done.left) == (load_id, 3, 1)
    assert loads.rows("child") == [(1, 1), (3, 2), (4, 1)]
    assert loads.execute(ORIGIN) == [(str(children), 3, b"x,1\n")]
    assert children_file.exists()
    children_file = ledger.write_rejects(load_id, tmp_path / "again.csv")[0]
    children_file.write_text("id,parent\n2,1\n")
    assert ledger.retry(load_id, children_file).left == 0
    assert [len(loads.rows(table)) for table in ("child", "parent")] == [4, 4]
    assert len(ledger.loads()) == 1
    assert find_sums(loads) == [(0, 4, 4, 0, 0), (1, 4, 4, 0, 0)]
    assert loads.execute(COUNTS) == [(0, 4, 4, 0, 0, 0), (1, 4, 4, 0, 0, 0)]
    assert loads.execute("SELECT rows FROM penstock.loads") == [(8,)]
    assert ledger.load(load_id)[0].rows == 8


@pytest.mark.part("rest")
def test_half_corrected_file_of_an_upsert_loads_what_is_right_once(
    loads: Loads, ledger: LedgerView, tmp_path: Path
) -> None:
    """What COPY refuses, what the merge refuses, and what is right."""
    path = write(tmp_path / "children", "id,parent", ["1,", "x,", "y,", "z,", "5,"])
    load_id = run_id(loads.run(upsert(path, "child"), rules=REJECT))
    (file,) = ledger.write_rejects(load_id, tmp_path / "r.csv")
    file.write_text("id,parent\n2,\nstill wrong,\n4,99\n")
    done = ledger.retry(load_id, file)
    assert (done.load_id, done.rows, done.left) == (load_id, 1, 2)
    assert loads.rows("child") == [(1, None), (2, None), (5, None)]
    assert loads.execute(ORIGIN) == [(str(path), 4, b"still wrong,\n"), (str(path), 5, b"4,99\n")]
    assert find_sums(loads) == [(0, 5, 3, 0, 2)]
    loads.execute("INSERT INTO parent VALUES (99)")
    assert (ledger.retry(load_id).rows, loads.count("child")) == (1, 4)


@pytest.mark.part("rest")
def test_duplicates_in_a_retried_file_are_named_by_their_lines(
    loads: Loads, ledger: LedgerView, tmp_path: Path
) -> None:
    """With --keep error the retry changes nothing."""
    path = write(tmp_path / "children", "id,parent", ["x,", "y,"])
    load_id = run_id(loads.run(upsert(path, "child", keep="error"), rules=REJECT))
    (file,) = ledger.write_rejects(load_id, tmp_path / "r.csv")
    file.write_text("id,parent\n2,\n2,\n")
    with pytest.raises(DataError) as caught:
        ledger.retry(load_id, file)
    assert f"First in {path} line 2, then in {path} line 3." in (caught.value.detail or "")
    assert (loads.count("child"), loads.execute("SELECT count(*) FROM penstock.rejects")) == (0, [(2,)])


@pytest.mark.part("rest")
def test_records_of_a_replaced_table_go_into_the_table_that_replaced_it(
    loads: Loads, ledger: LedgerView, tmp_path: Path
) -> None:
    """It has another oid than the load began with."""
    path = write(tmp_path / "tree", "id,parent", ["1,", "x,1", "3,1"])
    load_id = run_id(loads.run(mode_target(path, "replace", into="tree", format="csv"), rules=REJECT))
    (file,) = ledger.write_rejects(load_id, tmp_path / "r.csv")
    file.write_text("id,parent\n2,1\n")
    done = ledger.retry(load_id, file)
    assert (done.rows, done.left, loads.rows("tree")) == (1, 0, [(1, None), (2, 1), (3, 1)])


@pytest.mark.parametrize("mode", ["truncate", "replace"])
def test_records_of_a_table_that_a_later_load_has_emptied_are_not_retried(
    loads: Loads, ledger: LedgerView, tmp_path: Path, mode: str
) -> None:
    """They belong to what the table had before."""
    path = write(tmp_path / "tree", "id,parent", ["1,", "x,1"])
    load_id = run_id(loads.run(target(path, into="tree", format="csv"), rules=REJECT))
    later = write(tmp_path / "later", "id,parent", ["5,"])
    later_id = run_id(loads.run(mode_target(later, mode, into="tree", format="csv")))
    with pytest.raises(TargetError, match=f"load {later_id} has emptied, replaced or synced table") as caught:
        ledger.retry(load_id)
    assert f"penstock rejects {load_id} --discard" in str(caught.value.hint)
    assert loads.rows("tree") == [(5, None)]


def test_a_retry_fires_no_triggers_that_a_new_table_had_not_yet(
    loads: Loads, ledger: LedgerView, tmp_path: Path
) -> None:
    """COPY fills it before it replaces the old one."""
    loads.execute(
        "CREATE FUNCTION shout() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'fired'; END $$;"
        "CREATE TRIGGER shouts AFTER INSERT ON tree FOR EACH ROW EXECUTE FUNCTION shout()"
    )
    path = write(tmp_path / "file", "id,parent", ["1,", "x,"])
    load_id = run_id(loads.run(mode_target(path, "replace", into="tree", format="csv"), rules=REJECT))
    with pytest.raises(TargetError, match="would fire triggers that did not fire for the load"):
        ledger.retry(load_id)


@pytest.mark.parametrize(("mode", "is_refused"), [("truncate", True), ("append", False)])
def test_records_of_a_table_whose_partition_a_later_load_has_emptied_are_not_retried(
    loads: Loads, ledger: LedgerView, tmp_path: Path, mode: str, is_refused: bool
) -> None:
    """The partition may have them already."""
    loads.execute(
        "CREATE TABLE whole (id int, v text) PARTITION BY RANGE (id); CREATE TABLE part PARTITION OF whole DEFAULT"
    )
    path = write(tmp_path / "file", "id,v", ["1,a", "x,b"])
    load_id = run_id(loads.run(target(path, into="whole", format="csv"), rules=REJECT))
    later = write(tmp_path / "later", "id,v", ["1,a", "2,b"])
    loads.run(mode_target(later, mode, into="part", format="csv"))
    if is_refused:
        with pytest.raises(TargetError, match="has emptied, replaced or synced table"):
            ledger.retry(load_id)
    else:
        assert ledger.retry(load_id).left == 1


@pytest.mark.parametrize("mode", ["sync", "upsert"])
def test_a_prune_does_not_change_which_records_are_retried(
    loads: Loads, ledger: LedgerView, tmp_path: Path, mode: str
) -> None:
    """Those of a table that was synced since are not, and those of one that was merged into are."""
    path = write(tmp_path / "tree", "id,parent", ["1,", "x,1"])
    load_id = run_id(loads.run(target(path, into="tree", format="csv"), rules=REJECT))
    later = write(tmp_path / "later", "id,parent", ["1,", "5,"])
    options: dict[str, Any] = {"key": ("id",), **({"max_delete": 100} if mode == "sync" else {})}
    loads.run(mode_target(later, mode, into="tree", format="csv", **options))
    for prune in (lambda: None, lambda: ledger.prune(age_s=0.0)):
        prune()
        _await_unlocked(loads)
        if mode == "sync":
            with pytest.raises(TargetError, match="has emptied, replaced or synced table"):
                ledger.retry(load_id)
        else:
            assert ledger.retry(load_id).left == 1


def test_records_that_waited_for_a_load_that_empties_the_table_are_not_stored(
    loads: Loads, ledger: LedgerView, tmp_path: Path
) -> None:
    """The retry has looked before that load was complete."""
    path = write(tmp_path / "tree", "id,parent", ["1,", "x,1"])
    load_id = run_id(loads.run(target(path, into="tree", format="csv"), rules=REJECT))
    (file,) = ledger.write_rejects(load_id, tmp_path / "r.csv")
    file.write_text("id,parent\n2,\n")
    later = write(tmp_path / "later", "id,parent", ["5,"])
    loads.execute(
        "CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " IF NEW.id = 5 THEN PERFORM pg_advisory_xact_lock_shared(47); END IF; RETURN NULL; END $$;"
        "CREATE TRIGGER wait AFTER INSERT ON tree FOR EACH ROW EXECUTE FUNCTION wait()"
    )

    def await_wait(event: str) -> None:
        while not loads.execute(f"SELECT FROM pg_stat_activity WHERE wait_event = '{event}'"):
            time.sleep(0.01)

    with psycopg.connect(loads.conninfo, autocommit=True) as holder, ThreadPoolExecutor(2) as pool:
        holder.execute("SELECT pg_advisory_lock(47)")
        job = mode_target(later, "truncate", into="tree", format="csv")
        emptying = pool.submit(loads.run, job, rules=replace(IMPATIENT, atomic=True))
        await_wait("advisory")
        retrying = pool.submit(ledger.retry, load_id, file)
        await_wait("relation")
        holder.execute("SELECT pg_advisory_unlock_all()")
        assert emptying.result().rows == 1
        with pytest.raises(TargetError, match="has emptied, replaced or synced table"):
            retrying.result()
    assert loads.rows("tree") == [(5, None)]


@pytest.mark.part("rest")
def test_records_of_a_transform_are_transformed(loads: Loads, ledger: LedgerView, tmp_path: Path) -> None:
    """By the load's own statement; a record that it refuses undoes the retry."""
    sql = Transform(name="t.sql", text="INSERT INTO child SELECT id::int * 10, NULL FROM :staging")
    path = write(tmp_path / "file", "id,parent", ["1,", "2", "3,"])
    job = mode_target(path, "append", into="child", transform=sql, format="csv", has_header=True)
    load_id = run_id(loads.run(job, rules=REJECT))
    (file,) = ledger.write_rejects(load_id, tmp_path / "r.csv")
    file.write_text("id,parent\nx,\n")
    with pytest.raises(DataError):
        ledger.retry(load_id, file)
    file.write_text("id,parent\n2,\n")
    assert (ledger.retry(load_id, file).rows, loads.count("child")) == (1, 3)
    assert sorted(row[0] for row in loads.rows("child")) == [10, 20, 30]


@pytest.mark.parametrize(
    "text",
    [
        "WITH gone AS (DELETE FROM child WHERE id < 0) INSERT INTO child SELECT id::int, NULL FROM :staging",
        "WITH gone AS (UPDATE child SET parent = NULL) INSERT INTO child SELECT id::int, NULL FROM :staging",
        "WITH gone AS (DELETE/**/FROM child WHERE id < 0) INSERT INTO child SELECT id::int, NULL FROM :staging",
    ],
)
def test_transform_that_changes_other_rows_is_not_run_on_the_rejected_records_alone(
    loads: Loads, ledger: LedgerView, tmp_path: Path, text: str
) -> None:
    """It would delete the rows of all records that were not rejected."""
    path = write(tmp_path / "file", "id,parent", ["1,", "2", "3,"])
    job = mode_target(path, "append", into="child", transform=Transform(name="t.sql", text=text), format="csv")
    load_id = run_id(loads.run(job, rules=REJECT))
    with pytest.raises(TargetError, match="cannot be retried"):
        ledger.retry(load_id)
    assert loads.count("child") == 2


def test_transform_is_judged_by_its_words_and_not_by_its_texts(
    loads: Loads, ledger: LedgerView, tmp_path: Path
) -> None:
    """A string or a comment may have any."""
    path = write(tmp_path / "file", "id,parent", ["1,", "2", "3,"])
    text = "INSERT INTO child SELECT id::int, NULL FROM :staging WHERE id <> 'delete' -- and not by source"
    job = mode_target(path, "append", into="child", transform=Transform(name="t.sql", text=text), format="csv")
    load_id = run_id(loads.run(job, rules=REJECT))
    (file,) = ledger.write_rejects(load_id, tmp_path / "r.csv")
    file.write_text("id,parent\n2,\n")
    assert (ledger.retry(load_id, file).rows, loads.count("child")) == (1, 3)


def test_statement_is_not_run_for_records_that_are_all_refused_again(
    loads: Loads, ledger: LedgerView, tmp_path: Path
) -> None:
    """It stores a row also for none."""
    sql = Transform(name="t.sql", text="INSERT INTO child SELECT count(*), NULL FROM :staging")
    path = write(tmp_path / "file", "id,parent", ["1,", "2", "3,"])
    job = mode_target(path, "append", into="child", transform=sql, format="csv")
    load_id = run_id(loads.run(job, rules=REJECT))
    assert (ledger.retry(load_id).left, loads.rows("child")) == (1, [(2, None)])


def test_records_of_an_atomic_load_are_inserted(loads: Loads, ledger: LedgerView, tmp_path: Path) -> None:
    """They were staged, without a key."""
    path = write(tmp_path / "children", "id,parent", ["1,", "x,"])
    rules = LoadRules(retry_for=0.0, on_error="reject", atomic=True)
    load_id = run_id(loads.run(mode_target(path, "truncate", into="child", format="csv"), rules=rules))
    (file,) = ledger.write_rejects(load_id, tmp_path / "r.csv")
    file.write_text("id,parent\n2,\n")
    assert (ledger.retry(load_id, file).rows, loads.rows("child")) == (1, [(1, None), (2, None)])


# ---------------------------------------------------------------- the table of a reject file


@pytest.mark.part("rest")
def test_reject_file_of_two_tables_with_one_header_names_its_table(
    loads: Loads, ledger: LedgerView, tmp_path: Path
) -> None:
    """Its records could be those of either. A table whose records the load has not rejected is an error."""
    loads.execute("CREATE TABLE other (id int PRIMARY KEY, parent int)")
    paths = [write(tmp_path / name, "id,parent", ["1,", f"{bad},"]) for name, bad in (("a", "x"), ("b", "y"))]
    jobs = [target(path, into=into, format="csv") for path, into in zip(paths, ("child", "other"), strict=True)]
    load_id = run_id(loads.run(*jobs, rules=REJECT))
    file = write(tmp_path / "corrected", "id,parent", ["2,"])
    with pytest.raises(PenstockError, match="several") as caught:
        ledger.retry(load_id, file)
    assert "--into" in (caught.value.hint or "")
    _await_unlocked(loads)
    with pytest.raises(PenstockError, match="parent"):
        ledger.retry(load_id, file, into=parse_table_name("parent"))
    _await_unlocked(loads)
    assert ledger.retry(load_id, file, into=parse_table_name("other")).rows == 1
    assert loads.execute("SELECT id FROM other ORDER BY id") == [(1,), (2,)]
    assert loads.execute("SELECT id FROM child ORDER BY id") == [(1,)]


def _await_unlocked(loads: Loads) -> None:
    """Wait until the server has ended the session of a retry that failed, which holds the load's lock."""
    while loads.execute(
        "SELECT FROM pg_locks WHERE locktype = 'advisory'"
        " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    ):
        time.sleep(0.02)
