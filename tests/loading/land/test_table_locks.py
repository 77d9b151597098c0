"""Locks on several tables: readers are never the victim of a deadlock, and whoever is in the way is named."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from penstock.core.errors import ServerError
from penstock.loading.land.context import TableLocks
from support.files import write_to
from support.loads import AGAIN, Loads, target

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from penstock.core.values.job import Mode, TargetJob
    from penstock.embedded.server import EmbeddedServer

TABLES = "CREATE TABLE a (id int); CREATE TABLE b (id int); INSERT INTO a VALUES (-1); INSERT INTO b VALUES (-1)"


def _jobs(tmp_path: Path, mode: Mode) -> list[TargetJob]:
    return [
        replace(target(write_to(tmp_path / f"{table}.csv", "id\n1\n2\n"), into=table, header=True), mode=mode)
        for table in "ab"
    ]


@contextmanager
def _running(act: Callable[[], object]) -> Iterator[list[BaseException]]:
    """Act in another thread while the block runs, and provide what it raises."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            act()
        except BaseException as error:  # noqa: BLE001 (the test's own thread looks at it)
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    yield raised
    thread.join()


def _await(loads: Loads, query: str) -> None:
    while not loads.execute(query)[0][0]:
        time.sleep(0.01)


@pytest.mark.parametrize(("mode", "is_atomic"), [("truncate", True), ("truncate", False), ("replace", False)])
def test_reader_of_two_tables_is_no_victim(database18: str, tmp_path: Path, mode: Mode, *, is_atomic: bool) -> None:
    """It has read the table that the load waits for, and asks for the one that the load has locked.

    The load's own check for deadlocks comes too late here: the reader's comes first.
    """
    loads = Loads(database18, setup=TABLES)
    loader = Loads(make_conninfo(database18, options="-c deadlock_timeout=1min"))
    rules = replace(AGAIN, atomic=is_atomic, retry_for=60.0, indexes="keep")
    with psycopg.connect(database18) as reader:
        reader.execute("SELECT * FROM b")
        with _running(lambda: loader.run(*_jobs(tmp_path, mode), rules=rules)) as raised:
            _await(loads, "SELECT count(*) > 0 FROM pg_locks WHERE relation = 'b'::regclass AND NOT granted")
            assert reader.execute("SELECT count(*) FROM a").fetchone() == (1,)
            reader.commit()
        assert not raised
    assert (loads.count("a"), loads.count("b")) == (2, 2)


def test_holder_is_named_when_patience_ends(database18: str, tmp_path: Path) -> None:
    """With its process; and no table has changed."""
    loads = Loads(database18, setup=TABLES)
    with psycopg.connect(database18) as reader:
        reader.execute("SELECT * FROM b")
        with pytest.raises(ServerError) as caught:
            loads.run(*_jobs(tmp_path, "truncate"), rules=replace(AGAIN, atomic=True))
        assert caught.value.sqlstate == "55P03"
        assert f"pid {reader.info.backend_pid}:" in str(caught.value.detail)
    assert (loads.count("a"), loads.count("b")) == (1, 1)


@pytest.mark.part("rest")
def test_autovacuum_gives_way_to_a_load_of_several_tables(
    new_server: Callable[..., EmbeddedServer], tmp_path: Path
) -> None:
    """It would take minutes: it is cancelled for who waits for one table past deadlock_timeout, and for nobody else."""
    server = new_server(
        autovacuum="on",
        autovacuum_naptime="1s",
        autovacuum_vacuum_cost_delay="100ms",
        autovacuum_vacuum_cost_limit="1",
    )
    server.ensure_running()
    loads = Loads(server.conninfo(), setup=TABLES)
    loads.execute("INSERT INTO b SELECT generate_series(1, 500000); DELETE FROM b")
    _await(loads, "SELECT count(*) > 0 FROM pg_stat_progress_vacuum WHERE relid = 'b'::regclass")
    rules = replace(AGAIN, atomic=True, retry_for=60.0)
    assert loads.run(*_jobs(tmp_path, "truncate"), rules=rules).rows == 4
    assert (loads.count("a"), loads.count("b")) == (2, 2)


def test_single_table_is_locked_by_the_statement_that_needs_it(database18: str) -> None:
    """A load of one table asks for its lock by name only if that statement did not get it."""
    Loads(database18, setup=TABLES)
    held = "SELECT count(*) FROM pg_locks WHERE relation = 'a'::regclass AND mode = 'AccessExclusiveLock'"
    with psycopg.connect(database18, autocommit=True) as connection, connection.transaction():
        row = connection.execute("SELECT 'a'::regclass::oid").fetchone()
        assert row is not None
        locks = TableLocks(connection, {row[0]: "ACCESS EXCLUSIVE"})
        found = []
        for _ in range(2):
            locks.take()
            found.append(connection.execute(held).fetchone())
    assert found == [(0,), (1,)]
