"""Finds the types of columns from all values of the files."""
