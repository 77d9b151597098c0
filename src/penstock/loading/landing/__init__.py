"""Rows that reach their table with the load's end: staging tables, merges, replacements."""
