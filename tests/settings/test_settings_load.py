"""Loads that change the server's settings: everything is as it was on every way out."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from penstock.api.connect import connect_to
from penstock.cli.main import main
from penstock.cli.output import WOULD_NOT_LOAD
from penstock.core.errors import DataError, Interrupted, TargetError
from penstock.core.values.job import Housekeeping, LoadJob, LoadRules
from penstock.loading.loader import Loader
from penstock.loading.steps import lease as server_settings
from penstock.settings.backend import SystemSettings
from penstock.settings.decide import make_profile
from support.changed_server import request_for, take
from support.files import write_to
from support.loads import ChoppedSources, settings_of, target

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from penstock.loading.values.outcome import LoadOutcome
    from support.changed_server import ChangedServer


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Provide a csv file with header a,b and 2,000 records."""
    return write_to(tmp_path / "file.csv", "a,b\n" + "".join(f"{n},value {n}\n" for n in range(2000)))


def run(
    conninfo: str,
    path: Path,
    *,
    settings: str = "bulk-load",
    at_piece: Callable[[int], None] | None = None,
    notices: list[str] | None = None,
    retry_for_s: float = 0.0,
) -> LoadOutcome:
    """Load a file into table t, made where it is missing, once more where it is loaded."""
    sources = partial(ChoppedSources, 1009, at_piece)
    with Loader(connect_to(conninfo), Housekeeping(settings=settings), sources=sources) as loader:
        job = LoadJob(
            targets=(target(path, create=True),), rules=LoadRules(again=True, retry_for=retry_for_s), sessions=2
        )
        told = [] if notices is None else notices
        return loader.run(loader.plan(job), on_notice=told.append, on_warning=lambda each: told.append(each.message))


def once(act: Callable[[], object]) -> Callable[[int], None]:
    """Return what acts once, in the middle of a file."""
    done: list[int] = []

    def at_piece(number: int) -> None:
        if number == 10 and not done:
            done.append(number)
            act()

    return at_piece


@pytest.mark.part("rest")
def test_settings_are_others_during_the_load_only(changed: ChangedServer, path: Path) -> None:
    """The outcome shows the settings line by line."""
    before = changed.snapshot()
    seen: list[str] = []
    outcome = run(changed.conninfo, path, at_piece=once(lambda: seen.append(changed.show("max_wal_size"))))
    assert seen == ["4GB"]
    assert changed.snapshot() == before
    told = {one.name: (one.before, one.during, one.after, one.note) for one in settings_of(outcome)}
    assert told["max_wal_size"] == ("1GB", "4GB", "1GB", None)
    assert told["checkpoint_timeout"] == ("5min", "30min", "5min", None)


def test_bad_record_restores(changed18: ChangedServer, path: Path) -> None:
    """An error is a way out."""
    before = changed18.snapshot()
    path.write_text(path.read_text() + "1,2,3\n")
    with pytest.raises(DataError):
        run(changed18.conninfo, path)
    assert changed18.snapshot() == before


def test_small_load_is_left_alone_without_asking_the_server(
    changed18: ChangedServer, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the size of its files."""

    def ask(*_: Any) -> None:
        raise AssertionError

    monkeypatch.setattr(server_settings.LoadLease, "_request", ask)
    assert settings_of(run(changed18.conninfo, path, settings="auto")) == ()


@pytest.mark.part("rest")
def test_auto_leases_where_it_pays(changed18: ChangedServer, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So much smaller is what counts as large here."""
    monkeypatch.setattr(server_settings, "is_too_small", lambda _: False)
    assert settings_of(run(changed18.conninfo, path, settings="auto")) == ()
    monkeypatch.setattr(server_settings.LoadLease, "_expect", lambda _: (10**10, 10**12))
    outcome = run(changed18.conninfo, path, settings="auto")
    assert {one.name: one.during for one in settings_of(outcome)}["max_wal_size"] == "18120MB"


def test_auto_restores_what_others_left(changed18: ChangedServer, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though it changes nothing itself."""
    monkeypatch.setattr(server_settings, "is_too_small", lambda _: False)
    with changed18.connect() as connection:
        take(connection, request_for("killed", lasts_s=0.0))
    assert changed18.show("max_wal_size") == "4GB"
    notices: list[str] = []
    assert settings_of(run(changed18.conninfo, path, settings="auto", notices=notices)) == ()
    assert changed18.show("max_wal_size") == "1GB"
    assert "(killed), which had ended" in notices[0]


@pytest.mark.part("rest")
def test_load_that_wants_other_values_than_a_lease_that_is_held(
    changed18: ChangedServer, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Auto loads without and says whose they are; a named profile must be had."""
    monkeypatch.setattr(server_settings, "is_too_small", lambda _: False)
    monkeypatch.setattr(server_settings.LoadLease, "_expect", lambda _: (10**10, 10**12))
    with changed18.connect() as other:
        take(other, request_for("load 1", profile=make_profile({"max_wal_size": 9000.0})))
        during = changed18.snapshot()
        notices: list[str] = []
        outcome = run(changed18.conninfo, path, settings="auto", notices=notices)
        assert (outcome.rows, settings_of(outcome)) == (2000, ())
        assert any("for load 1" in text for text in notices)
        with pytest.raises(TargetError, match="no lease on settings"):
            run(changed18.conninfo, path)
        assert changed18.snapshot() == during


@pytest.mark.part("rest")
def test_auto_goes_without_rights_and_a_named_profile_does_not(
    changed18: ChangedServer, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For a named profile, the error shows the GRANTs before the first row."""
    monkeypatch.setattr(server_settings, "is_too_small", lambda _: False)
    changed18.execute("CREATE ROLE plain LOGIN", "GRANT CREATE ON DATABASE postgres TO plain", "CREATE SCHEMA plain")
    changed18.execute("ALTER SCHEMA plain OWNER TO plain", "ALTER ROLE plain SET search_path = plain")
    conninfo = make_conninfo(changed18.conninfo, user="plain")
    try:
        with pytest.raises(TargetError, match="no lease on settings") as caught:
            run(conninfo, path)
        assert caught.value.hint is not None
        assert "GRANT ALTER SYSTEM" in caught.value.hint
        planned = ["load", str(path), "--into", "t", "--create", "--to", conninfo, "--plan", "--settings"]
        assert main([*planned, "bulk-load"]) == WOULD_NOT_LOAD
        assert main([*planned, "auto"]) == 0
        assert run(conninfo, path, settings="auto").rows == 2000
    finally:
        changed18.execute("DROP OWNED BY plain CASCADE", "DROP ROLE plain")


@pytest.mark.part("rest")
def test_loads_in_two_databases_overlap(changed: ChangedServer, path: Path, tmp_path: Path) -> None:
    """The one that ends first leaves the settings to the other."""
    changed.execute("DROP DATABASE IF EXISTS other", "CREATE DATABASE other")
    other = make_conninfo(changed.conninfo, dbname="other")
    second = write_to(tmp_path / "second.csv", path.read_text())
    before = changed.snapshot()
    seen: list[Any] = []

    def load_other() -> None:
        outcome = run(other, second)
        seen.extend([settings_of(outcome), changed.show("max_wal_size")])

    outcome = run(changed.conninfo, path, at_piece=once(load_other))
    assert seen[1] == "4GB"
    assert [(one.during, one.after) for one in settings_of(outcome)][-1] == ("4GB", "1GB")
    assert changed.snapshot() == before
    assert changed.execute("SELECT FROM penstock.holds UNION ALL SELECT FROM penstock.changes") == []


@pytest.mark.part("rest")
def test_crash_of_the_server_does_not_keep_settings(changed18: ChangedServer, path: Path) -> None:
    """The lease's session is lost with all others; the load goes on, and a new session puts them back."""
    before = changed18.snapshot()
    outcome = run(changed18.conninfo, path, at_piece=once(lambda: crash(changed18)), retry_for_s=60)
    assert outcome.rows == 2000
    assert changed18.snapshot() == before
    assert {one.name: one.after for one in settings_of(outcome)}["max_wal_size"] == "1GB"


def crash(server: ChangedServer) -> None:
    """Kill a backend with -9, which ends all others, and wait for the server to be back."""
    with psycopg.connect(server.conninfo) as victim:
        os.kill(victim.info.backend_pid, signal.SIGKILL)
        with pytest.raises(psycopg.OperationalError):
            victim.execute("SELECT pg_sleep(60)")
    while True:
        try:
            server.execute("SELECT 1")
        except psycopg.OperationalError:
            continue
        break


@pytest.mark.part("rest")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_ended_process(changed18: ChangedServer, tmp_path: Path, number: signal.Signals) -> None:
    """Signals restore at once; after kill -9 penstock settings restore does."""
    before = changed18.snapshot()
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    command = [sys.executable, "-m", "penstock"]
    load = [*command, "load", str(pipe), "--into", "piped", "--create", "--to", changed18.conninfo]
    process = subprocess.Popen([*load, "--settings", "bulk-load", "--quiet"], stderr=subprocess.DEVNULL)
    with pipe.open("wb", buffering=0) as end:
        end.write(b"a,b\n" + b"1,x\n" * 100_000)
        while changed18.show("checkpoint_timeout") != "30min":
            assert process.poll() is None
        process.send_signal(number)
        process.wait()
    if number == signal.SIGKILL:
        assert changed18.show("max_wal_size") != "1GB"
        while changed18.execute("SELECT FROM pg_locks WHERE locktype = 'advisory'"):
            time.sleep(0.01)
        subprocess.run(
            [*command, "settings", "restore", "--to", changed18.conninfo], check=True, stdout=subprocess.PIPE
        )
    else:
        assert process.returncode == 130
    assert changed18.snapshot() == before


@pytest.mark.part("rest")
def test_second_interrupt_says_that_settings_stay(
    changed18: ChangedServer, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It gives up putting them back; the next load does it."""
    before = changed18.snapshot()
    is_over = threading.Event()

    def release(*_: object) -> None:
        for _ in range(2):
            is_over.wait(0.2)
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        is_over.wait()

    notices: list[str] = []
    with monkeypatch.context() as patch, pytest.raises(Interrupted) as caught:
        patch.setattr(SystemSettings, "release", release)
        run(changed18.conninfo, path, notices=notices)
    assert "All rows of load" in str(caught.value.detail)
    assert any("penstock settings restore" in text for text in notices)
    is_over.set()
    run(changed18.conninfo, path, settings="none")
    assert changed18.snapshot() == before
