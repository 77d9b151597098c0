"""Loads that yield: no new batch begins while a standby is too far behind, or while slots keep too much WAL."""
