"""Temporary work: what spills, and own queries replayed here and there."""
