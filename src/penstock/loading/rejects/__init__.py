"""Finds records that a table refuses, keeps them with the reason, and retries them; also --check."""
