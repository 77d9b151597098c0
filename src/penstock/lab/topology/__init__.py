"""Servers in shapes: one alone, with standbys, with six receivers of its WAL."""
