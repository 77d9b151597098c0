"""Temporary work, as it crosses rooms."""
