"""What a kind of change at a table can do beside being restored."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from penstock.changes.context import Kind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.model.load.shape import Change
    from penstock.server.changes.kind import Want
    from penstock.server.connect.connection import Connection


class TableKind(Kind, Protocol):
    """A kind of change that a load makes at its tables. Methods raise TargetError, ServerError.

    `deed` is what is done, for messages about locks. A kind that `keeps_records` may find a record of its own, whose
    rebuild was begun: it knows how the thing was before.
    """

    @property
    def deed(self) -> str:
        """Return what is done to the table."""

    @property
    def keeps_records(self) -> bool:
        """Return whether an earlier record of the same thing is kept."""

    def find(self, connection: Connection, want: Want) -> Sequence[Change]:
        """Return what a load is to change at a table."""

    def announce(self, changes: Sequence[Change]) -> str | None:
        """Return what the user is told before changes are made, None for nothing."""

    def apply(self, connection: Connection, target_oid: int, changes: Sequence[Change]) -> None:
        """Make the changes, in the caller's transaction."""
