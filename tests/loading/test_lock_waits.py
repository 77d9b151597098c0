"""Waits for locks: each names who holds the lock, and ends after the time of --retry-for."""

from __future__ import annotations

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from penstock.core.connect.connection import ConnectionFactory
from penstock.core.errors import PenstockError
from penstock.core.values.job import LoadRules
from penstock.ledger.locks import try_shape_lock
from support.codes import has_code
from support.files import write_to
from support.loads import Loads, share_ledger, target
from support.modes import mode_target

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# The first look that counts a session as blocked ends its wait.
BRIEF = LoadRules(retry_for=0.0, vacuum=False)
CANCELED, NOT_AVAILABLE = "57014", "55P03"


@pytest.fixture
def loads(database18: str) -> Loads:
    """Provide a table with a key, an index and one row."""
    return Loads(
        database18,
        setup="CREATE TABLE t (id int PRIMARY KEY, name text); CREATE INDEX i ON t (name);"
        "INSERT INTO t VALUES (5, 'x')",
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Provide a csv file."""
    return write_to(tmp_path / "people.csv", "id,name\n" + "".join(f"{n},Ada\n" for n in range(1, 40)))


@pytest.fixture
def role(loads: Loads) -> Iterator[str]:
    """Provide a role that may connect, and nothing else."""
    name = f"only_connects_{time.monotonic_ns()}"
    loads.execute(f"CREATE ROLE {name} LOGIN")
    yield name
    loads.execute(f"DROP OWNED BY {name}; DROP ROLE {name}")


class Holder(NamedTuple):
    """A session of somebody else, and its pid, which is known after its end too."""

    session: psycopg.Connection[tuple[object, ...]]
    pid: int


@contextmanager
def holding(loads: Loads, statement: str, role: str | None = None) -> Iterator[Holder]:
    """Provide a session of somebody else that has run a statement in an open transaction."""
    login = {} if role is None else {"user": role}
    with psycopg.connect(make_conninfo(loads.conninfo, application_name="somebody", **login)) as other:
        other.execute(statement.encode())
        try:
            yield Holder(other, other.info.backend_pid)
        finally:
            other.rollback()


def names(loads: Loads, error: PenstockError, other: Holder) -> bool:
    """Whether a notice and the error name a session."""
    who = f"backend {other.pid}, user "
    return any(who in notice for notice in loads.notices) and who in (error.detail or "")


@pytest.mark.part("rest")
@pytest.mark.parametrize("mode", ["append", "upsert", "sync", "insert-new"])
@pytest.mark.parametrize("on_error", ["stop", "reject"])
def test_load_behind_a_row_lock_names_its_holder_and_ends(loads: Loads, path: Path, mode: str, on_error: str) -> None:
    """A later load of the same files stores all of them."""
    keys = {} if mode == "append" else {"key": ("id",)}
    rules = LoadRules(retry_for=0.0, vacuum=False, on_error="reject" if on_error == "reject" else "stop")
    held = "INSERT INTO t VALUES (7, 'y')" if mode in ("append", "insert-new") else "SELECT FROM t FOR UPDATE"
    if mode == "append":
        loads.execute("TRUNCATE t")
    with holding(loads, held) as other, pytest.raises(PenstockError, check=has_code(CANCELED)) as caught:
        loads.run(mode_target(path, mode, **keys), rules=rules)
    assert names(loads, caught.value, other)
    assert not caught.value.is_transient
    loads.run(mode_target(path, mode, **keys), rules=rules)
    assert loads.count() == 39


@pytest.mark.part("rest")
def test_wait_ends_after_the_time_of_retry_for_and_not_before(loads: Loads, path: Path) -> None:
    """The holder is named early, and the load stores its rows once the lock is free."""
    with holding(loads, "SELECT FROM t FOR UPDATE") as other, ThreadPoolExecutor() as pool:
        loading = pool.submit(loads.run, mode_target(path, "upsert", key=("id",)), rules=LoadRules(vacuum=False))
        while not any(f"backend {other.pid}, " in notice for notice in loads.notices):
            assert not loading.done()
            time.sleep(0.05)
        other.session.rollback()
        assert loading.result().rows == 39


@pytest.mark.part("rest")
@pytest.mark.parametrize("table", ["loads", "members", "objects", "ranges"])
def test_load_behind_a_lock_on_the_ledger_ends(loads: Loads, path: Path, role: str, table: str) -> None:
    """A role to which the ledger is granted can lock its tables."""
    loads.run(mode_target(path, "upsert", key=("id",)), rules=BRIEF)
    share_ledger(loads, role)
    again = LoadRules(retry_for=0.0, vacuum=False, again=True)
    with (
        holding(loads, f"LOCK TABLE penstock.{table} IN ACCESS EXCLUSIVE MODE", role) as other,
        pytest.raises(PenstockError, check=has_code(CANCELED)) as caught,
    ):
        loads.run(mode_target(path, "upsert", key=("id",)), rules=again)
    assert f"backend {other.pid}, user {role}" in (caught.value.detail or "")


@pytest.mark.part("rest")
@pytest.mark.parametrize("command", [["loads"], ["verify", "latest"], ["repair"]])
def test_command_behind_a_lock_on_the_ledger_names_its_holder(loads: Loads, path: Path, command: list[str]) -> None:
    """On stderr, while it waits; then it does its work."""
    loads.run(mode_target(path, "upsert", key=("id",)), rules=BRIEF)
    argv = [sys.executable, "-m", "penstock", *command, "--to", loads.conninfo]
    with (
        holding(loads, "LOCK TABLE penstock.loads") as other,
        subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running,
    ):
        assert running.stderr is not None
        assert f"waiting for a lock of backend {other.pid}, user " in running.stderr.readline()
        other.session.rollback()
        running.communicate()
    assert running.returncode == 0


def test_no_table_is_truncated_before_a_stranger_has_given_up_its_lock(loads: Loads, path: Path, role: str) -> None:
    """Any role that may connect can take the advisory lock with which indexes are dropped."""
    rules = LoadRules(retry_for=0.0, vacuum=False, indexes="rebuild")
    lock = f"SELECT pg_advisory_lock({0x70656E74}, 't'::regclass::oid::int)"
    with holding(loads, lock, role) as other, pytest.raises(PenstockError, check=has_code(NOT_AVAILABLE)) as caught:
        loads.run(mode_target(path, "truncate"), rules=rules)
    assert names(loads, caught.value, other)
    assert loads.rows() == [(5, "x")]
    assert loads.indexes() == ["i", "t_pkey"]
    assert loads.run(mode_target(path, "truncate"), rules=rules).rows == 39
    assert loads.execute("SELECT FROM pg_locks WHERE locktype = 'advisory'") == []


def test_load_waits_for_another_process_of_penstock_as_long_as_it_takes(loads: Loads, path: Path) -> None:
    """One that rebuilds indexes for hours is told from a stranger by what its role may do."""
    rules = LoadRules(retry_for=0.0, vacuum=False, indexes="rebuild")
    (oid,) = loads.execute("SELECT 't'::regclass::oid::int")[0]
    with ConnectionFactory(loads.conninfo).connect() as other, ThreadPoolExecutor() as pool:
        assert try_shape_lock(other, oid)
        loading = pool.submit(loads.run, mode_target(path, "truncate"), rules=rules)
        while not any(f"(backend {other.info.backend_pid}, user " in notice for notice in loads.notices):
            assert not loading.done()
            time.sleep(0.05)
        # Longer than a stranger is waited for
        time.sleep(1.0)
        assert not loading.done()
        other.close()
        assert loading.result().rows == 39


@pytest.mark.part("rest")
def test_stranger_with_the_lock_for_adding_objects_is_named(loads: Loads, path: Path, role: str) -> None:
    """The server makes the load wait for that lock, so the same watch sees it."""
    loads.run(mode_target(path, "truncate"), rules=BRIEF)
    more = write_to(path.with_name("more.csv"), "id,name\n99,Grace\n")
    lock = f"SELECT pg_advisory_lock({0x70656E6F}, 't'::regclass::oid::int)"
    with holding(loads, lock, role) as other, pytest.raises(PenstockError, check=has_code(CANCELED)) as caught:
        loads.run(target(more), rules=BRIEF)
    assert names(loads, caught.value, other)
