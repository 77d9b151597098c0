"""The rule for sessions that are opened all the time, and for servers whose connections are all taken.

Both diagnoses rest on the server's counters, because no active session waits for these limits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.core.values.names import quote_name
from penstock.diagnose.rules.case import Case, number
from penstock.watch.rates import DatabaseIncrease

if TYPE_CHECKING:
    from penstock.core.values.device import CounterRow
    from penstock.core.values.diagnosis import Diagnosis
    from penstock.watch.risks import RiskMeter
    from penstock.watch.values import Sample
    from penstock.watch.waits import Moment

# Sessions are opened too often if they reach both this rate and this number, and have fewer transactions each than the
# third constant.
_MANY_PER_S = 10.0
_MANY = 100
_FEW_TRANSACTIONS = 10.0

# The processor time that the server takes to open and end a session. Measured on 18.4 over a socket, without TLS.
_OPENING_S = 0.0026

# If at least this share of the connections is idle, a pool would need fewer connections.
_MOSTLY_IDLE = 0.5


class OpenedSessions:
    """The rule for sessions that are opened for few transactions each, and for connections that are all taken."""

    def __init__(self, seen: RiskMeter) -> None:
        self._allowed = seen.allowed_connections
        self._opened = DatabaseIncrease("sessions")
        # The time that all backends together spent starting. Only PostgreSQL 18 and later show backends that are
        # starting.
        self._opening_s = 0.0
        self._taken = self._readings = self._full_readings = 0
        # The connections at the first and at the last reading.
        self._first_taken: int | None = None
        self._last_taken = 0
        # The rows of the reading with most connections.
        self._rows: Sequence[CounterRow] = ()

    def see(self, sample: Sample, moments: Sequence[Moment]) -> None:  # noqa: ARG002 (a rule's signature)
        """Add a sample."""
        opening = sum(session.state == "starting" for session in sample.sessions)
        self._opening_s += opening * sample.interval_s
        self._opened.see(sample)
        if (rows := sample.counters.get("connections")) is not None:
            # The rows do not include the sampler's own connection.
            taken = 1 + sum(_count(row, "of_all") for row in rows[:1])
            self._first_taken = taken if self._first_taken is None else self._first_taken
            self._last_taken = taken
            self._readings += 1
            self._full_readings += self._allowed is not None and taken >= self._allowed
            if taken >= self._taken:
                self._taken, self._rows = taken, rows

    def conclude(self, case: Case) -> list[Diagnosis]:
        """Return diagnoses of short sessions and of taken connections; none if the workload is one application."""
        if case.header.application is not None:
            return []
        found = [self._find_short_sessions(case), self._find_full(case)]
        return [each for each in found if each is not None]

    def _find_short_sessions(self, case: Case) -> Diagnosis | None:
        # Connections that are still open at the end, such as those of a pool that was filled, are not short.
        opened = self._opened.total - max(0, self._last_taken - (self._first_taken or 0))
        rate, commits_per_s = opened / case.counted_s, case.rates.commits_per_s
        if rate < _MANY_PER_S or opened < _MANY or commits_per_s is None:
            return None
        if commits_per_s >= _FEW_TRANSACTIONS * rate:
            return None
        sessions, opening = case.sessions(case.moments), self._opening_s / case.elapsed_s
        evidence = [
            number("connections opened", rate, "/s"),
            number("transactions of each, on average", commits_per_s / rate),
            number("active sessions on average", sessions),
            *([number("sessions being opened, on average", opening)] if opening else []),
        ]
        spent = max(rate * _OPENING_S, opening)
        share = spent / (spent + sessions)
        return case.conclude_counted("connections-short", share, evidence, rate=f"{rate:,.0f}")

    def _find_full(self, case: Case) -> Diagnosis | None:
        if not self._full_readings or not self._rows:
            return None
        most, idle = self._rows[0], _count_idle(self._rows)
        application, user = most.get("application") or "(no name)", most.get("user")
        idlest = max(self._rows, key=lambda row: _count(row, "idle")).get("user")
        evidence = [
            number("connections that ordinary roles may have", self._allowed or 0),
            number("connections taken, at most", self._taken),
            *([] if idle is None else [number("of these idle", idle)]),
            number(f"of application {application}, user {user}", _count(most, "connections")),
        ]
        # Ending idle sessions is not advised for pools, because many pools do not expect that the server ends a
        # connection. Source: idle_session_timeout in the manual.
        end_idle = (
            "Most are idle. If they are a pool's, make it smaller; if they were left open: ALTER ROLE "
            f"{quote_name(str(idlest))} SET idle_session_timeout = '10min' ends those that begin from then on. "
            if idle is not None and idle >= _MOSTLY_IDLE * self._taken
            else ""
        )
        share = self._full_readings / self._readings
        who = f"{_count(most, 'connections')} by application {application}"
        of_these = "" if idle is None else f"; {idle} are idle"
        words = {"allowed": str(self._allowed), "idle": of_these, "who": who, "end_idle": end_idle}
        return case.conclude_counted("connections-taken", share, evidence, **words)


def _count_idle(rows: Sequence[CounterRow]) -> int | None:
    """Return how many connections are idle, None if the role may not see it. `rows` has only the largest groups.

    Recordings before idle_of_all have the numbers of these groups alone.
    """
    if "idle_of_all" not in rows[0]:
        return sum(_count(row, "idle") for row in rows)
    idle = rows[0]["idle_of_all"]
    return idle if isinstance(idle, int) else None


def _count(row: CounterRow, name: str) -> int:
    value = row.get(name)
    return value if isinstance(value, int) else 0
