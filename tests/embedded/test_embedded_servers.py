"""The embedded server from its first start to its crash, on every version."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

from penstock.core.errors import LabError
from penstock.embedded import cluster, control
from penstock.embedded.installations import Installation
from penstock.embedded.postmaster import read_postmaster, server_pids
from penstock.embedded.server import EmbeddedServer
from penstock.embedded.users import give_to

if TYPE_CHECKING:
    from penstock.embedded.users import ServerUser
    from support.servers import PgServer, ServerPool

pytestmark = pytest.mark.versions

NewServer = Callable[..., EmbeddedServer]

# Arguments: home, folder of programs, folder of copies; prints the postmaster's process id.
_START_PROGRAM = """
import sys
from pathlib import Path
from penstock.embedded import cluster, control
from penstock.embedded.server import EmbeddedServer
from penstock.embedded.installations import installation_at
home, bin_dir, copies = map(Path, sys.argv[1:])
installation = installation_at(bin_dir)
server = EmbeddedServer.create(home, installation, {"fsync": "off"}, copies=copies)
server.ensure_running()
print(server.status().pid, flush=True)
"""


def _query(conninfo: str, query: str) -> object:
    with psycopg.connect(conninfo) as connection:
        row = connection.execute(query).fetchone()
        assert row is not None
        return row[0]


def _kill(server: EmbeddedServer) -> int:
    pid = server.status().pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    return pid


def _without_tcp(server: EmbeddedServer) -> EmbeddedServer:
    """Return the server as users have it, whose port is the same at each start."""
    return EmbeddedServer(replace(server.spec, listens_on_tcp=False))


def test_server_has_version_asked_for(pg: PgServer) -> None:
    """Each version's server is that version."""
    assert _query(pg.conninfo, "SELECT current_setting('server_version_num')::int / 10000") == pg.major


@pytest.mark.part("rest")
@pytest.mark.pg(">= 15, < 17")
def test_mark_narrows_versions(pg: PgServer) -> None:
    """A test runs on the versions that its mark allows only."""
    assert pg.major in {15, 16}


def test_database_is_utf8_ordered_by_bytes(database: str) -> None:
    """Every version keeps UTF8 and compares as C does, whatever the machine's locale."""
    assert _query(database, "SELECT current_setting('server_encoding')") == "UTF8"
    assert _query(database, "SELECT 'Z' < 'a'") is True


def test_tcp_needs_password_of_password_file(pg18: PgServer) -> None:
    """Over TCP the password file lets in, and a wrong password does not."""
    server = pg18.server
    if server is None:
        pytest.skip("needs an embedded server")
    assert _query(server.tcp_conninfo(), "SELECT inet_server_addr() IS NOT NULL") is True
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(server.tcp_conninfo(), passfile="/nonexistent", password="wrong")


def test_data_and_socket_are_closed_to_others(pg18: PgServer) -> None:
    """Trust on the socket rests on its directory being private."""
    if pg18.server is None:
        pytest.skip("needs an embedded server")
    files = pg18.server.spec.files
    for folder in (files.data, files.socket_dir):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_server_does_not_inherit_secrets(new_server: NewServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller's environment stays out of a process that outlives it."""
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hidden")
    server = new_server()
    server.ensure_running()
    environment = Path(f"/proc/{server.status().pid}/environ")
    if not environment.exists():
        pytest.skip("needs /proc")
    assert b"hidden" not in environment.read_bytes()


def test_second_start_finds_running_server(new_server: NewServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A running server is found without any subprocess."""
    server = new_server()
    conninfo = server.ensure_running()
    pid = server.status().pid

    def refuse(*_args: object, **_kwargs: object) -> None:
        raise AssertionError("a subprocess was started")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    assert server.ensure_running() == conninfo
    assert server.status().pid == pid


def test_server_that_runs_where_its_processes_cannot_be_seen_is_not_started_again(new_server: NewServer) -> None:
    """On another host, or in another container, that shares its folder. The server's processes hold a lock there."""
    server = new_server()
    server.ensure_running()
    with server.spec.files.alive.open() as file:
        with pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        server.stop("fast")
        fcntl.flock(file, fcntl.LOCK_EX)
        lock_file = server.spec.files.data / "postmaster.pid"
        lock_file.write_text("1\n")
        with pytest.raises(LabError, match="runs on another host or in another container"):
            server.ensure_running()
        assert lock_file.read_text() == "1\n"
    server.ensure_running()


def test_stop_keeps_data(new_server: NewServer) -> None:
    """What was stored before a stop is there after the next start."""
    server = new_server()
    with psycopg.connect(server.ensure_running()) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 42 AS answer")
    assert server.stop() is True
    assert server.status().is_running is False
    assert _query(server.ensure_running(), "SELECT answer FROM kept") == 42


def test_stop_of_stopped_server_is_no_error(new_server: NewServer) -> None:
    """There is nothing to stop before the first start, nor after a stop."""
    server = new_server()
    assert server.stop() is False
    server.ensure_running()
    assert [server.stop("fast"), server.stop("fast")] == [True, False]


@pytest.mark.part("rest")
def test_killed_postmaster_is_started_again(new_server: NewServer) -> None:
    """After kill -9 under a client, the next start waits for the remains, recovers and keeps commits."""
    server = new_server(fsync="on", full_page_writes="on")
    with psycopg.connect(server.ensure_running(), autocommit=True) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 42 AS answer")
        killed = _kill(server)
        assert _query(server.ensure_running(), "SELECT answer FROM kept") == 42
    assert server.status().pid != killed


def test_lock_files_of_dead_server_with_reused_pid_are_no_obstacle(new_server: NewServer) -> None:
    """After a reboot another process may have that number, and PostgreSQL alone would refuse to start."""
    server = _without_tcp(new_server())
    server.ensure_running()
    pid_file = server.data_dir / "postmaster.pid"
    lines = pid_file.read_text().splitlines()
    server.stop()
    sleeper_uid = server.data_dir.stat().st_uid
    sleeper = subprocess.Popen(["sleep", "600"], user=sleeper_uid)
    try:
        for lock_file in (pid_file, server.spec.files.socket_dir / ".s.PGSQL.5432.lock"):
            lock_file.write_text("\n".join([str(sleeper.pid), *lines[1:]]) + "\n")
            os.chown(lock_file, sleeper_uid, -1)
        assert server.status().is_running is False
        server.ensure_running()
        assert server.status().pid != sleeper.pid
    finally:
        sleeper.kill()
        sleeper.wait()


def test_stop_after_kill_has_nothing_to_do(new_server: NewServer) -> None:
    """A dead server's postmaster.pid does not make stop fail."""
    server = new_server()
    server.ensure_running()
    _kill(server)
    while server_pids(server.data_dir):
        time.sleep(0.02)
    assert server.stop() is False
    # Only a later start removes the dead one's shared memory.
    server.ensure_running()


@pytest.mark.part("rest")
def test_two_processes_start_one_server(new_server: NewServer) -> None:
    """Of four that find no server at the same time, one makes it and all use it."""
    server = new_server()
    spec = server.spec
    argv = [
        sys.executable,
        "-c",
        _START_PROGRAM,
        str(spec.files.home),
        str(spec.installation.bin_dir),
        str(spec.copies),
    ]
    started = [subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    answers = {process.communicate()[0].strip() for process in started}
    assert answers == {str(server.status().pid)}


@pytest.mark.part("rest")
def test_second_starter_waits_for_folders_half_made(new_server: NewServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root makes them and gives them away, and who comes in between takes them for somebody else's."""
    server = new_server()
    failures: list[BaseException] = []
    seconds: list[threading.Thread] = []

    def start_second() -> None:
        try:
            server.ensure_running()
        except LabError as error:
            failures.append(error)

    def start_second_and_give(path: Path, user: ServerUser | None) -> None:
        if not seconds:
            seconds.append(threading.Thread(target=start_second))
            seconds[0].start()
            seconds[0].join(timeout=1)
        give_to(path, user)

    monkeypatch.setattr(cluster, "give_to", start_second_and_give)
    server.ensure_running()
    seconds[0].join()
    assert failures == []


def test_server_survives_death_of_its_starter(new_server: NewServer) -> None:
    """Signals to the starter's process group, such as Ctrl-C or kill -9, do not reach the server."""
    server = new_server()
    spec = server.spec
    program = _START_PROGRAM + "sys.stdin.read()"
    argv = [sys.executable, "-c", program, str(spec.files.home), str(spec.installation.bin_dir), str(spec.copies)]
    with subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as starter:
        assert starter.stdout is not None
        pid = int(starter.stdout.readline())
        os.killpg(starter.pid, signal.SIGKILL)
    assert server.status().pid == pid


def test_umask_does_not_lock_server_out(servers: ServerPool) -> None:
    """A careful root's umask of 077 leaves the way to the data open to the server's account."""
    home = servers.new_home() / "below" / "others"
    server = EmbeddedServer.create(
        home, servers.installation(18), {"fsync": "off"}, copies=servers.directory / "postgresql"
    )
    before = os.umask(0o077)
    try:
        assert _query(server.ensure_running(), "SELECT 1") == 1
    finally:
        os.umask(before)
        server.stop("immediate")


def test_other_major_is_refused(new_server: NewServer, servers: ServerPool) -> None:
    """A data directory of version 16 is not touched by 18's programs."""
    old = new_server(16)
    old.ensure_running()
    old.stop()
    newer = EmbeddedServer.create(old.spec.files.home, servers.installation(18), copies=old.spec.copies)
    with pytest.raises(LabError, match="created by PostgreSQL 16, not 18") as caught:
        newer.ensure_running()
    assert str(old.data_dir) in str(caught.value.detail)


def test_failed_start_shows_log(new_server: NewServer) -> None:
    """An error that is only in the server's log is shown to the user."""
    server = new_server(shared_buffers="nonsense")
    with pytest.raises(LabError, match="could not start the embedded server") as caught:
        server.ensure_running()
    assert 'invalid value for parameter "shared_buffers": "nonsense"' in str(caught.value.detail)


@pytest.mark.parametrize("fault", [OSError(errno.EROFS, "Read-only file system"), OSError(errno.ENOSPC, "No space")])
def test_disk_that_cannot_be_written_is_told(
    new_server: NewServer, monkeypatch: pytest.MonkeyPatch, fault: OSError
) -> None:
    """A read-only or a full one is no fault of ours."""
    server = new_server()
    server.ensure_running()
    server.stop()

    def refuse(*_: object) -> None:
        raise fault

    monkeypatch.setattr(control, "write_settings", refuse)
    with pytest.raises(LabError, match="could not use the embedded server's files") as caught:
        server.ensure_running()
    assert str(fault.strerror) in str(caught.value.detail)


def test_damaged_data_directory_is_told(new_server: NewServer) -> None:
    """As a crash of the machine may leave it."""
    server = new_server()
    server.data_dir.mkdir(parents=True)
    (server.data_dir / "PG_VERSION").touch()
    with pytest.raises(LabError, match="is damaged"):
        server.status()


def test_failed_initdb_leaves_nothing(new_server: NewServer, servers: ServerPool) -> None:
    """A data directory appears whole or not at all."""
    home = new_server().spec.files.home
    # 16's initdb does not know the options that 18's is called with.
    installation = Installation(bin_dir=servers.installation(16).bin_dir, major=18, origin="directory")
    server = EmbeddedServer.create(home, installation, copies=servers.directory / "postgresql")
    with pytest.raises(LabError, match="could not create a PostgreSQL 18 data directory"):
        server.ensure_running()
    assert not server.data_dir.exists()
    assert list(home.glob("data*")) == []


def test_start_removes_what_a_killed_initdb_left(new_server: NewServer) -> None:
    """Half a data directory, and the file of its superuser's password."""
    server = new_server()
    home = server.spec.files.home
    (home / "data.new-killed").mkdir(parents=True)
    (home / "data.new-killed.password").touch()
    server.ensure_running()
    assert [path.name for path in home.glob("data*")] == ["data"]


def test_long_path_gets_socket_elsewhere(servers: ServerPool) -> None:
    """A socket's path has a limit of about 100 bytes; a data directory's has not."""
    home = servers.directory / "long" / ("x" * 120)
    server = EmbeddedServer.create(home, servers.installation(18), {"fsync": "off"}, copies=servers.directory / "pg")
    try:
        assert _query(server.ensure_running(), "SELECT 1") == 1
    finally:
        server.stop("immediate")
        server.spec.files.socket_dir.rmdir()


def test_squatted_socket_directory_is_refused(servers: ServerPool) -> None:
    """Somebody else's directory under the name of ours in /tmp is not used."""
    home = servers.directory / "squatted" / ("x" * 120)
    server = EmbeddedServer.create(home, servers.installation(18))
    folder = server.spec.files.socket_dir
    folder.mkdir(mode=0o755)
    try:
        with pytest.raises(LabError, match="is not a private directory"):
            server.ensure_running()
    finally:
        folder.rmdir()


def test_alter_system_overrules_settings(new_server: NewServer) -> None:
    """Settings of the user's own survive a restart."""
    server = new_server(work_mem="8MB")
    with psycopg.connect(server.ensure_running(), autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET work_mem = '16MB'")
    server.stop()
    assert _query(server.ensure_running(), "SELECT current_setting('work_mem')") == "16MB"


def test_status_of_missing_server_says_stopped(new_server: NewServer) -> None:
    """Asking makes nothing."""
    server = new_server()
    assert server.status().is_running is False
    assert read_postmaster(server.data_dir) is None
    assert not server.spec.files.home.exists()


def test_psql_reaches_server(new_server: NewServer) -> None:
    """The command runs as it stands, as the caller."""
    server = new_server()
    server.ensure_running()
    finished = subprocess.run(
        server.psql_argv(["--no-psqlrc", "-Atc", "SELECT current_user"]),
        capture_output=True,
        text=True,
        check=True,
    )
    assert finished.stdout == "postgres\n"


def test_psql_without_server_says_how_to_start(new_server: NewServer) -> None:
    """There is no psql command for a server that is down."""
    with pytest.raises(LabError, match="is not running") as caught:
        new_server().psql_argv()
    assert "penstock server start" in str(caught.value.hint)
