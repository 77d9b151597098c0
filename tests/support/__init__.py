"""Helpers for the fixtures of conftest.py and for tests."""
