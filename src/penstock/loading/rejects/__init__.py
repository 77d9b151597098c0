"""Finds records that the table refuses, explains and keeps them, writes them to files, and retries them."""
