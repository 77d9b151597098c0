"""One PostgreSQL server: every connection, every statement, every SQLSTATE.

Only this package knows psycopg and SQL. It reports facts, and runs what its callers request. Package loading decides
what to load, with how many sessions, and when to retry.
"""
