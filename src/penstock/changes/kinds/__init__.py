"""The kinds of change at a table, in the order in which they are restored: indexes may take hours, and fail."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.changes.kinds.indexes import IndexesAndKeys
from penstock.errors import TargetError
from penstock.server.changes.autovacuum import AUTOVACUUM_PAUSE
from penstock.server.changes.kind import TableSwitch
from penstock.server.changes.triggers import TRIGGERS

if TYPE_CHECKING:
    from penstock.model.load.shape import Change

# One ALTER TABLE and its opposite, restored one by one; or what is restored all at once.
Kind = TableSwitch | IndexesAndKeys

KINDS: list[Kind] = [TRIGGERS, AUTOVACUUM_PAUSE, IndexesAndKeys()]


def kind_of(change: Change) -> Kind:
    """Return the kind of a record. Raises TargetError for one that this penstock does not know."""
    for kind in KINDS:
        if kind.handles(change):
            return kind
    raise TargetError(
        f'{change.kind} "{change.name}" of table "{change.target}" was changed by another version of penstock',
        detail=f"This one does not know changes of kind {change.kind}.",
        hint="Run penstock repair of the version that changed it.",
    )
