"""Autovacuum that comes to a table while it is loaded is seen, paused there, and comes again after the load."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from penstock.loading import attempt, autovacuum, autovacuum_plan, landing, rebuild, shape, switches
from penstock.server.autovacuum import Visit, find_visits
from penstock.server.connection import ConnectionFactory
from penstock.server.locking import with_lock_retries
from penstock.server.shape.switches import switch_off
from support import maven
from support.loads import IMPATIENT, Loads, share_ledger, target
from support.servers import TEST_SETTINGS, PgServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from penstock.model.job import LoadRules
    from penstock.model.outcome import LoadOutcome
    from support.servers import ServerPool

RULES = replace(IMPATIENT, vacuums=False)
KEEP = replace(RULES, autovacuum="keep")
# So that autovacuum is seen at work for sure: it comes at once and takes minutes.
SLOW = "autovacuum_vacuum_cost_delay = 100, autovacuum_vacuum_cost_limit = 1"
SLOW_OPTIONS = ["autovacuum_vacuum_cost_delay=100", "autovacuum_vacuum_cost_limit=1"]
BUSY = {
    **TEST_SETTINGS,
    "autovacuum_naptime": "1s",
    "autovacuum_vacuum_threshold": "10",
    "autovacuum_vacuum_insert_threshold": "10",
}
LOOKS = 600
# One batch that stays open, as those of a load at full speed are nearly always.
ONE_BATCH = 2**30

_AT_WORK = """
    SELECT l.pid
      FROM pg_locks AS l
      JOIN pg_stat_activity AS a ON a.pid = l.pid
      JOIN pg_class AS c ON l.relation IN (c.oid, c.reltoastrelid)
     WHERE a.backend_type = 'autovacuum worker'
       AND l.mode = 'ShareUpdateExclusiveLock'
       AND c.relname = '{}'
       AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""


@pytest.fixture(scope="session")
def busy_servers(servers: ServerPool) -> Iterator[dict[int, PgServer]]:
    """Provide a place for the servers on which autovacuum comes each second."""
    made: dict[int, PgServer] = {}
    yield made
    for each in made.values():
        assert each.server is not None
        each.server.stop("immediate")


def provide(servers: ServerPool, made: dict[int, PgServer], major: int | None) -> PgServer:
    """Return such a server of a version."""
    if major is None:
        pytest.skip("needs a server of its own")
    if major not in made:
        try:
            server = servers.new_server(servers.installation(major), settings=BUSY)
        except maven.Unavailable as reason:
            pytest.skip(f"PostgreSQL {major}: {reason}")
        server.ensure_running()
        made[major] = PgServer(server.conninfo(), major, server)
    return made[major]


@pytest.fixture
def busy(servers: ServerPool, busy_servers: dict[int, PgServer], pg_major: int | None) -> Iterator[str]:
    """Provide an empty database, on each version in turn, to which autovacuum comes each second."""
    server = provide(servers, busy_servers, pg_major)
    yield server.fresh_database()
    server.drop_databases()


@pytest.fixture
def busy18(servers: ServerPool, busy_servers: dict[int, PgServer]) -> Iterator[str]:
    """Provide such a database on the newest version."""
    server = provide(servers, busy_servers, 18)
    yield server.fresh_database()
    server.drop_databases()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Provide a file of a few pieces."""
    path = tmp_path / "people.csv"
    path.write_text("id,name\n" + "".join(f"{number},{'x' * 1000}\n" for number in range(1200)))
    return path


@pytest.fixture(autouse=True)
def _watched_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a load looked after from its start, and several times a second, however short it is."""
    monkeypatch.setattr(attempt, "_FIRST_LOOK_S", 0.0)
    monkeypatch.setattr(autovacuum, "LOOK_INTERVAL_S", 0.1)
    monkeypatch.setattr(autovacuum_plan, "_WORTHWHILE_S", 0.0)


def wait_until(is_so: Callable[[], object], what: str) -> None:
    """Look again and again, for a minute at the most."""
    for _ in range(LOOKS):
        if is_so():
            return
        time.sleep(0.1)
    pytest.fail(f"it never came to be: {what}")


def options(loads: Loads, table: str = "t") -> tuple[Any, ...]:
    """Return the storage parameters of a table and of its TOAST table."""
    return loads.execute(
        "SELECT c.reloptions, o.reloptions FROM pg_class AS c LEFT JOIN pg_class AS o ON o.oid = c.reltoastrelid"
        f" WHERE c.oid = '{table}'::regclass"
    )[0]


def is_paused(loads: Loads, table: str = "t") -> bool:
    """Whether autovacuum is off at a table."""
    return "autovacuum_enabled=false" in (options(loads, table)[0] or [])


def records(loads: Loads) -> int:
    """Return how many changes the ledger knows of."""
    return int(loads.execute("SELECT count(*) FROM penstock.changes")[0][0])


def at_work(loads: Loads, table: str = "t") -> list[int]:
    """Return the autovacuum workers at a table."""
    return [pid for (pid,) in loads.execute(_AT_WORK.format(table))]


def make_table(loads: Loads, more: str = "", *, role: str | None = None) -> None:
    """Make a table that autovacuum finds worth its while, for a long time."""
    loads.execute(f"CREATE TABLE t (id int, name text) WITH ({SLOW}{more})")
    loads.execute("INSERT INTO t SELECT i, 'somebody' FROM generate_series(1, 20000) AS i")
    if role is not None:
        loads.execute(f"DROP ROLE IF EXISTS {role}; CREATE ROLE {role}; ALTER TABLE t OWNER TO {role}")
        share_ledger(loads, role)


def drop_role(loads: Loads, role: str) -> None:
    """Drop a role with all that it has here."""
    loads.execute(f"DROP OWNED BY {role} CASCADE; DROP ROLE {role}")


def run(
    loads: Loads, path: Path, when_sent: Callable[[], object], *, rules: LoadRules = RULES, into: str = "t"
) -> LoadOutcome:
    """Load the file, and act when its first rows are on their way to the table and others still to come."""
    loads.at_piece = lambda number: when_sent() if number == 12 else None
    return loads.run(target(path, into=into), rules=rules, batch_bytes=ONE_BATCH, sessions=1)


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ("", (SLOW_OPTIONS, None)),
        (
            ", autovacuum_enabled = On, fillfactor = 90, toast.autovacuum_enabled = yes",
            ([*SLOW_OPTIONS, "autovacuum_enabled=on", "fillfactor=90"], ["autovacuum_enabled=yes"]),
        ),
    ],
)
def test_autovacuum_that_is_seen_is_paused_until_the_load_ends(
    busy: str, path: Path, more: str, expected: tuple[Any, ...]
) -> None:
    """With an owner's rights and no others; what was unset is unset after, what was set as it was spelled."""
    admin = Loads(busy)
    make_table(admin, more, role="autovacuum_owner")
    loads = Loads(busy, role="autovacuum_owner", piece_bytes=65536)
    assert options(admin) == expected

    def await_pause() -> None:
        wait_until(lambda: is_paused(admin), "paused")
        wait_until(lambda: not at_work(admin), "gone")
        assert options(admin)[1] == ["autovacuum_enabled=false"]

    assert run(loads, path, await_pause).rows == 1200
    assert (options(admin), records(admin)) == (expected, 0)
    (told,) = [text for text in loads.notices if "autovacuum" in text]
    assert told == 'autovacuum is at work on "public.t": pausing it there until the load ends'
    wait_until(lambda: at_work(admin), "autovacuum comes again")
    drop_role(admin, "autovacuum_owner")


def test_only_the_partition_where_it_is_seen_is_paused(busy18: str, path: Path) -> None:
    """Another one, which the load does not write to, keeps its autovacuum, though that is at work there."""
    loads = Loads(busy18, piece_bytes=65536)
    path.write_text("id,name\n" + "".join(f"{number % 1000},{'x' * 1000}\n" for number in range(1200)))
    loads.execute("CREATE TABLE root (id int, name text) PARTITION BY RANGE (id)")
    for name, start, end in (("filled", 0, 1000), ("other", 1000, 90000)):
        loads.execute(f"CREATE TABLE {name} PARTITION OF root FOR VALUES FROM ({start}) TO ({end}) WITH ({SLOW})")
    loads.execute("INSERT INTO root SELECT i % 1000, 'somebody' FROM generate_series(1, 20000) AS i")
    loads.execute("INSERT INTO root SELECT 1000 + i, 'somebody' FROM generate_series(1, 20000) AS i")

    def await_pause() -> None:
        wait_until(lambda: at_work(loads, "other"), "at work at the other")
        wait_until(lambda: is_paused(loads, "filled"), "paused")

    run(loads, path, await_pause, into="root")
    wait_until(lambda: at_work(loads, "other"), "still at work at the other")
    assert [text for text in loads.notices if "autovacuum" in text] == [
        'autovacuum is at work on "public.filled": pausing it there until the load ends'
    ]
    assert (options(loads, "filled"), options(loads, "other")) == ((SLOW_OPTIONS, None), (SLOW_OPTIONS, None))
    assert records(loads) == 0


def test_work_on_the_toast_table_counts(busy18: str, path: Path) -> None:
    """Its rows come with the table's."""
    loads = Loads(busy18, piece_bytes=65536)
    loads.execute(
        "CREATE TABLE t (id int, name text) WITH (autovacuum_vacuum_insert_threshold = -1, autovacuum_analyze_threshold"
        " = 1000000, toast.autovacuum_vacuum_cost_delay = 100, toast.autovacuum_vacuum_cost_limit = 1)"
    )
    loads.execute("ALTER TABLE t ALTER name SET STORAGE EXTERNAL")
    loads.execute("INSERT INTO t SELECT i, repeat('x', 10000) FROM generate_series(1, 300) AS i")
    before = options(loads)
    run(loads, path, lambda: wait_until(lambda: is_paused(loads), "paused"))
    assert (options(loads), records(loads)) == (before, 0)


def test_autovacuum_is_never_touched_where_it_is_to_be_kept(busy18: str, path: Path) -> None:
    """Nor looked at: no session is made for it."""
    loads = Loads(busy18, piece_bytes=65536)
    make_table(loads)

    def look() -> None:
        wait_until(lambda: at_work(loads), "at work")
        assert watching(loads) == []
        assert not is_paused(loads)

    run(loads, path, look, rules=KEEP)
    wait_until(lambda: at_work(loads), "still at work")


def watching(loads: Loads) -> list[Any]:
    """Return when the sessions that look for autovacuum have looked last."""
    query = "SELECT query_start FROM pg_stat_activity WHERE application_name LIKE '%autovacuum watch'"
    return loads.execute(f"{query} AND datname = current_database()")


def test_role_that_does_not_own_the_table_leaves_it_alone(busy18: str, path: Path) -> None:
    """It loads as ever, and nothing is tried."""
    admin = Loads(busy18)
    make_table(admin, role="autovacuum_clerk")
    admin.execute("ALTER TABLE t OWNER TO CURRENT_USER; GRANT INSERT ON t TO autovacuum_clerk")
    loads = Loads(busy18, role="autovacuum_clerk", piece_bytes=65536)

    def look() -> None:
        wait_until(lambda: at_work(admin), "at work")
        assert watching(admin) == []

    assert run(loads, path, look).rows == 1200
    wait_until(lambda: at_work(admin), "still at work")
    assert options(admin) == (SLOW_OPTIONS, None)
    drop_role(admin, "autovacuum_clerk")


def test_partition_of_another_owner_is_told_once_and_left(busy18: str, path: Path) -> None:
    """The load goes on."""
    admin = Loads(busy18)
    make_table(admin, role="autovacuum_parent")
    admin.execute("ALTER TABLE t OWNER TO CURRENT_USER")
    admin.execute("CREATE TABLE root (id int, name text) PARTITION BY RANGE (id)")
    admin.execute("ALTER TABLE root OWNER TO autovacuum_parent; ALTER TABLE root ATTACH PARTITION t DEFAULT")
    loads = Loads(busy18, role="autovacuum_parent", piece_bytes=65536)

    def look() -> None:
        wait_until(lambda: any("goes on" in text for text in loads.notices), "told")
        await_looks(admin)

    assert run(loads, path, look, into="root").rows == 1200
    assert sum("autovacuum goes on at" in text for text in loads.notices) == 1
    assert (options(admin), records(admin)) == ((SLOW_OPTIONS, None), 0)
    drop_role(admin, "autovacuum_parent")


def await_looks(loads: Loads) -> None:
    """Wait until autovacuum has been looked for twice from now on."""
    seen: set[Any] = set(watching(loads))

    def have_looked() -> bool:
        seen.update(watching(loads))
        return len(seen) > 2

    wait_until(have_looked, "looks")


def test_autovacuum_that_prevents_wraparound_is_let_be(busy: str, path: Path) -> None:
    """It comes whatever the table's parameter says, and does not give way."""
    loads = Loads(busy, piece_bytes=65536)
    make_table(loads, ", autovacuum_freeze_max_age = 100000")
    loads.execute("DO $$ BEGIN FOR i IN 1..100100 LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END $$")
    # One that came before that, for new rows, would take minutes.
    for pid in at_work(loads):
        loads.execute(f"SELECT pg_cancel_backend({pid})")
    what = "SELECT 1 FROM pg_stat_activity WHERE query LIKE 'autovacuum%public.t (to prevent wraparound)'"
    workers: list[int] = []

    def look() -> None:
        wait_until(lambda: loads.execute(what) and at_work(loads), "at work against wraparound")
        await_looks(loads)
        workers.extend(at_work(loads))

    before = options(loads)
    run(loads, path, look)
    assert workers and at_work(loads) == workers
    assert options(loads) == before
    assert not any("autovacuum" in text for text in loads.notices)


def test_visit_between_two_looks_is_known_of(busy: str) -> None:
    """By the time of its end, for as long as that counts; and only to a table that the backends write to."""
    loads = Loads(busy)
    loads.execute("CREATE TABLE t (id int); CREATE TABLE other (id int)")
    loads.execute("INSERT INTO t SELECT generate_series(1, 100); INSERT INTO other SELECT generate_series(1, 100)")
    count = "SELECT autovacuum_count > 0 AND autoanalyze_count > 0 FROM pg_stat_user_tables"
    wait_until(lambda: loads.execute(count) == [(True,), (True,)] and not at_work(loads), "vacuumed")
    oids = [oid for (oid,) in loads.execute("SELECT oid::bigint FROM pg_class WHERE relname IN ('t', 'other')")]
    with ConnectionFactory(busy).connect() as connection, psycopg.connect(busy) as writer:
        writer.execute("LOCK TABLE t IN ROW EXCLUSIVE MODE")
        pids = [writer.info.backend_pid]
        (visit,) = find_visits(connection, pids=pids, target_oids=oids, since_s=3600)
        assert (visit.name, visit.is_at_work, visit.prevents_wraparound) == ("public.t", False, False)
        time.sleep(0.01)
        assert find_visits(connection, pids=pids, target_oids=oids, since_s=0.001) == []
        assert find_visits(connection, pids=[], target_oids=oids, since_s=3600) == []


def pretend_to_see(loads: Loads, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have autovacuum seen at work on table t at the first look and at all others."""
    oid = loads.execute("SELECT 't'::regclass::oid::bigint")[0][0]
    visit = Visit(
        target_oid=oid, relation_oid=oid, schema="public", relation="t", is_at_work=True, prevents_wraparound=False
    )
    monkeypatch.setattr(autovacuum, "find_visits", lambda *_, **__: [visit])


def test_table_whose_lock_is_not_free_is_left_and_told_once(
    database: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The load neither waits nor fails for it."""
    loads = Loads(database, piece_bytes=65536)
    loads.execute("CREATE TABLE t (id int, name text)")
    pretend_to_see(loads, monkeypatch)
    with psycopg.connect(database) as other:
        other.execute("LOCK TABLE t IN SHARE UPDATE EXCLUSIVE MODE")
        run(loads, path, lambda: wait_until(lambda: any("goes on" in text for text in loads.notices), "told"))
    assert loads.count() == 1200
    assert sum("autovacuum" in text and "goes on" in text for text in loads.notices) == 1
    assert (options(loads), records(loads)) == ((None, None), 0)


def test_load_whose_end_comes_in_the_middle_of_a_pause_does_not_wait(
    database18: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The statement that waits for the lock is cancelled, and what was written down is forgotten."""
    monkeypatch.setattr(landing, "with_lock_retries", partial(with_lock_retries, lock_timeout_s=600.0))
    loads = Loads(database18, piece_bytes=65536)
    loads.execute("CREATE TABLE t (id int, name text)")
    pretend_to_see(loads, monkeypatch)
    waiting = "SELECT 1 FROM pg_locks WHERE NOT granted AND relation = 't'::regclass"
    with psycopg.connect(database18) as other:
        other.execute("LOCK TABLE t IN SHARE UPDATE EXCLUSIVE MODE")
        run(loads, path, lambda: wait_until(lambda: loads.execute(waiting), "waiting"))
        assert loads.execute(waiting) == []
    assert not any("goes on" in text for text in loads.notices)
    assert (loads.count(), options(loads), records(loads)) == (1200, (None, None), 0)


def test_pause_that_cannot_be_ended_is_told_and_the_load_complete(
    database18: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody has asked for it; penstock repair ends it."""
    loads = Loads(database18, piece_bytes=65536)
    loads.execute("CREATE TABLE t (id int, name text)")
    pretend_to_see(loads, monkeypatch)
    for module in (rebuild, shape):
        monkeypatch.setattr(module, "DEFAULT_PATIENCE_S", 0.0)
    with psycopg.connect(database18) as other:

        def lock() -> None:
            wait_until(lambda: is_paused(loads), "paused")
            other.execute("LOCK TABLE t IN SHARE UPDATE EXCLUSIVE MODE")

        assert run(loads, path, lock).rows == 1200
    assert any("autovacuum stays paused" in text for text in loads.notices)
    assert is_paused(loads)
    assert loads.execute("SELECT state FROM penstock.loads") == [("complete",)]
    subprocess.run([sys.executable, "-m", "penstock", "repair", "--to", database18], check=True, capture_output=True)
    assert (options(loads), records(loads)) == ((None, None), 0)


def test_load_that_lost_its_sessions_ends_the_pause_all_the_same(
    database18: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes on with new ones, and at its end autovacuum is as it was."""
    loads = Loads(database18, piece_bytes=65536)
    loads.execute("CREATE TABLE t (id int, name text)")
    pretend_to_see(loads, monkeypatch)
    own = "datname = current_database() AND application_name LIKE 'penstock%'"
    hits: list[int] = []

    def lose() -> None:
        wait_until(lambda: is_paused(loads), "paused")
        if not hits:
            hits.append(1)
            loads.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {own}")

    assert run(loads, path, lose, rules=replace(RULES, retry_for_s=60.0)).rows == 1200
    assert hits
    assert (loads.count(), options(loads), records(loads)) == (1200, (None, None), 0)


def test_session_that_is_lost_in_the_middle_of_a_pause_is_made_anew(
    database: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The load does not notice; the next look pauses, and what comes back is what was before the first."""
    loads = Loads(database, piece_bytes=65536)
    loads.execute("CREATE TABLE t (id int, name text)")
    pretend_to_see(loads, monkeypatch)
    tries: list[int] = []

    def lose_first(connection: Any, changes: Any) -> None:
        tries.append(connection.info.backend_pid)
        if len(tries) == 1:
            connection.execute("SELECT pg_terminate_backend(pg_backend_pid())")
        switch_off(connection, changes)

    monkeypatch.setattr(switches, "switch_off", lose_first)
    assert run(loads, path, lambda: wait_until(lambda: is_paused(loads), "paused")).rows == 1200
    assert len(tries) == len(set(tries)) == 2
    assert not any("goes on" in text for text in loads.notices)
    assert (options(loads), records(loads)) == ((None, None), 0)


def test_table_that_was_made_for_the_load_is_watched_too(
    database18: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has an oid when rows come to it."""
    loads = Loads(database18, piece_bytes=65536)
    found: list[Any] = []

    def see(_: object, *, target_oids: list[int], **__: object) -> list[Visit]:
        found.extend(target_oids)
        return []

    monkeypatch.setattr(autovacuum, "find_visits", see)
    loads.at_piece = lambda number: wait_until(lambda: found, "looked at") if number == 12 else None
    loads.run(target(path, create=True), rules=RULES, batch_bytes=ONE_BATCH)
    assert found[:1] == [loads.execute("SELECT 't'::regclass::oid::bigint")[0][0]]


# A process that is looked after from its start, and sees autovacuum at table t.
_IMPATIENT_PROCESS = """
import os, signal, sys
from penstock.cli.main import main
from penstock.loading import attempt, autovacuum, autovacuum_plan, switches
from penstock.server.autovacuum import Visit
attempt._FIRST_LOOK_S = autovacuum_plan._WORTHWHILE_S = 0.0
autovacuum.LOOK_INTERVAL_S = 0.1
oid = int(sys.argv.pop(1))
visit = Visit(target_oid=oid, relation_oid=oid, schema="public", relation="t", is_at_work=True,
              prevents_wraparound=False)
autovacuum.find_visits = lambda *_, **__: [visit]
if sys.argv.pop(1) == "dies":
    switches.switch_off = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
main()
"""


@pytest.mark.parametrize("way", ["repair", "load"])
@pytest.mark.parametrize("when", ["paused", "dies"])
def test_killed_load_is_put_back(database: str, path: Path, way: str, when: str) -> None:
    """By kill -9 while autovacuum is paused, or between the record and the pause; by repair, and by the next load."""
    loads = Loads(database)
    loads.execute("CREATE TABLE t (id int, name text) WITH (fillfactor = 90)")
    oid = loads.execute("SELECT 't'::regclass::oid::bigint")[0][0]
    argv = [sys.executable, "-c", _IMPATIENT_PROCESS, str(oid), when]
    loading = subprocess.Popen(
        [*argv, "load", "-", "--into", "t", "--to", database, "--header"], stdin=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert loading.stdin is not None
    try:
        # More than a sample; what follows never comes.
        with contextlib.suppress(BrokenPipeError):
            loading.stdin.write(b"id,name\n" + b"1,x\n" * 500_000)
            loading.stdin.flush()
        wait_until(lambda: is_paused(loads) if when == "paused" else loading.poll() is not None, "killed")
    finally:
        loading.kill()
        loading.communicate()
    assert loading.returncode == -signal.SIGKILL
    assert is_paused(loads) == (when == "paused")
    assert records(loads) == 2
    own = "datname = current_database() AND application_name LIKE 'penstock%'"
    wait_until(lambda: loads.execute(f"SELECT count(*) FROM pg_stat_activity WHERE {own}") == [(0,)], "gone")
    if way == "repair":
        subprocess.run([sys.executable, "-m", "penstock", "repair", "--to", database], check=True, capture_output=True)
    else:
        loads.run(target(path), rules=KEEP)
    assert (options(loads), records(loads)) == ((["fillfactor=90"], None), 0)


def test_load_that_is_over_soon_makes_no_session_for_it(
    database18: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its connections are those of a load that is told to keep autovacuum."""
    monkeypatch.undo()
    labels: list[str | None] = []
    connect = ConnectionFactory.connect

    def note(self: ConnectionFactory, *, encoding: str = "UTF8", label: str | None = None) -> Any:
        labels.append(label)
        return connect(self, encoding=encoding, label=label)

    monkeypatch.setattr(ConnectionFactory, "connect", note)
    loads = Loads(database18)
    loads.execute("CREATE TABLE t (id int, name text)")
    loads.run(target(path), rules=RULES)
    first, labels[:] = list(labels), []
    loads.run(target(path), rules=replace(KEEP, is_again=True))
    assert first == labels
