"""The ledger: what is loaded, written in the same transactions as the rows themselves.

Schema `penstock` (or another) of the target database holds loads, their objects, and the byte ranges that are
committed of each. It is all the state there is. When to write what is loading's business.
"""

from __future__ import annotations

from penstock.server.ledger.ledger import Ledger

__all__ = ["Ledger"]
