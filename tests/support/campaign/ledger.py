"""Reads the ledger and pg_stat_activity about one table's load, in its own session."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import psycopg

from support.results import has_rows

# A committed range is known by object, start, and when its transaction began: another attempt's has another time.
_QUERY = """
    SELECT l.id::text, l.state, l.epoch,
           ARRAY(SELECT (r.object, r.start, r.committed_at)::text FROM penstock.ranges AS r WHERE r.load = l.id),
           (SELECT coalesce(sum(r.rows), 0) FROM penstock.ranges AS r WHERE r.load = l.id)
      FROM penstock.loads AS l
     WHERE EXISTS (SELECT FROM penstock.objects AS o WHERE o.load = l.id AND o.target_table = %s
                      AND o.uri NOT LIKE '%%/rival/%%')
     ORDER BY l.began_at DESC
"""

# A backend that sleeps in a deferred trigger of its COMMIT: no other trigger of the campaign's sleeps there.
_COMMITTING = """
    SELECT pid
      FROM pg_stat_activity
     WHERE application_name LIKE %s
       AND state = 'active'
       AND wait_event = 'PgSleep'
       AND query LIKE '%%COMMIT'
"""

_PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerView:
    """The newest load as it stands: `ranges` are the keys of its committed rows; `loads` of the table there are."""

    load_id: str
    state: str
    epoch: int
    ranges: frozenset[str]
    rows: int
    loads: int

    @property
    def is_incomplete(self) -> bool:
        """Whether something is left to load."""
        return self.state != "complete"


class Observer:
    """Observes one table's load; reconnects if the server was stopped."""

    def __init__(self, conninfo: str, table: str) -> None:
        self._conninfo = conninfo
        self._table = table
        self._connection: psycopg.Connection[Any] | None = None

    def close(self) -> None:
        """End the session."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def execute(self, statement: str, values: list[Any] | None = None) -> list[tuple[Any, ...]]:
        """Run a statement that may be repeated, on a server that may be starting; return its rows."""
        until_s = time.monotonic() + _PATIENCE_S
        while True:
            try:
                cursor = self._connect().execute(statement.encode(), values)
                return cursor.fetchall() if has_rows(cursor) else []
            except psycopg.OperationalError:
                self.close()
                if time.monotonic() > until_s:
                    raise
                time.sleep(0.02)

    def view(self) -> LedgerView | None:
        """Return the table's newest load, None if none has begun."""
        rows = self.execute(_QUERY, [self._table])
        if not rows:
            return None
        assert all(row[1] == "complete" for row in rows[1:]), "a load was begun beside one that had not ended"
        load_id, state, epoch, ranges, count = rows[0]
        return LedgerView(
            load_id=load_id, state=state, epoch=epoch, ranges=frozenset(ranges), rows=int(count), loads=len(rows)
        )

    def backends(self, name: str) -> set[int]:
        """Return the backends of the loader of that name."""
        query = "SELECT pid FROM pg_stat_activity WHERE application_name LIKE %s"
        return {pid for (pid,) in self.execute(query, [f"{name}%"])}

    def committing(self, name: str) -> set[int]:
        """Return the backends of a loader that are in the middle of a COMMIT."""
        return {pid for (pid,) in self.execute(_COMMITTING, [f"{name}%"])}

    def is_blocking(self, blocker: psycopg.Connection[Any]) -> bool:
        """Return whether anybody waits for a lock of a session."""
        query = "SELECT FROM pg_stat_activity WHERE %s = ANY (pg_blocking_pids(pid))"
        return bool(self.execute(query, [blocker.info.backend_pid]))

    def _connect(self) -> psycopg.Connection[Any]:
        if self._connection is None:
            self._connection = psycopg.connect(
                self._conninfo,
                autocommit=True,
                application_name="observer",
                # Or looking, and touching the brake, would make the load's commits durable.
                options="-c synchronous_commit=off",
                connect_timeout=10,
            )
        return self._connection
