"""Several sessions, several targets: all of a load stays or nothing, whatever the sessions do to each other."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from threading import Event, Lock
from typing import TYPE_CHECKING

import psycopg
import pytest

from penstock.core.catalogue.catalog import find_blocked
from penstock.core.connect.connection import ConnectionFactory
from penstock.core.errors import DataError, Interrupted, PenstockError, SourceError
from penstock.core.values.job import LoadRules
from penstock.loading.attempt import LoadAttempt
from support.files import write_to
from support.loads import Loads, target

if TYPE_CHECKING:
    from concurrent.futures import Future
    from pathlib import Path

    from penstock.loading.values.outcome import LoadProgress


@pytest.fixture
def loads(ledger18: str) -> Loads:
    """Provide loads in tiny blocks into a database with table t (a int, b text)."""
    return Loads(ledger18, piece_bytes=1009, setup="CREATE TABLE t (a int, b text)")


def write_numbers(path: Path, numbers: range) -> Path:
    """Write a csv file with header a,b and a record for each number; return its path."""
    path.write_text("a,b\n" + "".join(f"{n},value {n}\n" for n in numbers))
    return path


@pytest.mark.parametrize("sessions", [1, 2, 3, 8, None])
def test_every_session_count_loads_everything_once(loads: Loads, tmp_path: Path, sessions: int | None) -> None:
    """One file over all sessions, in many commands; the outcome's numbers are those of the table."""
    loads.chop(5000)
    path = write_numbers(tmp_path / "file", range(20_000))
    outcome = loads.run(target(path), sessions=sessions)
    assert (outcome.rows, outcome.suppressed, outcome.files[0].rows) == (20_000, 0, 20_000)
    assert outcome.bytes_read == path.stat().st_size
    assert loads.execute("SELECT count(*), count(DISTINCT a), sum(a) FROM t") == [(20_000, 20_000, 199_990_000)]


@pytest.mark.part("rest")
def test_lock_that_others_hold_is_told(loads: Loads, tmp_path: Path) -> None:
    """Who holds it, so that somebody can end it; then the load goes on."""
    path = write_numbers(tmp_path / "file", range(100))
    with psycopg.connect(loads.conninfo, application_name="other") as other:
        other.execute("LOCK TABLE t")
        pid = other.info.backend_pid
        released: list[int] = []

        def release_when_told(progress: LoadProgress) -> None:
            if not released and any("waiting for a lock" in notice for notice in loads.notices):
                other.rollback()
                released.append(progress.rows)

        rules = LoadRules(retry_for=60.0)
        assert loads.run(target(path), sessions=2, on_progress=release_when_told, rules=rules).rows == 100
        told = [notice for notice in loads.notices if "waiting for a lock" in notice]
    assert released
    assert len(told) == 1
    assert f"backend {pid}, user " in told[0]
    assert '"other", idle in transaction' in told[0]


@pytest.mark.part("rest")
def test_session_of_others_between_two_of_the_load_gets_its_lock(loads: Loads, tmp_path: Path) -> None:
    """One of the load's sessions waits behind it, and it waits for another, which has nothing more to do."""
    # The largest file is loaded first. It is one block, which one session takes.
    paths = [write_numbers(tmp_path / f"{n}", range(2000 * n, 2000 * n + (1000 if n else 1500))) for n in range(9)]
    held = "SELECT FROM pg_locks WHERE relation = 't'::regclass AND mode = '{}' AND granted = {}"
    guard, queued, begun = Lock(), Event(), []
    locked: list[Future[None]] = []

    def lock() -> None:
        with psycopg.connect(loads.conninfo) as other:
            other.execute("SET lock_timeout = '30s'; LOCK TABLE t")

    def queue_another(piece: int) -> None:
        with guard:
            begun.append(piece)
            is_second = len(begun) == 2
        if is_second:
            await_rows(loads, held.format("RowExclusiveLock", "true"))
            locked.append(pool.submit(lock))
            await_rows(loads, held.format("AccessExclusiveLock", "false"))
            queued.set()
        elif len(begun) > 2:
            queued.wait()

    loads.piece_bytes, loads.at_piece = 1_000_000, queue_another
    with ThreadPoolExecutor() as pool:
        outcome = loads.run(target(paths), sessions=2, rules=LoadRules(retry_for=30.0, vacuum=False))
        # Raises LockNotAvailable if the lock was never granted.
        locked[0].result()
    assert outcome.rows == 9500
    assert loads.execute("SELECT count(*), count(DISTINCT a) FROM t") == [(9500, 9500)]


def test_wait_through_a_session_of_others_is_for_an_own_one_if_that_is_idle(database: str) -> None:
    """One that works will end its transaction."""
    loads = Loads(database, setup="CREATE TABLE t (a int)")
    held = "SELECT FROM pg_locks WHERE relation = 't'::regclass AND NOT granted AND mode = '{}'"
    take = "LOCK TABLE t IN {} MODE"
    with ThreadPoolExecutor() as threads, ExitStack() as stack:
        own, waiting, other = (stack.enter_context(psycopg.connect(database)) for _ in range(3))
        watch = stack.enter_context(ConnectionFactory(database).connect())
        own.execute(take.format("ROW EXCLUSIVE").encode())
        queued = threads.submit(other.execute, take.format("ACCESS EXCLUSIVE").encode())
        await_rows(loads, held.format("AccessExclusiveLock"))
        behind = threads.submit(waiting.execute, take.format("ROW EXCLUSIVE").encode())
        await_rows(loads, held.format("RowExclusiveLock"))
        pids = [own.info.backend_pid, waiting.info.backend_pid]
        (found,) = find_blocked(watch, pids)
        assert (found.pid, found.waits_for_own, len(found.others)) == (waiting.info.backend_pid, True, 1)
        working = threads.submit(own.execute, "SELECT pg_sleep(1)")
        await_rows(loads, f"SELECT FROM pg_stat_activity WHERE pid = {pids[0]} AND state = 'active'")
        assert not find_blocked(watch, pids)[0].waits_for_own
        working.result()
        own.rollback()
        queued.result()
        other.rollback()
        behind.result()


def await_rows(loads: Loads, query: str) -> None:
    """Wait until a query returns rows."""
    while not loads.execute(query):
        time.sleep(0.01)


def test_session_that_fails_last_is_heard_before_anything_commits(
    loads: Loads, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the news of its failure is slow to arrive: the other sessions' rows must not be committed."""
    tell = LoadAttempt._session_ended

    def tell_late(run: LoadAttempt, future: Future[None]) -> None:
        time.sleep(0.2)
        tell(run, future)

    monkeypatch.setattr(LoadAttempt, "_session_ended", tell_late)
    loads.execute("ALTER TABLE t ADD c text")
    path = write_to(tmp_path / "file", "a,b\n1,x\n2\n")
    error = loads.refuse(target(path, format="csv", has_header=True, constants={"c": "x"}), sessions=1)
    assert "missing data" in error.message


def test_files_of_unequal_size_are_loaded_by_all_sessions(loads: Loads, tmp_path: Path) -> None:
    """The rows of each file are counted separately."""
    sizes = {"large": 9000, "small": 10, "empty": 0, "middle": 700}
    paths = [write_numbers(tmp_path / name, range(count)) for name, count in sizes.items()]
    outcome = loads.run(target(paths), sessions=3)
    assert {file.uri.rpartition("/")[2]: file.rows for file in outcome.files} == sizes
    assert loads.count() == sum(sizes.values())


def test_several_targets_are_loaded_in_one_load(loads: Loads, tmp_path: Path) -> None:
    """With dialects and tables of their own, one of them made for it."""
    (tmp_path / "tsv").write_text("x\ty\n" + '1\t"q\n' * 500)
    numbers = write_numbers(tmp_path / "csv", range(500))
    outcome = loads.run(target(numbers), target(tmp_path / "tsv", into="made.new", create=True), sessions=2)
    assert outcome.rows == 1000
    assert (loads.count("t"), loads.count("made.new")) == (500, 500)


def test_error_in_one_target_leaves_nothing_of_the_others(loads: Loads, tmp_path: Path) -> None:
    """Neither rows nor the tables that were made."""
    (tmp_path / "bad").write_text("a,b\n" + "1,x\n" * 500 + "bad,x\n")
    good = write_numbers(tmp_path / "good", range(3000))
    error = loads.refuse(target(tmp_path / "bad"), target(good, into="made", create=True), sessions=3)
    assert "bad line 502" in str(error.detail)
    assert not loads.has_table("made")


# ---------------------------------------------------------------- sessions that wait for each other


@pytest.mark.parametrize("piece_bytes", [64, 1009])
def test_duplicates_across_sessions_end_as_an_error(loads: Loads, tmp_path: Path, piece_bytes: int) -> None:
    """Either the server names the key, or sessions that wait for each other's keys are reported.

    Which of the two depends on which session meets which key first.
    """
    loads.execute("ALTER TABLE t ADD PRIMARY KEY (a)")
    paths = [write_numbers(tmp_path / name, range(400)) for name in ("one", "two")]
    loads = Loads(loads.conninfo, piece_bytes=piece_bytes, chunk_bytes=500)
    error = loads.refuse(target(paths), sessions=3)
    if isinstance(error, DataError):
        assert "SQLSTATE 23505" in str(error.detail)
    else:
        assert "SQLSTATE 40P01" in str(error.detail) or "wait for each other" in error.message
        assert "--sessions 1" in str(error.hint)


def test_duplicate_within_one_session_names_its_line(loads: Loads, tmp_path: Path) -> None:
    """With one session the server names key and line."""
    loads.execute("ALTER TABLE t ADD PRIMARY KEY (a)")
    path = write_to(tmp_path / "file", "a,b\n" + "".join(f"{n},x\n" for n in range(1000)) + "17,again\n")
    error = loads.refuse(target(path), sessions=1)
    assert "file line 1002" in str(error.detail)
    assert "(a)=(17)" in str(error.detail)


def test_rows_may_refer_to_rows_of_the_same_file(loads: Loads, tmp_path: Path) -> None:
    """A table that refers to itself is loaded by one session, however many were asked for."""
    loads.execute("CREATE TABLE tree (id int PRIMARY KEY, parent int REFERENCES tree)")
    path = write_to(tmp_path / "tree", "id,parent\n0,\n" + "".join(f"{n},{n // 2}\n" for n in range(1, 3000)))
    outcome = loads.run(target(path, into="tree"), sessions=4)
    assert (outcome.rows, outcome.sessions) == (3000, 1)
    assert any("foreign key" in warning.message for warning in loads.warnings)


def test_parents_and_children_load_in_one_job(loads: Loads, tmp_path: Path) -> None:
    """In the order of the job, though the children's file is the larger one."""
    loads.execute("CREATE TABLE parent (id int PRIMARY KEY)")
    loads.execute("CREATE TABLE child (id int, parent int REFERENCES parent)")
    (tmp_path / "parents").write_text("id\n" + "".join(f"{n}\n" for n in range(100)))
    (tmp_path / "children").write_text("id,parent\n" + "".join(f"{n},{n % 100}\n" for n in range(5000)))
    loads.run(target(tmp_path / "parents", into="parent"), target(tmp_path / "children", into="child"), sessions=4)
    assert (loads.count("parent"), loads.count("child")) == (100, 5000)


def test_child_without_parent_leaves_nothing(loads: Loads, tmp_path: Path) -> None:
    """The foreign key's own error, with its code."""
    loads.execute("CREATE TABLE parent (id int PRIMARY KEY)")
    loads.execute("CREATE TABLE child (id int, parent int REFERENCES parent)")
    path = write_to(tmp_path / "children", "id,parent\n1,1\n")
    error = loads.refuse(target(path, into="child"))
    assert isinstance(error, DataError)
    assert "SQLSTATE 23503" in str(error.detail)


def test_deferred_constraint_that_fails_at_the_end_leaves_nothing(loads: Loads, tmp_path: Path) -> None:
    """It is checked in every session before the first one commits."""
    loads.chop(500)
    loads.execute("CREATE TABLE parent (id int PRIMARY KEY)")
    loads.execute("INSERT INTO parent SELECT generate_series(0, 998)")
    loads.execute("CREATE TABLE child (id int, parent int REFERENCES parent DEFERRABLE INITIALLY DEFERRED)")
    path = write_to(tmp_path / "children", "id,parent\n" + "".join(f"{n},{n % 1000}\n" for n in range(2000)))
    error = loads.refuse(target(path, into="child"), sessions=3)
    assert isinstance(error, DataError)
    assert "SQLSTATE 23503" in str(error.detail)


# ---------------------------------------------------------------- the end of a load


def test_interrupted_load_leaves_nothing(loads: Loads, tmp_path: Path) -> None:
    """Ctrl-C in the middle: rows are rolled back, the table made for the load is dropped."""

    def press(_: object) -> None:
        raise KeyboardInterrupt

    path = write_numbers(tmp_path / "file", range(50_000))
    with pytest.raises(Interrupted):
        loads.run(target(path, into="made", create=True), on_progress=press)
    assert not loads.has_table("made")
    assert loads.lingering() == 0


def test_failed_load_can_be_repeated(loads: Loads, tmp_path: Path) -> None:
    """What went wrong put right, the same load runs."""
    path = write_to(tmp_path / "file", "a,b\n1,x\nbad,y\n")
    with pytest.raises(PenstockError):
        loads.run(target(path, into="t"))
    path.write_text("a,b\n1,x\n2,y\n")
    assert loads.run(target(path, into="t")).rows == 2


def test_load_waits_for_nobody_when_its_table_is_only_read(loads: Loads, tmp_path: Path) -> None:
    """A reader with an open transaction does not stand in the way."""
    with psycopg.connect(loads.conninfo) as reader:
        reader.execute("SELECT * FROM t")
        loads.run(target(write_numbers(tmp_path / "file", range(100))))
    assert loads.count() == 100


def test_unreadable_second_file_leaves_nothing(loads: Loads, tmp_path: Path) -> None:
    """A file that is gone when its turn comes takes the first one's rows along."""
    first, second = (write_numbers(tmp_path / name, range(2000)) for name in ("first", "second"))
    loads.at_piece = lambda number: second.unlink(missing_ok=True) if number == 0 else None
    error = loads.refuse(target([first, second]), sessions=1)
    assert isinstance(error, SourceError)
