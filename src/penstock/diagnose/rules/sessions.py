"""Rules for sessions that wait for each other's locks, for their clients, or for processors."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.core.units import format_duration
from penstock.diagnose.rules.case import Case, number, share_of, shorten
from penstock.watch.waits import (
    CPU,
    ActivityTally,
    Moment,
    Ticks,
    moment_of,
    name_application,
    name_statement,
    weight_of,
)

if TYPE_CHECKING:
    from penstock.diagnose.values import Diagnosis
    from penstock.watch.values import Sample, SessionSample

_CPU_WAIT = CPU.lower()

# If at least this many transactions wait for their clients, it is not a single idle transaction.
_SEVERAL = 2

# A smaller share of lock waits is normal.
_LEAST_LOCKED = 0.1

# If less of the waiting is for one holder, and this holder keeps the lock only briefly, no single session is the cause.
_MOST_LOCKED = 0.5

# Transactions are client-bound if they wait for their clients at least this share of the time.
_LEAST_CLIENT = 0.5

# Cancelling a younger transaction is not suggested. It ends before anybody can type the command, which would then
# cancel the session's next statement.
_LEAST_PATIENCE_S = 1.0

# A statement that has run for less time may have ended between the two readings of one sample.
_LEAST_STATEMENT_S = 0.1

# If a session is idle in a transaction for longer, it is not between two statements: its transaction was left open.
_BETWEEN_STATEMENTS_S = 5.0

# The start of a transaction is computed from its age and this host's clock. The results for one transaction differ by
# less than this.
_SAME_BEGIN_S = 1.0

# If processors are this busy, a session often waits for one.
_BUSY = 0.8

# COPY commands are too few if they compute for at least this share of their time, and at least this part of the
# server's processors is idle.
_LEAST_COMPUTING = 0.5
_IDLE_CPUS = 0.2

# Waits and processors disagree if sessions wait for at least half of the active time, and at least half a processor is
# busy although no active session explains it.
_LEAST_WAITING = 0.5
_LEAST_UNEXPLAINED_CPUS = 0.5


# Matches COPY FROM, even if the text is cut off before FROM. COPY TO is not matched: more sessions for the load would
# not help it.
_LOADS = re.compile(r"copy\s(?!\s*\(|.*\sto\s)", re.IGNORECASE | re.DOTALL)

_SEND = "send more in a statement (COPY, INSERT of many rows, a pipeline)"
_READ = "select only the rows and columns that it needs, and read them without other work in between"

_IDLE = "idle"

# The pid that the server reports for a prepared transaction.
_PREPARED = 0

_IN_TURN = "which several sessions hold in turn, each for a short time"
_RELEASE_IN_TURN = (
    "Let fewer sessions at a time run the statement that waits, and have each run it last in its transaction, so that "
    "it holds the lock for less time. Set lock_timeout if an error is better."
)


class LockWaits:
    """The rule for sessions that wait for locks, and for the sessions that hold these locks."""

    def __init__(self) -> None:
        self._part = ActivityTally()
        self._held_s: dict[int | None, float] = {}
        self._holders: dict[int | None, SessionSample] = {}
        self._outlasts: dict[int | None, bool] = {}
        self._longest_s = 0.0

    def see(self, sample: Sample, moments: Sequence[Moment]) -> None:
        for moment in moments:
            # The lock to extend a table is held only for a moment, so no single session is the cause.
            if not moment.wait.startswith("lock:") or moment.wait == "lock:extend":
                continue
            self._part.add(moment)
            self._longest_s = max(self._longest_s, moment.session.query_s or 0.0)
            pid, session = _head_of_queue(sample, moment.session)
            self._held_s[pid] = self._held_s.get(pid, 0.0) + moment.weight_s
            if session is not None:
                self._holders[pid] = session
                patience_s = max(_LEAST_PATIENCE_S, moment.session.query_s or 0.0)
                age_s = session.query_s if session.state == _IDLE else session.transaction_s
                self._outlasts[pid] = (age_s or 0.0) > patience_s

    def conclude(self, case: Case) -> list[Diagnosis]:
        """Return a diagnosis if sessions wait for locks. It names the session that holds them longest."""
        if case.share(self._part) < _LEAST_LOCKED:
            return []
        worst = max(self._held_s, key=lambda pid: self._held_s[pid])
        holder, share = self._holders.get(worst), self._held_s[worst] / sum(self._held_s.values())
        evidence = [
            number("sessions that wait for a lock, on average", case.sessions(self._part)),
            number("longest statement that waits", self._longest_s, "s"),
        ]
        outlasts, is_most = self._outlasts.get(worst, False), share >= _MOST_LOCKED
        if not (is_most or outlasts or worst == _PREPARED):
            evidence.append(number("of this, for the holder that is waited for most", 100 * share, "%"))
            return [case.conclude("lock-wait", self._part, evidence, holder=_IN_TURN, release=_RELEASE_IN_TURN)]
        evidence.append(number("of this, for the holder", 100 * share, "%"))
        if holder is not None and holder.transaction_s is not None:
            evidence.append(number("age of the holder's transaction", holder.transaction_s, "s"))
        described = f"{'most' if is_most else 'the largest part'} of it for {_describe_holder(worst, holder)}"
        release = _release(worst, holder, outlasts=outlasts)
        return [case.conclude("lock-wait", self._part, evidence, holder=described, release=release)]


def _head_of_queue(sample: Sample, waiting: SessionSample) -> tuple[int | None, SessionSample | None]:
    """Return the pid of the backend that blocks the whole queue of a waiting session, and that backend's session.

    The session is None if the sample does not show the backend.
    """
    sessions = {session.pid: session for session in sample.sessions}
    passed: list[int] = []
    session: SessionSample | None = waiting
    while session is not None and session.blocked_by and session.blocked_by[0] not in passed:
        passed.append(session.blocked_by[0])
        session = sessions.get(passed[-1])
    return (passed[-1], session) if passed else (None, None)


def _describe_holder(pid: int | None, session: SessionSample | None) -> str:
    if session is None:
        unknown = {None: "one that had ended when it was read", _PREPARED: "a prepared transaction"}
        return unknown.get(pid, f"backend {pid}, which no sample shows")
    if session.state is None:
        return f"backend {pid} (user {session.user}), of which this role may see no more"
    age = "" if session.transaction_s is None else f", its transaction {format_duration(session.transaction_s)} old"
    return (
        f"backend {pid} (application {name_application(session)}, user {session.user}), {session.state}{age}; "
        f"its statement: {shorten(name_statement(session))}"
    )


def _release(pid: int | None, session: SessionSample | None, *, outlasts: bool) -> str:
    """Return the text that says how to end the waits.

    `outlasts` is true if the holder's transaction is older than the waits, so that it probably still runs.
    """
    if pid == _PREPARED:
        return "Find it in pg_prepared_xacts, and end it with COMMIT PREPARED or ROLLBACK PREPARED."
    if session is not None and _is_idle_in_transaction(session):
        now = f" While it holds: SELECT pg_terminate_backend({pid})." if outlasts else ""
        return (
            f"Have this application commit or roll back before it does anything else.{now} For good: "
            "idle_in_transaction_session_timeout for its role."
        )
    if session is not None and session.state == _IDLE:
        # Between transactions, a session holds only session-level advisory locks.
        now = f" While it holds: SELECT pg_terminate_backend({pid})." if outlasts else ""
        return f"Have this application call pg_advisory_unlock as soon as it no longer needs the lock.{now}"
    text = "Keep transactions short that change what others change; set lock_timeout if an error is better."
    return f"{text} While it holds: SELECT pg_cancel_backend({pid})." if outlasts else text


class ClientWaits:
    """The rule for open transactions that wait for their clients, within a statement or between two statements."""

    def __init__(self) -> None:
        self._inside = ActivityTally()
        self._between = ActivityTally()
        self._reading = Ticks()
        self._tick = -1
        self._pids: set[int] = set()
        self._begins_s = (math.inf, -math.inf)

    def see(self, sample: Sample, moments: Sequence[Moment]) -> None:
        for moment in moments:
            if moment.wait.startswith("client:") and not _is_torn(moment):
                self._inside.add(moment)
                if moment.wait == "client:clientwrite":
                    self._reading.add(moment)
        self._tick += 1
        for session in sample.sessions:
            if _is_idle_in_transaction(session) and (session.query_s or 0.0) < _BETWEEN_STATEMENTS_S:
                self._between.add(moment_of(session, self._tick, weight_of(sample)))
                begin_s = sample.at_s - (session.transaction_s or 0.0)
                self._begins_s = min(self._begins_s[0], begin_s), max(self._begins_s[1], begin_s)
                if len(self._pids) < _SEVERAL:
                    self._pids.add(session.pid)

    def conclude(self, case: Case) -> list[Diagnosis]:
        """Return a diagnosis if transactions wait for their clients. A single idle transaction does not count."""
        first_s, last_s = self._begins_s
        is_one = len(self._pids) < _SEVERAL and last_s - first_s < _SAME_BEGIN_S
        part, moments = ActivityTally(), Ticks()
        part.join(self._inside)
        moments.join(case.moments)
        if not is_one:
            part.join(self._between)
            moments.join(self._between)
        if share_of(part, moments) < _LEAST_CLIENT:
            return []
        evidence = [
            number("sessions that wait for their client, on average", case.sessions(part)),
            number("of this, in a statement such as COPY", 100 * share_of(self._inside, part), "%"),
            number("of this, until the client has read a result", 100 * share_of(self._reading, part), "%"),
        ]
        how = _READ if share_of(self._reading, part) >= _LEAST_CLIENT else _SEND
        return [case.conclude("client-bound", part, evidence, among=moments, how=how)]


def _is_torn(moment: Moment) -> bool:
    """Return whether a session may have become idle after its state was read and before its wait event was read.

    The server copies the states of all sessions first (pgstat_read_current_status in backend_status.c). If processors
    are busy, a short statement may have ended before its session's wait event is read.
    """
    query_s = moment.session.query_s
    return query_s is not None and query_s < _LEAST_STATEMENT_S


def _is_idle_in_transaction(session: SessionSample) -> bool:
    return (session.state or "").startswith("idle in transaction")


class Processors:
    """The rule for processors that are all busy, busier than the waits explain, or not used by too few COPYs."""

    def __init__(self) -> None:
        self._running = ActivityTally()
        self._copying = ActivityTally()
        self._waiting = ActivityTally()
        self._busy_s = self._seen_s = 0.0

    def see(self, sample: Sample, moments: Sequence[Moment]) -> None:
        for moment in moments:
            (self._running if moment.wait == _CPU_WAIT else self._waiting).add(moment)
            if moment.wait == _CPU_WAIT and _LOADS.match(moment.session.query or ""):
                self._copying.add(moment)
        if sample.host_busy_cpus is not None:
            self._busy_s += sample.host_busy_cpus * sample.interval_s
            self._seen_s += sample.interval_s

    def conclude(self, case: Case) -> list[Diagnosis]:
        """Return a diagnosis if processors limit the workload, or if they are busier than the waits explain."""
        on_cpu, cpus = case.sessions(self._running), case.header.cpu_count
        busy = self._busy_s / self._seen_s if self._seen_s else None
        evidence = [number("active sessions without a wait, on average", on_cpu)]
        evidence += [] if cpus is None else [number("processors of the server", cpus)]
        evidence += [] if busy is None else [number("processors of the host that are busy", busy)]
        if cpus is not None and on_cpu >= _BUSY * cpus and (busy is None or busy >= _BUSY * cpus):
            return [case.conclude("cpu-bound", self._running, evidence)]
        is_few = cpus is not None and case.sessions(case.moments) <= (1 - _IDLE_CPUS) * cpus
        if is_few and case.share(self._copying) >= _LEAST_COMPUTING:
            return [case.conclude("few-sessions", self._copying, evidence)]
        least_busy = max(_BUSY * case.sessions(case.moments), on_cpu + _LEAST_UNEXPLAINED_CPUS)
        if busy is not None and busy >= least_busy and case.share(self._waiting) >= _LEAST_WAITING:
            return [case.conclude("waits-disagree-with-cpu", self._waiting, evidence)]
        return []
