"""Targets that need more than COPY: staging tables and merges, replacing tables, and TRUNCATE."""
