"""Loads that are run again: they go on, leave out what is loaded, and refuse what would lose or repeat rows."""

from __future__ import annotations

import gzip
import os
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from penstock.core.catalogue.settings import reload
from penstock.core.connect.connection import ConnectionFactory
from penstock.core.errors import DataError, SourceError, TargetError
from penstock.core.values.job import LoadRules
from penstock.ledger.committed import count_rows
from penstock.ledger.ledger import Ledger
from penstock.ledger.values import Claim
from penstock.loading.files import local
from support.codes import has_code
from support.loads import IMPATIENT, Loads, target
from support.modes import Killed, mode_target
from support.parts import rest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from penstock.embedded.server import EmbeddedServer
    from penstock.loading.values.outcome import LoadOutcome, LoadProgress

ROWS = 2000
BATCH = 4000

# Files that were changed since the load began are resumed, if what is loaded of them is the same.
CHANGED = replace(IMPATIENT, changed="load")


@pytest.fixture
def loads(ledger18: str) -> Loads:
    """Provide loads in tiny blocks, commands and batches into a database with a table t."""
    return Loads(ledger18, piece_bytes=509, chunk_bytes=500, setup="CREATE TABLE t (a int, b text)")


def write(path: Path, *, rows: int = ROWS, bad: int | None = None) -> Path:
    """Write a csv file with the numbers from 0; the record of `bad` has a letter of the same width for a number."""
    text = "".join(f"{'x' * len(str(n)) if n == bad else n},value {n}\n" for n in range(rows))
    path.write_text("a,b\n" + text)
    return path


def numbers(loads: Loads) -> list[int]:
    """Return column a in order."""
    return [row[0] for row in loads.execute("SELECT a FROM t ORDER BY a")]


def fail(loads: Loads, path: Path) -> str:
    """Run a load that ends at a bad record after some batches; return the load's id."""
    with pytest.raises(DataError) as caught:
        loads.run(target(path), batch_bytes=BATCH)
    assert 0 < loads.count() < ROWS
    assert f"{loads.count():,} rows are committed in load" in str(caught.value.detail)
    ((load_id, state),) = loads.execute("SELECT id::text, state FROM penstock.loads")
    assert state == "running"
    assert f"penstock resume {load_id}" in str(caught.value.hint)
    assert caught.value.load_id == load_id
    return str(load_id)


def _keep_waiting(loads: Loads, seen: list[int], *, until: Callable[[], bool]) -> None:
    """Have the source fall silent in the middle, and the sessions lose patience with it."""
    loads.tune_batches(silence_s=0.01)

    def look(piece: int) -> None:
        while piece == 30 and not until() and len(seen) < 50:
            time.sleep(0.02)
            seen.append(loads.count())

    loads.at_piece = look


def test_silence_of_a_source_commits_nothing_by_itself(loads: Loads, tmp_path: Path) -> None:
    """A load of less than a batch leaves nothing when it fails, however its bytes came."""
    loads.chop(10**9)
    seen: list[int] = []
    _keep_waiting(loads, seen, until=lambda: False)
    error = loads.refuse(target(write(tmp_path / "file", bad=ROWS - 1)))
    assert "No rows were loaded." in str(error.detail)
    assert max(seen) == 0


@pytest.mark.parametrize("chunk_bytes", [500, 10**9], ids=["between commands", "within one"])
def test_batch_is_committed_in_time_though_its_source_is_silent(loads: Loads, tmp_path: Path, chunk_bytes: int) -> None:
    """No transaction stays open for as long as a source takes."""
    loads.chop(chunk_bytes)
    loads.tune_batches(limit_bytes=None, duration_s=0.1, commits_per_batch=0)
    seen: list[int] = []
    _keep_waiting(loads, seen, until=lambda: len(seen) > 1 and seen[-1] == seen[-2] > 0)
    assert loads.run(target(write(tmp_path / "file"))).rows == ROWS
    assert 0 < max(seen) < ROWS


def test_load_goes_on_once_the_bad_record_is_corrected(loads: Loads, tmp_path: Path) -> None:
    """Where that is asked for: the file has another version now, and what is committed of it proves to be the same."""
    load_id = fail(loads, write(tmp_path / "f", bad=1500))
    before = loads.count()
    outcome = loads.run(target(write(tmp_path / "f")), rules=CHANGED, sessions=3, batch_bytes=2 * BATCH)
    assert numbers(loads) == list(range(ROWS))
    assert (outcome.load_id, outcome.rows, outcome.rows_before) == (load_id, ROWS - before, before)
    assert loads.execute("SELECT state, rows FROM penstock.loads") == [("complete", ROWS)]


class _TiredError(Exception):
    """What a caller's own function raises."""


def _raise_after(rows: int) -> Callable[[LoadProgress], None]:
    def show(progress: LoadProgress) -> None:
        if progress.rows >= rows:
            raise _TiredError

    return show


def test_exception_in_on_progress_leaves_what_an_interrupt_leaves(loads: Loads, tmp_path: Path) -> None:
    """What is committed, a load that can be resumed, and the indexes; the exception says how to resume."""
    loads.execute("CREATE INDEX t_b ON t (b)")
    path = write(tmp_path / "f")
    loads.at_piece = lambda _: time.sleep(0.02)
    rules = replace(IMPATIENT, indexes="rebuild")
    with pytest.raises(_TiredError) as caught:
        loads.run(target(path), rules=rules, batch_bytes=BATCH, on_progress=_raise_after(1))
    assert 0 < loads.count() < ROWS
    ((load_id, state),) = loads.execute("SELECT id::text, state FROM penstock.loads")
    assert state == "running"
    assert f"penstock resume {load_id}" in caught.value.__notes__[0]
    assert loads.execute("SELECT indexname FROM pg_indexes WHERE tablename = 't'") == [("t_b",)]
    assert loads.execute("SELECT * FROM penstock.changes") == []
    loads.at_piece = None
    assert loads.run(target(path), rules=rules).load_id == load_id
    assert numbers(loads) == list(range(ROWS))


def test_exception_in_on_progress_before_the_first_row_leaves_nothing(loads: Loads, tmp_path: Path) -> None:
    """No table that was created for the load, and no load."""
    with pytest.raises(_TiredError):
        loads.run(
            target(write(tmp_path / "f"), into="new", create=True),
            rules=replace(IMPATIENT, atomic=True),
            on_progress=_raise_after(0),
        )
    assert loads.execute("SELECT to_regclass('new')") == [(None,)]
    assert loads.execute("SELECT * FROM penstock.loads") == []


def test_change_in_what_is_committed_is_refused(loads: Loads, tmp_path: Path) -> None:
    """Going on would leave a mixture of two versions."""
    path = write(tmp_path / "f", bad=1500)
    fail(loads, path)
    before = loads.count()
    path.write_bytes(write(path).read_bytes().replace(b"value 7\n", b"VALUE 7\n"))
    with pytest.raises(DataError):
        loads.run(target(path), rules=CHANGED)
    assert loads.count() == before


def test_file_of_which_all_was_rejected_is_loaded_anew_once_it_is_corrected(loads: Loads, tmp_path: Path) -> None:
    """No row of it is stored, so nothing of two versions is mixed; its rejected record is gone with the load's."""
    rules = replace(IMPATIENT, on_error="reject", max_rejects=1)
    for name in ("1.csv", "2.csv"):
        (tmp_path / name).write_text("a,b\nx,value\n")
    with pytest.raises(DataError, match="more than 1 record"):
        loads.run(target(tmp_path, format="csv"), sessions=1, batch_bytes=1, rules=rules)
    assert loads.execute("SELECT count(*) FROM penstock.ranges WHERE rejected > 0") == [(1,)]
    (tmp_path / "1.csv").write_text("a,b\n1,value\n")
    outcome = loads.run(target(tmp_path, format="csv"), rules=replace(rules, changed="load"))
    assert (outcome.rows, outcome.rejected, loads.rows()) == (1, 1, [(1, "value")])


def _overwrite(path: Path, old: bytes, new: bytes) -> None:
    """Write other bytes into a file in place, and restore its time of modification."""
    status = path.stat()
    content = path.read_bytes()
    assert old in content
    with path.open("r+b") as file:
        file.write(content.replace(old, new))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def test_file_overwritten_in_place_with_its_time_restored_is_not_mixed(loads: Loads, tmp_path: Path) -> None:
    """Its time of change shows that it may be another; what is committed of it is not the same."""
    path = write(tmp_path / "f", bad=1500)
    fail(loads, path)
    before = loads.count()
    _overwrite(path, b"value", b"VALUE")
    with pytest.raises(DataError):
        loads.run(target(path))
    assert loads.count() == before


def test_file_corrected_in_place_with_its_time_restored_is_resumed(loads: Loads, tmp_path: Path) -> None:
    """What is committed of it is the same; the next run has the new time of change to compare with."""
    path = write(tmp_path / "f", bad=1500)
    load_id = fail(loads, path)
    _overwrite(path, b"xxxx,value 1500", b"1500,value 1500")
    outcome = loads.run(target(path))
    assert (outcome.load_id, numbers(loads)) == (load_id, list(range(ROWS)))
    assert loads.execute("SELECT ctime_ns FROM penstock.objects") == [(path.stat().st_ctime_ns,)]


def test_file_with_other_permissions_stays_loaded(loads: Loads, tmp_path: Path) -> None:
    """Its time of change moves, and is no part of what it is known by."""
    path = write(tmp_path / "f")
    loads.run(target(path))
    path.chmod(0o600)
    outcome = loads.run(target(path))
    assert (outcome.rows, outcome.objects_skipped) == (0, 1)


def test_file_that_ends_in_an_end_of_data_mark_is_resumed_with_other_permissions(loads: Loads, tmp_path: Path) -> None:
    """After a kill just before the load's end: the mark follows the last committed record, and is none itself."""
    path = tmp_path / "f.txt"
    path.write_text("1\tone\n2\ttwo\n\\.\n")
    job = target(path, format="text")
    load_id = loads.run(job).load_id
    loads.execute("UPDATE penstock.loads SET state = 'running'")
    for mode in (0o600, 0o640):
        path.chmod(mode)
        outcome = loads.run(job)
        assert (outcome.load_id, outcome.rows, numbers(loads)) == (load_id, 0, [1, 2])
        loads.execute("UPDATE penstock.loads SET state = 'running'")


def test_shorter_object_is_refused(loads: Loads, tmp_path: Path) -> None:
    """Its end is before that of what is committed."""
    path = write(tmp_path / "f", bad=1500)
    fail(loads, path)
    write(path, rows=10)
    with pytest.raises(DataError):
        loads.run(target(path), rules=CHANGED)


def test_other_options_do_not_go_on_with_a_load(loads: Loads, tmp_path: Path) -> None:
    """Its committed rows were read otherwise."""
    path = write(tmp_path / "f", bad=1500)
    load_id = fail(loads, path)
    with pytest.raises(TargetError, match=f"belongs to unfinished load {load_id}"):
        loads.run(target(path, constants={"b": "x"}, skip=["b"]))


def test_batches_of_any_size_go_on_with_each_other(loads: Loads, tmp_path: Path) -> None:
    """Blocks, batches and sessions may differ between runs."""
    path = write(tmp_path / "f", bad=1500)
    fail(loads, path)
    write(path)
    for sessions, piece_bytes, batch_bytes in ((1, 211, 900), (3, 5003, 20_000)):
        again = Loads(loads.conninfo, piece_bytes=piece_bytes, chunk_bytes=500)
        again.run(target(path), rules=CHANGED, sessions=sessions, batch_bytes=batch_bytes)
        assert numbers(loads) == list(range(ROWS))


def test_ledger_covers_each_byte_once(loads: Loads, tmp_path: Path) -> None:
    """Ranges of all batches: together the object behind its header, none of them twice."""
    path = write(tmp_path / "f")
    loads.run(target(path), sessions=3, batch_bytes=BATCH)
    ((count, length, lower, upper, records),) = loads.execute(
        "SELECT count(DISTINCT start), sum(upper(p) - lower(p)), min(lower(p)), max(upper(p)),"
        " (SELECT sum(records) FROM penstock.ranges) FROM penstock.ranges, unnest(ranges) AS p"
    )
    assert count > 3
    assert (lower, upper, length, records) == (4, path.stat().st_size, path.stat().st_size - 4, ROWS)


# ---------------------------------------------------------------- a prefix that grows


def test_only_new_files_of_a_folder_are_loaded(loads: Loads, tmp_path: Path) -> None:
    """Yesterday's are in the table already; with --again they are loaded once more."""
    for name in ("1", "2"):
        write(tmp_path / name, rows=100)
    loads.run(target(tmp_path))
    write(tmp_path / "3", rows=10)
    outcome = loads.run(target(tmp_path))
    assert (outcome.rows, outcome.objects_skipped, loads.count()) == (10, 2, 210)
    assert loads.run(target(tmp_path), rules=LoadRules(again=True)).rows == 210


def test_files_are_known_on_another_host(loads: Loads, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And after another mount: the number of their device is another there, and nothing else."""
    write(tmp_path / "1", rows=10)
    loads.run(target(tmp_path))
    version = local.file_version
    monkeypatch.setattr(local, "file_version", lambda status: f"1{version(status)}")
    write(tmp_path / "2", rows=5)
    outcome = loads.run(target(tmp_path))
    assert (outcome.rows, outcome.objects_skipped) == (5, 1)


def test_nothing_new_writes_nothing_down(loads: Loads, tmp_path: Path) -> None:
    """The ledger does not grow by what was not done."""
    write(tmp_path / "1", rows=100)
    loads.run(target(tmp_path))
    outcome = loads.run(target(tmp_path))
    assert (outcome.load_id, outcome.rows, outcome.objects_skipped) == (None, 0, 1)
    assert loads.execute("SELECT count(*) FROM penstock.loads") == [(1,)]


def test_objects_without_records_are_loaded_once(loads: Loads, tmp_path: Path) -> None:
    """An empty file, and one with a header alone."""
    (tmp_path / "1").write_text("")
    (tmp_path / "2").write_text("a,b\n")
    write(tmp_path / "3", rows=5)
    assert loads.run(target(tmp_path)).rows == 5
    assert loads.run(target(tmp_path)).objects_skipped == 3


@pytest.mark.parametrize("how", ["TRUNCATE t", "DELETE FROM t"])
def test_table_that_lost_its_rows_is_a_question(loads: Loads, tmp_path: Path, how: str) -> None:
    """Answered by --emptied."""
    path = write(tmp_path / "f", rows=10)
    loads.run(target(path))
    loads.execute(how)
    with pytest.raises(TargetError, match="after objects were loaded"):
        loads.run(target(path))
    assert loads.run(target(path), rules=LoadRules(emptied="skip")).rows == 0
    assert loads.run(target(path), rules=LoadRules(emptied="load")).rows == 10


def test_table_that_lost_a_part_of_a_load_is_told_from_one_that_lost_all(loads: Loads, tmp_path: Path) -> None:
    """What is missing can go in alone; for all of it the load has to be forgotten."""
    path = write(tmp_path / "f", bad=1500)
    load_id = fail(loads, path)
    write(path)
    before = loads.count()
    loads.execute("TRUNCATE t")
    for answer in ("error", "load"):
        with pytest.raises(TargetError, match="a part of this load was committed") as caught:
            loads.run(target(path), rules=replace(CHANGED, emptied=answer))
        assert f"penstock loads forget {load_id}" in str(caught.value.hint)
    assert loads.run(target(path), rules=replace(CHANGED, emptied="skip")).rows == ROWS - before


def test_table_made_anew_is_another_table(loads: Loads, tmp_path: Path) -> None:
    """A new load fills it, and the one that began with the former table cannot be resumed."""
    path = write(tmp_path / "f", bad=1500)
    fail(loads, path)
    loads.execute("DROP TABLE t; CREATE TABLE t (a int, b text)")
    assert loads.run(target(write(path))).rows == ROWS
    assert loads.execute("SELECT state FROM penstock.loads ORDER BY began_at") == [("running",), ("complete",)]


@pytest.mark.part("rest")
def test_many_small_objects_are_looked_up_together(loads: Loads, tmp_path: Path) -> None:
    """A thousand of them, in one load and once more."""
    for number in range(1000):
        (tmp_path / f"{number:04}").write_text(f"a,b\n{number},x\n")
    assert loads.run(target(tmp_path)).rows == 1000
    assert loads.run(target(tmp_path)).objects_skipped == 1000


# ---------------------------------------------------------------- pipes


def write_pipe(path: Path, text: str) -> threading.Thread:
    """Have a thread write a text to a named pipe, once somebody reads it."""
    if not path.exists():
        os.mkfifo(path)
    thread = threading.Thread(target=path.write_text, args=[text], daemon=True)
    thread.start()
    return thread


def test_pipe_is_loaded_each_time(loads: Loads, tmp_path: Path) -> None:
    """What it brings is not known by its name."""
    path = tmp_path / "pipe"
    for number in (1, 2):
        thread = write_pipe(path, f"a,b\n{number},x\n")
        assert loads.run(target(path)).rows == 1
        thread.join()
    assert numbers(loads) == [1, 2]


def test_pipe_whose_loader_was_killed_is_loaded_by_the_next(
    loads: Loads, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of it was committed: nothing is read to compare."""
    path = tmp_path / "pipe"
    begin = Ledger.begin

    def begin_and_die(ledger: Ledger, *args: Any, **options: Any) -> object:
        begin(ledger, *args, **options)
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(Ledger, "begin", begin_and_die)
        write_pipe(path, "a,b\n1,x\n")
        with pytest.raises(Killed):
            loads.run(target(path))
    assert loads.execute("SELECT state FROM penstock.loads") == [("running",)]
    thread = write_pipe(path, "a,b\n2,x\n")
    assert loads.run(target(path)).rows == 1
    thread.join()
    assert numbers(loads) == [2]


# ---------------------------------------------------------------- objects that go


def folder_of(folder: Path, *, bad: int | None = None) -> Path:
    """Put one file of the numbers from 0 into a folder."""
    write(folder / "1", bad=bad)
    return folder


def cut_short(loads: Loads, folder: Path) -> None:
    """Load a folder of three files, largest first; the second ends the load: the first is in, the third not begun."""
    folder.mkdir()
    write(folder / "1", rows=ROWS + 100)
    write(folder / "2", bad=1500)
    write(folder / "3", rows=10)
    last = "SELECT max(object) FROM penstock.ranges"
    for _ in range(20):
        with pytest.raises(DataError):
            loads.run(target(folder), sessions=1, batch_bytes=BATCH)
        if loads.execute(last) == [(1,)]:
            break
        # The second was slow to be read, and the session took the third meanwhile.
        loads.execute("TRUNCATE t; DELETE FROM penstock.loads")
    assert loads.count() > ROWS + 100
    assert loads.execute(last) == [(1,)]


def test_load_goes_on_without_files_that_are_gone(loads: Loads, tmp_path: Path) -> None:
    """One that was complete and one that was not begun: each of them says what it goes on without."""
    folder = tmp_path / "folder"
    cut_short(loads, folder)
    write(folder / "2")
    (folder / "1").unlink()
    (folder / "3").unlink()
    write(folder / "4", rows=7)
    loads.run(target(folder), rules=CHANGED)
    assert numbers(loads) == sorted([*range(ROWS + 100), *range(ROWS), *range(7)])
    assert loads.notices == [f'skipping objects that do not exist any more: "{folder / "3"}"']
    assert loads.execute("SELECT state FROM penstock.loads") == [("complete",)]


def test_file_that_is_gone_with_a_part_of_it_loaded_is_an_error(loads: Loads, tmp_path: Path) -> None:
    """The load could never be complete."""
    folder = tmp_path / "folder"
    cut_short(loads, folder)
    (folder / "2").unlink()
    before = loads.count()
    with pytest.raises(SourceError, match="does not exist any more, and a part of it is loaded"):
        loads.run(target(folder))
    assert loads.count() == before


def test_file_with_another_name_is_not_loaded_twice_by_the_same_load(loads: Loads, tmp_path: Path) -> None:
    """Its rows are in the table. With its own name again, the load ends."""
    folder = tmp_path / "folder"
    cut_short(loads, folder)
    write(folder / "2")
    (folder / "1").rename(folder / "9")
    before = loads.count()
    with pytest.raises(TargetError, match=f'"{folder / "9"}" is "{folder / "1"}" under another name'):
        loads.run(target(folder), rules=CHANGED)
    assert loads.count() == before
    (folder / "9").rename(folder / "1")
    loads.run(target(folder), rules=CHANGED)
    assert numbers(loads) == sorted([*range(ROWS + 100), *range(ROWS), *range(10)])


MODES = pytest.mark.parametrize("mode", ["replace", "sync", "upsert", "truncate"])


def stage(loads: Loads, folder: Path, mode: str) -> Callable[[], LoadOutcome]:
    """Stage two files, of which the second has a row that refers to no other; return the load to run again."""
    loads.execute("CREATE TABLE parent (id int PRIMARY KEY)")
    loads.execute("INSERT INTO parent VALUES (1)")
    loads.execute("CREATE TABLE s (id int PRIMARY KEY, parent int REFERENCES parent)")
    folder.mkdir()
    (folder / "1").write_text("1,1\n")
    (folder / "2").write_text("2,9\n")
    key = {"key": ("id",)} if mode in ("sync", "upsert") else {}
    job = mode_target(folder, mode, into="s", format="csv", has_header=False, **key)
    rules = replace(IMPATIENT, atomic=mode == "truncate")

    def again() -> LoadOutcome:
        return loads.run(job, rules=rules)

    with pytest.raises(DataError, check=has_code("23503")):
        again()
    assert loads.rows("s") == []
    return again


@MODES
def test_staged_file_that_is_gone_is_not_stored(loads: Loads, tmp_path: Path, mode: str) -> None:
    """The table gets what the files have."""
    folder = tmp_path / "folder"
    again = stage(loads, folder, mode)
    (folder / "2").unlink()
    again()
    assert loads.rows("s") == [(1, 1)]
    assert f'skipping objects that do not exist any more: "{folder / "2"}"' in loads.notices


@MODES
def test_staged_file_with_another_name_is_stored_once(loads: Loads, tmp_path: Path, mode: str) -> None:
    """It is staged again under that name."""
    folder = tmp_path / "folder"
    again = stage(loads, folder, mode)
    (folder / "2").rename(folder / "3")
    loads.execute("INSERT INTO parent VALUES (9)")
    again()
    assert sorted(loads.rows("s")) == [(1, 1), (2, 9)]


def test_records_are_staged_again_if_a_column_has_another_type_since(loads: Loads, tmp_path: Path) -> None:
    """They were rounded to the type that it had."""
    loads.execute("CREATE TABLE parent (id int PRIMARY KEY)")
    loads.execute("CREATE TABLE s (id int PRIMARY KEY REFERENCES parent, n numeric(6, 1))")
    path = tmp_path / "file"
    path.write_text("1,1.26\n")
    job = mode_target(path, "upsert", into="s", format="csv", has_header=False, key=("id",))
    with pytest.raises(DataError, check=has_code("23503")):
        loads.run(job)
    loads.execute("INSERT INTO parent VALUES (1)")
    loads.execute("ALTER TABLE s ALTER n TYPE numeric(6, 3)")
    loads.run(job)
    assert [str(n) for _, n in loads.rows("s")] == ["1.260"]


# ---------------------------------------------------------------- objects that grow


def append_text(path: Path, text: str) -> None:
    """Let a file grow, a compressed one by a member of its own."""
    with path.open("ab") as stream:
        stream.write(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())


def cut_short_whole(
    loads: Loads, folder: Path, *, name: str, is_terminated: bool = True, by_folder: bool = False
) -> Path:
    """Load two files, or their folder. The first is committed whole, and the second ends the load. Return the first."""
    folder.mkdir()
    path = folder / name
    text = write(folder / "text", rows=ROWS + 100).read_text()
    data = (text if is_terminated else text.removesuffix("\n")).encode()
    (folder / "text").unlink()
    # Without compression it stays the larger one, which is read first.
    path.write_bytes(gzip.compress(data, 0) if path.suffix == ".gz" else data)
    write(folder / "2", bad=1500)
    for _ in range(20):
        with pytest.raises(DataError):
            loads.run(target(folder if by_folder else [path, folder / "2"]), sessions=1, batch_bytes=BATCH)
        if loads.execute("SELECT bool_or(has_end) FROM penstock.ranges WHERE object = 0") == [(True,)]:
            return path
        loads.execute("TRUNCATE t; DELETE FROM penstock.loads")
    raise AssertionError("the second file was always faster")


@pytest.mark.parametrize("name", ["1", "1.gz"])
@pytest.mark.parametrize("is_terminated", [True, False], ids=["terminated", "unterminated"])
def test_loaded_file_that_grew_since_is_an_error(
    loads: Loads, tmp_path: Path, name: str, *, is_terminated: bool
) -> None:
    """As it is without the kill: its new rows would never be loaded, or its last record twice."""
    path = cut_short_whole(loads, tmp_path / "folder", name=name, is_terminated=is_terminated)
    before = loads.count()
    append_text(path, "1,new\n")
    write(path.parent / "2")
    sources = target([path, path.parent / "2"])
    with pytest.raises(TargetError, match=f'"{path}" has changed since load') as caught:
        loads.run(sources)
    assert "--changed load" in str(caught.value.hint)
    assert loads.count() == before


@pytest.mark.part("rest")
@pytest.mark.parametrize("name", ["1", "1.gz"])
def test_loaded_file_that_grew_is_loaded_to_its_end_when_told(loads: Loads, tmp_path: Path, name: str) -> None:
    """Also by a run after one that was cut short as well, which finds the version that it knows."""
    path = cut_short_whole(loads, tmp_path / "folder", name=name)
    append_text(path, "".join(f"{n},new\n" for n in range(10_000, 12_000)))
    os.utime(write(path.parent / "2", bad=1500), ns=(1, 1))
    sources = target([path, path.parent / "2"])
    with pytest.raises(DataError, check=has_code("22P02")):
        loads.run(sources, rules=CHANGED, batch_bytes=BATCH)
    with pytest.raises(DataError, check=has_code("22P02")):
        loads.run(sources, batch_bytes=BATCH)
    write(path.parent / "2")
    loads.run(sources, rules=CHANGED, batch_bytes=BATCH)
    assert numbers(loads) == sorted([*range(ROWS + 100), *range(10_000, 12_000), *range(ROWS)])
    assert loads.run(sources).objects_skipped == 2


def test_loaded_record_that_grew_is_refused(loads: Loads, tmp_path: Path) -> None:
    """It had no line end: it would be stored twice, as it was and as it is."""
    path = cut_short_whole(loads, tmp_path / "folder", name="1", is_terminated=False)
    before = loads.count()
    append_text(path, " grown\n1,new\n")
    write(path.parent / "2")
    with pytest.raises(DataError):
        loads.run(target([path, path.parent / "2"]), rules=CHANGED)
    assert loads.count() == before


def test_file_that_grew_stays_as_it_was_loaded_when_told(loads: Loads, tmp_path: Path) -> None:
    """--changed skip: what comes after the load sees the new version; one half loaded cannot stay so."""
    path = cut_short_whole(loads, tmp_path / "folder", name="1")
    append_text(path, "1,new\n")
    sources = target([path, path.parent / "2"])
    rules = replace(IMPATIENT, changed="skip")
    with pytest.raises(DataError, check=has_code("22P02")):
        loads.run(sources, rules=rules, batch_bytes=BATCH)
    write(path.parent / "2")
    with pytest.raises(DataError, match='2" has changed, and a part of it is loaded'):
        loads.run(sources, rules=rules)
    with pytest.raises(TargetError, match="has changed since load"):
        loads.run(sources)
    loads.execute("DELETE FROM penstock.ranges WHERE object = 1; DELETE FROM t")
    loads.run(sources, rules=replace(rules, emptied="skip"))
    assert numbers(loads) == list(range(ROWS))
    with pytest.raises(TargetError, match="has changed since it was loaded"):
        loads.run(sources)


def test_rotated_file_is_not_loaded_under_its_new_name_while_its_load_is_unfinished(
    loads: Loads, tmp_path: Path
) -> None:
    """Its rows are committed already, and another file has its name now."""
    path = cut_short_whole(loads, tmp_path / "folder", name="1", by_folder=True)
    path.rename(path.with_name("1-old"))
    write(path, rows=3)
    write(path.parent / "2")
    before = loads.count()
    with pytest.raises(TargetError, match="under another name, which this load has begun to load"):
        loads.run(target(path.parent), rules=replace(IMPATIENT, changed="skip"))
    assert loads.count() == before


def test_changed_file_is_not_kept_as_it_was_loaded_if_its_table_was_emptied(loads: Loads, tmp_path: Path) -> None:
    """Nothing of it is there to be kept."""
    path = write(tmp_path / "1")
    loads.run(target(path))
    append_text(path, "1,new\n")
    skip = replace(IMPATIENT, changed="skip")
    assert loads.run(target(path), rules=skip).objects_skipped == 1
    loads.execute("TRUNCATE t")
    with pytest.raises(TargetError, match="was emptied after objects were loaded into it"):
        loads.run(target(path), rules=skip)
    assert loads.run(target(path), rules=replace(skip, emptied="load")).rows == ROWS + 1


@pytest.mark.part("rest")
@pytest.mark.parametrize("was", ["a,b\n", "a,b", rest("")])
def test_empty_file_that_grew_is_loaded_when_told(loads: Loads, tmp_path: Path, was: str) -> None:
    """It was complete without a record."""
    first, second = tmp_path / "1", write(tmp_path / "2", bad=1500)
    first.write_text(was)
    sources = target([first, second], has_header=True, columns=["a", "b"])
    for _ in range(20):
        with pytest.raises(DataError):
            loads.run(sources, sessions=1, batch_bytes=BATCH)
        if loads.execute("SELECT has_end FROM penstock.ranges WHERE object = 0") == [(True,)]:
            break
        loads.execute("TRUNCATE t; DELETE FROM penstock.loads")
    first.write_text("a,b\n-1,x\n")
    write(second)
    loads.run(sources, rules=CHANGED)
    assert numbers(loads) == [-1, *range(ROWS)]


def exchange_columns(path: Path, *, bad: int | None = None) -> None:
    """Write the file anew: as `write` does, but below a header that has the columns the other way round."""
    text = write(path, bad=bad).read_text()
    path.write_text(text.replace("a,b\n", "b,a\n", 1))


@pytest.mark.parametrize("sessions", [1, 3])
def test_header_with_exchanged_columns_is_refused(loads: Loads, tmp_path: Path, sessions: int) -> None:
    """As long as before, above the same records: the missing ones would be stored in each other's columns."""
    loads.execute("ALTER TABLE t ALTER a TYPE text")
    path = write(tmp_path / "f")
    loads.execute("ALTER TABLE t ADD CHECK (a <> '1500')")
    with pytest.raises(DataError):
        loads.run(target(path), sessions=sessions, batch_bytes=BATCH)
    loads.execute("ALTER TABLE t DROP CONSTRAINT t_a_check")
    before = loads.rows()
    assert before
    exchange_columns(path)
    with pytest.raises(DataError, match=f'"{path}" has changed in a part that is already loaded') as caught:
        loads.run(target(path), rules=CHANGED)
    assert "header" in (caught.value.detail or "")
    assert loads.rows() == before
    loads.run(target(write(path)), rules=CHANGED)
    assert loads.count() == ROWS
    assert loads.execute("SELECT FROM t WHERE a !~ '^[0-9]+$'") == []


def test_file_cut_at_what_is_loaded_is_complete_when_told(loads: Loads, tmp_path: Path) -> None:
    """Its bad rest was removed: nothing is missing, and its last record is the last that is loaded."""
    path = write(tmp_path / "f", bad=1500)
    with pytest.raises(DataError):
        loads.run(target(path), sessions=1, batch_bytes=BATCH)
    ((end,),) = loads.execute("SELECT max(upper(ranges)) FROM penstock.ranges")
    os.truncate(path, end)
    before = loads.count()
    assert loads.run(target(path), rules=CHANGED).rows == 0
    assert loads.count() == before
    assert loads.execute("SELECT state, rows FROM penstock.loads") == [("complete", before)]


# ---------------------------------------------------------------- two processes, one load


def test_second_process_waits_for_the_first(loads: Loads, tmp_path: Path) -> None:
    """And then finds everything loaded."""
    path = write(tmp_path / "f")
    second = Loads(loads.conninfo)
    found: list[int] = []

    def start_second(number: int) -> None:
        if number == 10:
            thread = threading.Thread(target=lambda: found.append(second.run(target(path)).objects_skipped))
            thread.start()
            threads.append(thread)
            while not any("waiting for another process" in notice for notice in second.notices):
                time.sleep(0.05)

    threads: list[threading.Thread] = []
    loads.at_piece = start_second
    assert loads.run(target(path)).rows == ROWS
    threads[0].join()
    assert (found, loads.count()) == ([1], ROWS)


def test_second_process_does_not_wait_when_told(loads: Loads, tmp_path: Path) -> None:
    """--no-wait: an error that names the backend."""
    path = write(tmp_path / "f")
    errors: list[TargetError] = []

    def try_second(number: int) -> None:
        if number == 10:
            with pytest.raises(TargetError, match="another process is running this load") as caught:
                Loads(loads.conninfo).run(target(path), rules=LoadRules(wait=False))
            errors.append(caught.value)

    loads.at_piece = try_second
    loads.run(target(path))
    assert "backend" in str(errors[0].detail)


def _beginning_between(
    monkeypatch: pytest.MonkeyPatch, begin_other: Callable[[], LoadOutcome]
) -> Iterator[LoadOutcome]:
    """Have another load run between the next look at the ledger and what is made of it; yield what that one did."""
    look_up = Ledger.look_up
    other: list[LoadOutcome] = []
    begun: list[bool] = []

    def look_up_and_wait(ledger: Ledger, *args: Any, **options: Any) -> object:
        found = look_up(ledger, *args, **options)
        if not begun:
            begun.append(True)
            other.append(begin_other())
        return found

    monkeypatch.setattr(Ledger, "look_up", look_up_and_wait)
    return iter(other)


@pytest.mark.parametrize("mode", ["append", "insert-new"])
def test_loads_that_begin_at_once_do_not_share_an_object(
    loads: Loads, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    """One names the file, the other its folder: which of them is the second to write itself down leaves it out."""
    loads.execute("CREATE UNIQUE INDEX ON t (a)" if mode == "insert-new" else "SELECT")
    key = {"key": ("a",)} if mode == "insert-new" else {}
    path = write(tmp_path / "f", rows=100)
    other = _beginning_between(
        monkeypatch, lambda: Loads(loads.conninfo).run(mode_target(path, mode, **key), sessions=1)
    )
    outcome = loads.run(mode_target(tmp_path, mode, **key))
    assert (next(other).rows, outcome.rows, outcome.objects_skipped, loads.count()) == (100, 0, 1, 100)
    assert loads.execute("SELECT count(*) FROM penstock.objects") == [(1,)]


def test_object_that_joins_a_load_late_is_not_shared_either(
    loads: Loads, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that came into the folder of a load that was cut short, and is loaded by its name just now."""
    folder = tmp_path / "folder"
    folder.mkdir()
    with pytest.raises(DataError):
        loads.run(target(folder_of(folder, bad=1500)), batch_bytes=BATCH)
    write(folder / "1")
    late = folder / "2"
    late.write_text("a,b\n-1,late\n")
    other = _beginning_between(monkeypatch, lambda: Loads(loads.conninfo).run(target(late)))
    outcome = loads.run(target(folder), rules=CHANGED)
    assert (next(other).rows, outcome.objects_skipped) == (1, 1)
    assert numbers(loads) == [-1, *range(ROWS)]


def test_loader_whose_load_was_taken_over_writes_nothing_more(loads: Loads, tmp_path: Path) -> None:
    """Its next transaction is refused by the fence."""
    path = write(tmp_path / "f")
    committed: list[int] = []

    def take_over() -> None:
        # Waits for the batch that is under way.
        loads.execute("UPDATE penstock.members SET ended_at = now()")
        committed.append(loads.count())

    thread = threading.Thread(target=take_over)

    def start_taking_over(number: int) -> None:
        if number == 20:
            thread.start()
            waiting = "SELECT pid FROM pg_locks WHERE NOT granted"
            while not (committed or loads.execute(waiting)):
                time.sleep(0.02)

    loads.at_piece = start_taking_over
    with pytest.raises(TargetError, match="was taken over"):
        loads.run(target(path), sessions=1, batch_bytes=BATCH)
    thread.join()
    assert loads.count() == committed[0]


def test_load_is_not_called_empty_while_a_lost_session_commits(loads: Loads, tmp_path: Path) -> None:
    """Its rows come after the question: it is answered once no transaction of the load is under way."""
    load_id = fail(loads, write(tmp_path / "f", bad=1500))
    loads.execute("UPDATE penstock.loads SET epoch = 1; DELETE FROM penstock.ranges")
    ledger, claim = Ledger(), Claim(load_id=load_id, epoch=1, is_resumed=False, member=1)
    forgotten: list[bool] = []

    def forget() -> None:
        with ConnectionFactory(loads.conninfo).connect() as connection:
            forgotten.append(ledger.forget_unused(connection, claim))

    thread = threading.Thread(target=forget)
    with psycopg.connect(loads.conninfo) as lost:
        lost.execute(ledger.fence(claim))
        thread.start()
        while not loads.execute("SELECT FROM pg_locks WHERE NOT granted"):
            time.sleep(0.02)
        values = "0, 0, '{[0,9)}', true, false, 1, 1, 0, 0, 0"
        lost.execute(f"INSERT INTO penstock.ranges VALUES ('{load_id}', {values})".encode())
    thread.join()
    assert forgotten == [False]
    with ConnectionFactory(loads.conninfo).connect() as connection:
        assert count_rows(connection, "penstock", load_id) == 1


@pytest.mark.part("rest")
def test_cancelled_wait_for_a_standby_is_told(new_server: Callable[..., EmbeddedServer], tmp_path: Path) -> None:
    """The rows are there, on this server alone: that is no plain success."""
    server = new_server()
    loads = Loads(server.ensure_running(), setup="CREATE TABLE t (a int, b text)")
    loads.run(target(write(tmp_path / "first", rows=5)))
    loads.execute("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
    with ConnectionFactory(loads.conninfo).connect() as connection:
        reload(connection)
    stop = threading.Event()

    def cancel_waits() -> None:
        with psycopg.connect(loads.conninfo, autocommit=True) as connection:
            while not stop.wait(0.1):
                connection.execute("SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'")

    thread = threading.Thread(target=cancel_waits)
    thread.start()
    try:
        outcome = loads.run(target(write(tmp_path / "second", rows=7)), rules=IMPATIENT)
    finally:
        stop.set()
        thread.join()
    assert (outcome.rows, outcome.is_local_only) == (7, True)
