"""Temporary work on one server."""
