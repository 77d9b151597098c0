"""Stores records in tables in one of three ways: directly, by staging and merging, or by replacing the table."""
