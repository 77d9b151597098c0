"""Stores changes and holds in the tables of a ledger: in the database that is loaded, or in database "postgres".

A change records the earlier state of what a load or a command has changed. A hold records that a load or a command
needs a table, or the server, to stay changed. The last holder to end restores the table or the server. Most holds are
valid only while the holder's session has its advisory lock. Holds are read, written and removed under the lock of the
table or the server, so no load can begin while another session restores.

Changes of the whole server are always in database "postgres", whichever database is loaded. Both ledgers are created
and checked in the same way.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import datetime
from typing import Any

from psycopg.types.json import Jsonb

from penstock.changes.values import SERVER, Change, Hold
from penstock.core.connect.connection import Connection, is_usable
from penstock.core.connect.errors import in_transaction, translate_errors
from penstock.core.recorded import make_recorded, reading_record, to_json
from penstock.core.slotted import slotted
from penstock.core.sql import fetch_names, fetch_one, fetch_rows, run_query
from penstock.core.values.server import ServerIdentity
from penstock.core.values.table import TableName
from penstock.ledger.committed import BE_DURABLE
from penstock.ledger.ledger import Ledger
from penstock.ledger.locks import (
    LockHolder,
    LockPatience,
    compose_query,
    find_lock_holder,
    try_shape_lock,
    unlock_shape,
)
from penstock.ledger.schema import has_ledger, naming_ledger, open_ledger


def write_changes(connection: Connection, schema: str, changes: Sequence[Change]) -> None:
    """Write records of changes, numbered in their order. If the ledger has an earlier record of an object, it is kept.

    Only the earlier record has the state before all changes. The caller has shape_lock, and commits before it changes
    anything. Only the current role, and members of it, can restore these changes. Raises ServerError, TargetError.
    """
    with in_transaction(connection, "recording changes at a table"), connection.pipeline():
        # Make this commit durable: a crash must not lose the record and keep the change. Otherwise the commit of
        # another session could flush only the change.
        connection.execute(BE_DURABLE)
        for change in changes:
            run_query(
                connection,
                "changes/write_change",
                ledger=schema,
                target=change.target_oid,
                schema=change.target.schema or "",
                table=change.target.name,
                kind=change.kind,
                relation=change.relation_oid,
                name=change.name,
                record=Jsonb(dict(change.record), dumps=to_json),
                load=change.load_id,
            )


def read_changes(connection: Connection, schema: str, *, target_oid: int | None = None) -> list[Change]:
    """Return the records of changes of one table, or of all tables, in the order of the changes. Raises ServerError."""
    with translate_errors("reading changes at tables"):
        return fetch_rows(connection, "changes/changes", _make_change, ledger=schema, target=target_oid)


def _make_change(*, target_schema: str, target_table: str, **fields: Any) -> Change:
    return Change(target=TableName(schema=target_schema or None, name=target_table), **fields)


def find_changed(connection: Connection, schema: str, oids: Sequence[int]) -> set[int]:
    """Return the OIDs of the loaded tables with a recorded change that involves one of the tables `oids`.

    A change involves the loaded table, the table that has the changed object, such as a partition, and the table that
    a foreign key references. `schema` is the ledger's. Records that came with a dump do not count. Raises ServerError.
    """
    wanted, changes = set(oids), read_changes(connection, schema)
    return {each.target_oid for each in changes if not each.is_copied and wanted & {each.target_oid, *each.relations}}


def write_failure(connection: Connection, schema: str, change: Change, why: str) -> None:
    """Add to the record of a change the reason `why` it cannot be restored. The current role must own the record.

    Raises ServerError, TargetError.
    """
    with translate_errors("recording why a change cannot be restored"):
        run_query(
            connection,
            "changes/write_failure",
            ledger=schema,
            target=change.target_oid,
            number=change.number,
            why=why,
        )


def find_others(connection: Connection, changes: Iterable[Change]) -> set[str]:
    """Return the roles that own recorded changes which the current role may not restore. Raises ServerError."""
    owners = {change.owner for change in changes if change.number}
    if not owners:
        return set()
    with translate_errors("checking who may restore changes"):
        return set(fetch_names(connection, "changes/other_owners", owners=sorted(owners)))


def delete_changes(connection: Connection, schema: str, changes: Sequence[Change]) -> int:
    """Remove records of changes, in the transaction that restores the changes. Return how many were removed.

    Only the owner of a record can remove it, but any role can remove the record of a setting. Raises ServerError,
    TargetError.
    """
    query = compose_query(
        "DELETE FROM ONLY {changes} WHERE (target_oid, number) IN (SELECT * FROM unnest(%s::oid[], %s::integer[]))",
        schema,
    )
    with translate_errors("removing the record of a change"):
        return connection.execute(
            query, [[change.target_oid for change in changes], [change.number for change in changes]]
        ).rowcount


_LOOK_INTERVAL_S = 0.2


@contextmanager
def shape_lock(
    connection: Connection,
    target_oid: int,
    *,
    schema: str = "penstock",
    on_wait: Callable[[LockHolder], None] | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[None]:
    """Hold the advisory lock for changing a table, or the server if `target_oid` is SERVER, while the block runs.

    Another session can have the lock for hours while it rebuilds indexes. If this session has to wait, `on_wait` is
    called once with the holder. If the process dies, the lock ends with the session. Raises ServerError, also if a
    session that cannot be penstock's has the lock for too long. `schema` is the ledger's. A role that may not write to
    it cannot be penstock's.
    """
    patience, has_reported = LockPatience(connection, schema, target_oid=target_oid), False
    while not try_shape_lock(connection, target_oid):
        holder = patience.look()
        if holder is not None and on_wait is not None and not has_reported:
            on_wait(holder)
            has_reported = True
        sleep(_LOOK_INTERVAL_S)
    try:
        yield
    finally:
        if is_usable(connection):
            unlock_shape(connection, target_oid)
        else:
            # Ctrl-C has left a statement running. Closing the session releases the lock.
            connection.close()


def write_hold(connection: Connection, schema: str, hold: Hold) -> None:
    """Write a hold, or replace the earlier hold of the same holder on the same table. The caller has shape_lock.

    The caller also has the holder's own lock. If `hold.lock` is None, the lock of the holder's load is written. Raises
    ServerError, TargetError.
    """
    with translate_errors("recording a hold"):
        run_query(
            connection,
            "changes/write_hold",
            ledger=schema,
            holder=hold.holder_id,
            target=hold.target_oid,
            lock=hold.lock,
            names=list(hold.names),
            stands=hold.stands,
            until=hold.until,
            client=hold.client,
            reason=hold.reason,
            server=None if hold.server is None else Jsonb(asdict(hold.server)),
        )


def delete_holds(connection: Connection, schema: str, holders: Sequence[str], target_oid: int) -> None:
    """Remove the holds of these holders on a table, or on the server. The caller has shape_lock.

    `holders` are ids of loads or leases. Raises ServerError, TargetError.
    """
    query = compose_query(
        "DELETE FROM ONLY {holds} WHERE holder = ANY (%s::uuid[]) AND target_oid = %s::bigint::oid", schema
    )
    with translate_errors("removing a hold"):
        connection.execute(query, [list(holders), target_oid])


def read_holds(
    connection: Connection, schema: str, *, target_oid: int | None = None, holder: str | None = None
) -> list[Hold]:
    """Return all holds, or the holds on one table or of one holder. Raises ServerError, TargetError.

    `pid` of a hold is a backend that has the hold's lock, or that of a process of the load; None if there is none.
    Unless the hold `stands`, the hold is alive only if a backend has one of these locks.
    """
    with translate_errors("looking for running loads"):
        found = fetch_rows(connection, "changes/holds", _make_hold, ledger=schema, target=target_oid, holder=holder)
    return [replace(hold, pid=_find_backend(connection, hold.lock or "", *locks)) for hold, locks in found]


def _find_backend(connection: Connection, *locks: str) -> int | None:
    """Return a backend that has one of the locks, the first of them that is held, or None."""
    pids = (find_lock_holder(connection, lock) for lock in dict.fromkeys(locks))
    return next((pid for pid in pids if pid is not None), None)


def _make_hold(
    *, names: list[str], server: dict[str, Any] | None, member_locks: list[str], **fields: Any
) -> tuple[Hold, list[str]]:
    with reading_record("which server a load has changed"):
        identity = None if server is None else make_recorded(ServerIdentity, server, part="field")
    return Hold(names=tuple(names), server=identity, **fields), member_locks


def read_time(connection: Connection) -> datetime:
    """Return the current time of the server's clock. Raises ServerError."""
    with translate_errors("reading the server's time"):
        now: datetime = fetch_one(connection, "SELECT pg_catalog.clock_timestamp()")[0]
    return now


# The database in whose ledger changes of the whole server are recorded. Every cluster has it unless it was dropped.
SERVER_DATABASE = "postgres"


@slotted
class TableStore:
    """A Store in tables of a ledger. `schema` is the ledger's, and the database is that of the session."""

    connection: Connection
    schema: str = "penstock"

    def exists(self) -> bool:
        return has_ledger(self.connection, self.schema)

    def open(self) -> bool:
        return open_ledger(self.connection, self.schema)

    def ensure(self) -> None:
        Ledger(self.schema).ensure(self.connection)

    def read_changes(self, oid: int | None = None) -> list[Change]:
        with naming_ledger(self.schema):
            return read_changes(self.connection, self.schema, target_oid=oid)

    def read_holds(self, oid: int | None = None) -> list[Hold]:
        with naming_ledger(self.schema):
            return read_holds(self.connection, self.schema, target_oid=oid)

    def write(self, hold: Hold, changes: Sequence[Change], stale: Sequence[Change] = ()) -> None:
        with naming_ledger(self.schema), self._writing(hold.target_oid):
            if stale:
                delete_changes(self.connection, self.schema, stale)
            write_hold(self.connection, self.schema, hold)
            write_changes(self.connection, self.schema, changes)

    def forget(self, oid: int, changes: Sequence[Change], holders: Sequence[str]) -> None:
        if changes or holders:
            with naming_ledger(self.schema), self._writing(oid):
                delete_changes(self.connection, self.schema, changes)
                delete_holds(self.connection, self.schema, holders, oid)

    @contextmanager
    def _writing(self, oid: int) -> Iterator[None]:
        with in_transaction(self.connection, "recording changes"):
            if oid == SERVER:
                # Flush the record to disk. With synchronous_commit off, a crash could lose the record and keep the
                # change. With local, the commit does not wait for standbys.
                self.connection.execute("SET LOCAL synchronous_commit = 'local'")
            yield
