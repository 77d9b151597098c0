"""Lists the kinds of change of a table in the order of restoring. Indexes are last, as they can take hours or fail."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.changes.kinds.indexes import IndexesAndKeys
from penstock.changes.kinds.switch import Switch
from penstock.server.changes.autovacuum import AUTOVACUUM_PAUSE
from penstock.server.changes.triggers import TRIGGERS

if TYPE_CHECKING:
    from penstock.changes.kinds.kind import TableKind

KINDS: list[TableKind] = [Switch(TRIGGERS), Switch(AUTOVACUUM_PAUSE), IndexesAndKeys()]
