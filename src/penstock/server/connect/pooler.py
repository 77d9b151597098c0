"""Detects a connection pooler between penstock and the server.

A pooler may give each transaction to another backend. Settings, roles, locks and temporary tables then end up in
sessions of other clients, and a load's transactions do not share a session.

A server sends libpq the pid of its backend, which libpq needs to cancel a statement. If a pooler gives a client several
backends, it has to invent a pid, so the pid that libpq received differs from the backend's pid. PgBouncer also invents
one in session mode. Pgpool-II gives a client one backend and forwards its pid, so Pgpool-II is not detected.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from psycopg import sql

if TYPE_CHECKING:
    from psycopg import pq


def compose_is_direct(connected: pq.abc.PGconn) -> sql.Composed:
    """Return an SQL condition, for a connection's first statement, that is true if there is no pooler.

    Every endpoint of Neon is behind a proxy that sends its own pid, but only hosts that end with -pooler are behind
    PgBouncer. Source: neondatabase/neon, proxy (a new cancel key for each client); neon.com/docs, "Connection pooling".
    """
    is_backend = sql.SQL("pg_catalog.pg_backend_pid() OPERATOR(pg_catalog.=) {}").format(
        sql.Literal(connected.backend_pid)
    )
    if connected.host.decode(errors="replace").partition(".")[0].endswith("-pooler"):
        return sql.SQL("({})").format(is_backend)
    neon = sql.SQL("pg_catalog.current_setting('neon.timeline_id', true) IS NOT NULL")
    return sql.SQL("({} OR {})").format(is_backend, neon)
