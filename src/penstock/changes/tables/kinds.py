"""Lists the kinds of change of a table in the order of restoring. Indexes are last, as they can take hours or fail."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.changes.tables.indexes import IndexesAndKeys
from penstock.changes.tables.kind import Switch
from penstock.changes.tables.switches import AUTOVACUUM_PAUSE, TRIGGERS

if TYPE_CHECKING:
    from penstock.changes.tables.kind import TableKind

KINDS: list[TableKind] = [Switch(TRIGGERS), Switch(AUTOVACUUM_PAUSE), IndexesAndKeys()]
