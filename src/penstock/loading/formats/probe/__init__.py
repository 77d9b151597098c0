"""Finds out the dialect, the header and the names of a file by its beginning."""
