"""The ledger's records of changes at tables, and who wants a table changed."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

import psycopg
import pytest

from penstock.changes.records import (
    delete_changes,
    delete_holds,
    read_changes,
    read_holds,
    shape_lock,
    write_changes,
    write_hold,
)
from penstock.changes.values import Change, Hold
from penstock.core.connect.connection import ConnectionFactory
from penstock.core.values.table import TableName
from penstock.ledger.ledger import Ledger
from penstock.ledger.locks import try_lock
from penstock.ledger.values import LoaderProcess
from support.loads import ORIGIN, Loads, share_ledger

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.core.connect.connection import Connection

pytestmark = pytest.mark.versions

_IDENTITY = "0123456789abcdef" * 2
_LOAD = "00000000-0000-4000-8000-000000000001"


def make_change(name: str = "i", *, target_oid: int = 4_000_000_000, **record: object) -> Change:
    """Return a change of an index."""
    return Change(
        target_oid=target_oid,
        target=TableName(schema="public", name="t"),
        kind="index",
        relation_oid=target_oid,
        name=name,
        record=record,
        load_id=_LOAD,
    )


@pytest.fixture
def loads(database: str) -> Loads:
    """Provide loads into an empty database on each version in turn."""
    return Loads(database)


@pytest.fixture
def connection(database: str) -> Iterator[Connection]:
    """Provide a session beside a ledger."""
    with ConnectionFactory(database).connect() as connection:
        Ledger().ensure(connection)
        yield connection


@pytest.mark.part("rest")
def test_a_record_says_how_it_was_before_all_loads(connection: Connection) -> None:
    """A later load finds what an earlier one has changed, so the earlier record is the one that stays."""
    write_changes(connection, "penstock", [make_change("i", was=1), make_change("j", was=2)])
    write_changes(connection, "penstock", [make_change("i", was=3), make_change("k", was=4)])
    found = read_changes(connection, "penstock", target_oid=4_000_000_000)
    assert [(change.name, change.number, change.record["was"]) for change in found] == [
        ("i", 1, 1),
        ("j", 2, 2),
        ("k", 3, 4),
    ]
    assert delete_changes(connection, "penstock", found[:1]) == 1
    assert delete_changes(connection, "penstock", found[:1]) == 0
    assert [change.name for change in read_changes(connection, "penstock")] == ["j", "k"]


def test_nobody_writes_records_in_anothers_name(loads: Loads, connection: Connection) -> None:
    """They are carried out as their owner; others see them and cannot remove them."""
    write_changes(connection, "penstock", [make_change()])
    role = f"user_{secrets.token_hex(4)}"
    loads.execute(f"CREATE ROLE {role}")
    try:
        share_ledger(loads, role)
        with ConnectionFactory(loads.conninfo, role=role).connect() as other:
            (found,) = read_changes(other, "penstock")
            assert delete_changes(other, "penstock", [found]) == 0
            forged = (
                "INSERT INTO penstock.changes (origin, target_oid, number, target_schema, target_table, kind,"
                " relation_oid, name, record, owner, load)"
                f" VALUES ({ORIGIN}, 1, 1, '', '', 'index', 1, '', '{{}}', 'postgres', '{_LOAD}')"
            )
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                other.execute(forged)
            write_changes(other, "penstock", [make_change("own")])
            assert read_changes(other, "penstock")[-1].owner == role
    finally:
        loads.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")


def test_a_hold_lasts_as_long_as_its_loader(loads: Loads, connection: Connection) -> None:
    """It ends with the session that has the load's lock, whatever ends that."""
    holder = ConnectionFactory(loads.conninfo).connect()
    assert try_lock(holder, _IDENTITY)
    Ledger().begin(
        holder,
        load_id=_LOAD,
        identity="i",
        lock=_IDENTITY,
        process=LoaderProcess(client="c", lock=_IDENTITY),
        tables=[],
        meaning="{}",
        job=None,
        objects=[],
    )
    with shape_lock(holder, 7):
        write_hold(holder, "penstock", Hold(holder_id=_LOAD, target_oid=7))
    (found,) = read_holds(connection, "penstock", target_oid=7)
    assert (found.holder_id, found.pid) == (_LOAD, holder.info.backend_pid)
    assert found.is_alive
    connection.execute("SELECT pg_terminate_backend(%s, 60000)", [holder.info.backend_pid])
    (found,) = read_holds(connection, "penstock", target_oid=7)
    assert not found.is_alive
    holder.close()


def test_the_shape_lock_is_waited_for(loads: Loads, connection: Connection) -> None:
    """Once it is said that it is, and then it is had."""
    with ConnectionFactory(loads.conninfo).connect() as other:
        inner = shape_lock(other, 4_000_000_000)
        inner.__enter__()
        told: list[str] = []

        def let_go(_seconds: float) -> None:
            told.append("slept")
            inner.__exit__(None, None, None)

        with shape_lock(connection, 4_000_000_000, on_wait=lambda _holder: told.append("told"), sleep=let_go):
            delete_holds(connection, "penstock", [_LOAD], 4_000_000_000)
        assert told == ["told", "slept"]
