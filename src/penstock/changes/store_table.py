"""Stores changes and holds in the tables of a ledger: in the database that is loaded, or in database "postgres".

Changes of the whole server are always in database "postgres", whichever database is loaded. Both ledgers are created
and checked in the same way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from penstock.changes.holds import delete_holds, read_holds, write_hold
from penstock.changes.records import delete_changes, read_changes, write_changes
from penstock.core.connect.connection import Connection
from penstock.core.connect.errors import in_transaction
from penstock.core.frozen import frozen
from penstock.core.values.change import SERVER, Change, Hold
from penstock.ledger.ledger import Ledger
from penstock.ledger.schema import has_ledger, naming_ledger

# Every cluster has this database unless somebody dropped it.
SERVER_DATABASE = "postgres"


@frozen
class TableStore:
    """The ledger in a schema of the session's database, as a Store."""

    connection: Connection
    schema: str = "penstock"

    def exists(self) -> bool:
        return has_ledger(self.connection, self.schema)

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
                # With synchronous_commit off, a crash could lose the record and keep the change. With local, commits
                # do not wait for standbys.
                self.connection.execute("SET LOCAL synchronous_commit = 'local'")
            yield
