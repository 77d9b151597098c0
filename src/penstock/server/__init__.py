"""One PostgreSQL server: every connection, every statement, every SQLSTATE.

The only room that knows psycopg and SQL. It tells facts and does what it is told; what to load, with how many
sessions and when to try again is decided above, in loading.
"""
