"""Verifies a complete load: its objects, the ledger and the table are held against each other."""
