"""Behind a real PgBouncer: what only looks works, what loads is refused, and nothing of ours stays in its sessions."""

from __future__ import annotations

from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

import penstock
from penstock.api.ledger_view import LedgerView
from penstock.cli.main import main
from penstock.cli.output import WOULD_NOT_LOAD
from penstock.core.connect.connection import ConnectionFactory
from penstock.core.errors import ServerError
from penstock.preflight.doctor import examine_server
from support import pgbouncer
from support.files import write_to
from support.loads import Loads, share_ledger, target
from support.proofs import copy_again, load

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.servers import PgServer, ServerPool


@pytest.fixture(params=["session", "transaction"])
def pooled(request: pytest.FixtureRequest, pg: PgServer, servers: ServerPool, database: str) -> Iterator[str]:
    """Provide the database behind PgBouncer, in both modes."""
    yield from _pool(request.param, pg, servers, database)


@pytest.fixture
def transaction_pooled(pg18: PgServer, servers: ServerPool, database18: str) -> Iterator[str]:
    """Provide the database of the newest version behind PgBouncer in transaction mode."""
    yield from _pool("transaction", pg18, servers, database18)


def _pool(mode: pgbouncer.PoolMode, pg: PgServer, servers: ServerPool, database: str) -> Iterator[str]:
    if pg.server is None:
        pytest.skip("PgBouncer is put before embedded servers only")
    try:
        with pgbouncer.pgbouncer(database, servers.directory, mode=mode, data_dir=pg.server.data_dir) as conninfo:
            yield conninfo
    except pgbouncer.Unavailable as reason:
        pytest.skip(f"PgBouncer: {reason}")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Provide a small file."""
    return write_to(tmp_path / "t.csv", "a,b\n1,x\n2,y\n")


def test_load_through_a_pooler_is_refused(pooled: str, database: str, file: Path) -> None:
    """Whatever its mode: neither the table nor a ledger is touched."""
    direct = Loads(database, setup="CREATE TABLE t (a int, b text)")
    error = Loads(pooled).refuse(target(file))
    assert isinstance(error, ServerError)
    assert error.message == "cannot load through a connection pooler"
    assert "directly" in (error.hint or "")
    assert not direct.has_table("penstock.loads")


def test_check_through_a_pooler_is_refused(transaction_pooled: str, database18: str, file: Path) -> None:
    """A check makes a temporary table, which is a session's own."""
    Loads(database18).execute("CREATE TABLE t (a int, b text)")
    with pytest.raises(ServerError, match="cannot check through a connection pooler"):
        Loads(transaction_pooled).check(target(file))


def test_retry_through_a_pooler_is_refused(transaction_pooled: str, database18: str, file: Path) -> None:
    """It loads, if only rejected records."""
    direct = Loads(database18, setup="CREATE TABLE t (a int, b text)")
    outcome = direct.run(target(file))
    assert outcome.load_id is not None
    with (
        LedgerView(ConnectionFactory(transaction_pooled)) as view,
        pytest.raises(ServerError, match="cannot load through a connection pooler"),
    ):
        view.retry(outcome.load_id)


def test_looking_through_a_pooler_works(transaction_pooled: str, database18: str, file: Path) -> None:
    """A plan is made and warns; the ledger is read."""
    direct = Loads(database18, setup="CREATE TABLE t (a int, b text)")
    direct.run(target(file))
    with LedgerView(ConnectionFactory(transaction_pooled)) as view:
        assert [record.rows for record in view.loads()] == [2]
    with pytest.raises(ServerError):
        pooled_loads = Loads(transaction_pooled)
        pooled_loads.run(target(file))
    assert [notice.message for notice in pooled_loads.warnings] == ["cannot load through a connection pooler"]


def test_counts_are_verified_through_a_pooler(
    pg: PgServer, servers: ServerPool, database: str, user_name: str, user_conninfo: str, file: Path
) -> None:
    """By an ordinary role, whose statements share a transaction there; values need a session of their own."""
    admin = Loads(database, setup=f'CREATE TABLE t (a int, b text); GRANT SELECT, INSERT ON t TO "{user_name}"')
    share_ledger(admin, f'"{user_name}"')
    load_id = load(Loads(user_conninfo), target(file))
    # The file is then compared with the ledger, whose policies apply to the role, after its rows are counted.
    copy_again(file)
    with contextmanager(_pool)("transaction", pg, servers, user_conninfo) as pooled:
        outcome = penstock.verify(load_id, to=pooled)
        assert (outcome.problems, outcome.tables[0].rows) == ((), 2)
        with pytest.raises(ServerError, match="cannot compare values through a connection pooler"):
            penstock.verify(load_id, to=pooled, values=True)


def test_plan_through_a_pooler_exits_as_one_that_would_not_load(
    transaction_pooled: str, database18: str, file: Path
) -> None:
    """As doctor does."""
    Loads(database18).execute("CREATE TABLE t (a int, b text)")
    assert main(["load", str(file), "--into", "t", "--to", transaction_pooled, "--plan"]) == WOULD_NOT_LOAD


def test_inspection_through_a_pooler_names_it(pooled: str) -> None:
    """All facts are reported. That the server seems to be on this machine is true only for the pooler."""
    with closing(ConnectionFactory(pooled)) as factory:
        found = examine_server(factory)
    assert found.pooler is not None
    assert found.pooler.told_pid != found.pooler.backend_pid
    assert found.unread == ()
    assert (found.server.is_local, found.host) == (False, None)


def test_settings_do_not_stay_in_a_poolers_sessions(transaction_pooled: str) -> None:
    """In transaction mode the next client would get them with the backend."""
    factory = ConnectionFactory(transaction_pooled)
    with factory.connect(), factory.connect():
        pass
    assert factory.pooler is not None
    with psycopg.connect(transaction_pooled, autocommit=True) as other:
        row = other.execute("SELECT pg_backend_pid(), current_setting('client_min_messages')").fetchone()
    assert row == (factory.pooler.backend_pid, "notice")


def test_role_is_not_taken_through_a_pooler(transaction_pooled: str) -> None:
    """In transaction mode other clients would have it next."""
    with pytest.raises(ServerError, match='cannot become role "postgres" through a connection pooler'):
        ConnectionFactory(transaction_pooled, role="postgres").connect()


def test_direct_session_has_no_pooler(database: str) -> None:
    """The server itself sends libpq the pid of the backend that answers."""
    factory = ConnectionFactory(database)
    with factory.connect():
        assert factory.pooler is None
    factory.refuse_pooler("load")


@pytest.mark.parametrize(("host", "is_refused"), [("ep-a-1.example", False), ("ep-a-1-pooler.example", True)])
def test_neon_is_direct_but_for_its_pooled_hosts(
    transaction_pooled: str, database18: str, monkeypatch: pytest.MonkeyPatch, host: str, is_refused: bool
) -> None:
    """Its proxy renumbers each session; here PgBouncer does that, and a setting of that name stands for Neon."""
    with psycopg.connect(database18, autocommit=True) as admin:
        name = admin.info.dbname
        admin.execute(f'ALTER DATABASE "{name}" SET neon.timeline_id = %s' % "'0123'")
    monkeypatch.setenv("PGHOSTADDR", "127.0.0.1")
    factory = ConnectionFactory(make_conninfo(transaction_pooled, host=host))
    with factory.connect():
        assert (factory.pooler is not None) is is_refused


def test_placing_temporary_work_through_a_pooler_is_refused(transaction_pooled: str, database18: str) -> None:
    """ALTER SYSTEM and advisory locks are a session's own; nothing is created."""
    assert main(["temp", "place", "/nowhere", "--to", transaction_pooled]) == 7
    with psycopg.connect(make_conninfo(database18, dbname="postgres")) as connection:
        assert not connection.execute("SELECT FROM pg_tablespace WHERE spcname = 'penstock_temp'").fetchall()
