"""A load that changed the server's settings and was killed: the next load, or a repair, puts them back."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from psycopg.conninfo import make_conninfo

from penstock.api.connect import connect_to
from penstock.changes.records import TableStore
from penstock.changes.values import SERVER, Hold, lock_of
from penstock.cli.main import main
from penstock.core.connect.connection import ConnectionFactory
from penstock.core.errors import Interrupted, TargetError
from penstock.core.values.job import Housekeeping, LoadJob, LoadRules
from penstock.ledger.ledger import Ledger
from penstock.ledger.locks import try_lock
from penstock.loading.loader import Loader
from penstock.restore.repair import Repairer
from penstock.settings.decide import make_profile
from support.changed_server import request_for, take
from support.files import write_to
from support.loads import target

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator
    from pathlib import Path

    from support.changed_server import ChangedServer

_PENSTOCK = [sys.executable, "-m", "penstock"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Provide a csv file with header a,b and one record."""
    return write_to(tmp_path / "file.csv", "a,b\n1,x\n")


@pytest.fixture(params=["postgres", "other"])
def conninfo(request: pytest.FixtureRequest, changed18: ChangedServer) -> Iterator[str]:
    """Provide the database of the leases, and another one of the same server."""
    if request.param == "postgres":
        yield changed18.conninfo
        return
    changed18.execute("DROP DATABASE IF EXISTS other WITH (FORCE)", "CREATE DATABASE other")
    yield make_conninfo(changed18.conninfo, dbname="other")
    changed18.execute("DROP DATABASE other WITH (FORCE)")


def kill_load(server: ChangedServer, conninfo: str, tmp_path: Path) -> None:
    """Kill a load of a pipe with -9 while the settings are others for it."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    load = [*_PENSTOCK, "load", str(pipe), "--into", "piped", "--create", "--to", conninfo, "--quiet"]
    process = subprocess.Popen([*load, "--settings", "bulk-load"], stderr=subprocess.DEVNULL)
    with pipe.open("wb", buffering=0) as end:
        end.write(b"a,b\n" + b"1,x\n" * 100_000)
        while server.show("checkpoint_timeout") != "30min":
            assert process.poll() is None
        process.kill()
        process.wait()
    await_sessions(server)


def await_sessions(server: ChangedServer) -> None:
    """Wait until the server has noticed that a process has gone."""
    while server.execute("SELECT FROM pg_locks WHERE locktype = 'advisory'"):
        time.sleep(0.01)


def run(conninfo: str, path: Path, *, settings: str = "none", again: bool = False) -> list[str]:
    """Load a file into table t, made where it is missing; return the notices."""
    notices: list[str] = []
    with Loader(connect_to(conninfo), Housekeeping(settings=settings)) as loader:
        job = LoadJob(targets=(target(path, create=True),), rules=LoadRules(again=again))
        loader.run(loader.plan(job), on_notice=notices.append, on_warning=lambda each: notices.append(each.message))
    return notices


def notes_of(conninfo: str) -> list[str]:
    """Return the leases that the ledger notes."""
    with ConnectionFactory(conninfo).connect() as connection:
        return [hold.holder_id for hold in TableStore(connection=connection).read_holds(SERVER)]


@contextmanager
def noting_lease(conninfo: str, lease_id: str) -> Iterator[None]:
    """Hold a lease that is noted in a ledger, and not taken yet."""
    with ConnectionFactory(conninfo).connect() as connection:
        lock = lock_of(lease_id)
        try_lock(connection, lock)
        TableStore(connection=connection).write(Hold(holder_id=lease_id, target_oid=SERVER, lock=lock), [])
        yield


@pytest.mark.part("rest")
def test_next_load_restores_though_it_asks_for_nothing(
    changed18: ChangedServer, conninfo: str, path: Path, tmp_path: Path
) -> None:
    """And the one after it finds nothing left to do."""
    before = changed18.snapshot()
    kill_load(changed18, conninfo, tmp_path)
    assert changed18.show("max_wal_size") != "1GB"
    (notice,) = run(conninfo, path)
    assert "which had ended" in notice
    assert changed18.snapshot() == before
    assert notes_of(conninfo) == []
    assert run(conninfo, path, again=True) == []


@pytest.mark.part("rest")
def test_load_that_finds_all_loaded_restores_too(
    changed18: ChangedServer, conninfo: str, path: Path, tmp_path: Path
) -> None:
    """As a job that runs every minute and seldom finds a new file."""
    run(conninfo, path)
    before = changed18.snapshot()
    kill_load(changed18, conninfo, tmp_path)
    run(conninfo, path)
    assert changed18.snapshot() == before


@pytest.mark.part("rest")
def test_repair_restores(changed18: ChangedServer, conninfo: str, tmp_path: Path) -> None:
    """Its plan names the settings before."""
    before = changed18.snapshot()
    kill_load(changed18, conninfo, tmp_path)
    repair = [*_PENSTOCK, "repair", "--to", conninfo]
    told = subprocess.run([*repair, "--plan"], check=True, capture_output=True, text=True).stdout
    lines = [line for line in told.splitlines() if "(the server)" in line]
    assert any("max_wal_size" in line for line in lines)
    assert all("restore" in line for line in lines)
    assert changed18.show("max_wal_size") != "1GB"
    told = subprocess.run(repair, check=True, capture_output=True, text=True).stdout
    assert "settings: max_wal_size" in told
    assert changed18.snapshot() == before
    assert notes_of(conninfo) == []
    told = subprocess.run(repair, check=True, capture_output=True, text=True).stdout
    assert told.startswith("nothing to repair on ")


@pytest.mark.part("rest")
def test_repair_in_another_database_restores(changed18: ChangedServer, tmp_path: Path) -> None:
    """Leases are the cluster's: the note in the database that was loaded is not needed."""
    changed18.execute("DROP DATABASE IF EXISTS other WITH (FORCE)", "CREATE DATABASE other")
    before = changed18.snapshot()
    kill_load(changed18, changed18.conninfo, tmp_path)
    with Repairer(connect_to(make_conninfo(changed18.conninfo, dbname="other"))) as repairer:
        done = repairer.run()
        assert done.errors == []
        assert {each.name for each in done.settings} >= {"max_wal_size", "checkpoint_timeout"}
    assert changed18.snapshot() == before
    changed18.execute("DROP DATABASE other WITH (FORCE)")


def test_repair_leaves_leases_of_running_loads_and_of_apply(changed18: ChangedServer) -> None:
    """The plan says whose they are."""
    with changed18.connect() as held, changed18.connect() as other:
        take(held, request_for("load 1"))
        profile = make_profile({"min_wal_size": 100.0})
        take(other, request_for("penstock settings apply", lasts_s=3600.0, profile=profile))
        during = changed18.snapshot()
        with Repairer(connect_to(changed18.conninfo)) as repairer:
            steps = repairer.plan()
            assert repairer.run().settings == []
        reasons = {step.name: step.reason for step in steps if step.action == "wait"}
        assert "load 1 is running" in reasons["max_wal_size"]
        assert "lasts until" in reasons["min_wal_size"]
        assert changed18.snapshot() == during


# Loads a file, and kills itself before the nth statement of all its sessions; prints how many there were.
_VICTIM = """
import itertools, os, signal, sys
import psycopg
from penstock.api.connect import connect_to
from penstock.loading.loader import Loader
from penstock.core.values.dialect import DialectOptions
from penstock.core.values.job import Housekeeping, LoadJob, LoadRules, TargetJob
from penstock.core.values.table import TableName

count, last = itertools.count(1), int(sys.argv[3])
execute = psycopg.Connection.execute

def counted(connection, *args, **options):
    if next(count) == last:
        os.kill(os.getpid(), signal.SIGKILL)
    return execute(connection, *args, **options)

psycopg.Connection.execute = counted
table = TableName(schema=None, name="t")
target = TargetJob(sources=(sys.argv[2],), into=table, dialect=DialectOptions(), create=True)
with Loader(connect_to(sys.argv[1]), Housekeeping(settings="bulk-load")) as loader:
    plan = loader.plan(LoadJob(targets=(target,), rules=LoadRules(again=True), sessions=1))
    loader.run(plan)
print(next(count) - 1)
"""


@pytest.mark.part("rest")
def test_killed_before_any_statement(changed18: ChangedServer, conninfo: str, path: Path, rng: random.Random) -> None:
    """The next load puts back whatever was changed until then, and nothing is left on record."""
    before = changed18.snapshot()

    def play(last: int) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", _VICTIM, conninfo, str(path), str(last)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    whole = play(0)
    assert whole.returncode == 0, whole.stderr
    for last in sorted(rng.sample(range(1, int(whole.stdout) + 1), 6)):
        # How often a reload is looked for differs, so a run may end before that statement.
        assert play(last).returncode in {-signal.SIGKILL, 0}
        await_sessions(changed18)
        run(conninfo, path, again=True)
        assert changed18.snapshot() == before, f"killed before statement {last}"
        assert changed18.execute("SELECT FROM penstock.changes UNION ALL SELECT FROM penstock.holds") == []
        assert notes_of(conninfo) == []


@pytest.mark.part("rest")
def test_role_without_rights_is_told_at_each_load_until_somebody_restores(
    changed18: ChangedServer, path: Path, tmp_path: Path
) -> None:
    """Its load goes on; its repair is an error that has the GRANTs."""
    changed18.execute("CREATE ROLE plain LOGIN", "GRANT CREATE ON DATABASE postgres TO plain", "CREATE SCHEMA plain")
    changed18.execute("ALTER SCHEMA plain OWNER TO plain", "ALTER ROLE plain SET search_path = plain")
    conninfo = make_conninfo(changed18.conninfo, user="plain")
    try:
        before = changed18.snapshot()
        kill_load(changed18, changed18.conninfo, tmp_path)
        changed18.execute("GRANT USAGE ON SCHEMA penstock TO plain")
        changed18.execute("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA penstock TO plain")
        for _ in range(2):
            (notice,) = run(conninfo, path, again=True)
            assert "penstock settings restore" in notice
        with Repairer(connect_to(conninfo)) as repairer:
            (error,) = repairer.run().errors
        assert "GRANT ALTER SYSTEM" in str(error.hint)
        assert changed18.show("max_wal_size") != "1GB"
        run(changed18.conninfo, path, again=True)
        assert changed18.snapshot() == before
        assert run(conninfo, path, again=True) == []
    finally:
        changed18.execute("DROP OWNED BY plain CASCADE", "DROP ROLE plain")


@pytest.mark.part("rest")
def test_lease_of_a_parameter_group_is_not_forgotten_by_who_cannot_see_it(changed18: ChangedServer, path: Path) -> None:
    """It was taken by the endpoint of Amazon RDS; this load and this repair name the server in another way."""
    run(changed18.conninfo, path)
    lease_id = request_for("load").lease_id
    with noting_lease(changed18.conninfo, lease_id):
        """And its load is killed."""
    changed18.execute("CREATE ROLE rds_superuser")
    try:
        (notice,) = run(changed18.conninfo, path, again=True)
        assert "may have left the server's settings changed" in notice
        with Repairer(connect_to(changed18.conninfo)) as repairer:
            (error,) = repairer.run().errors
        assert "by its endpoint" in str(error.hint)
        for command in ("restore", "leases"):
            assert main(["settings", command, "--to", changed18.conninfo]) == TargetError.exit_code
        assert notes_of(changed18.conninfo) == [lease_id]
    finally:
        changed18.execute("DROP ROLE rds_superuser")


def test_lease_that_is_just_being_taken_is_let_be(changed18: ChangedServer, path: Path) -> None:
    """Its note stands, though its lease is not there yet."""
    run(changed18.conninfo, path)
    lease_id = request_for("load").lease_id
    with noting_lease(changed18.conninfo, lease_id):
        run(changed18.conninfo, path, again=True)
        assert notes_of(changed18.conninfo) == [lease_id]
    assert run(changed18.conninfo, path, again=True) == []
    assert notes_of(changed18.conninfo) == []


@pytest.mark.part("rest")
def test_running_load_keeps_its_lease_and_its_note(changed18: ChangedServer, path: Path) -> None:
    """Another load beside it looks, and finds it held."""
    with changed18.connect() as held:
        Ledger().ensure(held)
        request = request_for("load 1")
        take(held, request)
        during = changed18.snapshot()
        assert run(changed18.conninfo, path) == []
        assert changed18.snapshot() == during
        assert notes_of(changed18.conninfo) == [request.lease_id]
    run(changed18.conninfo, path, again=True)
    assert notes_of(changed18.conninfo) == []


@pytest.mark.part("rest")
def test_load_with_settings_notes_its_lease_only_while_it_runs(changed18: ChangedServer, path: Path) -> None:
    """And one that has nothing to change notes nothing."""
    run(changed18.conninfo, path, settings="bulk-load")
    assert notes_of(changed18.conninfo) == []
    changed18.execute("ALTER SYSTEM SET max_wal_size = '64GB'", "ALTER SYSTEM SET checkpoint_timeout = '1h'")
    changed18.reload()
    run(changed18.conninfo, path, settings="bulk-load", again=True)
    assert notes_of(changed18.conninfo) == []


def test_interrupt_while_settings_of_another_are_put_back_leaves_nothing(
    changed18: ChangedServer, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The load has begun by then: its table goes, and the ledger knows of none."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("penstock.loading.steps.settings.end_left_settings", interrupt)
    with ConnectionFactory(changed18.conninfo).connect() as connection:
        Ledger().ensure(connection)
    changed18.execute("DROP TABLE IF EXISTS t", "DELETE FROM penstock.loads")
    with noting_lease(changed18.conninfo, request_for("load").lease_id):
        """And its load is killed."""
    with pytest.raises(Interrupted):
        run(changed18.conninfo, path)
    assert changed18.execute("SELECT to_regclass('t')::text, (SELECT count(*) FROM penstock.loads)") == [(None, 0)]
