"""The ledger: which loads have committed which parts of which objects, in tables of the loaded database."""
