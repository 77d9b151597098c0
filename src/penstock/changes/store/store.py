"""The interface of a store of changes and holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from penstock.model.load.shape import Change, Hold
from penstock.server.connect.connection import Connection


class Store(Protocol):
    """Changes and holds, read and written by the session that has their locks. A write is durable when it returns.

    The argument `oid` is a table's OID, or SERVER. Methods raise ServerError, TargetError, AwsError.
    """

    @property
    def connection(self) -> Connection:
        """Return the session."""

    @property
    def schema(self) -> str:
        """Return the schema of the ledger, for kinds that remove their records themselves."""

    def exists(self) -> bool:
        """Return whether the store exists; raise TargetError if it cannot be trusted."""

    def ensure(self) -> None:
        """Create the store if it does not exist."""

    def read_changes(self, oid: int | None = None) -> list[Change]:
        """Return the changes of a table or of the server; all changes if `oid` is None."""

    def read_holds(self, oid: int | None = None) -> list[Hold]:
        """Return the holds on a table or the server, the oldest first; all holds if `oid` is None."""

    def write(self, hold: Hold, changes: Sequence[Change], stale: Sequence[Change] = ()) -> None:
        """Write a hold and changes, and remove the `stale` changes: all of this or nothing."""

    def forget(self, oid: int, changes: Sequence[Change], holders: Sequence[str]) -> None:
        """Remove changes that were restored, and the holds of these holders."""
