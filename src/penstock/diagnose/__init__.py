"""Finds what limited a workload or a load, by rules over recordings and counts, with evidence and remedies. Pure."""
