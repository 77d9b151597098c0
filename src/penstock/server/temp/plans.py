"""Plans statements of pg_stat_statements, without running them."""

from __future__ import annotations

import re
from typing import Any

from psycopg import sql

from penstock.errors import PenstockError
from penstock.server.connect.connection import Connection
from penstock.server.connect.errors import rolled_back, translate_errors
from penstock.server.connect.search_path import TO_USERS_SETTINGS
from penstock.server.sql.queries import fetch_one

# Planning takes milliseconds, or seconds if there are many tables.
_TIMEOUT = "5s"
_NAME = "penstock_usage"

# If a statement was run with EXPLAIN, as in the published experiment, pg_stat_statements keeps it with EXPLAIN.
_EXPLAIN = re.compile(r"\s*explain\s*(\([^)]*\)|analy[sz]e|verbose|\s)*", re.IGNORECASE)


def strip_explain(query: str) -> str:
    """Return the statement that an EXPLAIN explains. Any other statement is returned unchanged.

    >>> strip_explain("EXPLAIN (ANALYZE, BUFFERS) SELECT 1")
    'SELECT 1'
    """
    match = _EXPLAIN.match(query)
    return query if match is None else query[match.end() :]


def explain_kept(connection: Connection, query: str) -> dict[str, Any] | None:
    """Return the generic plan of a statement, or None if it cannot be planned.

    The statement is prepared, which accepts only one statement, in a read-only transaction that is rolled back.
    Planning evaluates immutable functions, with the rights of the current role. Raises ServerError if the connection is
    lost.
    """
    try:
        with translate_errors("planning a statement"), rolled_back(connection):
            connection.execute("SET TRANSACTION READ ONLY")
            connection.execute(f"SET LOCAL statement_timeout = '{_TIMEOUT}'".encode())
            connection.execute("SET LOCAL plan_cache_mode = force_generic_plan")
            connection.execute(TO_USERS_SETTINGS)
            # Binary results make psycopg use the extended protocol, which accepts only one statement.
            connection.execute(f"PREPARE {_NAME} AS {query}".encode(), binary=True)
            row = fetch_one(
                connection,
                "SELECT pg_catalog.cardinality(p.parameter_types) FROM pg_catalog.pg_prepared_statements AS p"
                " WHERE p.name = %s",
                [_NAME],
            )
            values = sql.SQL(", ").join([sql.SQL("NULL")] * row[0])
            given = sql.SQL("({})").format(values) if row[0] else sql.SQL("")
            statement = sql.SQL("EXPLAIN (FORMAT JSON) EXECUTE {}{}").format(sql.Identifier(_NAME), given)
            found = connection.execute(statement).fetchone()
    except PenstockError as error:
        if error.is_transient:
            raise
        return None
    finally:
        # A prepared statement is not rolled back with its transaction.
        if not connection.closed:
            with translate_errors("planning a statement"):
                connection.execute("DEALLOCATE ALL")
    assert found is not None
    plan: dict[str, Any] = found[0][0]["Plan"]
    return plan
