"""`penstock watch` and `penstock commits` as a user runs them, against real servers."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import psycopg
import pytest

from penstock.watch.values import FORMAT
from support.recorded import read_whole
from support.stopped import stopped_backend

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from penstock.embedded.server import EmbeddedServer
    from support.command import Finished

_KEEPING_TIME = 30


@contextmanager
def holding_lock(conninfo: str) -> Iterator[None]:
    """Have one session wait for another's lock."""
    with psycopg.connect(conninfo, autocommit=True, application_name="holds") as holder:
        holder.execute("CREATE TABLE held (id int)")
        # Autovacuum's sessions are seen too, whatever database they work in.
        at_work = "SELECT FROM pg_stat_activity WHERE backend_type = 'autovacuum worker'"
        while holder.execute(at_work).fetchone() is not None:
            time.sleep(0.05)
        holder.execute("BEGIN; LOCK held")
        with psycopg.connect(conninfo, autocommit=True, application_name="waits") as waiter:
            waiting = threading.Thread(target=waiter.execute, args=("SELECT 'secret' FROM held",))
            waiting.start()
            try:
                yield
            finally:
                holder.execute("COMMIT")
                waiting.join()


@contextmanager
def watching(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run penstock watch in a process of its own, which is gone at the end."""
    command = [sys.executable, "-m", "penstock", "watch", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def test_lines_name_the_waits(penstock: Callable[..., Finished], database18: str) -> None:
    """Without a terminal a line a sample, with the sessions and what they wait for."""
    with holding_lock(database18):
        finished = penstock("watch", "--to", database18, "--interval", "0.1", "--for", "1")
    assert finished.code == 0
    # Autovacuum may work in another database during some samples.
    lines = finished.out.splitlines()
    line = next((line for line in lines if "1.00 active" in line), lines[-1])
    assert "1.00 active" in line
    assert "100% Lock:relation" in line
    assert "not read: pg_stat_statements" in finished.err


@pytest.mark.part("rest")
def test_watch_waits_for_a_connection_if_all_are_taken(
    new_server: Callable[..., EmbeddedServer], tmp_path: Path
) -> None:
    """It says so, and records once there is one."""
    conninfo = new_server(max_connections="3", superuser_reserved_connections="0").ensure_running()
    record = tmp_path / "recording"
    with ExitStack() as stack:
        _, _, last = (stack.enter_context(psycopg.connect(conninfo)) for _ in range(3))
        with watching("--to", conninfo, "--interval", "0.1", "--for", "60", "--record", str(record)) as process:
            assert process.stderr is not None
            assert process.stdout is not None
            assert "all connections of the server are taken: waiting for one" in process.stderr.readline()
            last.close()
            assert "active" in process.stdout.readline()
            process.send_signal(signal.SIGINT)
            process.wait(_KEEPING_TIME)
    assert read_whole(record)[1]


@pytest.mark.part("rest")
def test_watch_gives_up_waiting_for_a_connection_after_its_time(
    penstock: Callable[..., Finished], new_server: Callable[..., EmbeddedServer]
) -> None:
    """With the server's error."""
    conninfo = new_server(max_connections="1", superuser_reserved_connections="0").ensure_running()
    with psycopg.connect(conninfo):
        finished = penstock("watch", "--to", conninfo, "--for", "0.5")
    assert finished.code != 0
    assert "too many clients" in finished.err


def test_json_is_an_object_a_sample(penstock: Callable[..., Finished], database18: str) -> None:
    """With parts by class, wait, application and statement, without literals."""
    with holding_lock(database18):
        finished = penstock("watch", "--to", database18, "--interval", "0.1", "--for", "1", "--json")
    views = [json.loads(line) for line in finished.out.splitlines()]
    # Autovacuum may work in another database during some samples.
    view = next((view for view in views if len(view["waits"]) == 1), views[-1])
    assert [part["name"] for part in view["waits"]] == ["Lock:relation"]
    assert [part["name"] for part in view["applications"]] == ["waits"]
    assert [part["name"] for part in view["statements"]] == ["SELECT ? FROM held"]
    assert "secret" not in finished.out


@pytest.mark.part("rest")
def test_sigterm_ends_it_with_a_whole_recording(database18: str, tmp_path: Path) -> None:
    """As Ctrl-C does: exit code 0, and the file says that it is all."""
    path = tmp_path / "r"
    with watching("--to", database18, "--interval", "0.1", "--record", str(path)) as process:
        assert process.stdout is not None
        for _ in range(3):
            process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=_KEEPING_TIME)
        assert process.returncode == 0, err
    recording, samples = read_whole(path)
    assert recording.is_whole
    assert f"penstock diagnose {path}" in err
    # The last one reads every view.
    assert "pg_stat_database" in samples[-1].counters


def test_existing_file_is_refused_before_anything_is_shown(
    penstock: Callable[..., Finished], database18: str, tmp_path: Path
) -> None:
    """And stays as it is."""
    path = tmp_path / "r"
    path.write_text("mine")
    finished = penstock("watch", "--to", database18, "--for", "1", "--record", str(path))
    assert finished.code == 4
    assert f'"{path}" already exists' in finished.err
    assert finished.out == ""
    assert path.read_text() == "mine"


def test_recording_has_no_literals_unless_asked_for(
    penstock: Callable[..., Finished], database18: str, tmp_path: Path
) -> None:
    """What others' statements say is theirs."""
    with holding_lock(database18):
        for name, more in (("without", ()), ("with", ("--with-query-text",))):
            arguments = ("--to", database18, "--interval", "0.1", "--for", "0.5", "--record", str(tmp_path / name))
            assert penstock("watch", *arguments, *more).code == 0
    texts = {
        name: {s.query for sample in read_whole(tmp_path / name)[1] for s in sample.sessions}
        for name in ("without", "with")
    }
    assert "SELECT ? FROM held" in texts["without"]
    assert "SELECT 'secret' FROM held" in texts["with"]
    assert not [text for text in texts["without"] if text and "secret" in text]


@pytest.mark.parametrize("interval", ["0", "0.01", "soon", "999999999d"])
def test_interval_that_will_not_do_is_refused(penstock: Callable[..., Finished], interval: str) -> None:
    """Before any server is asked."""
    assert penstock("watch", "--interval", interval).code == 2


def test_screen_shows_waits_and_ends_by_q(database18: str) -> None:
    """On a terminal: a screen, which p pauses and q ends, leaving the terminal as it was."""
    with holding_lock(database18):
        pid, terminal = pty.fork()
        if pid == 0:
            os.environ |= {"TERM": "xterm", "COLUMNS": "100", "LINES": "30"}
            os.execv(  # noqa: S606 (as a terminal's shell would)
                sys.executable, [sys.executable, "-m", "penstock", "watch", "--to", database18, "--interval", "0.1"]
            )
        try:
            shown = read_until(terminal, "Lock:relation")
            os.write(terminal, b"p")
            shown += read_until(terminal, "PAUSED")
            os.write(terminal, b"q")
            _, status = os.waitpid(pid, 0)
        finally:
            os.close(terminal)
    assert os.waitstatus_to_exitcode(status) == 0
    assert "active sessions" in shown


def read_until(terminal: int, word: str) -> str:
    """Return what a terminal shows until a word is there."""
    shown = ""
    deadline_s = time.monotonic() + 2 * _KEEPING_TIME
    while word not in shown:
        assert time.monotonic() < deadline_s, shown
        shown += os.read(terminal, 4096).decode(errors="replace")
    return shown


@pytest.mark.part("rest")
def test_lost_connection_is_told_in_our_own_words(database18: str) -> None:
    """Psycopg logs beside what it raises, with the address of its object."""
    query = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE '%observe'"
    with watching("--to", database18, "--interval", "0.05") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        with psycopg.connect(database18, autocommit=True) as admin:
            assert admin.execute(query).fetchall() == [(True,)]
        said = ""
        while "connection lost: " not in said:
            said += (line := process.stderr.readline())
            assert line, said
        process.send_signal(signal.SIGTERM)
        _, rest = process.communicate(timeout=_KEEPING_TIME)
    assert process.returncode == 0, said + rest
    assert "psycopg" not in said + rest


@pytest.mark.part("rest")
def test_server_that_stops_answering_keeps_nobody(database18: str) -> None:
    """Its end comes when --for says, with what was seen until then; without that this test would never end."""
    command = [sys.executable, "-m", "penstock", "watch", "--to", database18, "--for", "2"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        watching.stdout.readline()
        with stopped_backend(database18, "observe"):
            _, said = watching.communicate()
    assert watching.returncode == 0
    assert "the server does not answer: the last sample is missing" in said


def test_probe_needs_no_right_and_leaves_no_table(
    penstock: Callable[..., Finished], database: str, user_conninfo: str
) -> None:
    """An ordinary role's small commits are timed on every version."""
    finished = penstock("commits", "--to", user_conninfo, "--for", "0.3", "--probe", "--json")
    assert finished.code == 0, finished.err
    probe = finished.object["probe"]
    assert len(probe["commits_s"]) == 100
    assert all(seconds > 0 for seconds in probe["commits_s"])
    with psycopg.connect(database) as connection:
        tables = connection.execute("SELECT count(*) FROM pg_class WHERE relnamespace >= 16384").fetchone()
    assert tables == (0,)


def test_idle_server_has_no_committers(penstock: Callable[..., Finished], database18: str) -> None:
    """Said in one sentence, without advice that nobody needs."""
    finished = penstock("commits", "--to", database18, "--for", "0.5")
    assert finished.code == 0
    assert finished.out.splitlines()[-1] == "No session waited for a commit."


def test_role_that_sees_only_its_own_sessions_does_not_judge_others(
    penstock: Callable[..., Finished], database: str, user_conninfo: str
) -> None:
    """A session of another role is there; whether it waits for commits nobody has said."""
    with psycopg.connect(database):
        finished = penstock("commits", "--to", user_conninfo, "--for", "0.5")
    assert finished.code == 0, finished.err
    assert finished.out.splitlines()[-1].startswith("No session of this role waited for a commit; other roles'")


def test_recording_excludes_what_asks_a_server(penstock: Callable[..., Finished], tmp_path: Path) -> None:
    """Rather than ignore it."""
    finished = penstock("commits", "--recording", str(tmp_path / "r"), "--probe")
    assert finished.code == 2
    assert "--recording cannot be used with" in finished.err


def test_file_that_is_no_recording_is_named(penstock: Callable[..., Finished], tmp_path: Path) -> None:
    """With what makes one."""
    (tmp_path / "r").write_text("id,name\n")
    finished = penstock("commits", "--recording", str(tmp_path / "r"))
    assert finished.code == 4
    assert "penstock watch --record creates recordings" in finished.err
    assert FORMAT == "1.0"


@pytest.mark.part("rest")
def test_screen_ends_by_q_behind_other_keys(database18: str) -> None:
    """An arrow key is three bytes, and a byte may be no character."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ |= {"TERM": "xterm", "COLUMNS": "20", "LINES": "8"}
        os.execv(  # noqa: S606 (as a terminal's shell would)
            sys.executable, [sys.executable, "-m", "penstock", "watch", "--to", database18, "--interval", "0.1"]
        )
    try:
        # A long name is cut, rather than what is under it.
        read_until(terminal, "0.00 active")
        os.write(terminal, b"\x1b[A\xe9p")
        os.write(terminal, b"q")
        read_to_end(terminal)
        _, status = os.waitpid(pid, 0)
    finally:
        os.close(terminal)
    assert os.waitstatus_to_exitcode(status) == 0


def read_to_end(terminal: int) -> None:
    """Read what a terminal shows until nobody writes to it."""
    deadline_s = time.monotonic() + 2 * _KEEPING_TIME
    while select.select([terminal], [], [], max(0.0, deadline_s - time.monotonic()))[0]:
        try:
            if not os.read(terminal, 4096):
                return
        except OSError:
            return
    raise AssertionError("it does not end")


@pytest.mark.part("rest")
def test_screen_without_an_input_shows_what_it_may(database18: str) -> None:
    """Standard input may be closed."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ |= {"TERM": "xterm", "COLUMNS": "100", "LINES": "30"}
        os.close(0)
        os.execv(  # noqa: S606 (as a terminal's shell would)
            sys.executable, [sys.executable, "-m", "penstock", "watch", "--to", database18, "--for", "1"]
        )
    try:
        read_to_end(terminal)
        _, status = os.waitpid(pid, 0)
    finally:
        os.close(terminal)
    assert os.waitstatus_to_exitcode(status) == 0


@pytest.mark.part("rest")
def test_server_that_does_not_answer_is_not_waited_for(database18: str, tmp_path: Path) -> None:
    """The recording is whole without the last sample."""
    path = tmp_path / "r"
    with (
        psycopg.connect(database18, autocommit=True) as admin,
        watching("--to", database18, "--interval", "0.1", "--record", str(path)) as process,
    ):
        assert process.stdout is not None
        process.stdout.readline()
        query = (
            "SELECT pid FROM pg_stat_activity WHERE application_name LIKE '%observe' AND datname = current_database()"
        )
        ((backend,),) = admin.execute(query).fetchall()
        os.kill(backend, signal.SIGSTOP)
        try:
            process.send_signal(signal.SIGTERM)
            _, err = process.communicate(timeout=_KEEPING_TIME)
        finally:
            os.kill(backend, signal.SIGCONT)
    assert process.returncode == 0, err
    assert "the server does not answer" in err
    assert read_whole(path)[0].is_whole
