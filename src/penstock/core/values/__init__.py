"""Frozen classes that several features share. Pure."""
