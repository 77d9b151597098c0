"""Counts rows and calls of the statements in which an application waits for commits, from pg_stat_statements.

A statement that waits for its own commit is a whole transaction, so its calls are commits. If COMMIT or a procedure
waits, the rows belong to other statements, and nothing is counted.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from penstock.model.recording import Sample, SessionSample

_VIEW = "pg_stat_statements"

# Calls and rows.
_Counts: TypeAlias = tuple[int, int]

# The value in place of an application's name if several applications run the statement.
_SEVERAL = object()


class StatementMeter:
    """Reads samples one by one. It keeps the calls and rows of each statement, and which application runs it."""

    def __init__(self) -> None:
        self._first: dict[tuple[object, ...], _Counts] = {}
        self._last: dict[tuple[object, ...], _Counts] = {}
        self._is_read = False
        self._users: dict[int, object] = {}

    def see(self, sample: Sample) -> None:
        """Add a sample's reading of pg_stat_statements, if it has one."""
        rows = sample.counters.get(_VIEW)
        for row in rows or ():
            calls, count = row.get("calls"), row.get("rows")
            if isinstance(calls, int) and isinstance(count, int):
                key = row.get("queryid"), row.get("userid"), row.get("dbid"), row.get("toplevel")
                # Later readings have only rows that changed, so a new row in them counts from zero.
                self._first.setdefault(key, (0, 0) if self._is_read else (calls, count))
                self._last[key] = calls, count
        self._is_read = self._is_read or rows is not None

    def see_session(self, session: SessionSample, application: str) -> None:
        """Record which application runs a session's statement."""
        if session.query_id is not None:
            known = self._users.setdefault(session.query_id, application)
            if known != application:
                self._users[session.query_id] = _SEVERAL

    def count(self, application: str, query_ids: Iterable[int | None]) -> _Counts | None:
        """Return the sums of calls and rows of these statements.

        Returns None if another application also runs one of them, or if one has no calls or changed no rows.
        """
        calls = rows = 0
        for query_id in query_ids:
            if query_id is None or self._users.get(query_id) != application:
                return None
            found = [
                (last[0] - self._first[key][0], last[1] - self._first[key][1])
                for key, last in self._last.items()
                if key[0] == query_id
            ]
            own_calls, own_rows = sum(each[0] for each in found), sum(each[1] for each in found)
            if own_calls <= 0 or own_rows <= 0:
                return None
            calls, rows = calls + own_calls, rows + own_rows
        return (calls, rows) if calls else None
