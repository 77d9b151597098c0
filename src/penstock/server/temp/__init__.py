"""Queries and statements about temporary work on one server."""
