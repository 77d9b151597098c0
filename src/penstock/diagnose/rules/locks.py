"""The rule for sessions that wait for locks: in deadlocks, in queues behind a waiting statement, and for holders."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.core.units import format_duration
from penstock.diagnose.rules.case import Case, number, shorten
from penstock.watch.holders import (
    AWAIT_APPLY,
    AWAIT_BUILD,
    CANCEL,
    OLD_PREPARED_S,
    TERMINATE,
    describe_prepared,
    end_backend,
    end_prepared,
    is_same,
    read_int,
)
from penstock.watch.rates import DatabaseIncrease
from penstock.watch.waits import (
    SYNC_REP,
    ActivityTally,
    Moment,
    Shares,
    is_idle_in_transaction,
    name_application,
    name_statement,
    spell_wait,
)

if TYPE_CHECKING:
    from datetime import datetime

    from penstock.core.values.device import CounterRow
    from penstock.core.values.diagnosis import Diagnosis
    from penstock.watch.values import Sample, SessionSample

# If less than this share of the active time is waits for locks, the waits are normal.
_LEAST_LOCKED = 0.1

# Fewer deadlocks than one a minute cost little, even if their transactions repeat much work.
_FEWEST_DEADLOCKS = 3
_DEADLOCKS_EVERY_S = 60.0

# A deadlock lasts for deadlock_timeout, which is 1 s unless it is set, and has two sessions or more.
_DEADLOCK_S = 2.0

# Up to so many times the time of deadlocks, waits for locks that are held briefly are taken to be behind them.
_BEHIND_DEADLOCKS = 4

# Sessions seem to wait for each other in a circle. The circle is certainly a deadlock only if the server counts
# deadlocks, or if circles take at least this share of active time. Otherwise it may be an error of sampling: the
# blockers of each session are read one after the other, and in between a row's lock may have passed to another session.
_MOSTLY = 0.5

# If one holder causes less than this part of the waiting, and keeps the lock only briefly, no single session is the
# cause.
_MOST_LOCKED = 0.5

# Cancelling a transaction younger than this is not suggested. It would end before anybody can type the command, and the
# command would then cancel the session's next statement.
_LEAST_PATIENCE_S = 1.0

# A statement that began this long after its transaction is not the first of it, so the transaction may hold locks.
_FIRST_S = 0.1

# CREATE INDEX and REINDEX that lock out no writers.
_BUILDS_BESIDE = re.compile(r"\b(create|reindex)\b.*\bconcurrently\b", re.IGNORECASE | re.DOTALL)

_IDLE = "idle"
_ADVISORY = "lock:advisory"

_TABLE_LOCK = "lock:relation"

# The pid that the server reports for a prepared transaction.
_PREPARED = 0

_IN_TURN = "which several sessions hold in turn, each for a short time"
_RELEASE_IN_TURN = (
    "Let fewer sessions at a time run the statement that waits, and have each run it last in its transaction, so that "
    "it holds the lock for less time. Set lock_timeout if an error is better."
)


@dataclass(slots=True)
class _Gate:
    """A statement that waits for a lock on a table while other sessions wait behind it for the same table."""

    # The statement's session, and the session that it waits for, as the last sample shows them.
    session: SessionSample
    holder_pid: int
    holder: SessionSample | None
    at_s: float = 0.0
    waited_s: float = 0.0
    most_behind: int = 0


class LockWaits:
    """The rule for sessions that wait for locks, and for the sessions that hold these locks."""

    def __init__(self) -> None:
        # Waits in a circle of sessions (or for a session in a circle), waits behind a gate, and all other waits.
        self._circling, self._queued, self._held = ActivityTally(), ActivityTally(), ActivityTally()
        # Of the other waits, those for a table's lock that wait for its holder directly: a gate waits so.
        self._first = ActivityTally()
        self._deadlocks, self._circles = DatabaseIncrease("deadlocks"), Shares()
        self._gates: dict[int, _Gate] = {}
        self._held_s: dict[int | None, float] = {}
        # The sessions that hold, as the last sample that shows them as holders does, and when it was taken.
        self._holders: dict[int | None, SessionSample] = {}
        self._seen_s: dict[int | None, float] = {}
        self._at_s = 0.0
        self._outlasts: dict[int | None, bool] = {}
        self._longest_s = 0.0
        # The prepared transactions by gid, as last read, and the sessions that were seen to wait for one of them.
        self._prepared: dict[str, CounterRow] = {}
        self._has_prepared = False
        self._behind_prepared: set[int] = set()

    def see(self, sample: Sample, moments: Sequence[Moment]) -> None:
        """Add a sample, with the sessions of all applications. `moments` are those of the workload alone."""
        self._deadlocks.see(sample)
        self._at_s = sample.at_s
        if (rows := sample.counters.get("prepared")) is not None:
            self._has_prepared = True
            # Of those that have ended, only what blocked sessions is kept.
            self._prepared = {gid: row for gid, row in self._prepared.items() if _read_pids(row)}
            for row in rows:
                self._see_prepared(row)
        sessions = {session.pid: session for session in sample.sessions}
        behind: dict[int, int] = {}
        circles: dict[str, float] = {}
        for moment in moments:
            # The lock that is taken to extend a table is held only for a moment, so no single session is the cause.
            if not moment.wait.startswith("lock:") or moment.wait == "lock:extend":
                continue
            chain = _follow(sessions, moment.session)
            if chain[-1:] == [_PREPARED]:
                self._behind_prepared.add(chain[-2] if len(chain) > 1 else moment.session.pid)
            gate = _find_gate(sessions, moment, chain)
            if (circle := _name_circle(sessions, chain)) is not None:
                self._circling.add(moment)
                circles[circle] = moment.weight_s
            elif gate is not None:
                self._queued.add(moment)
                behind[gate.pid] = behind.get(gate.pid, 0) + 1
                self._see_gate(gate, chain[-1], sessions, moment.weight_s, behind[gate.pid])
            else:
                head = chain[-1] if chain else None
                is_first = moment.wait == _TABLE_LOCK and head in moment.session.blocked_by
                (self._first if is_first else self._held).add(moment)
                last = sessions.get(chain[-2]) if len(chain) > 1 else moment.session
                self._see_holder(moment, head, sessions, is_advisory=last is not None and spell_wait(last) == _ADVISORY)
        for name, weight_s in circles.items():
            self._circles.add(name, weight_s)

    def _see_prepared(self, row: CounterRow) -> None:
        """Keep a row of prepared.sql, with the sessions that it blocked at any reading."""
        gid = str(row.get("gid"))
        self._prepared[gid] = {**row, "blocks": [*_read_pids(self._prepared.get(gid, {})), *_read_pids(row)]}

    def _find_prepared(self) -> list[CounterRow]:
        """Return the prepared transactions that sessions waited for; if no reading shows that, all that are old."""
        rows = self._prepared.values()
        behind = [row for row in rows if any(pid in self._behind_prepared for pid in _read_pids(row))]
        return behind or [row for row in rows if read_int(row, "age_s") >= OLD_PREPARED_S]

    def _describe(self, pid: int | None, session: SessionSample | None) -> str:
        """Return who holds a lock."""
        if pid == _PREPARED and (found := self._find_prepared()):
            return " or ".join(map(describe_prepared, found))
        return _describe_holder(pid, session)

    def _end_prepared(self) -> str:
        return " ".join(map(end_prepared, self._find_prepared())) or (
            "Find it in pg_prepared_xacts, and end it in its database with ROLLBACK PREPARED, or COMMIT PREPARED."
        )

    def _see_gate(
        self, session: SessionSample, head: int, sessions: Mapping[int, SessionSample], weight_s: float, behind: int
    ) -> None:
        gate = self._gates.setdefault(session.pid, _Gate(session=session, holder_pid=head, holder=None))
        gate.session, gate.holder_pid, gate.holder, gate.at_s = session, head, sessions.get(head), self._at_s
        gate.waited_s += weight_s
        gate.most_behind = max(gate.most_behind, behind)

    def _see_holder(
        self, moment: Moment, pid: int | None, sessions: Mapping[int, SessionSample], *, is_advisory: bool
    ) -> None:
        self._longest_s = max(self._longest_s, moment.session.query_s or 0.0)
        self._held_s[pid] = self._held_s.get(pid, 0.0) + moment.weight_s
        if pid is not None and (session := sessions.get(pid)) is not None:
            self._holders[pid], self._seen_s[pid] = session, self._at_s
            patience_s = max(_LEAST_PATIENCE_S, moment.session.query_s or 0.0)
            age_s = session.query_s if session.state == _IDLE else session.transaction_s
            # The states were read before the blockers. So a session that is idle has begun a transaction since, unless
            # the lock is an advisory one, which outlives transactions.
            is_torn = session.state == _IDLE and not is_advisory
            self._outlasts[pid] = (age_s or 0.0) > patience_s and not is_torn

    def conclude(self, case: Case) -> list[Diagnosis]:
        """Return diagnoses of deadlocks, of a queue behind a waiting statement, and of the longest holder of a lock."""
        worst = max(self._held_s, key=lambda pid: self._held_s[pid], default=None)
        gate = max(self._gates.values(), key=lambda each: each.waited_s, default=None)
        # The gate's own statement counts as part of the queue.
        (self._queued if gate is not None and worst == gate.holder_pid else self._held).join(self._first)
        rest, found = self._held, []
        if not self._is_deadlocked(case):
            rest.join(self._circling)
        else:
            # Transactions in deadlocks also hold other locks briefly. Without the deadlocks they would release those
            # locks sooner, so the waits for such locks count as part of the deadlocks.
            most_s = max(self._circling.seconds, _DEADLOCK_S * self._deadlocks.total)
            if self._held.seconds <= most_s * (1 if self._outlasts.get(worst, False) else _BEHIND_DEADLOCKS):
                self._circling.join(rest)
                rest = ActivityTally()
            found.append(self._conclude_deadlocks(case))
        if gate is not None and case.share(self._queued) >= _LEAST_LOCKED:
            found.append(self._conclude_queue(case, gate))
        if rest.count and case.share(rest) >= _LEAST_LOCKED:
            found.append(self._conclude_holder(case, worst))
        return found

    def _is_deadlocked(self, case: Case) -> bool:
        count = self._deadlocks.total
        # The server counts the deadlocks of all applications. They count for one application only if its own sessions
        # were seen in a circle.
        is_own = case.header.application is None or self._circling.count > 0
        is_often = is_own and count >= max(_FEWEST_DEADLOCKS, case.counted_s / _DEADLOCKS_EVERY_S)
        return is_often or case.share(self._circling) >= (_LEAST_LOCKED if count else _MOSTLY)

    def _conclude_deadlocks(self, case: Case) -> Diagnosis:
        rate = self._deadlocks.total / case.counted_s
        evidence = [
            number("deadlocks", rate, "/s"),
            number("deadlocks in the recording", self._deadlocks.total),
            number("sessions that wait for a lock, on average", case.sessions(self._circling)),
        ]
        pairs = self._circles.parts(1.0)
        statements = pairs[0].name if pairs else "no sample shows their statements, the server's log has them"
        return case.conclude("deadlocks", self._circling, evidence, rate=f"{rate:.2g}", statements=statements)

    def _conclude_queue(self, case: Case, gate: _Gate) -> Diagnosis:
        evidence = [
            number("sessions in the queue, on average", case.sessions(self._queued)),
            number("sessions behind the waiting statement, at most", gate.most_behind),
            number("how long that statement has waited", gate.session.query_s or 0.0, "s"),
        ]
        cancel = _end_queue(gate, case.header.time_of(gate.at_s))
        if gate.holder_pid == _PREPARED:
            cancel += f"What it waits for never ends by itself. {self._end_prepared()} "
        name, holder = _describe_holder(gate.session.pid, gate.session), self._describe(gate.holder_pid, gate.holder)
        return case.conclude("lock-queue", self._queued, evidence, cancel=cancel, gate=name, holder=holder)

    def _conclude_holder(self, case: Case, worst: int | None) -> Diagnosis:
        """Return the diagnosis that names the session that holds locks longest, apart from deadlocks and queues."""
        holder, share = self._holders.get(worst), self._held_s.get(worst, 0.0) / (sum(self._held_s.values()) or 1.0)
        evidence = [
            number("sessions that wait for a lock, on average", case.sessions(self._held)),
            number("longest statement that waits", self._longest_s, "s"),
        ]
        outlasts, is_most = self._outlasts.get(worst, False), share >= _MOST_LOCKED
        is_brief = worst == _PREPARED and self._has_prepared and not self._find_prepared()
        if is_brief or not (is_most or outlasts or worst == _PREPARED):
            evidence.append(number("of this, for the holder that is waited for most", 100 * share, "%"))
            return case.conclude("lock-wait", self._held, evidence, holder=_IN_TURN, release=_RELEASE_IN_TURN)
        evidence.append(number("of this, for the holder", 100 * share, "%"))
        if holder is not None and holder.transaction_s is not None:
            evidence.append(number("age of the holder's transaction", holder.transaction_s, "s"))
        described = f"{'most' if is_most else 'the largest part'} of it for {self._describe(worst, holder)}"
        seen = case.header.time_of(self._seen_s.get(worst, self._at_s))
        release = self._end_prepared() if worst == _PREPARED else _release(worst, holder, seen, outlasts=outlasts)
        return case.conclude("lock-wait", self._held, evidence, holder=described, release=release)


def blame_standbys(moments: Sequence[Moment], sample: Sample) -> list[Moment]:
    """Return the moments; who waits for a lock of a commit that a standby holds up waits for that standby too.

    Cancelling that holder would not undo its commit, which would be on this server alone.
    """
    sessions = {session.pid: session for session in sample.sessions}

    def is_held_up(moment: Moment) -> bool:
        chain = _follow(sessions, moment.session) if moment.wait.startswith("lock:") else []
        head = sessions.get(chain[-1]) if chain else None
        return head is not None and spell_wait(head) == SYNC_REP and (head.query_s or 0.0) >= _LEAST_PATIENCE_S

    return [moment._replace(wait=SYNC_REP) if is_held_up(moment) else moment for moment in moments]


def _read_pids(row: CounterRow) -> list[int]:
    """Return the pids that a row of prepared.sql names as blocked."""
    pids = row.get("blocks")
    return [pid for pid in pids if isinstance(pid, int)] if isinstance(pids, list | tuple) else []


def _follow(sessions: Mapping[int, SessionSample], waiting: SessionSample) -> list[int]:
    """Return the chain of pids that a session waits for: its blocker, the blocker of that session, and so on.

    The last pid blocks the whole chain. If the last session waits too, it waits for a session of the chain, in a
    circle.
    """
    passed: list[int] = []
    session: SessionSample | None = waiting
    while session is not None and session.blocked_by and (pid := _choose(sessions, session.blocked_by)) not in passed:
        passed.append(pid)
        session = sessions.get(pid)
    return passed


def _choose(sessions: Mapping[int, SessionSample], pids: Sequence[int]) -> int:
    """Return the blocker that lasts longest: a prepared transaction, else the oldest transaction that does not wait."""
    if _PREPARED in pids:
        return _PREPARED
    ages = {pid: sessions[pid].transaction_s or 0.0 for pid in pids if pid in sessions and not sessions[pid].blocked_by}
    return max(ages, key=lambda pid: ages[pid]) if ages else pids[0]


def _name_circle(sessions: Mapping[int, SessionSample], chain: Sequence[int]) -> str | None:
    """Return the statements of the circle of waiting sessions at the end of a chain, None if there is no circle."""
    last = sessions.get(chain[-1]) if chain else None
    if last is None or not last.blocked_by:
        return None
    statements = sorted({shorten(name_statement(sessions[pid])) for pid in chain[chain.index(last.blocked_by[0]) :]})
    return f"{statements[0]}, by each" if len(statements) == 1 else " and ".join(statements)


def _find_gate(sessions: Mapping[int, SessionSample], moment: Moment, chain: Sequence[int]) -> SessionSample | None:
    """Return the gate: a waiting session without which another waiting session would get its lock on a table.

    Of several in the chain it is the one nearest to the head. The gate may wait for sessions that wait for rows.

    The server queues requests for a table. A request waits behind an earlier request that it conflicts with, even if it
    does not conflict with any lock that is held (ProcSleep in proc.c). Returns None if both sessions wait for the same
    holder.
    """
    waiting = (sessions[pid] for pid in reversed(chain[:-1]))
    gate = next((session for session in waiting if spell_wait(session) == _TABLE_LOCK), None)
    if gate is None or moment.wait != _TABLE_LOCK:
        return None
    return None if set(gate.blocked_by) & set(moment.session.blocked_by) else gate


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


def _end_queue(gate: _Gate, seen: datetime) -> str:
    """Return how to end a queue now. Empty if its statement does not wait for long, or for a prepared transaction."""
    waited_s = gate.session.query_s or 0.0
    if _applies(gate.session):
        return f"{AWAIT_APPLY} "
    if (gate.session.transaction_s or 0.0) - waited_s < _FIRST_S:
        cancel = end_backend(CANCEL, gate.session.pid, is_same(gate.session, seen))
        end = f"Cancel what blocks the rest, not what it waits for: {cancel}. "
        return end if waited_s > _LEAST_PATIENCE_S else ""
    if gate.holder_pid == _PREPARED:
        return ""
    # Its transaction may block the rest by locks that it has, and be a victim of the holder itself.
    age_s = 0.0 if gate.holder is None else gate.holder.transaction_s or 0.0
    return f"{_release(gate.holder_pid, gate.holder, seen, outlasts=age_s > max(waited_s, _LEAST_PATIENCE_S))} "


def _applies(session: SessionSample) -> bool:
    """Return whether a session applies the changes of a subscription."""
    return (session.backend_type or "").startswith("logical replication")


def _release(pid: int | None, session: SessionSample | None, seen: datetime, *, outlasts: bool) -> str:
    """Return the text that says how to end the waits. `seen` is when a sample showed the holder.

    `outlasts` is true if the holder's transaction is older than the waits, so that it probably still runs.
    """
    if session is not None and _applies(session):
        return AWAIT_APPLY
    same = "" if session is None else is_same(session, seen)
    cancel, terminate = (end_backend(function, pid, same) for function in (CANCEL, TERMINATE))
    if session is not None and is_idle_in_transaction(session):
        now = f" While it holds, if it is no backup (pg_dump -j): {terminate}." if outlasts else ""
        return (
            f"Have this application commit or roll back before it does anything else.{now} For good: "
            "idle_in_transaction_session_timeout for its role."
        )
    if session is not None and session.state == _IDLE and outlasts:
        # A session that is not in a transaction can only hold session-level advisory locks.
        return (
            "Have this application call pg_advisory_unlock as soon as it no longer needs the lock. While it holds: "
            f"{terminate}."
        )
    if session is not None and _BUILDS_BESIDE.search(session.query or ""):
        return f"{AWAIT_BUILD} Cancelled, it leaves an invalid index behind, to be removed by DROP INDEX CONCURRENTLY."
    if session is not None and spell_wait(session).startswith("client:"):
        # The server cancels no statement that waits in the middle of a message.
        now = f" While it holds: {terminate}. A cancel waits for the client too." if outlasts else ""
        return f"See why its client does not go on; if it is a backup, wait.{now}"
    text = "Keep transactions short that change what others change; set lock_timeout if an error is better."
    return f"{text} While it holds: {cancel}." if outlasts else text
