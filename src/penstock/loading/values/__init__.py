"""Frozen classes of loads: plan, outcome, blocks, and what is left to do."""
