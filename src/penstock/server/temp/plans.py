"""Plans of statements that pg_stat_statements has kept: made, never run."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from psycopg import sql

from penstock.errors import PenstockError
from penstock.server.connect.errors import rolled_back, translate_errors
from penstock.server.connect.search_path import TO_USERS_PATH

if TYPE_CHECKING:
    from penstock.server.connect.connection import Connection

# Planning takes milliseconds, with many tables seconds.
_TIMEOUT = "5s"
_NAME = "penstock_usage"

# Run by hand under it, as the published experiment does, a statement is kept with it.
_EXPLAIN = re.compile(r"\s*explain\s*(\([^)]*\)|analy[sz]e|verbose|\s)*", re.IGNORECASE)


def strip_explain(query: str) -> str:
    """Return what an EXPLAIN explains; any other statement as it is.

    >>> strip_explain("EXPLAIN (ANALYZE, BUFFERS) SELECT 1")
    'SELECT 1'
    """
    match = _EXPLAIN.match(query)
    return query if match is None else query[match.end() :]


def explain_kept(connection: Connection, query: str) -> dict[str, Any] | None:
    """Return the plan that a statement has for any parameters; None where there is none to be had.

    It is prepared, which takes one statement alone, in a read-only transaction that is rolled back. To plan is to
    evaluate immutable functions, with the rights of the current role. Raises ServerError where the server goes away.
    """
    try:
        with translate_errors("planning a statement"), rolled_back(connection):
            connection.execute("SET TRANSACTION READ ONLY")
            connection.execute(f"SET LOCAL statement_timeout = '{_TIMEOUT}'".encode())
            connection.execute("SET LOCAL plan_cache_mode = force_generic_plan")
            connection.execute(TO_USERS_PATH)
            # Binary, so that it goes by the extended protocol.
            connection.execute(f"PREPARE {_NAME} AS {query}".encode(), binary=True)
            row = connection.execute(
                "SELECT pg_catalog.cardinality(p.parameter_types) FROM pg_catalog.pg_prepared_statements AS p"
                " WHERE p.name = %s",
                [_NAME],
            ).fetchone()
            assert row is not None
            values = sql.SQL(", ").join([sql.SQL("NULL")] * row[0])
            given = sql.SQL("({})").format(values) if row[0] else sql.SQL("")
            statement = sql.SQL("EXPLAIN (FORMAT JSON) EXECUTE {}{}").format(sql.Identifier(_NAME), given)
            found = connection.execute(statement).fetchone()
    except PenstockError as error:
        if error.is_transient:
            raise
        return None
    finally:
        # A prepared statement outlives its transaction.
        if not connection.closed:
            with translate_errors("planning a statement"):
                connection.execute("DEALLOCATE ALL")
    assert found is not None
    plan: dict[str, Any] = found[0][0]["Plan"]
    return plan
