"""Rules for what other processes do to a workload: autovacuum on its tables, and standbys that fall behind."""

from __future__ import annotations

import re
from collections.abc import Sequence
from statistics import median_low
from typing import TYPE_CHECKING

from penstock.diagnose.activity import CPU, Moment, Tally, Ticks, is_active, moment_of, weight_of
from penstock.diagnose.rates import parse_lsn
from penstock.diagnose.rules.case import LEAST_SHARE, Case, number
from penstock.diagnose.rules.commits import STANDBY_NAMES, parse_standby_names
from penstock.units import MB, MIB

if TYPE_CHECKING:
    from penstock.model.diagnosis import Diagnosis
    from penstock.model.recording import RecordingHeader, Sample
    from penstock.model.server.counters import CounterRow

# Autovacuum takes what clients need if at least this share of the processors is busy, or at least this share of the
# clients' sessions waits for I/O.
_BUSY = 0.8
_LEAST_WAITING = 0.3

_WORKER = "autovacuum worker"
_ASLEEP = "timeout:vacuumdelay"
# pg_stat_activity has "autovacuum: VACUUM ANALYZE public.orders (to prevent wraparound)", with names unquoted.
_VACUUMED = re.compile(r"autovacuum: (?:VACUUM|ANALYZE|VACUUM ANALYZE) (\S+\.(\S+))")

# A standby that is further behind than one segment of WAL cannot replay as fast as the primary writes. A standby that
# is nearer acknowledges each commit after a round trip.
_FAR_BYTES = 16 * MIB


class Autovacuum:
    """The rule for autovacuum at work on a table that client sessions use, if processors or I/O are short."""

    def __init__(self) -> None:
        self._workers: dict[str, Tally] = {}
        self._used: set[str] = set()
        self._clients, self._waiting = Ticks(), Ticks()
        self._running = Ticks()
        self._busy_s = self._seen_s = 0.0
        self._tick = -1

    def see(self, sample: Sample, moments: Sequence[Moment]) -> None:
        """Take a sample. It has the workers of autovacuum even if the workload is the sessions of one application."""
        self._tick += 1
        if sample.host_busy_cpus is not None:
            self._busy_s += sample.host_busy_cpus * sample.interval_s
            self._seen_s += sample.interval_s
        names = {}
        for session in sample.sessions:
            found = _VACUUMED.match(session.query or "") if session.backend_type == _WORKER else None
            if found is not None and is_active(session):
                moment = moment_of(session, self._tick, weight_of(sample))
                if moment.wait != _ASLEEP:
                    names[found[1]] = found[2]
                    self._workers.setdefault(found[1], Tally()).add(moment)
                    self._count(moment)
        clients = [moment for moment in moments if moment.session.backend_type != _WORKER]
        for moment in clients:
            self._clients.add(moment)
            self._count(moment)
            if moment.wait.startswith("io:"):
                self._waiting.add(moment)
        for table, name in names.items():
            word = re.compile(rf"\b{re.escape(name)}\b", re.IGNORECASE)
            if any(word.search(moment.session.query or "") for moment in clients):
                self._used.add(table)

    def _count(self, moment: Moment) -> None:
        if moment.wait == CPU.lower():
            self._running.add(moment)

    def conclude(self, case: Case) -> list[Diagnosis]:
        """Return a diagnosis for the table on which autovacuum works longest, if statements of clients name it."""
        if not self._used:
            return []
        table = max(self._used, key=lambda name: self._workers[name].seconds)
        part, among = self._workers[table], Ticks()
        among.join(self._clients)
        for workers in self._workers.values():
            among.join(workers)
        cpus, running = case.header.cpu_count, case.sessions(self._running)
        # The host's measurement is used if there is one, because samples show a part of the work as waits.
        busy = self._busy_s / self._seen_s if self._seen_s else running
        waiting = self._waiting.seconds / self._clients.seconds
        is_short = waiting >= _LEAST_WAITING or (cpus is not None and busy >= _BUSY * cpus)
        if part.seconds < LEAST_SHARE * among.seconds or not is_short:
            return []
        evidence = [
            number("workers of autovacuum on the table, on average", case.sessions(part)),
            number("processors in use, or active sessions without a wait", busy),
            number("of the clients' time waits for I/O", 100 * waiting, "%"),
        ]
        return [case.conclude("autovacuum", part, evidence, among=among, table=table)]


class StandbysBehind:
    """The rule for commits that wait for synchronous standbys which do not keep up with the WAL."""

    def __init__(self, header: RecordingHeader) -> None:
        self._needed, names = parse_standby_names(header.settings.get(STANDBY_NAMES, ""))
        self._has_names = bool(names)
        self._part = Tally()
        self._behind: list[float] = []
        self._name = ""
        self._now: float | None = None

    def see(self, sample: Sample, moments: Sequence[Moment]) -> None:
        """Take a sample. The distance of standbys is known from the last reading of pg_stat_replication."""
        rows, wal_bytes = sample.counters.get("pg_stat_replication"), sample.progress.wal_bytes
        if rows is not None and wal_bytes is not None and self._has_names:
            self._measure(rows, wal_bytes)
        waiting = [moment for moment in moments if moment.wait == "ipc:syncrep"]
        for moment in waiting:
            self._part.add(moment)
        if waiting and rows is not None and self._now is not None:
            self._behind.append(self._now)

    def _measure(self, rows: Sequence[CounterRow], wal_bytes: int) -> None:
        """Keep how far behind the last standby is that a commit needs; None if too few standbys stream."""
        distances = sorted(
            (wal_bytes - flushed, str(row.get("application_name")))
            for row in rows
            if row.get("state") == "streaming" and row.get("sync_state") in {"sync", "quorum"}
            if (flushed := parse_lsn(row.get("flush_lsn"))) is not None
        )
        self._now = None
        if len(distances) >= self._needed:
            self._now, self._name = distances[self._needed - 1]

    def conclude(self, case: Case) -> list[Diagnosis]:
        """Return a diagnosis if commits wait while a standby that they need is far behind."""
        if case.share(self._part) < LEAST_SHARE or not self._behind or median_low(self._behind) < _FAR_BYTES:
            return []
        evidence = [
            number("WAL that the standby has not flushed, median", median_low(self._behind) / MB, "MB"),
            number("WAL that the standby has not flushed, at most", max(self._behind) / MB, "MB"),
        ]
        if (rate := case.rates.wal_bytes_per_s) is not None:
            evidence.append(number("WAL", rate / MB, "MB/s"))
        return [case.conclude("standby-behind", self._part, evidence, name=self._name)]
