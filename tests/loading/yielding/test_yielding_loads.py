"""Loads that yield to a standby, a subscriber or a slot of a real server."""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from penstock.core.errors import PenstockError, ServerError, TargetError, UsageError
from penstock.core.tuning import LoadTuning
from penstock.core.values.job import LoadRules
from penstock.ledger.ledger import Ledger
from penstock.loading.yielding.brake import Brake, Yielded
from support.campaign.plant import Pair
from support.loads import IMPATIENT, Loads, target, write_csv
from support.servers import installed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from penstock.embedded.server import EmbeddedServer
    from support.servers import ServerPool

pytestmark = pytest.mark.skipif(18 not in installed(), reason="needs PostgreSQL 18's programs")

_SETUP = "DROP TABLE IF EXISTS t; DROP SCHEMA IF EXISTS penstock CASCADE; CREATE TABLE t (a integer, b text)"
_ROWS = 30_000
_PIECE_S = 0.02
# The piece after which a standby replays nothing.
_PAUSE_AT = 5
_LIMIT = "400kB"
_PATIENCE_S = 30.0


@pytest.fixture(scope="module")
def pair(servers: ServerPool) -> Iterator[Pair]:
    """Provide a primary and its standby, which gets all WAL at once, and which no commit waits for."""
    pair = Pair(servers, 18)
    for setting in ("wal_writer_delay = '10ms'", "wal_writer_flush_after = 0", "synchronous_standby_names = ''"):
        with psycopg.connect(pair.conninfo, autocommit=True) as connection:
            connection.execute(f"ALTER SYSTEM SET {setting}".encode())
            connection.execute("SELECT pg_reload_conf()")
    yield pair
    for server in pair.servers:
        server.stop("immediate")


@pytest.fixture
def loads(pair: Pair) -> Loads:
    """Provide loads that commit often, last a few seconds, and look at the standby all the time."""
    loads = Loads(pair.conninfo, piece_bytes=20_000, setup=_SETUP, yield_look_s=0.02)
    with loads._connect.connect() as connection:
        Ledger().ensure(connection)
    _await_replay(loads)
    loads.at_piece = lambda _: time.sleep(_PIECE_S)
    return loads


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Provide a file of 75 pieces."""
    return write_csv(tmp_path / "a.csv", [f"{n},{'x' * 40}" for n in range(_ROWS)])


def _run_on_standby(pair: Pair, statement: str) -> None:
    with psycopg.connect(pair.standby.conninfo(), autocommit=True) as connection:
        for each in statement.split("; "):
            connection.execute(each.encode())


_PAUSE = ("SELECT pg_wal_replay_pause()", "SELECT pg_wal_replay_resume()")
_DELAY = (
    "ALTER SYSTEM SET recovery_min_apply_delay = '1h'; SELECT pg_reload_conf()",
    "ALTER SYSTEM RESET recovery_min_apply_delay; SELECT pg_reload_conf()",
)


@contextmanager
def _paused(pair: Pair, loads: Loads, how: tuple[str, str] = _PAUSE) -> Iterator[None]:
    """Let the standby replay nothing after the load's first pieces, until the block ends."""
    begin, end = how

    def at_piece(number: int) -> None:
        time.sleep(_PIECE_S)
        if number == _PAUSE_AT:
            _run_on_standby(pair, begin)

    loads.at_piece = at_piece
    try:
        yield
    finally:
        _run_on_standby(pair, end)


@contextmanager
def _receiving_nothing(pair: Pair, loads: Loads) -> Iterator[None]:
    """Stop the standby's receiver after the load's first pieces, until the block ends. It stays connected."""
    with psycopg.connect(pair.standby.conninfo()) as connection:
        query = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'walreceiver'"
        (pid,) = connection.execute(query).fetchone() or (0,)

    def at_piece(number: int) -> None:
        time.sleep(_PIECE_S)
        if number == _PAUSE_AT:
            os.kill(pid, signal.SIGSTOP)

    loads.at_piece = at_piece
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def _await(is_true: Callable[[], object]) -> None:
    ends_s = time.monotonic() + _PATIENCE_S
    while not is_true():
        assert time.monotonic() < ends_s
        time.sleep(0.02)


def _await_replay(loads: Loads) -> None:
    query = "SELECT FROM pg_stat_replication WHERE state = 'streaming' AND replay_lsn = pg_current_wal_lsn()"
    _await(lambda: loads.execute(query))


def _await_notice(loads: Loads, text: str) -> None:
    _await(lambda: any(text in notice for notice in loads.notices))


_YIELDING = replace(IMPATIENT, max_replica_lag=_LIMIT, vacuum=False)


@pytest.mark.parametrize("limit", [_LIMIT, "300ms"])
def test_a_load_waits_for_a_standby_that_falls_behind_and_goes_on_when_it_has_caught_up(
    pair: Pair, loads: Loads, path: Path, limit: str
) -> None:
    """Meanwhile no session has a transaction open, and no batch is committed; the outcome says how long it waited."""
    seen: list[int] = []

    def resume() -> None:
        _await_notice(loads, "waiting for standby")
        open_ones = "SELECT FROM pg_stat_activity WHERE application_name LIKE 'penstock%' AND xact_start IS NOT NULL"
        _await(lambda: not loads.execute(open_ones))
        seen.append(loads.count())
        time.sleep(0.5)
        seen.append(loads.count())
        _run_on_standby(pair, "SELECT pg_wal_replay_resume()")

    thread = threading.Thread(target=resume)
    with _paused(pair, loads):
        thread.start()
        outcome = loads.run(target(path), batch_bytes=40_000, rules=replace(_YIELDING, max_replica_lag=limit))
        thread.join()
    assert loads.count() == _ROWS
    assert seen[0] == seen[1] < _ROWS
    part = outcome.steps["yielding"]
    assert isinstance(part, Yielded)
    assert part.seconds["--max-replica-lag"] > 0.4
    assert [notice for notice in loads.notices if "goes on" in notice]


@pytest.mark.parametrize("how", [_PAUSE, _DELAY], ids=["paused", "delayed"])
def test_a_standby_that_is_paused_is_named_and_no_longer_waited_for(
    pair: Pair, loads: Loads, path: Path, how: tuple[str, str]
) -> None:
    """After the time that a query on the standby may delay it, here shortened."""
    loads.tune(replay_patience_s=0.3)
    with _paused(pair, loads, how):
        loads.run(target(path), batch_bytes=40_000, rules=_YIELDING)
    assert loads.count() == _ROWS
    assert [notice for notice in loads.notices if "paused or delayed" in notice]


def test_a_standby_that_is_delayed_before_the_load_is_named_and_not_waited_for(
    pair: Pair, loads: Loads, path: Path
) -> None:
    """If it is over the limit by then."""
    begin, end = _DELAY
    _run_on_standby(pair, begin)
    try:
        # The first commit is delayed, and all WAL behind it.
        loads.execute("CREATE TABLE before_load (a text)")
        loads.execute("INSERT INTO before_load SELECT repeat('x', 100) FROM generate_series(1, 10000)")
        outcome = loads.run(target(path), batch_bytes=40_000, rules=_YIELDING)
    finally:
        _run_on_standby(pair, end)
        loads.execute("DROP TABLE before_load")
    assert loads.count() == _ROWS
    assert "yielding" not in outcome.steps
    assert [notice for notice in loads.notices if notice.endswith("behind: the load does not wait for it")]


def test_a_standby_that_goes_away_while_a_load_waits_for_it_stops_nobody(pair: Pair, loads: Loads, path: Path) -> None:
    """Its receiver is stopped, and then the whole server."""

    def stop() -> None:
        _await_notice(loads, "waiting for standby")
        pair.standby.stop("immediate")

    thread = threading.Thread(target=stop)
    with _receiving_nothing(pair, loads):
        thread.start()
        outcome = loads.run(target(path), batch_bytes=40_000, rules=_YIELDING)
        thread.join()
    pair.standby.ensure_running()
    assert loads.count() == _ROWS
    assert isinstance(outcome.steps["yielding"], Yielded)


@pytest.mark.parametrize("hold_back", [_paused, _receiving_nothing])
def test_a_load_that_waited_too_long_ends_incomplete_and_the_same_command_resumes_it(
    pair: Pair, loads: Loads, path: Path, hold_back: Callable[[Pair, Loads], AbstractContextManager[None]]
) -> None:
    """The error names the standby and how far it is behind."""
    with hold_back(pair, loads), pytest.raises(TargetError) as caught:
        loads.run(target(path), batch_bytes=40_000, rules=replace(_YIELDING, max_wait=0.3))
    assert caught.value.message.startswith('waiting for standby "')
    assert "--max-wait" in (caught.value.detail or "")
    stored = loads.count()
    assert 0 < stored < _ROWS
    loads.at_piece = None
    outcome = loads.run(target(path), rules=_YIELDING)
    assert (outcome.rows, outcome.rows_before, loads.count()) == (_ROWS - stored, stored, _ROWS)


def test_each_process_of_a_load_waits(pair: Pair, loads: Loads, tmp_path: Path) -> None:
    """Also one that does not lead. The leader, which reads nothing until then, loads what that one has left."""
    paths = [write_csv(tmp_path / f"{n}.csv", [f"{n},{'x' * 40}"] * 10_000) for n in range(3)]
    leader = Loads(pair.conninfo, piece_bytes=20_000, yield_look_s=0.02, least_claim_bytes=1)
    loads.tune(least_claim_bytes=1)
    rules = replace(_YIELDING, join=True)
    begun, may_read = threading.Event(), threading.Event()

    def wait(_number: int) -> None:
        if not begun.is_set():
            begun.set()
            may_read.wait(_PATIENCE_S)

    leader.at_piece = wait
    thread = threading.Thread(target=lambda: leader.run(target(paths), sessions=1, rules=rules))
    thread.start()
    begun.wait(_PATIENCE_S)
    with _paused(pair, loads), pytest.raises(TargetError, match="waiting for standby"):
        loads.run(target(paths), sessions=1, batch_bytes=40_000, rules=replace(rules, max_wait=0.3))
    may_read.set()
    thread.join(_PATIENCE_S)
    assert loads.count() == 30_000


def test_an_interrupt_ends_a_load_that_waits(pair: Pair, loads: Loads, path: Path) -> None:
    """As it ends any other load: what is committed stays."""

    def interrupt(progress: object) -> None:
        if getattr(progress, "activity", "").startswith("waiting for"):
            raise KeyboardInterrupt

    with _paused(pair, loads), pytest.raises((PenstockError, KeyboardInterrupt)):
        loads.run(target(path), batch_bytes=40_000, rules=_YIELDING, on_progress=interrupt)
    assert loads.count() < _ROWS
    assert loads.lingering() == 0


def test_a_load_waits_for_a_slot_that_keeps_too_much_wal(pair: Pair, loads: Loads, path: Path) -> None:
    """Until somebody has advanced it."""
    advanced = "SELECT pg_replication_slot_advance('keeper', pg_current_wal_lsn())"
    loads.execute(f"SELECT pg_create_physical_replication_slot('keeper', true); {advanced}")

    def advance() -> None:
        _await_notice(loads, "waiting for slot")
        loads.execute(advanced)

    thread = threading.Thread(target=advance)
    try:
        thread.start()
        outcome = loads.run(target(path), batch_bytes=40_000, rules=replace(IMPATIENT, max_wal=1_000_000, vacuum=False))
        thread.join()
    finally:
        loads.execute("SELECT pg_drop_replication_slot('keeper')")
    assert loads.count() == _ROWS
    assert isinstance(outcome.steps["yielding"], Yielded)


@pytest.mark.part("rest")
@pytest.mark.parametrize(
    ("limit", "text"),
    [({"max_replica_lag": _LIMIT}, 'waiting for subscriber "s"'), ({"max_wal": 1_000_000}, 'waiting for slot "s"')],
    ids=["lag", "wal"],
)
def test_a_load_waits_for_a_subscriber_whose_apply_is_blocked(
    new_server: Callable[..., EmbeddedServer], path: Path, limit: dict[str, object], text: str
) -> None:
    """By a lock on its table, until that is released."""
    publisher, subscriber = new_server(18, wal_level="logical", wal_writer_delay="10ms"), new_server(18)
    here = Loads(publisher.ensure_running(), piece_bytes=20_000, setup=_SETUP, yield_look_s=0.02)
    there = Loads(subscriber.ensure_running(), setup=_SETUP)
    here.execute("CREATE PUBLICATION p FOR TABLE t")
    there.execute(f"CREATE SUBSCRIPTION s CONNECTION '{publisher.conninfo()}' PUBLICATION p")
    _await(lambda: there.execute("SELECT FROM pg_subscription_rel WHERE srsubstate = 'r'"))
    here.at_piece = lambda _: time.sleep(_PIECE_S)

    def release() -> None:
        _await_notice(here, text)
        blocker.rollback()
        # The slot's WAL is released when its decoding has read such a record, which the server writes every 15 s.
        _await(lambda: here.execute("SELECT pg_log_standby_snapshot()") and there.count() == _ROWS)

    with psycopg.connect(subscriber.conninfo()) as blocker:
        blocker.execute("LOCK TABLE t IN SHARE MODE")
        thread = threading.Thread(target=release)
        thread.start()
        rules = replace(IMPATIENT, vacuum=False, **limit)  # type: ignore[arg-type]
        outcome = here.run(target(path), batch_bytes=40_000, rules=rules)
        thread.join()
    assert (here.count(), there.count()) == (_ROWS, _ROWS)
    assert isinstance(outcome.steps["yielding"], Yielded)


# Aurora itself cannot run here: a function of the name and columns of its own stands for it, and says what it is told.
_AURORA = """
    SET allow_system_table_mods = on;
    CREATE TABLE IF NOT EXISTS readers AS
        SELECT 'r1' AS server_id, 'a-session' AS session_id, 0.0::float8 AS replica_lag_in_msec;
    UPDATE readers SET replica_lag_in_msec = 0;
    CREATE OR REPLACE FUNCTION pg_catalog.aurora_replica_status() RETURNS SETOF public.readers
        LANGUAGE sql AS 'TABLE public.readers'
"""


def _look_without_a_connection(brake: Brake, loads: Loads, held: list[bool]) -> None:
    """Look while no session can be had: the load that holds holds on, and is told once why."""
    feed = SimpleNamespace(hold=held.append)
    loads.execute("UPDATE readers SET replica_lag_in_msec = 20000")
    brake.look(feed)
    brake.close()

    def fail(**_options: object) -> None:
        raise ServerError("too many connections")

    brake._connect = SimpleNamespace(connect=fail)  # type: ignore[assignment]
    del held[:], loads.notices[:]
    brake.look(feed)
    brake.look(feed)
    assert held == [True, True]
    assert loads.notices == ["how far others are behind (--max-replica-lag) cannot be read: too many connections"]
    brake._patience_s = 0.0
    brake.look(feed)
    assert held[-1] is False


def test_a_load_waits_for_a_reader_of_aurora(pair: Pair, loads: Loads, path: Path) -> None:
    """By the lag in milliseconds that aurora_replica_status() has; bytes are refused, as readers share the volume."""
    loads.execute(_AURORA)
    with loads._connect.connect() as session:
        brake = Brake(
            LoadRules(max_replica_lag="10s"),
            loads._connect,
            tuning=LoadTuning(yield_look_s=0.0),
            clock=time.monotonic,
            notice=loads.notices.append,
        )
        brake.begin(session, is_aurora=True)
        held: list[bool] = []
        feed = SimpleNamespace(hold=held.append)
        for lag_ms in (0, 20_000, 1_000):
            loads.execute(f"UPDATE readers SET replica_lag_in_msec = {lag_ms}")
            brake.look(feed)
        assert held == [False, True, False]
        assert loads.notices[0] == 'waiting for reader "r1", which is 20.0 s behind'
        _look_without_a_connection(brake, loads, held)
        brake.close()
        with pytest.raises(TargetError, match="needs a time on Aurora"):
            Brake(
                _YIELDING, loads._connect, tuning=LoadTuning(), clock=time.monotonic, notice=loads.notices.append
            ).begin(session, is_aurora=True)


def test_a_role_that_may_not_see_standbys_is_refused_before_the_first_row(pair: Pair, loads: Loads, path: Path) -> None:
    """The hint has the statement to run, and nothing is left behind."""
    loads.execute("DROP ROLE IF EXISTS blind; CREATE ROLE blind LOGIN; GRANT ALL ON SCHEMA public TO blind")
    loads.execute(
        "GRANT CREATE ON DATABASE postgres TO blind; GRANT ALL ON t TO blind; DROP SCHEMA IF EXISTS penstock CASCADE"
    )
    blind = Loads(make_conninfo(pair.conninfo, user="blind"))
    with pytest.raises(TargetError, match="may not read how far standbys are behind"):
        blind.plan(target(path), rules=_YIELDING)
    with pytest.raises(TargetError, match="may not read how far standbys are behind") as caught:
        blind.run(target(path), rules=_YIELDING)
    assert 'GRANT pg_monitor TO "blind"' in (caught.value.hint or "")
    assert loads.count() == 0
    loads.execute("DROP OWNED BY blind; DROP ROLE blind")


@pytest.mark.parametrize("other", [{"atomic": True}, {"freeze": "always"}])
def test_one_transaction_of_all_rows_cannot_yield(other: dict[str, object]) -> None:
    """So the options exclude each other."""
    with pytest.raises(UsageError, match="exclude each other"):
        LoadRules(max_replica_lag="30s", **other)  # type: ignore[arg-type]
