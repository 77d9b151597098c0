"""The .sql files, one query each, and what finds and runs them."""
