"""Rules for sessions that wait for their clients, or for processors."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.diagnose.rules.case import Case, number, share_of
from penstock.watch.values import PROCESSES, Sample
from penstock.watch.waits import (
    CPU,
    ActivityTally,
    Moment,
    Ticks,
    is_idle_in_transaction,
    moment_of,
    weight_of,
)

if TYPE_CHECKING:
    from penstock.diagnose.values import Diagnosis

_CPU_WAIT = CPU.lower()

# Two or more transactions that wait for their clients are not just one transaction that was left open.
_SEVERAL = 2

# Transactions are client-bound if they wait for their clients at least this share of the time.
_LEAST_CLIENT = 0.5

# If a statement has run for less time than this, it may have ended while its sample was read.
_LEAST_STATEMENT_S = 0.1

# If a session is idle in a transaction for longer than this, its transaction was left open, and the session is not just
# between two statements.
_BETWEEN_STATEMENTS_S = 5.0

# The start of a transaction is computed from its age and this host's clock. The results of several samples of the same
# transaction differ by less than this.
_SAME_BEGIN_S = 1.0

# If processors are this busy, a session often waits for one.
_BUSY = 0.8

# A load has too few COPY commands if they compute for at least this share of their time, and at least this part of the
# server's processors is idle.
_LEAST_COMPUTING = 0.5
_IDLE_CPUS = 0.2

# Other programs are reported if they use at least this many processors.
_LEAST_OTHERS = 0.5

# If the server's own processes use less than this part of busy processors, other programs take the processors from the
# server's sessions.
_LEAST_OWN = 0.4

# Waits and processor time contradict each other if sessions wait for at least half of the active time, and at least
# half a processor is busy although no active session explains it.
_LEAST_WAITING = 0.5
_LEAST_UNEXPLAINED_CPUS = 0.5


# Matches COPY FROM, even if the text is cut off before FROM. COPY TO does not match, because more sessions would not
# make an export by COPY TO faster.
_LOADS = re.compile(r"copy\s(?!\s*\(|.*\sto\s)", re.IGNORECASE | re.DOTALL)

_SEND = "send more in a statement (COPY, INSERT of many rows, a pipeline)"
_READ = "select only the rows and columns that it needs, and read them without other work in between"
_GAP = (
    "It takes about {:.1f} ms from one statement to the next: if a round trip takes as long (SELECT 1 in psql, with "
    "\\timing), it is the network, and a pipeline or a function spares the trips."
)


class ClientWaits:
    """The rule for open transactions that wait for their clients, within a statement or between two statements."""

    def __init__(self) -> None:
        self._inside = ActivityTally()
        self._between = ActivityTally()
        self._reading = Ticks()
        self._tick = -1
        self._gaps_s = 0.0
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
            if is_idle_in_transaction(session) and (session.query_s or 0.0) < _BETWEEN_STATEMENTS_S:
                self._between.add(moment_of(session, self._tick, weight_of(sample)))
                self._gaps_s += session.query_s or 0.0
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
        gap = ""
        if not is_one and self._between.count:
            # On average, a sample is taken in the middle of a gap. So the mean gap is twice the mean time since the
            # last statement.
            gap_ms = 2000 * self._gaps_s / self._between.count
            evidence.append(number("from one statement of a transaction to the next, about", gap_ms, "ms"))
            gap = _GAP.format(gap_ms)
        how = _READ if share_of(self._reading, part) >= _LEAST_CLIENT else _SEND
        return [case.conclude("client-bound", part, evidence, among=moments, how=how, gap=gap)]


def _is_torn(moment: Moment) -> bool:
    """Return whether a session may have become idle after its state was read and before its wait event was read.

    The server copies the states of all sessions first (pgstat_read_current_status in backend_status.c). If processors
    are busy, a short statement may have ended before its session's wait event is read.
    """
    query_s = moment.session.query_s
    return query_s is not None and query_s < _LEAST_STATEMENT_S


class Processors:
    """The rule for processors: all busy, or busier than the waits explain, or idle because there are too few COPYs."""

    def __init__(self) -> None:
        self._running = ActivityTally()
        self._copying = ActivityTally()
        self._waiting = ActivityTally()
        self._busy_s = self._seen_s = 0.0
        # The processor time of the server, the processor time of other programs, and the seconds in which both were
        # measured.
        self._own_s = self._others_s = self._told_s = 0.0
        self._before: tuple[float, float, float] | None = None

    def see(self, sample: Sample, moments: Sequence[Moment]) -> None:
        for row in sample.counters.get(PROCESSES, ()):
            self._see_processes(sample.at_s, row.get("server_cpu_s"), row.get("busy_cpu_s"))
        for moment in moments:
            (self._running if moment.wait == _CPU_WAIT else self._waiting).add(moment)
            if moment.wait == _CPU_WAIT and _LOADS.match(moment.session.query or ""):
                self._copying.add(moment)
        if sample.host_busy_cpus is not None:
            self._busy_s += sample.host_busy_cpus * sample.interval_s
            self._seen_s += sample.interval_s

    def _see_processes(self, at_s: float, own_s: object, all_s: object) -> None:
        if not isinstance(own_s, int | float) or not isinstance(all_s, int | float):
            return
        if self._before is not None and own_s >= self._before[1]:
            added = own_s - self._before[1]
            self._told_s += at_s - self._before[0]
            self._own_s += added
            self._others_s += max(0.0, all_s - self._before[2] - added)
        self._before = at_s, own_s, all_s

    def conclude(self, case: Case) -> list[Diagnosis]:
        """Return a diagnosis if processors limit the workload, and if others use them."""
        own, others = (seconds / self._told_s if self._told_s else None for seconds in (self._own_s, self._others_s))
        found, cpus = self._find_limit(case, own=own, others=others), case.header.cpu_count
        if others is None or cpus is None or others < _LEAST_OTHERS:
            return found
        evidence = [number("processors in use by other programs", others), number("by the server", own or 0.0)]
        words = {"others": f"{others:.1f}", "cpus": str(cpus)}
        return [*found, case.conclude_counted("other-programs", min(1.0, others / cpus), evidence, **words)]

    def _find_limit(self, case: Case, *, own: float | None, others: float | None) -> list[Diagnosis]:
        on_cpu, cpus = case.sessions(self._running), case.header.cpu_count
        busy = self._busy_s / self._seen_s if self._seen_s else None
        evidence = [number("active sessions without a wait, on average", on_cpu)]
        evidence += [] if cpus is None else [number("processors of the server", cpus)]
        evidence += [] if busy is None else [number("processors of the host that are busy", busy)]
        is_kept_out = own is not None and cpus is not None and own < _LEAST_OWN * cpus
        is_busy = cpus is not None and on_cpu >= _BUSY * cpus and (busy is None or busy >= _BUSY * cpus)
        if is_busy and not is_kept_out:
            return [case.conclude("cpu-bound", self._running, evidence)]
        is_few = cpus is not None and case.sessions(case.moments) <= (1 - _IDLE_CPUS) * cpus
        if is_few and case.share(self._copying) >= _LEAST_COMPUTING:
            return [case.conclude("few-sessions", self._copying, evidence)]
        least_busy = max(_BUSY * case.sessions(case.moments), on_cpu + _LEAST_UNEXPLAINED_CPUS)
        if busy is not None and busy - (others or 0.0) >= least_busy and case.share(self._waiting) >= _LEAST_WAITING:
            return [case.conclude("waits-disagree-with-cpu", self._waiting, evidence)]
        return []
