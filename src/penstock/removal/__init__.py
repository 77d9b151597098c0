"""Removes the rows that a load has stored, and the load from the ledger: `penstock undo`."""
