"""The ledger: tables that record what is loaded, written in the same transactions as the rows themselves.

Schema `penstock` (or another one) of the target database has the loads, their objects, and the committed byte ranges of
each object. Penstock keeps no other state of a load. Package loading decides when to write what.
"""

from __future__ import annotations

from penstock.server.ledger.ledger import Ledger

__all__ = ["Ledger"]
