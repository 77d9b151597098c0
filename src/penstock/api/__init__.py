"""The public functions and classes of penstock. Only this package uses loading, AWS and the lab together.

functions.py loads in one call. `Loader` shows the plan first, and can check without loading. LedgerView
(ledger_view.py) reports the loads that the ledger records. Import them from `penstock`, which imports each at its first
use: the help of a command imports this package, and no loader.
"""
