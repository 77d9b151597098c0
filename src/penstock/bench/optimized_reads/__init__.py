"""Experiment B: queries that spill, with temporary files on the data's volume or on a local disk."""
