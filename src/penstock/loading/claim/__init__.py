"""Claims a load for this process, and decides from the ledger what is left of it."""
