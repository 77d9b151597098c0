"""Merging: one statement moves staged records to their table."""
