"""What the ledger knows of a load, what is left, and which process does it."""
