"""Claims a load for this process, alone or with other hosts, and decides from the ledger what is left of it."""
