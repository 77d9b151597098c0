"""Prepares a server for imports from S3, and undoes the preparation."""
