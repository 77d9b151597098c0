"""Staged records merged into their table by one statement."""
