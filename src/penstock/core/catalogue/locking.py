"""Retries statements that wait for locks of other sessions.

Each attempt waits only briefly, because a waiting ACCESS EXCLUSIVE lock makes every later reader wait too. After each
attempt, the sessions that block it are reported.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TypeVar

import psycopg

from penstock.core.connect.connection import Connection
from penstock.core.connect.errors import explain_end, in_transaction, translate_errors
from penstock.core.errors import PenstockError, ServerError
from penstock.core.slotted import slotted
from penstock.core.sql import change_setting, fetch_rows

Result = TypeVar("Result")

LOCK_NOT_AVAILABLE = "55P03"
# The SQLSTATEs after which an attempt is repeated: no lock was granted in time, or the server cancelled this session to
# end a deadlock.
_RETRIED = {LOCK_NOT_AVAILABLE, "40P01"}

# How long an attempt waits for a lock. This is longer than deadlock_timeout (1 s by default), after which the server
# cancels an autovacuum worker that blocks this session.
DEFAULT_LOCK_TIMEOUT_S = 2.0
# The pause between attempts, in which sessions that wait for the lock can run. The pause doubles after each attempt, up
# to the second of these values.
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 5.0


@slotted
class Blocker:
    """The row of ddl_blockers.sql: a session or prepared transaction that holds or awaits a lock on a relation."""

    pid: int | None
    user: str | None
    application_name: str | None
    state: str | None
    query_start: datetime | None
    transaction_start: datetime | None
    query: str | None
    relation: str
    mode: str
    is_held: bool


def with_lock_retries(
    connection: Connection,
    act: Callable[[], Result],
    *,
    relations: Sequence[int],
    deadline_s: float,
    lock_timeout_s: float = DEFAULT_LOCK_TIMEOUT_S,
    on_blocked: Callable[[tuple[Blocker, ...]], None] | None = None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Result:
    """Run `act`, again if it does not get its locks in time, and return its result.

    Each attempt is a transaction, or a savepoint of the caller's transaction, and waits at most `lock_timeout_s`
    seconds for a lock. `relations` are the OIDs of the tables that `act` locks. Before each further attempt,
    `on_blocked` is called with the sessions that hold or await locks on these tables. At least one attempt is made. If
    the attempts fail for `deadline_s` seconds, raises ServerError that names those sessions. Any other error of `act`
    is raised at once.
    """
    until = clock() + deadline_s
    pause_s = _FIRST_PAUSE_S
    while True:
        try:
            return _attempt(connection, act, lock_timeout_s)
        except (psycopg.Error, PenstockError) as error:
            if error.sqlstate not in _RETRIED:
                raise
            blockers = find_blockers(connection, relations)
            if clock() + pause_s >= until:
                raise _give_up(blockers, max(deadline_s, lock_timeout_s)) from error
        if on_blocked is not None:
            on_blocked(blockers)
        # The pause is random, so that two loads that wait for each other's locks do not retry at the same time.
        sleep(pause_s * random.uniform(0.5, 1))  # noqa: S311
        pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)


def telling_once(notice: Callable[[str], None], what: str) -> Callable[[tuple[Blocker, ...]], None]:
    """Return a callback `on_blocked` for `with_lock_retries` that reports each blocking backend only once.

    `notice` is called with a message such as "waiting to WHAT: ...". `what` is a verb and its object.
    """
    reported: set[int | None] = set()

    def report(blockers: tuple[Blocker, ...]) -> None:
        if new := [blocker for blocker in blockers if blocker.pid not in reported]:
            reported.update(blocker.pid for blocker in new)
            notice(f"waiting to {what}: {'; '.join(map(describe_blocker, new))}")

    return report


def find_blockers(connection: Connection, relations: Sequence[int]) -> tuple[Blocker, ...]:
    """Return the sessions that hold or await a lock on one of the relations, holders first. Raises ServerError."""
    with translate_errors("looking for sessions that hold locks"):
        return tuple(fetch_rows(connection, "core/ddl_blockers", Blocker, relations=list(relations)))


def describe_blocker(blocker: Blocker) -> str:
    """Return a blocker in one line."""
    # The application_name of a prepared transaction is its gid.
    who = "prepared transaction" if blocker.pid is None else f"pid {blocker.pid}"
    parts = [
        f"user {blocker.user}" if blocker.user else None,
        f'"{blocker.application_name}"' if blocker.application_name else None,
        blocker.state if blocker.pid is not None else None,
        f"query started {blocker.query_start:%Y-%m-%d %H:%M:%S%z}" if blocker.query_start else None,
        f"{'holds' if blocker.is_held else 'awaits'} {blocker.mode} on {blocker.relation}",
    ]
    return f"{who}: {', '.join(part for part in parts if part)}"


def in_ms(timeout_s: float) -> str:
    """Return a time in seconds as the text of a setting in milliseconds."""
    return f"{max(1, round(timeout_s * 1000))}ms"


def _attempt(connection: Connection, act: Callable[[], Result], lock_timeout_s: float) -> Result:
    with in_transaction(connection, "waiting for locks"):
        before = change_setting(connection, "lock_timeout", in_ms(lock_timeout_s))
        result = act()
        # Without this, the setting would last until the caller's transaction ends, if there is one.
        change_setting(connection, "lock_timeout", before)
    return result


def _give_up(blockers: Sequence[Blocker], deadline_s: float) -> ServerError:
    lines = [describe_blocker(blocker) for blocker in blockers] or ["No session holds it any more."]
    return ServerError(
        f"could not get a lock within {deadline_s:g} s",
        detail="\n".join(lines),
        hint=explain_end(each.application_name or "" for each in blockers if each.pid is None and each.is_held),
        sqlstate=LOCK_NOT_AVAILABLE,
    )
