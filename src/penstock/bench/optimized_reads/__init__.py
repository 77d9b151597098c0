"""Experiment B: queries that spill, with temporary work on the data's volume and on a local disk."""
