"""Temporary work: which statements spill, and how fast the user's queries are with temporary work in two places."""
