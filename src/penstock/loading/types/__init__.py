"""The types of columns, found in all values of the files."""
