"""Claims a load: finds in the ledger what is left to load, and which process loads it."""
