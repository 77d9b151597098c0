"""Who holds back xmin on real servers: the owner of the oldest transaction id, and no session that inherits it."""

from __future__ import annotations

from contextlib import ExitStack, closing
from typing import TYPE_CHECKING

import psycopg
import pytest

from penstock.core.connect.connection import ConnectionFactory
from penstock.preflight.doctor import read_risks
from penstock.watch.activity import open_reader, read_slow
from penstock.watch.holders import find_holder, release_holder
from support.recorded import execute, working

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.core.values.device import CounterRow
    from penstock.embedded.server import EmbeddedServer

SPEND = "DO $$BEGIN FOR i IN 1..{} LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END$$"
SNAPSHOT = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM orders"


def read(conninfo: str, name: str) -> tuple[CounterRow, ...]:
    """Return the rows of a reading."""
    with psycopg.connect(conninfo, autocommit=True) as connection:
        return read_slow(connection)[name]


@pytest.fixture
def shop(new_server: Callable[..., EmbeddedServer]) -> str:
    """Provide a server that allows prepared transactions, with a table of one row."""
    conninfo = new_server(max_prepared_transactions="5", max_connections="100").ensure_running()
    execute(conninfo, "CREATE TABLE orders (id int PRIMARY KEY, n int)", "INSERT INTO orders VALUES (1, 1)")
    return conninfo


@pytest.fixture
def snapshots(shop: str) -> Iterator[Callable[[], None]]:
    """Provide a function that has forty sessions take snapshots and keep them."""
    with ExitStack() as stack:

        def take() -> None:
            for _ in range(40):
                connection = stack.enter_context(psycopg.connect(shop, autocommit=True, application_name="pgbench"))
                connection.execute(SNAPSHOT)

        yield take


def test_owner_of_the_oldest_id_holds_it_and_forty_younger_snapshots_do_not(
    shop: str, snapshots: Callable[[], None]
) -> None:
    """Each of them has its id as xmin, and none of them is among the rows."""
    with psycopg.connect(shop, application_name="left") as owner:
        owner.execute("SELECT pg_current_xact_id()")
        execute(shop, SPEND.format(1500))
        snapshots()
        execute(shop, "SELECT pg_sleep(1.1)")
        rows = read(shop, "xmin_holders")
        holder = find_holder(rows)
        assert holder is not None
        assert (holder["pid"], holder["name"]) == (owner.info.backend_pid, "left")
        assert "pgbench" not in {row["name"] for row in rows}


def test_snapshots_hold_an_id_whose_owner_has_ended(shop: str, snapshots: Callable[[], None]) -> None:
    """The oldest of them is the first."""
    with psycopg.connect(shop) as owner:
        owner.execute("SELECT pg_current_xact_id()")
        with psycopg.connect(shop, autocommit=True, application_name="first") as first:
            first.execute(SNAPSHOT)
            snapshots()
            owner.rollback()
            execute(shop, SPEND.format(10), "SELECT pg_sleep(1.1)")
            holder = find_holder(read(shop, "xmin_holders"))
            assert holder is not None
            assert holder["name"] == "first"


def test_prepared_transaction_holds_its_id_and_is_a_risk_with_what_waits_for_it(
    shop: str, snapshots: Callable[[], None]
) -> None:
    """Its gid, owner, database, locks, tables and the session that waits; the remedy has both ends."""
    execute(shop, "BEGIN; UPDATE orders SET n = 2; PREPARE TRANSACTION 'it''s'", SPEND.format(1500))
    snapshots()
    holder = find_holder(read(shop, "xmin_holders"))
    assert holder is not None
    assert (holder["kind"], holder["name"]) == ("prepared", "it's")
    waiting = "UPDATE orders SET n = 3"
    with working(shop, lambda: execute(shop, waiting)):
        with psycopg.connect(shop, autocommit=True) as watcher:
            while not (found := watcher.execute("SELECT pid FROM pg_locks WHERE NOT granted").fetchone()):
                pass
        (row,) = read(shop, "prepared")
        with closing(ConnectionFactory(shop)) as factory:
            risks = {risk.code: risk for risk in read_risks(factory)}
    assert (row["gid"], row["owner"], row["datname"], row["tables"]) == (
        "it's",
        "postgres",
        "postgres",
        ["public.orders"],
    )
    assert row["blocks"] == [found[0]]
    risk = risks["prepared-transaction"]
    assert risk.claim.startswith("prepared transaction 'it''s' of role postgres in database postgres has ")
    assert "(public.orders), and rows that died in the last 1,50" in risk.claim
    assert "sessions that wait for it: 1" in risk.claim
    assert "ROLLBACK PREPARED 'it''s' in database postgres" in risk.remedy
    assert "COMMIT PREPARED 'it''s'" in risk.remedy
    assert "_backend" not in risk.remedy


def test_slot_that_is_not_in_use_holds_its_id(new_server: Callable[..., EmbeddedServer]) -> None:
    """Though the id is still running when it is read, as far as the catalogs go."""
    conninfo = new_server(wal_level="logical").ensure_running()
    execute(conninfo, "SELECT pg_create_logical_replication_slot('left', 'pgoutput')", SPEND.format(1500))
    holder = find_holder(read(conninfo, "xmin_holders"))
    assert holder is not None
    assert (holder["kind"], holder["name"], holder["is_catalog"]) == ("slot", "left", True)
    assert find_holder(read(conninfo, "xmin_holders"), database="postgres") is None


def command_of(holder: CounterRow) -> bytes:
    """Return the command of the remedy for a session that is idle in a transaction."""
    remedy = release_holder(holder)
    return remedy[remedy.index("SELECT") : remedy.index(". For good")].encode()


def test_command_of_an_old_recording_ends_no_later_transaction(shop: str) -> None:
    """The pid of a pool's backend is the same for hours. The command ends the transaction that was seen."""
    with psycopg.connect(shop, autocommit=True) as owner, psycopg.connect(shop, autocommit=True) as admin:
        owner.execute(SNAPSHOT)
        execute(shop, SPEND.format(1500), "SELECT pg_sleep(1.1)")
        holder = find_holder(read(shop, "xmin_holders"))
        assert holder is not None
        before = command_of(holder)
        owner.execute("COMMIT")
        owner.execute(SNAPSHOT)
        assert admin.execute(before).fetchall() == []
        execute(shop, SPEND.format(1500), "SELECT pg_sleep(1.1)")
        again = find_holder(read(shop, "xmin_holders"))
        assert again is not None
        assert again["pid"] == holder["pid"]
        assert admin.execute(command_of(again)).fetchall() == [(True,)]
        owner.close()


def test_session_whose_state_is_hidden_is_named_without_a_command(shop: str) -> None:
    """A role without pg_read_all_stats sees its pid and its age, and not what it does."""
    execute(shop, "CREATE ROLE guest LOGIN")
    with psycopg.connect(shop) as owner:
        owner.execute(SNAPSHOT)
        execute(shop, SPEND.format(1500))
        holder = find_holder(read(psycopg.conninfo.make_conninfo(shop, user="guest"), "xmin_holders"))
        assert holder is not None
        assert holder["pid"] == owner.info.backend_pid
    assert "pg_read_all_stats" in release_holder(holder)


def test_sequence_that_is_locked_hides_no_other_reading(shop: str) -> None:
    """A migration has it locked, and its transaction stays open."""
    execute(shop, "CREATE SEQUENCE numbers AS int")
    with psycopg.connect(shop) as migration:
        migration.execute("ALTER SEQUENCE numbers MAXVALUE 1000")
        with psycopg.connect(shop, autocommit=True) as connection:
            rows = read_slow(connection)
        with closing(open_reader(psycopg.connect(shop, autocommit=True), is_aurora=False)[0]) as reader:
            seen = reader.read(views=reader.views_there).counters
    for found in (rows, seen):
        assert "sequences" not in found
        assert found["database_ages"]


def test_first_copy_for_a_subscriber_is_no_feedback_of_a_standby(new_server: Callable[..., EmbeddedServer]) -> None:
    """Its walsender is connected to a database and has a snapshot, as table synchronization has."""
    conninfo = new_server(wal_level="logical").ensure_running()
    with psycopg.connect(conninfo, autocommit=True, replication="database", application_name="sub_1") as copying:
        copying.execute("BEGIN READ ONLY ISOLATION LEVEL REPEATABLE READ")
        copying.execute("SELECT 1")
        execute(conninfo, SPEND.format(1500), "SELECT pg_sleep(1.1)")
        holder = find_holder(read(conninfo, "xmin_holders"))
    assert holder is not None
    assert (holder["kind"], holder["name"]) == ("copy", "sub_1")
