"""Whether a connection pooler stands between us and the server, and what is refused then.

A pooler may hand each transaction to another backend: settings, roles, locks and temporary tables then land in sessions
of others, and a load's transactions are not its own. The server tells libpq the number of the backend, by which it can
cancel. A pooler has to make up a number where backends change; PgBouncer does in session mode too. Pgpool-II, which
gives a client one backend, passes its number on, and is not known by this.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from psycopg import sql

from penstock.errors import ServerError

if TYPE_CHECKING:
    from psycopg import pq


@dataclass(frozen=True, slots=True, kw_only=True)
class Pooler:
    """What gave a pooler away: the backend that libpq was told of, and the one that answered."""

    told_pid: int
    backend_pid: int

    def refuse(self, what: str) -> ServerError:
        """Return the error for what cannot be done through a pooler; `what` completes "cannot ... through"."""
        return ServerError(
            f"cannot {what} through a connection pooler",
            detail=f"libpq was told of backend {self.told_pid}, and backend {self.backend_pid} answered: a pooler such "
            "as PgBouncer may give every transaction to another session.",
            hint="Connect to the server directly: give its own host and port in --to. For managed services, use the "
            "endpoint that is not the pooler's or the proxy's.",
        )


def compose_is_direct(connected: pq.abc.PGconn) -> sql.Composed:
    """Return the condition, for a connection's first statement, that its session is its own.

    Every endpoint of Neon is behind a proxy that tells a number of its own; only those whose host ends with -pooler are
    behind PgBouncer. Source: neondatabase/neon, proxy (a new cancel key for each client); neon.com/docs,
    "Connection pooling".
    """
    is_backend = sql.SQL("pg_catalog.pg_backend_pid() OPERATOR(pg_catalog.=) {}").format(
        sql.Literal(connected.backend_pid)
    )
    if connected.host.decode(errors="replace").partition(".")[0].endswith("-pooler"):
        return sql.SQL("({})").format(is_backend)
    neon = sql.SQL("pg_catalog.current_setting('neon.timeline_id', true) IS NOT NULL")
    return sql.SQL("({} OR {})").format(is_backend, neon)
