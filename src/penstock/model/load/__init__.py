"""A load: what was asked for, planned, done, and what the ledger has of it."""
