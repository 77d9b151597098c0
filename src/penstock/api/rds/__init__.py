"""Servers of Amazon RDS: their description, access to them, and what a plan takes from the description."""
