"""Rules for sessions that wait for their clients, or for processors."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.diagnose.rules.case import LEAST_SHARE, Case, bounded, number, share_of
from penstock.diagnose.rules.host import BUSY, Host
from penstock.watch.waits import (
    CPU,
    ActivityTally,
    Moment,
    Shares,
    Ticks,
    is_build,
    is_idle_in_transaction,
    moment_of,
    name_wait,
    weight_of,
)

if TYPE_CHECKING:
    from penstock.core.values.diagnosis import Diagnosis
    from penstock.watch.values import Sample, SessionSample

_CPU_WAIT = CPU.lower()

# Two or more transactions that wait for their clients are not just one transaction that was left open.
_SEVERAL = 2

# Transactions are client-bound if they wait for their clients at least this share of the time.
_LEAST_CLIENT = 0.5

# If fewer sessions than this wait for their clients on average, the clients have little to do, and nobody waits.
_LEAST_SESSIONS = 0.3

# If a statement has run for less time than this, it may have ended while its sample was read.
_LEAST_STATEMENT_S = 0.1

# If a session is idle in a transaction for longer than this, its transaction was left open, and the session is not just
# between two statements.
_BETWEEN_STATEMENTS_S = 5.0

# Two samples show the same statement if its age has grown by at least this part of the time between them.
_SAME_STATEMENT = 0.5

# The start of a transaction is computed from its age and this host's clock. The results of several samples of the same
# transaction differ by less than this.
_SAME_BEGIN_S = 1.0

# While processors are busy, a session that its client has sent a statement may wait for a processor. It looks as if it
# still waited for its client. Gaps that are longer than this are not explained by that.
_SHORT_GAP_MS = 10.0

# A load has too few COPY commands if they compute for at least this share of their time, and at least this part of the
# server's processors is idle.
_LEAST_COMPUTING = 0.5
_IDLE_CPUS = 0.2

# If sessions are without a wait for this share of the time, others take the processors that they need.
_TAKEN = 0.5

# If this part of what computes are builds of indexes and the like, it ends by itself.
_MOSTLY_BUILDS = 0.5

# Other programs are reported if they use at least this many processors.
_LEAST_OTHERS = 0.5

# Sessions wait for the processors that others use if they would use this many, and the server gets so much less.
_LEAST_WANTED = 0.3
_LEAST_STARVED = 0.3

# Waits and processor time contradict each other if sessions wait for at least half of the active time, and at least
# half a processor is busy although no active session explains it.
_LEAST_WAITING = 0.5
_LEAST_UNEXPLAINED_CPUS = 0.5


# Matches COPY FROM, but not COPY TO, because more sessions would not make an export faster. If the text is cut off
# before FROM, the server's view of the progress of COPY tells which it is.
_LOADS = re.compile(r"copy\s(?!\s*\().*\sfrom\s", re.IGNORECASE | re.DOTALL)
_PROGRESS = "pg_stat_progress_copy"

_SEND = "send more in a statement (COPY, INSERT of many rows, a pipeline)"
_READ = "select only the rows and columns that it needs, and read them without other work in between"
_GAP = (
    "It takes about {:.1f} ms from one statement to the next: if a round trip takes as long (SELECT 1 in psql, with "
    "\\timing), it is the network, and a pipeline or a function spares the trips."
)

_STARVED = (
    "All processors of this machine are busy, and clients run on it: they may wait for a processor, and not compute."
)


class ClientWaits:
    """The rule for open transactions that wait for their clients, within a statement or between two statements."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._inside = ActivityTally()
        self._between = ActivityTally()
        self._reading = Ticks()
        self._tick = -1
        self._gaps_s = 0.0
        # For each backend between two statements its moments since the last one, each with its time and the begin of
        # the transaction. They count once it has gone on: a session that never does was left so.
        self._open: dict[int, list[tuple[Moment, float, float]]] = {}
        self._pids: set[int] = set()
        self._begins_s = (math.inf, -math.inf)
        # The processor time of each backend at its last sample, and of all backends between their samples. It is known
        # only on the server's machine.
        self._cpu_s: dict[int, float] = {}
        self._on_cpu_s = 0.0

    def see(self, sample: Sample, moments: Sequence[Moment]) -> None:
        for moment in moments:
            if moment.wait.startswith("client:") and not _is_torn(moment):
                self._inside.add(moment)
                if moment.wait == "client:clientwrite":
                    self._reading.add(moment)
        self._tick += 1
        for session in sample.sessions:
            if session.cpu_s is not None:
                self._on_cpu_s += max(0.0, session.cpu_s - self._cpu_s.get(session.pid, session.cpu_s))
                self._cpu_s[session.pid] = session.cpu_s
            self._go_on(session, sample.at_s)
            if is_idle_in_transaction(session) and (session.query_s or 0.0) < _BETWEEN_STATEMENTS_S:
                moment = moment_of(session, self._tick, weight_of(sample))
                begin_s = sample.at_s - (session.transaction_s or 0.0)
                self._open.setdefault(session.pid, []).append((moment, sample.at_s, begin_s))
        seen = {session.pid for session in sample.sessions}
        for pid in self._open.keys() - seen:
            self._count(pid)

    def _go_on(self, session: SessionSample, at_s: float) -> None:
        """Count the moments of a backend if it has begun another statement since, so that its age has not gone on."""
        if session.pid in self._open:
            moments = self._open[session.pid]
            before, before_s, _ = moments[-1]
            goes_on = (session.query_s or 0.0) < (before.session.query_s or 0.0) + _SAME_STATEMENT * (at_s - before_s)
            if session.state == "active" or goes_on:
                self._count(session.pid)

    def _count(self, pid: int) -> None:
        for moment, _, begin_s in self._open.pop(pid):
            self._between.add(moment)
            self._gaps_s += moment.session.query_s or 0.0
            self._begins_s = min(self._begins_s[0], begin_s), max(self._begins_s[1], begin_s)
            if len(self._pids) < _SEVERAL:
                self._pids.add(pid)

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
        # A session that uses a processor does not wait for its client. Samples show too little of this time: while the
        # sampler has a processor, the workload may have none.
        waiting_s = min(part.seconds, moments.seconds - self._on_cpu_s)
        is_little = case.sessions(part) < _LEAST_SESSIONS
        if not part.count or is_little or waiting_s < _LEAST_CLIENT * moments.seconds:
            return []
        # On average, a sample is taken in the middle of a gap. So the mean gap is twice the mean time since the last
        # statement.
        gap_ms = 2000 * self._gaps_s / (self._between.count or 1)
        is_short = share_of(self._inside, case.moments) < _LEAST_CLIENT and gap_ms < _SHORT_GAP_MS
        if is_short and self._host.is_busy(case):
            return []
        evidence = [
            number("sessions that wait for their client, on average", case.sessions(part)),
            number("of this, in a statement such as COPY", 100 * share_of(self._inside, part), "%"),
            number("of this, until the client has read a result", 100 * share_of(self._reading, part), "%"),
        ]
        gap = ""
        if not is_one and self._between.count:
            evidence.append(number("from one statement of a transaction to the next, about", gap_ms, "ms"))
            gap = _GAP.format(gap_ms)
        how = _READ if share_of(self._reading, part) >= _LEAST_CLIENT else _SEND
        is_starved = self._host.has_clients and self._host.is_busy(case) and self._host.is_taken(case)
        busy = _STARVED if is_starved else ""
        found = case.conclude("client-bound", part, evidence, among=moments, how=how, gap=gap, busy=busy)
        unsure = is_starved and found.confidence != "too few samples"
        return [replace(found, confidence="low") if unsure else found]


def _is_torn(moment: Moment) -> bool:
    """Return whether a session may have become idle after its state was read and before its wait event was read.

    The server copies the states of all sessions first (pgstat_read_current_status in backend_status.c). If processors
    are busy, a short statement may have ended before its session's wait event is read.
    """
    query_s = moment.session.query_s
    return query_s is not None and query_s < _LEAST_STATEMENT_S


# Waits inside of statements for what is not the server's: an extension, which may ask another server, or pg_sleep. What
# calls pg_sleep itself sleeps on purpose, but a statement that changes rows does so in a trigger.
_OUTSIDE = "extension:"
_SLEEP = "timeout:pgsleep"
_CHANGES = re.compile(r"\s*(copy|insert|update|delete|merge)\b", re.IGNORECASE)


class OutsideWaits:
    """The rule for statements that wait in an extension, such as for another server, or that sleep."""

    def __init__(self) -> None:
        self._part = ActivityTally()
        self._kinds = Shares()

    def see(self, sample: Sample, moments: Sequence[Moment]) -> None:  # noqa: ARG002 (a rule's signature)
        for moment in moments:
            sleeps = moment.wait == _SLEEP and _CHANGES.match(moment.session.query or "")
            if sleeps or moment.wait.startswith(_OUTSIDE):
                self._part.add(moment)
                self._kinds.add(name_wait(moment.session), moment.weight_s)

    def conclude(self, case: Case) -> list[Diagnosis]:
        """Return a diagnosis that names the wait and the statement."""
        if case.share(self._part) < LEAST_SHARE:
            return []
        evidence = [number("sessions that wait so, on average", case.sessions(self._part))]
        return [case.conclude("outside-wait", self._part, evidence, name=self._kinds.parts(1.0)[0].name)]


class Processors:
    """The rule for processors: all busy, or busier than the waits explain, or idle because there are too few COPYs."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._running = ActivityTally()
        self._copying = ActivityTally()
        # Sessions that compute to build an index or to rewrite a table, once.
        self._building = Ticks()
        self._waiting = ActivityTally()
        # The sessions that the last reading shows in COPY FROM.
        self._loading: set[object] = set()

    def see(self, sample: Sample, moments: Sequence[Moment]) -> None:
        if (rows := sample.counters.get(_PROGRESS)) is not None:
            self._loading = {row.get("pid") for row in rows if row.get("command") == "COPY FROM"}
        for moment in moments:
            (self._running if moment.wait == _CPU_WAIT else self._waiting).add(moment)
            if moment.wait == _CPU_WAIT and is_build(moment.session):
                self._building.add(moment)
            is_load = moment.session.pid in self._loading or _LOADS.match(moment.session.query or "")
            if moment.wait == _CPU_WAIT and is_load:
                self._copying.add(moment)

    def conclude(self, case: Case) -> list[Diagnosis]:
        """Return a diagnosis if processors limit the workload, and if others use them."""
        found, cpus, others = self._find_limit(case), case.header.cpu_count, self._host.others
        if others is None or cpus is None or others < _LEAST_OTHERS:
            return found
        evidence = [
            number("processors in use by other programs", others),
            number("by the server", self._host.own or 0.0),
        ]
        clients = ", perhaps this server's own clients among them" if self._host.has_clients else ""
        words = {"others": f"{others:.1f}", "cpus": str(cpus), "clients": clients}
        remark = case.conclude_counted("other-programs", min(1.0, others / cpus), evidence, **words)
        # What the workload's clients use is no other program's.
        remark = replace(remark, confidence="low") if clients else remark
        # The processors that sessions without a wait would use if there were no other programs.
        wanted = min(float(cpus), case.sessions(self._running))
        starved = 1 - (self._host.own or 0.0) / wanted if wanted else 0.0
        is_taken = self._host.is_busy(case) and self._host.is_taken(case) and case.share(self._running) >= _TAKEN
        if not found and is_taken and wanted >= _LEAST_WANTED and starved >= _LEAST_STARVED:
            remark = bounded(replace(remark, share=case.share(self._running)), starved)
        return [*found, remark]

    def _find_limit(self, case: Case) -> list[Diagnosis]:
        on_cpu, cpus, busy = case.sessions(self._running), case.header.cpu_count, self._host.busy
        evidence = [number("active sessions without a wait, on average", on_cpu)]
        evidence += [] if cpus is None else [number("processors of the server", cpus)]
        evidence += [] if busy is None else [number("processors of the host that are busy", busy)]
        is_busy = cpus is not None and on_cpu >= BUSY * cpus and (busy is None or self._host.is_busy(case))
        builds = self._building.seconds >= _MOSTLY_BUILDS * self._running.seconds
        if is_busy and not builds and not self._host.is_taken(case):
            return [case.conclude("cpu-bound", self._running, evidence)]
        is_free = not (self._host.is_busy(case) and self._host.is_taken(case))
        is_few = is_free and cpus is not None and case.sessions(case.moments) <= (1 - _IDLE_CPUS) * cpus
        if is_few and case.share(self._copying) >= _LEAST_COMPUTING:
            return [case.conclude("few-sessions", self._copying, evidence)]
        least_busy = max(BUSY * case.sessions(case.moments), on_cpu + _LEAST_UNEXPLAINED_CPUS)
        own_busy = None if busy is None else busy - (self._host.others or 0.0)
        if own_busy is not None and own_busy >= least_busy and case.share(self._waiting) >= _LEAST_WAITING:
            return [case.conclude("waits-disagree-with-cpu", self._waiting, evidence)]
        return []
