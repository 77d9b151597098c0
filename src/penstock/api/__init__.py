"""penstock as a library: the verbs put together, and the one place where AWS, the lab and loading meet.

functions.py does everything in one call; `Loader` shows the plan first and can check without loading. LedgerView
(ledger_view.py) tells of loads that are written down.
"""

from __future__ import annotations

from penstock.api.connect import connect_to
from penstock.api.functions import load
from penstock.api.loader import Loader

__all__ = ["Loader", "connect_to", "load"]
