"""The public functions and classes of penstock. Only this package uses loading, AWS and the lab together.

functions.py loads in one call. `Loader` shows the plan first, and can check without loading. LedgerView
(ledger_view.py) reports the loads that the ledger records.
"""

from __future__ import annotations

from penstock.api.connect import connect_to
from penstock.api.functions import load
from penstock.loading.loader import Loader

__all__ = ["Loader", "connect_to", "load"]
