"""The rule for autovacuum that hinders a workload: by a lock, or by using processors or I/O that are short."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from penstock.core.units import MB, format_count, format_duration
from penstock.core.values.names import spell_name
from penstock.diagnose.rules.case import LEAST_SHARE, Case, change_setting, number
from penstock.diagnose.rules.host import BUSY
from penstock.watch.holders import CANCEL, describe_old_holder, end_backend, is_same, read_int
from penstock.watch.rates import Increase
from penstock.watch.waits import CPU, ActivityTally, Moment, Ticks, is_active, moment_of, weight_of

if TYPE_CHECKING:
    from penstock.core.values.device import CounterRow
    from penstock.core.values.diagnosis import Diagnosis, Evidence
    from penstock.diagnose.rules.host import Host
    from penstock.watch.risks import RiskMeter
    from penstock.watch.values import Sample, SessionSample

# Autovacuum takes processors from clients if processors are busy, and I/O if at least this share of the clients'
# sessions waits for I/O.
_LEAST_WAITING = 0.3

_WORKER = "autovacuum worker"
_ASLEEP = "timeout:vacuumdelay"
# pg_stat_activity shows "autovacuum: VACUUM ANALYZE public.orders (to prevent wraparound)". Names in it are not quoted.
_VACUUMED = re.compile(
    r"autovacuum: (?:VACUUM ANALYZE|VACUUM|ANALYZE) ([^.]+)\.(.+?)( \(to prevent wraparound\))?", re.DOTALL
)

# The backend type of clients' sessions in pg_stat_io (PostgreSQL 16 and later), and the operations whose bytes are
# counted.
_CLIENT = "client backend"
_MOVES = ("read", "write", "extend")

# The ratio of autovacuum's bytes to the clients' bytes is not shown above this value, because the clients may have
# moved hardly any bytes.
_MANY = 100.0


class Autovacuum:
    """The rule for autovacuum that hinders a workload: by a lock, or by using processors or I/O that are short."""

    def __init__(self, seen: RiskMeter, host: Host) -> None:
        self._seen, self._host = seen, host
        self._workers: dict[str, ActivityTally] = {}
        self._blocked: dict[str, ActivityTally] = {}
        self._used: set[str] = set()
        self._wraparound: set[str] = set()
        # For each table, its worker in the last sample that shows it, and when that was taken.
        self._last_seen: dict[str, tuple[SessionSample, float]] = {}
        self._progress: dict[str, list[tuple[float, CounterRow]]] = {}
        self._moved = {_CLIENT: Increase(), _WORKER: Increase()}
        self._clients, self._waiting = Ticks(), Ticks()
        self._running = Ticks()
        self._tick = -1

    def see(self, sample: Sample, moments: Sequence[Moment]) -> None:
        """Add a sample. It has autovacuum's workers even if the workload is only the sessions of one application."""
        self._tick += 1
        self._see_io(sample.counters.get("pg_stat_io", ()))
        names = self._see_workers(sample)
        clients = [moment for moment in moments if moment.session.backend_type != _WORKER]
        for moment in clients:
            self._clients.add(moment)
            self._count(moment)
            if moment.wait.startswith("io:"):
                self._waiting.add(moment)
        for table, (pid, name) in names.items():
            blocked = _find_blocked(sample, pid)
            for moment in clients:
                if moment.session.pid in blocked:
                    self._blocked.setdefault(table, ActivityTally()).add(moment)
            word = re.compile(rf"\b{re.escape(name)}\b", re.IGNORECASE)
            if any(word.search(moment.session.query or "") for moment in clients):
                self._used.add(table)

    def _see_workers(self, sample: Sample) -> dict[str, tuple[int, str]]:
        """Count the workers that do not sleep. Return their tables, with the worker's pid and the name without schema.

        A worker that sleeps uses nothing, and gives up its lock if others wait for it. A worker that prevents
        wraparound keeps the lock, so its table is returned even while it sleeps.
        """
        names = {}
        for session in sample.sessions:
            found = _VACUUMED.fullmatch(session.query or "") if session.backend_type == _WORKER else None
            if found is None or not is_active(session):
                continue
            schema, name, wraparound = found.groups()
            table = spell_name(schema, name)
            moment = moment_of(session, self._tick, weight_of(sample))
            tally = self._workers.setdefault(table, ActivityTally())
            if wraparound:
                self._wraparound.add(table)
            self._last_seen[table] = session, sample.at_s
            if wraparound or moment.wait != _ASLEEP:
                names[table] = (session.pid, name)
            if moment.wait != _ASLEEP:
                tally.add(moment)
                self._count(moment)
        tables = {pid: table for table, (pid, _) in names.items()}
        for row in sample.counters.get("pg_stat_progress_vacuum", ()):
            if (seen := tables.get(read_int(row, "pid"))) is not None:
                self._progress.setdefault(seen, [])[1:] = [(sample.at_s, row)]
        return names

    def _see_io(self, rows: Sequence[CounterRow]) -> None:
        for kind, increase in self._moved.items() if rows else ():
            increase.see(sum(_moved_bytes(row) for row in rows if row.get("backend_type") == kind))

    def _count(self, moment: Moment) -> None:
        if moment.wait == CPU.lower():
            self._running.add(moment)

    def conclude(self, case: Case) -> list[Diagnosis]:
        """Return a diagnosis for the table on which autovacuum hinders the workload most."""
        among = Ticks()
        among.join(self._clients)
        for workers in self._workers.values():
            among.join(workers)
        blocking = [table for table in self._wraparound if table in self._blocked]
        if blocking:
            table = max(blocking, key=lambda name: self._blocked[name].seconds)
            if self._blocked[table].seconds >= LEAST_SHARE * among.seconds:
                return [self._conclude_wraparound(case, table, self._blocked[table], among, [])]
        if not self._workers:
            return []
        more = self._io_ratio()
        known = self._used & self._workers.keys() if more is None else self._workers.keys()
        table = max(known, key=lambda name: self._workers[name].seconds, default="")
        waiting, busy = self._waiting.seconds / (self._clients.seconds or 1.0), self._busy(case)
        cpus = case.header.cpu_count
        is_short = waiting >= _LEAST_WAITING or (cpus is not None and busy >= BUSY * cpus)
        part = self._workers.get(table, ActivityTally())
        if not table or not self._clients.seconds or part.seconds < LEAST_SHARE * among.seconds or not is_short:
            return []
        evidence = [
            number("workers of autovacuum on the table, on average", case.sessions(part)),
            number("processors in use, or active sessions without a wait", busy),
            number("of the clients' time waits for I/O", 100 * waiting, "%"),
        ]
        if table in self._wraparound:
            return [self._conclude_wraparound(case, table, part, among, evidence)]
        if more is None or (table in self._used and self._last(table).get("n_tup_changed") != 0):
            return [case.conclude("autovacuum", part, evidence, among=among, table=table)]
        times = f"{more:.1f} times as much as" if more < _MANY else "far more than"
        moved = number("read and written by autovacuum", self._moved[_WORKER].total / case.counted_s / MB, "MB/s")
        words = {"table": table, "times": times, "less": _less_to_do(table, self._last(table))}
        return [case.conclude("autovacuum-io", part, [*evidence, moved], among=among, **words)]

    def _busy(self, case: Case) -> float:
        # Prefer the host's measurement, because samples show a part of the work as waits.
        return case.sessions(self._running) if self._host.busy is None else self._host.busy

    def _io_ratio(self) -> float | None:
        """Return how many times the clients' bytes autovacuum reads and writes; None if below 1, or not known."""
        own, clients = self._moved[_WORKER].total, self._moved[_CLIENT].total
        return own / max(1, clients) if own > clients else None

    def _last(self, table: str) -> CounterRow:
        readings = self._progress.get(table)
        return readings[-1][1] if readings else {}

    def _conclude_wraparound(
        self, case: Case, table: str, part: ActivityTally, among: Ticks, evidence: Sequence[Evidence]
    ) -> Diagnosis:
        row, freezes_at = self._last(table), self._seen.number("autovacuum_freeze_max_age")
        worker, at_s = self._last_seen[table]
        words = {
            "table": table,
            "progress": _describe_progress(row, self._progress.get(table, [])),
            "end": end_backend(CANCEL, worker.pid, is_same(worker, case.header.time_of(at_s))),
            "held": ""
            if freezes_at is None
            else describe_old_holder(self._seen.rows("xmin_holders"), freezes_at, case.header.database),
            "set_delay": change_setting(case.header, "autovacuum_vacuum_cost_delay", "0"),
            "less": _less_to_do(table, row),
        }
        ages = list(_read_ages(row, self._seen))
        return case.conclude("autovacuum-wraparound", part, [*ages, *evidence], among=among, **words)


def _find_blocked(sample: Sample, pid: int) -> set[int]:
    """Return the sessions that wait for a lock of this backend, or behind such a session."""
    found = {pid}
    while more := {each.pid for each in sample.sessions if found.intersection(each.blocked_by)} - found:
        found |= more
    return found - {pid}


def _moved_bytes(row: CounterRow) -> int:
    """Return the bytes that a row of pg_stat_io counts. Before PostgreSQL 18, they are operations times op_bytes."""
    counted = [read_int(row, f"{move}_bytes") for move in _MOVES]
    return sum(counted) or sum(read_int(row, f"{move}s") for move in _MOVES) * read_int(row, "op_bytes")


def _read_ages(row: CounterRow, seen: RiskMeter) -> Iterator[Evidence]:
    """Yield the ages of the table that are known, each with its limit."""
    kinds = [("xid_age", "transactions", "autovacuum_freeze_max_age")]
    kinds.append(("mxid_age", "multixacts", "autovacuum_multixact_freeze_max_age"))
    for column, what, setting in kinds:
        age, limit = read_int(row, column), seen.number(setting)
        if limit is not None and age >= limit:
            yield number(f"age of the table in {what}", age)
            yield number(setting, limit)


def _describe_progress(row: CounterRow, readings: Sequence[tuple[float, CounterRow]]) -> str:
    """Return the phase of a VACUUM, which part of it is done, and how long the rest of the phase will take."""
    phase, total = row.get("phase"), read_int(row, "heap_blks_total")
    column = "heap_blks_vacuumed" if phase == "vacuuming heap" else "heap_blks_scanned"
    if phase is None or not total:
        return "whose progress no sample shows"
    done, text = read_int(row, column), f"{phase}, {read_int(row, column) / total:.0%} of {format_count(total)} pages"
    (first_s, first), (last_s, _) = readings[0], readings[-1]
    before = read_int(first, column)
    if done > before and last_s > first_s and first.get("phase") == phase:
        text += f", {format_duration((total - done) * (last_s - first_s) / (done - before))} left at this rate"
    return text


def _less_to_do(table: str, row: CounterRow) -> str:
    """Return advice by which autovacuum has less to do on this table the next time."""
    if row.get("n_tup_changed") == 0:
        return (
            "Rows of this table are only inserted: load them frozen (penstock load --freeze always, or COPY FREEZE), so"
            f" that nothing is left to freeze. For what is there: ALTER TABLE {table} SET (autovacuum_freeze_min_age ="
            " 0), so that each earlier VACUUM freezes what it visits."
        )
    return (
        f"Let it come more often, with less to do each time: ALTER TABLE {table} SET (autovacuum_vacuum_scale_factor = "
        "0.02), and autovacuum_freeze_min_age for rows that no longer change."
    )
