"""Loads that are cut short: the server goes, the connection goes, the loader goes. Nothing stays, and it runs again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from penstock.core.errors import Interrupted, ServerError, TargetError
from penstock.core.values.job import LoadRules
from penstock.ledger.ledger import Ledger, finish
from penstock.loading import giving_up, run
from penstock.loading.claim import claim
from penstock.loading.land import landing
from penstock.loading.land.staging import Staging
from penstock.watch.watching import SamplerThread
from support.files import write_to
from support.loads import Loads, target
from support.modes import mode_target
from support.parts import rest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.core.connect.connection import Connection
    from penstock.embedded.server import EmbeddedServer

# What a process does that loads a pipe; its exit code is the error's.
_PROGRAM = """
import sys
from penstock.api.functions import load
from penstock.core.errors import PenstockError
try:
    load(sys.argv[1], into="made.new", to=sys.argv[2], create=True, sessions=2)
except PenstockError as error:
    sys.exit(error.exit_code)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Provide a csv file with header a,b and 20,000 records."""
    return write_to(tmp_path / "file", "a,b\n" + "".join(f"{n},value {n}\n" for n in range(20_000)))


def _loads(conninfo: str) -> Loads:
    return Loads(conninfo, piece_bytes=1009, setup="CREATE TABLE t (a int, b text)")


def _wait_until(is_so: Callable[[], bool]) -> None:
    """Wait for another process; the test's own timeout ends a wait in vain."""
    while not is_so():
        time.sleep(0.02)


def _at(piece: int, act: Callable[[], object]) -> Callable[[int], None]:
    """Return what acts once, when that piece of a file is read."""

    def at_piece(number: int) -> None:
        if number == piece:
            act()

    return at_piece


@pytest.mark.parametrize("create", [False, True])
def test_ended_backend_leaves_nothing(database: str, path: Path, create: bool) -> None:
    """An administrator ends one session in the middle: the others roll back, the made table is dropped."""
    loads = _loads(database)
    loads.at_piece = _at(
        100,
        lambda: loads.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
            " AND application_name = 'penstock session 1'"
        ),
    )
    table = "made.new" if create else "t"
    error = loads.refuse(target(path, into=table, create=create), sessions=3)
    assert isinstance(error, ServerError)
    assert error.sqlstate in {None, "57P01"}
    assert error.hint
    assert loads.has_table("made.new") is False
    _wait_until(lambda: loads.lingering() == 0)


def test_cancelled_statement_leaves_nothing(database18: str, path: Path) -> None:
    """By someone else, which is no conflict among our own sessions."""
    loads = _loads(database18)
    loads.at_piece = _at(
        100,
        lambda: loads.execute(
            "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
            " AND application_name = 'penstock session 1'"
        ),
    )
    error = loads.refuse(target(path), sessions=1)
    assert isinstance(error, ServerError)
    assert error.sqlstate == "57014"


@pytest.mark.part("rest")
@pytest.mark.parametrize("mode", ["immediate", rest("fast")])
@pytest.mark.parametrize("create", [False, True])
def test_server_that_stops_leaves_no_row(
    new_server: Callable[..., EmbeddedServer], path: Path, mode: str, create: bool
) -> None:
    """A crash or a shutdown during a load is reported as such, and the same load runs when the server is back."""
    server = new_server()
    conninfo = server.ensure_running()
    loads = _loads(conninfo)
    loads.at_piece = _at(100, lambda: server.stop(mode))
    job = target(path, into="made.new" if create else "t", create=create)
    with pytest.raises(ServerError) as caught:
        loads.run(job, sessions=3)
    assert "could not connect" not in caught.value.message
    assert not create or "made.new" in loads.notices[0]
    loads = Loads(server.ensure_running())
    assert loads.run(job).rows == 20_000
    assert loads.count(str(job.into)) == 20_000


# ---------------------------------------------------------------- the loader itself


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    """Provide a named pipe."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    return path


@pytest.fixture
def start(pipe: Path, database18: str) -> Iterator[Callable[[], subprocess.Popen[bytes]]]:
    """Provide a function that starts a process which loads from the pipe."""
    started: list[subprocess.Popen[bytes]] = []

    def start() -> subprocess.Popen[bytes]:
        started.append(subprocess.Popen([sys.executable, "-c", _PROGRAM, str(pipe), database18]))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


def _write_half(pipe: Path, loads: Loads) -> int:
    """Write records into the pipe until some have reached the server; return its still open end."""
    end = os.open(pipe, os.O_WRONLY)
    os.write(end, b"a,b\n" + b"1,x\n" * 16_000)
    for _ in range(20):
        os.write(end, b"2,yyyyyyyyyy\n" * 4_000)
    _wait_until(lambda: loads.execute("SELECT 1 FROM pg_stat_progress_copy WHERE tuples_processed > 0") != [])
    return end


@pytest.mark.part("rest")
def test_killed_loader_leaves_no_row_and_its_load_runs_again(
    database18: str, path: Path, pipe: Path, start: Callable[[], subprocess.Popen[bytes]]
) -> None:
    """After kill -9 the made table may be there, empty; --create takes it as it is."""
    loads = Loads(database18)
    process = start()
    end = _write_half(pipe, loads)
    process.kill()
    process.wait()
    os.close(end)
    _wait_until(lambda: loads.lingering() == 0)
    assert not loads.has_table("made.new") or loads.count("made.new") == 0
    assert loads.run(target(path, into="made.new", create=True)).rows == 20_000


@pytest.mark.part("rest")
@pytest.mark.parametrize("signal_number", [signal.SIGINT])
def test_interrupted_loader_ends_though_its_pipe_is_silent(
    database18: str, pipe: Path, start: Callable[[], subprocess.Popen[bytes]], signal_number: signal.Signals
) -> None:
    """Ctrl-C while the other end of the pipe writes nothing: the process ends and leaves nothing."""
    loads = Loads(database18)
    process = start()
    end = _write_half(pipe, loads)
    process.send_signal(signal_number)
    try:
        assert process.wait(timeout=60) == Interrupted.exit_code
    finally:
        os.close(end)
    assert not loads.has_table("made.new")
    _wait_until(lambda: loads.lingering() == 0)


def test_interrupt_behind_a_taken_lock_does_not_stop_the_sessions(
    database18: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """KeyboardInterrupt, raised inside Condition.__enter__, would leave a lock taken that every session needs."""
    enter, left = threading.Condition.__enter__, [0]

    def enter_and_interrupt(condition: threading.Condition) -> bool:
        is_taken = enter(condition)
        if left[0] and threading.current_thread() is threading.main_thread():
            left[0] -= 1
            signal.raise_signal(signal.SIGINT)
        return is_taken

    def arm(_progress: object) -> None:
        left[0] = 2 - len(loads.notices)
        monkeypatch.setattr(threading.Condition, "__enter__", enter_and_interrupt)

    loads = _loads(database18)
    with psycopg.connect(database18) as holder:
        holder.execute("LOCK TABLE t IN EXCLUSIVE MODE")
        with pytest.raises(Interrupted):
            loads.run(target(path), on_progress=arm)
    assert loads.notices == ["finishing the current batches; interrupt again to cancel them"]
    assert loads.count("t") == 0


def test_interrupt_behind_the_last_row_hides_nothing(
    database18: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The load has ended: its result is shown, and a failed one is removed with the table that was created for it."""

    def interrupt(act: Callable[..., object]) -> Callable[..., object]:
        def interrupt_and_act(*arguments: object) -> object:
            signal.raise_signal(signal.SIGINT)
            return act(*arguments)

        return interrupt_and_act

    monkeypatch.setattr(SamplerThread, "stop", interrupt(SamplerThread.stop))
    monkeypatch.setattr(giving_up, "_tidy", interrupt(giving_up._tidy))
    loads = Loads(database18, samples=True)
    assert loads.run(target(path, into="first", create=True)).rows == 20_000
    write_to(path, path.read_text() + "one,field,more\n")
    error = loads.refuse(target(path, into="second", create=True))
    assert error.detail is not None
    assert "line 20002" in error.detail
    assert not loads.has_table("second")


@pytest.mark.part("rest")
def test_error_ends_a_load_though_its_pipe_is_silent(
    database18: str, pipe: Path, start: Callable[[], subprocess.Popen[bytes]]
) -> None:
    """A bad record is reported at once, not only when the writer of the pipe has ended."""
    loads = Loads(database18)
    process = start()
    end = _write_half(pipe, loads)
    os.write(end, b"3\n" * 100_000)
    try:
        assert process.wait(timeout=60) == 5
    finally:
        os.close(end)
    assert not loads.has_table("made.new")


def test_table_that_is_dropped_under_the_load_is_an_error(database18: str, path: Path) -> None:
    """Between plan and first COPY, by someone else."""
    loads = _loads(database18)
    loads.at_piece = _at(0, lambda: loads.execute("DROP TABLE t"))
    with pytest.raises(TargetError, match=r'"public\.t" does not exist'):
        loads.run(target(path), sessions=1)


@pytest.mark.parametrize("mode", ["append", "replace"])
def test_pipe_whose_load_is_complete_is_not_to_be_loaded_again(
    database18: str, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    """The answer to its last COMMIT was lost; a second load of the same input would store each row again."""
    loads = Loads(database18, setup="CREATE TABLE t (a int, b text)")
    module = run if mode == "append" else landing

    def lose_answer(*arguments: Any, **options: Any) -> None:
        finish(*arguments, **options)
        raise ServerError("the connection is lost", is_transient=True)

    monkeypatch.setattr(module, "finish", lose_answer)
    reading, writing = os.pipe()
    with os.fdopen(writing, "w") as file:
        file.write("a,b\n1,x\n2,y\n")
    try:
        with pytest.raises(ServerError) as caught:
            loads.run(mode_target(Path(f"/dev/fd/{reading}"), mode, format="csv", has_header=True))
    finally:
        os.close(reading)
    assert loads.count() == 2
    assert "All rows of load" in str(caught.value.detail)
    assert caught.value.hint is None


def test_second_fault_is_waited_out_as_the_first_if_rows_were_committed_between(database18: str, path: Path) -> None:
    """It comes later than the time of --retry-for after the first one."""
    loads = _loads(database18)
    faults: list[int] = []

    def lose(number: int) -> None:
        if number == (150, 250, -1)[len(faults)]:
            if faults:
                time.sleep(4)
            faults.append(number)
            loads.execute(
                "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = current_database()"
                " AND application_name = 'penstock session 1'"
            )

    loads.at_piece = lose
    outcome = loads.run(target(path), sessions=1, rules=LoadRules(retry_for=3), batch_bytes=10_000)
    assert (outcome.rows, faults) == (20_000, [150, 250])
    assert loads.count() == 20_000


@pytest.mark.parametrize("step", ["open", "look_up", "begin"])
def test_session_lost_before_the_first_row_is_waited_out(
    database18: str, path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """A load that is only being written down has the same patience as one that is under way."""
    loads = Loads(database18, setup="CREATE TABLE t (a int, b text)")
    act = getattr(Ledger, step)
    lost: list[int] = []

    def lose_first(ledger: Ledger, connection: Connection, *args: Any, **options: Any) -> object:
        if not lost:
            lost.append(connection.info.backend_pid)
            loads.execute(f"SELECT pg_terminate_backend({lost[0]}, 10000)")
        return act(ledger, connection, *args, **options)

    monkeypatch.setattr(Ledger, step, lose_first)
    assert loads.run(target(path), rules=LoadRules(retry_for=60)).rows == 20_000
    assert loads.count() == 20_000


@pytest.mark.part("rest")
def test_tables_made_by_a_commit_whose_answer_was_lost_are_the_loads_own(
    database18: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are not taken for somebody else's, and the load goes on into them."""
    loads = Loads(database18)
    commit = claim.in_transaction
    lost: list[str] = []

    @contextmanager
    def lose_first(connection: Connection, what: str) -> Iterator[None]:
        with commit(connection, what):
            yield
        if not lost:
            lost.append(what)
            connection.close()
            raise ServerError("the connection is lost", is_transient=True)

    monkeypatch.setattr(claim, "in_transaction", lose_first)
    outcome = loads.run(target(path, into="made.new", create=True), rules=LoadRules(retry_for=60))
    assert (outcome.rows, lost) == (20_000, ["recording the load"])
    assert loads.count("made.new") == 20_000


@pytest.mark.part("rest")
def test_table_that_another_session_creates_meanwhile_is_used(
    database18: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between plan and load."""
    loads = Loads(database18)
    act = Ledger.open

    def make_first(ledger: Ledger, connection: Connection, *args: Any, **options: Any) -> object:
        loads.execute("CREATE TABLE IF NOT EXISTS rival (a text, b text)")
        return act(ledger, connection, *args, **options)

    monkeypatch.setattr(Ledger, "open", make_first)
    assert loads.run(target(path, into="rival", create=True)).rows == 20_000
    assert loads.count("rival") == 20_000


@pytest.mark.part("rest")
def test_session_lost_at_the_end_of_a_landing_tables_transaction_is_waited_out(
    database18: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Outside of any statement of ours: what puts the settings back and commits meets the loss."""
    loads = Loads(database18, setup="CREATE TABLE t (a int PRIMARY KEY, b text)")
    act = Staging.open
    lost: list[int] = []

    def lose_first(way: Staging, landing: Any, suffix: str) -> object:
        landing = act(way, landing, suffix)
        if not lost:
            lost.append(way._connection.info.backend_pid)
            loads.execute(f"SELECT pg_terminate_backend({lost[0]}, 10000)")
        return landing

    monkeypatch.setattr(Staging, "open", lose_first)
    job = replace(target(path), mode="upsert", key=("a",))
    loads.run(job, rules=LoadRules(retry_for=60))
    assert loads.count() == 20_000
