"""Handles temporary work of a server: reports what spills and where, places it on a local disk, measures the gain."""
