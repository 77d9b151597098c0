"""Locks that others hold: waited for a moment at a time, with their holders named."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest

from penstock.core.catalogue.catalog import find_references
from penstock.core.catalogue.locking import Blocker, find_blockers, with_lock_retries
from penstock.core.errors import ServerError, TargetError
from support.ddl import capture, create_replacement, finish_replacement, swap_replacement, table_oid

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.core.connect.connection import Connection

LOCK_TIMEOUT_S = 0.05


class Clock:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now_s

    def sleep(self, duration_s: float) -> None:
        """Let time pass."""
        self.now_s += duration_s


@pytest.fixture
def oid(connection18: Connection) -> int:
    """Provide the oid of table t."""
    connection18.execute("CREATE TABLE t (a int); INSERT INTO t VALUES (1)")
    return table_oid(connection18, "t")


@pytest.fixture
def reader(database18: str, oid: int) -> Iterator[Connection]:
    """Provide a session that has read t in a transaction that it keeps open."""
    with psycopg.connect(database18, application_name="slow report") as opened:
        opened.execute("SELECT * FROM t")
        yield opened


def truncate(connection: Connection) -> str:
    """Do what needs the table to itself."""
    connection.execute("TRUNCATE t")
    return "done"


def test_free_lock_is_taken_at_once(connection18: Connection, oid: int) -> None:
    """The result is what the action returns, and nothing is reported."""
    told: list[tuple[Blocker, ...]] = []
    result = with_lock_retries(
        connection18, lambda: truncate(connection18), relations=[oid], deadline_s=1, on_blocked=told.append
    )
    assert (result, told) == ("done", [])


def test_blocker_is_told_and_outlived(connection18: Connection, oid: int, reader: Connection) -> None:
    """The second attempt succeeds once the reader's transaction has ended."""
    told: list[Blocker] = []

    def end_reader(blockers: tuple[Blocker, ...]) -> None:
        told.extend(blockers)
        reader.rollback()

    with_lock_retries(
        connection18,
        lambda: truncate(connection18),
        relations=[oid],
        deadline_s=60,
        lock_timeout_s=LOCK_TIMEOUT_S,
        on_blocked=end_reader,
    )
    (blocker,) = told
    assert (blocker.pid, blocker.application_name) == (reader.info.backend_pid, "slow report")
    assert (blocker.state, blocker.relation, blocker.mode) == ("idle in transaction", "t", "AccessShareLock")
    assert blocker.is_held
    assert blocker.query_start is not None
    assert connection18.execute("SELECT count(*) FROM t").fetchone() == (0,)


def test_deadline_names_the_blockers(connection18: Connection, oid: int, reader: Connection) -> None:
    """By pid, user, application, state and when their query began; the table is untouched."""
    clock = Clock()
    with pytest.raises(ServerError) as caught:
        with_lock_retries(
            connection18,
            lambda: truncate(connection18),
            relations=[oid],
            deadline_s=1,
            lock_timeout_s=LOCK_TIMEOUT_S,
            clock=clock,
            sleep=clock.sleep,
        )
    assert caught.value.sqlstate == "55P03"
    assert caught.value.detail is not None
    assert caught.value.detail.startswith(f'pid {reader.info.backend_pid}: user postgres, "slow report", idle in')
    assert 0 < clock.now_s <= 1
    assert connection18.execute("SELECT count(*) FROM t").fetchone() == (1,)


def test_callers_transaction_survives_the_attempts(connection18: Connection, oid: int, reader: Connection) -> None:
    """Each attempt is a savepoint there, and lock_timeout is afterwards what it was."""
    connection18.execute("SET lock_timeout = '7s'")
    with connection18.transaction():
        connection18.execute("CREATE TABLE kept ()")
        with_lock_retries(
            connection18,
            lambda: truncate(connection18),
            relations=[oid],
            deadline_s=60,
            lock_timeout_s=LOCK_TIMEOUT_S,
            on_blocked=lambda _: reader.rollback(),
        )
        assert connection18.execute("SHOW lock_timeout").fetchone() == ("7s",)
    assert connection18.execute("SELECT to_regclass('kept') IS NOT NULL").fetchone() == (True,)


def test_other_errors_are_not_retried(connection18: Connection, oid: int) -> None:
    """Whatever class they are of."""
    calls = []

    def fail() -> None:
        calls.append(1)
        raise TargetError("no")

    with pytest.raises(TargetError, match="no"):
        with_lock_retries(connection18, fail, relations=[oid], deadline_s=60)
    assert len(calls) == 1


def test_swap_waits_for_a_reader(connection18: Connection, oid: int, reader: Connection) -> None:
    """A lock timeout in the swap is one to retry, and leaves nothing behind."""
    definition = capture(connection18, "t")
    new = create_replacement(connection18, definition, name="new")
    finish_replacement(connection18, definition, new)
    with_lock_retries(
        connection18,
        lambda: swap_replacement(connection18, definition, new),
        relations=[oid],
        deadline_s=60,
        lock_timeout_s=LOCK_TIMEOUT_S,
        on_blocked=lambda _: reader.rollback(),
    )
    assert table_oid(connection18, "t") == new


def test_waiting_session_is_told_too(connection18: Connection, oid: int, reader: Connection, database18: str) -> None:
    """It would get the lock before us; those who hold it come first."""
    with psycopg.connect(database18, autocommit=True) as waiter, psycopg.connect(database18) as watcher:
        waiter.pgconn.send_query(b"LOCK TABLE t IN ACCESS EXCLUSIVE MODE; SELECT 1")
        while len(blockers := find_blockers(watcher, [oid])) < 2:
            watcher.execute("SELECT pg_sleep(0.01)")
        watcher.rollback()
        reader.rollback()
        waiter.close()
    assert [blocker.is_held for blocker in blockers] == [True, False]


def test_swap_gives_way_to_who_would_deadlock(connection18: Connection, database18: str) -> None:
    """A session that has read the parent and waits for the child is never the one whose query is cancelled."""
    connection18.execute("CREATE TABLE parent (id int PRIMARY KEY); CREATE TABLE child (id int REFERENCES parent)")
    definition = capture(connection18, "child")
    new = create_replacement(connection18, definition, name="new")
    finish_replacement(connection18, definition, new)
    relations = [definition.oid, *find_references(connection18, definition.oid)]
    with psycopg.connect(database18) as reader:
        reader.execute("SELECT * FROM parent")

        def read_child(blockers: tuple[Blocker, ...]) -> None:
            assert reader.info.backend_pid in {blocker.pid for blocker in blockers}
            reader.execute("SELECT * FROM child")
            reader.commit()

        with_lock_retries(
            connection18,
            lambda: swap_replacement(connection18, definition, new),
            relations=relations,
            deadline_s=60,
            on_blocked=read_child,
        )
    assert table_oid(connection18, "child") == new


def test_finish_waits_for_writers_of_a_referenced_table(connection18: Connection, database18: str) -> None:
    """Only while a foreign key is added, and by the caller's retries."""
    connection18.execute("CREATE TABLE parent (id int PRIMARY KEY); CREATE TABLE child (id int REFERENCES parent)")
    definition = capture(connection18, "child")
    new = create_replacement(connection18, definition, name="new")
    with psycopg.connect(database18) as writer:
        writer.execute("INSERT INTO parent VALUES (1)")
        told: list[Blocker] = []

        def commit(blockers: tuple[Blocker, ...]) -> None:
            told.extend(blockers)
            writer.commit()

        def with_locks(act: Callable[[], object]) -> object:
            return with_lock_retries(
                connection18,
                act,
                relations=list(find_references(connection18, definition.oid)),
                deadline_s=60,
                lock_timeout_s=LOCK_TIMEOUT_S,
                on_blocked=commit,
            )

        finish_replacement(connection18, definition, new, with_locks=with_locks)
        assert {blocker.pid for blocker in told} == {writer.info.backend_pid}
    swap_replacement(connection18, definition, new)
    assert capture(connection18, "child") == definition
