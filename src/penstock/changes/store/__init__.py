"""Stores of changes and holds: a ledger's tables, or tags of a parameter group of Amazon RDS."""
