"""Whose a load is: what the ledger knows of it, and what is left to do."""
