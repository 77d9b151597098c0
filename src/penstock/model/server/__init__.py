"""A server and its tables, as SQL and AWS describe them."""
