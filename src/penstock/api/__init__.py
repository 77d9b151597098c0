"""The public functions and classes of penstock. Only this package uses loading, AWS and the lab together.

A function of functions.py does a whole load in one call. `Loader` shows the plan first, and can check without loading.
LedgerView (ledger_view.py) reports the loads that the ledger records. Import these names from `penstock`. That package
imports a module only when one of its names is first used, so the help of a command imports no loader.
"""
