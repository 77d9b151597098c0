"""Arranges the sessions of one sample that wait for locks below the sessions that block them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from penstock.diagnose.activity import name_application, name_statement
from penstock.frozen import frozen

if TYPE_CHECKING:
    from penstock.model.recording import Sample, SessionSample

# The pid that the server reports for a prepared transaction.
_PREPARED = 0


@frozen
class Blocked:
    """A session in the tree of sessions that block others or wait for a lock.

    The fields that describe the session are None if the sample does not show it. A prepared transaction, for example,
    has pid 0 and no session.
    """

    # 0 for a session that blocks others and waits for no lock itself.
    depth: int
    pid: int
    state: str | None
    application: str | None
    statement: str | None
    # How long its statement has run if it waits, otherwise None.
    waits_s: float | None


def find_blocking(sample: Sample) -> tuple[Blocked, ...]:
    """Return the tree of sessions that block and wait: each session below its first blocker, the oldest waits first."""
    sessions = {session.pid: session for session in sample.sessions}
    waiting: dict[int, list[SessionSample]] = {}
    for session in sorted(sample.sessions, key=lambda each: -(each.query_s or 0.0)):
        if session.blocked_by:
            waiting.setdefault(session.blocked_by[0], []).append(session)
    heads = [pid for pid in waiting if pid not in sessions or not sessions[pid].blocked_by]
    return tuple(found for pid in heads for found in _walk(pid, 0, sessions, waiting, ()))


def _walk(
    pid: int,
    depth: int,
    sessions: Mapping[int, SessionSample],
    waiting: Mapping[int, Sequence[SessionSample]],
    above: tuple[int, ...],
) -> Iterator[Blocked]:
    session = sessions.get(pid)
    yield Blocked(
        depth=depth,
        pid=pid,
        state=("prepared transaction" if pid == _PREPARED else None) if session is None else session.state,
        application=None if session is None else name_application(session),
        statement=None if session is None else name_statement(session),
        waits_s=session.query_s if session is not None and session.blocked_by else None,
    )
    for each in waiting.get(pid, ()):
        # Sessions that block each other are a deadlock, which the server ends.
        if each.pid not in (*above, pid):
            yield from _walk(each.pid, depth + 1, sessions, waiting, (*above, pid))
