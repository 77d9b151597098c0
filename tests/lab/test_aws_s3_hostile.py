"""aws_s3 in labs: nothing that is passed is run or shown, and nothing is left of an import that is ended."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import psutil
import psycopg
import pytest

from penstock.cli.main import main
from penstock_lab.topology import s3 as python
from penstock_lab.topology.lab import Lab
from support.s3_lab import IMPORT

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.embedded.installations import Installation
    from support.s3_lab import S3Lab

# Most of these tests wait for processes to start and to end.
pytestmark = pytest.mark.part("rest")

_Found = TypeVar("_Found")

_ROWS = b"1,one\n2,two\n"

_HOSTILE = [
    "x'; CREATE TABLE pwned (); --",
    "t (a) FROM PROGRAM 'touch {mark}' --",
    "$(touch {mark})",
    "`touch {mark}`",
    "x\n touch {mark}\n",
    "x'\n; touch {mark}; '",
    "'; touch {mark}; echo '",
    "\\'; touch {mark}; \\'",
    '"; touch {mark}; "',
    "| touch {mark}",
    "../../../{mark}",
    "&& touch {mark} #",
    "--help",
    "%27; touch {mark}",
]
_HOSTILE_OPTIONS = [
    *_HOSTILE,
    "(format csv) WHERE pg_read_file('/etc/passwd') IS NOT NULL",
    "(format csv) FROM PROGRAM 'touch {mark}'",
    "(program 'touch {mark}')",
    "(format csv); COPY t FROM PROGRAM 'touch {mark}'",
    "csv) FROM PROGRAM 'touch {mark}' WITH (header",
    "csv) WHERE (1 = 1",
    "csv WHERE true",
    "delimiter ',' program 'touch {mark}'",
    "(null $$x$$)",
    "(null 'x\\'', delimiter '); COPY t FROM PROGRAM ''touch {mark}''; --')",
    "(null E'x\\', delimiter '); COPY t FROM PROGRAM 'touch {mark}'; --')",
    "(null U&'\\0027')",
    "(format csv) -- ",
    "(format csv /* )",
    "(((",
    ")",
]


@pytest.mark.parametrize("settings", ["", "SET standard_conforming_strings = off; SET backslash_quote = on"])
def test_nothing_that_is_passed_is_run(session: psycopg.Connection, s3_lab: S3Lab, settings: str) -> None:
    """Neither by the server nor by a shell, in any argument."""
    s3_lab.put("k.csv", _ROWS)
    if settings and session.info.server_version >= 190_000:
        pytest.skip("PostgreSQL 19 has no other string literals than the standard's")
    session.execute(settings or "SELECT 1")  # type: ignore[arg-type]
    # The server's account can write there.
    mark = s3_lab.calls / "mark"
    tables = set(_rows(session, "SELECT oid FROM pg_class"))
    arguments = ("t", "", "(format csv)", s3_lab.bucket, "k.csv", s3_lab.region)
    # Table, columns and options each by itself. The others each start a process, so all of them are in one text.
    tries = [(place, text) for place in range(2) for text in _HOSTILE]
    tries += [(2, text) for text in _HOSTILE_OPTIONS] + [(place, " ".join(_HOSTILE)) for place in (3, 4, 5)]
    for place, text in tries:
        passed = list(arguments)
        passed[place] = text.replace("{mark}", str(mark))
        with pytest.raises(psycopg.Error):
            session.execute(IMPORT, passed)
    assert set(_rows(session, "SELECT oid FROM pg_class")) == tables
    assert _rows(session) == []
    assert not s3_lab.has_calls()


_ESCAPES = [
    "(format csv) WHERE true",
    "(format csv) where (a = 1)",
    "(format csv), (header)",
    "(format csv) (header)",
    "csv ) WHERE (1 = 1",
    "csv (header)",
    "(format csv; header)",
    "(format csv -- )",
    "(format /* */ csv)",
    "(null $$x$$)",
    "(null 'x)",
    "(null E'x\\')",
    "(header",
]


@pytest.mark.parametrize("options", _ESCAPES)
def test_options_that_leave_their_clause_never_reach_copy(session: psycopg.Connection, options: str) -> None:
    """Although COPY would refuse most of them too."""
    with pytest.raises(psycopg.errors.SyntaxError, match=r"^options (are not|have)"):
        session.execute("SELECT aws_s3._compose_options(%s)", (options,))


@pytest.mark.parametrize(
    ("options", "composed"),
    [
        ("(format csv, null WHERE)", ' WITH ( "format" "csv" , "null" "where" )'),
        ("csv WHERE true", ' WITH CSV "where" "true"'),
        ("csv program 'x'", " WITH CSV \"program\" 'x'"),
        ("(null 'a''\\b')", " WITH ( \"null\" E'a''\\\\b' )"),
    ],
)
def test_words_of_options_are_no_keywords(session: psycopg.Connection, options: str, composed: str) -> None:
    """Quoted, they begin no other clause; strings keep their value whatever standard_conforming_strings is."""
    found = session.execute("SELECT aws_s3._compose_options(%s)", (options,)).fetchone()
    assert found == (composed,)


@pytest.mark.parametrize(
    "key", ["a b", "a'b", "$(x)", "`x`", "a;b|c&d", 'a"b', "ü", "a%20b", "a+b", "a#b?c", "a*b[c]", "-x", "a\\b"]
)
def test_hostile_keys_are_only_names(session: psycopg.Connection, s3_lab: S3Lab, key: str) -> None:
    """The object of that very key is imported."""
    s3_lab.put(key, _ROWS)
    assert s3_lab.import_into(session, key) == f'2 rows imported into relation "t" from file {key} of 12 bytes'


def test_a_planted_key_is_shown_nowhere(session: psycopg.Connection, s3_lab: S3Lab) -> None:
    """In no log, command line, environment, error or statement, while the import runs or when it fails."""
    session.execute(
        "SET log_statement = 'all'; SET client_min_messages = 'debug1'; SET log_error_verbosity = 'verbose'"
    )
    session.execute("SET log_min_messages = 'debug1'; SET log_parameter_max_length = 0")
    key, secret, token = "PLANTED-ID", "PLANTED-SECRET", "PLANTED-TOKEN"
    call = """SELECT aws_s3.table_import_from_s3('t', '', '(format csv)',
        aws_commons.create_s3_uri('lab', %s, 'us-east-1'), aws_commons.create_aws_credentials(%s, %s, %s))"""
    seen: list[str] = []
    is_over = threading.Event()

    def look() -> None:
        with psycopg.connect(s3_lab.conninfo, autocommit=True) as other:
            while not is_over.is_set():
                seen.extend(str(row) for row in other.execute("SELECT * FROM pg_stat_activity"))
                for process in psutil.process_iter():
                    with contextlib.suppress(psutil.Error):
                        seen.append(str((process.cmdline(), process.environ())))

    watcher = threading.Thread(target=look)
    watcher.start()
    s3_lab.put("k.csv", _ROWS)
    s3_lab.put("bad.csv", b"x,y\n")
    try:
        session.execute(call, ("k.csv", key, secret, token))
        for wrong in ("bad.csv", "no such key"):
            with pytest.raises(psycopg.Error) as caught:
                session.execute(call, (wrong, key, secret, token))
            seen.append(_describe(caught.value))
        # The program that writes the file of the call ends too soon to be seen; its command is in this error.
        s3_lab.calls.chmod(0o500)
        with pytest.raises(psycopg.errors.ExternalRoutineException, match="put") as caught:
            session.execute(call, ("k.csv", key, secret, token))
        seen.append(_describe(caught.value))
    finally:
        s3_lab.calls.chmod(0o700)
        is_over.set()
        watcher.join()
    assert any("--call" in each for each in seen)
    assert not any("PLANTED" in each for each in seen)
    assert "PLANTED" not in s3_lab.log
    assert "create_aws_credentials" in s3_lab.log
    logs = "".join(path.read_text() for path in (s3_lab.status.folder / "processes").iterdir())
    assert "PLANTED" not in logs
    assert session.execute("SELECT current_setting('aws_s3._call', true)").fetchone() in [(None,), ("",)]
    assert not s3_lab.has_calls()


def test_a_calls_file_is_private_and_short_lived(session: psycopg.Connection, s3_lab: S3Lab) -> None:
    """Mode 0600 in a folder of the server's account, and gone once the object is read."""
    assert stat.S_IMODE(s3_lab.calls.stat().st_mode) == 0o700
    session.execute("CREATE TABLE locked (a int, b text)")
    s3_lab.put("k.csv", _ROWS)
    with psycopg.connect(s3_lab.conninfo) as other:
        other.execute("LOCK TABLE locked IN EXCLUSIVE MODE")
        caller = threading.Thread(target=s3_lab.import_into, args=(session,), kwargs={"table": "locked"})
        caller.start()
        file = _await(lambda: next(iter(s3_lab.calls.iterdir()), None))
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert file.stat().st_uid == s3_lab.calls.stat().st_uid
    caller.join()
    assert not s3_lab.has_calls()


@pytest.mark.parametrize("how", ["cancel", "terminate", "kill backend", "kill cat", "timeout"])
def test_nothing_is_left_of_an_import_that_is_ended(s3_lab: S3Lab, how: str) -> None:
    """Neither a process nor a file nor a row, although the source stalls."""
    with socket.create_server(("127.0.0.1", 0)) as stalled:
        session = psycopg.connect(s3_lab.conninfo, autocommit=True)
        session.execute("CREATE TABLE t (a int, b text)")
        session.execute(f"SET aws_s3.endpoint_url = 'http://127.0.0.1:{stalled.getsockname()[1]}'")  # type: ignore[arg-type]
        if how == "timeout":
            session.execute("SET statement_timeout = '3s'")
        pid = session.info.backend_pid
        errors: list[psycopg.Error] = []

        def call() -> None:
            try:
                s3_lab.import_into(session)
            except psycopg.Error as error:
                errors.append(error)

        caller = threading.Thread(target=call)
        caller.start()
        cat = _await(lambda: next(iter(_cats(s3_lab)), None))
        _await(lambda: not list(s3_lab.calls.iterdir()))
        with psycopg.connect(s3_lab.conninfo, autocommit=True) as other:
            if how == "cancel":
                other.execute("SELECT pg_cancel_backend(%s)", (pid,))
            elif how == "terminate":
                other.execute("SELECT pg_terminate_backend(%s)", (pid,))
            elif how == "kill cat":
                cat.kill()
            elif how == "kill backend":
                psutil.Process(pid).kill()
        caller.join(timeout=60)
        assert not caller.is_alive()
        session.close()
        # While the source stalls: a program whose source fails writes an answer, which the next call removes.
        _await(lambda: not _cats(s3_lab))
    (error,) = errors
    expected = {
        "cancel": psycopg.errors.QueryCanceled,
        "timeout": psycopg.errors.QueryCanceled,
        "kill cat": psycopg.errors.ExternalRoutineException,
    }
    assert isinstance(error, expected.get(how, psycopg.OperationalError))
    assert not s3_lab.has_calls()
    with _await(lambda: _try_to_connect(s3_lab)) as after:
        assert _rows(after) == []


def test_the_next_call_removes_files_of_backends_that_were_killed(session: psycopg.Connection, s3_lab: S3Lab) -> None:
    """And leaves those of backends that live."""
    s3_lab.put("k.csv", _ROWS)
    owner = s3_lab.calls.stat()
    with subprocess.Popen(["true"]) as ended:
        pass
    alive = s3_lab.calls / f"{session.info.backend_pid}-alive"
    for path in (s3_lab.calls / f"{ended.pid}-dead", alive):
        path.write_text("call")
        os.chown(path, owner.st_uid, owner.st_gid)
    s3_lab.import_into(session)
    assert list(s3_lab.calls.iterdir()) == [alive]
    alive.unlink()


def _rows(session: psycopg.Connection, query: str = "SELECT * FROM t ORDER BY 1") -> list[tuple[object, ...]]:
    return session.execute(query).fetchall()  # type: ignore[call-overload,no-any-return]


@pytest.mark.parametrize("moment", range(4))
def test_nothing_stays_of_a_lab_with_s3_whose_up_was_killed(home: Path, seed: int, moment: int) -> None:
    """At any moment, from the first file to moto's server."""
    up = subprocess.Popen(
        [sys.executable, "-m", "penstock", "lab", "up", "single", "--s3"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    time.sleep(random.Random(seed + moment).uniform(0.3, 3))
    up.kill()
    up.wait()
    assert main(["lab", "down", "--all"]) == 0
    _await(lambda: not _processes_of(home))
    assert [path.name for path in (home / "labs").glob("*")] in ([".lock"], [])


def test_down_ends_s3_and_imports(lab: Lab, installation: Installation) -> None:
    """Of a lab whose import waits for its source."""
    status = lab.up("single", installation, parameters="postgres", has_s3=True)
    assert status.conninfo is not None
    with socket.create_server(("127.0.0.1", 0)) as stalled:
        session = psycopg.connect(status.conninfo, autocommit=True)
        session.execute("CREATE EXTENSION aws_s3 CASCADE; CREATE TABLE t (a int)")
        session.execute(f"SET aws_s3.endpoint_url = 'http://127.0.0.1:{stalled.getsockname()[1]}'")  # type: ignore[arg-type]
        session.pgconn.send_query_params(
            b"SELECT aws_s3.table_import_from_s3('t', '', '', 'bucket', 'key', 'us-east-1')", None
        )
        waiting, _ = stalled.accept()
        assert len(_processes_of(lab.files.folder)) > 2
        assert lab.down()
        session.close()
        waiting.close()
    _await(lambda: not _processes_of(lab.files.folder))


def test_a_lab_in_a_folder_of_an_odd_name_imports(home: Path, installation: Installation) -> None:
    """The script's path is data for SQL and the shell. initdb itself would run `$(x)` in its path."""
    odd = Lab.named("lab", home / "it's 100%s | x & y")
    status = odd.up("single", installation, parameters="postgres", has_s3=True)
    assert status.conninfo is not None
    try:
        with psycopg.connect(status.conninfo, autocommit=True) as session:
            session.execute("CREATE EXTENSION aws_s3 CASCADE; CREATE TABLE t (a int)")
            with pytest.raises(psycopg.errors.ExternalRoutineException, match="does not exist"):
                session.execute("SELECT aws_s3.table_import_from_s3('t', '', '', 'lab', 'key', 'us-east-1')")
    finally:
        odd.down()


def test_s3_that_has_ended_is_started_again(lab: Lab, installation: Installation) -> None:
    """By lab up, at its address, without the objects; lab up without --s3 is another lab."""
    first = lab.up("single", installation, parameters="postgres", has_s3=True)
    (moto,) = [process for process in _processes_of(first.folder) if "moto.server" in process.cmdline()]
    moto.kill()
    _await(lambda: not moto.is_running() or moto.status() == psutil.STATUS_ZOMBIE)
    assert lab.up("single", installation, parameters="postgres", has_s3=True) == first
    assert main(["lab", "up", "single", "--name", "lab"]) == 8


def test_a_standby_that_is_promoted_imports(lab: Lab, installation: Installation) -> None:
    """The servers of a cluster share the programs."""
    lab.up("cluster", installation, parameters="postgres", has_s3=True)
    with psycopg.connect(lab.conninfo(), autocommit=True) as session:
        session.execute("CREATE EXTENSION aws_s3 CASCADE; CREATE TABLE t (a int)")
    lab.failover()
    with (
        psycopg.connect(lab.conninfo(), autocommit=True) as session,
        pytest.raises(psycopg.errors.ExternalRoutineException, match="does not exist"),
    ):
        session.execute("SELECT aws_s3.table_import_from_s3('t', '', '', 'lab', 'key', 'us-east-1')")


def test_a_copy_of_python_runs_penstock(tmp_path: Path) -> None:
    """Without anything of the Python that it was copied from."""
    target = tmp_path / "python"
    python._copy(target)
    argv = ["/usr/bin/env", f"LD_LIBRARY_PATH={target / 'lib'}", str(python._program(target)), "-I", "-c"]
    said = subprocess.run(
        [*argv, "import sys, penstock.cli.main, penstock_lab.command.cat, obstore, isal; print(sys.path)"],
        capture_output=True,
        text=True,
        check=True,
        env={},
    )
    assert str(target) in said.stdout
    assert sys.prefix not in said.stdout


def test_lab_is_the_only_one_with_s3(capfd: pytest.CaptureFixture[str]) -> None:
    """Other servers are refused, with what to use instead."""
    assert main(["server", "start", "--s3"]) == 2
    assert "penstock load s3://" in capfd.readouterr().err


def _processes_of(folder: Path) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.status() != psutil.STATUS_ZOMBIE and Path(process.cwd()).is_relative_to(folder):
                found.append(process)
    return found


def _describe(error: psycopg.Error) -> str:
    return str([getattr(error.diag, name) for name in dir(error.diag) if not name.startswith("_")])


def _cats(s3_lab: S3Lab) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if "--call" in process.cmdline() and process.cwd() == str(s3_lab.calls):
                found.append(process)
    return found


def _try_to_connect(s3_lab: S3Lab) -> psycopg.Connection | None:
    with contextlib.suppress(psycopg.OperationalError):
        return psycopg.connect(s3_lab.conninfo)
    return None


def _await(look: Callable[[], _Found | None]) -> _Found:
    """Return what `look` finds, once it does."""
    for _ in range(1200):
        if found := look():
            return found
        time.sleep(0.05)
    pytest.fail("not within a minute")
