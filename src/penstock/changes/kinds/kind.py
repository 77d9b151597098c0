"""The interface of a kind of change at tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from penstock.changes.context import Kind

if TYPE_CHECKING:
    from penstock.model.load.shape import Change
    from penstock.server.changes.kind import TableRequest
    from penstock.server.connect.connection import Connection


class TableKind(Kind, Protocol):
    """A kind of change that a load makes to its tables. Methods raise TargetError, ServerError.

    If `keeps_records` is true, an earlier record of an object is used instead of a new one. Once the object's rebuild
    has begun, only the earlier record has its original state.
    """

    @property
    def activity(self) -> str:
        """Return the change as a verb and its object, for messages about locks."""

    @property
    def keeps_records(self) -> bool:
        """Return whether an earlier record of the same object is kept."""

    def find(self, connection: Connection, request: TableRequest) -> Sequence[Change]:
        """Return the changes that a load will make to a table."""

    def announce(self, changes: Sequence[Change]) -> str | None:
        """Return the notice to show before changes are made, None for no notice."""

    def apply(self, connection: Connection, target_oid: int, changes: Sequence[Change]) -> None:
        """Make the changes, in the caller's transaction."""
