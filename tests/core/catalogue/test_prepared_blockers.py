"""Errors of locks that a prepared transaction holds: it is named, and no session is to be ended for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest

from penstock.core.catalogue.catalog import find_blocked
from penstock.core.catalogue.locking import describe_blocker, find_blockers, with_lock_retries
from penstock.core.connect.errors import LockWaitOver, read_report
from penstock.core.errors import ServerError
from support.recorded import execute, working

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.embedded.server import EmbeddedServer

# A subtransaction has a transaction id of its own, which the prepared transaction keeps locked too.
PREPARE = (
    "BEGIN; UPDATE orders SET n = 2; SAVEPOINT s; INSERT INTO orders VALUES (2, 2); PREPARE TRANSACTION 'it''s'",
    "BEGIN; INSERT INTO others VALUES (1); PREPARE TRANSACTION 'other'",
)


@pytest.mark.parametrize("major", [15, 18])
@pytest.mark.parametrize("restarts", [False, True])
def test_prepared_transaction_is_named_with_its_ends(
    new_server: Callable[..., EmbeddedServer], major: int, *, restarts: bool
) -> None:
    """By lock retries and by the watch; after a restart too, which numbers virtual transactions anew."""
    server = new_server(major, max_prepared_transactions="5")
    conninfo = server.ensure_running()
    execute(conninfo, "CREATE TABLE orders (id int PRIMARY KEY, n int)", "CREATE TABLE others (id int)", *PREPARE)
    if restarts:
        server.stop()
        conninfo = server.ensure_running()
    with psycopg.connect(conninfo, autocommit=True) as connection:
        (oid,) = connection.execute("SELECT 'orders'::regclass::oid").fetchone() or (0,)
        with pytest.raises(ServerError) as raised:
            with_lock_retries(
                connection,
                lambda: connection.execute("LOCK orders"),
                relations=[oid],
                deadline_s=0,
                lock_timeout_s=0.1,
            )
        (blocker,) = find_blockers(connection, [oid])
        waiting = psycopg.connect(conninfo, autocommit=True, application_name="worker")
        pid = waiting.info.backend_pid

        def wait() -> None:
            with waiting, pytest.raises(psycopg.errors.QueryCanceled):
                waiting.execute("BEGIN; LOCK orders")

        with working(conninfo, wait):
            while not (rows := find_blocked(connection, [pid])):
                pass
    assert raised.value.hint is not None
    assert raised.value.hint.startswith("End the prepared transaction, in its database: ROLLBACK PREPARED 'it''s', or")
    assert describe_blocker(blocker).startswith('prepared transaction: user postgres, "it\'s", holds')
    assert (rows[0].gids, rows[0].others) == (["it's"], ["prepared transaction it's"])
    assert read_report(LockWaitOver(1.0, rows[0].others, rows[0].gids)).hint == raised.value.hint
