"""Repeats the published experiments in a comparable way. Uses the lab and loads together."""
