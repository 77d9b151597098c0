"""Rules for standbys, commits, and the locks and flushes of WAL."""

from __future__ import annotations

import re
from collections.abc import Sequence
from statistics import median_low
from typing import TYPE_CHECKING, TypeAlias

from penstock.core.units import MB, MIB, format_count, format_duration
from penstock.diagnose.batches import CommitMeter
from penstock.diagnose.rules.case import LEAST_SHARE, Case, change_setting, number
from penstock.watch.rates import Increase, parse_lsn
from penstock.watch.waits import (
    COMMIT_WAITS,
    LOCAL_FLUSH,
    SYNC_REP,
    ActivityTally,
    Moment,
    Shares,
    name_wait,
    spell_wait,
)

if TYPE_CHECKING:
    from penstock.core.values.device import CounterRow
    from penstock.core.values.diagnosis import Diagnosis
    from penstock.watch.values import RecordingHeader, Sample

# How many standbys a commit waits for, how many of them stream, and the names of those that do not.
Missing: TypeAlias = tuple[int, int, tuple[str, ...]]

STANDBY_NAMES = "synchronous_standby_names"

# The forms are FIRST 2 (a, b), ANY 1 (a, b), 2 (a, b), and a, b. The form a, b means 1 (a, b).
_LIST = re.compile(r"\s*(?:(?:(?:FIRST|ANY)\s+)?(\d{1,9})\s*\()?(.*)", re.IGNORECASE | re.DOTALL)
_NAME = re.compile(r'"((?:[^"]|"")*)"|([^\s,"()]+)')


# If at least _FEWEST_CLIENTS sessions are in transactions, the transactions are probably those of separate clients.
# commit_delay takes effect from _FEWEST_SIBLINGS on: five other sessions must be in a transaction (commit_siblings).
# Half of the time of a flush is the most effective delay. Source: runtime-config-wal.html
_FEWEST_CLIENTS = 4.0
_FEWEST_SIBLINGS = 6.0
_SMALLEST_DELAY_US, _LARGEST_DELAY_US = 100.0, 10_000.0


class CommitWaits:
    """The rule for waits for commits. Waits while standbys are missing are counted separately."""

    def __init__(self, header: RecordingHeader) -> None:
        self._header = header
        self._parts = {code: ActivityTally() for code in COMMIT_WAITS.values()}
        self._meter = CommitMeter(header.settings)
        self._missing: Missing | None = None
        self._without = ActivityTally()
        self._lost: Missing | None = None

    def see(self, sample: Sample, moments: Sequence[Moment]) -> None:
        """Add a sample. The last reading of pg_stat_replication shows which standbys are missing."""
        if (rows := sample.counters.get("pg_stat_replication")) is not None:
            self._missing = find_missing(self._header.settings.get(STANDBY_NAMES, ""), rows)
        for code, moment in self._meter.see(sample):
            self._count(code, moment)
        for moment in moments:
            if moment.wait == SYNC_REP != spell_wait(moment.session):
                # It waits behind such a commit.
                self._count("commit-standby", moment)

    def _count(self, code: str, moment: Moment) -> None:
        if code == "commit-standby" and self._missing is not None:
            self._lost = self._missing
            self._without.add(moment)
        else:
            self._parts[code].add(moment)

    def conclude(self, case: Case) -> list[Diagnosis]:
        """Return what commits wait for."""
        for code, moment in self._meter.end():
            self._count(code, moment)
        found = []
        if self._lost is not None and case.share(self._without) >= LEAST_SHARE:
            found.append(self._conclude_missing(case, self._lost))
        for code, part in self._parts.items():
            is_bulk = code == LOCAL_FLUSH and case.is_bulk
            if case.share(part) >= LEAST_SHARE and not is_bulk:
                found += self._conclude_commits(case, code, part)
        return found

    def _conclude_missing(self, case: Case, missing: Missing) -> Diagnosis:
        needed, present, lost = missing
        evidence = [
            number("standbys that a commit waits for", needed),
            number("such standbys that are streaming", present),
        ]
        setting = self._header.settings[STANDBY_NAMES]
        names = ", ".join(lost) or "any"
        return case.conclude("standby-missing", self._without, evidence, names=names, setting=setting)

    def _conclude_commits(self, case: Case, code: str, part: ActivityTally) -> list[Diagnosis]:
        rates, committers = case.rates, self._meter.result(case.rates).committers
        commit_s = now = rows = by = None
        sessions = 0.0
        if committers:
            first = committers[0]
            commit_s, now, rows, by = first.commit_s, first.rows_per_commit, first.enough_rows, first.rows_by
            sessions = first.sessions
        if rows is not None and now is not None and now >= rows:
            # Twice as many rows per commit would save less than a tenth of the time.
            return []
        how = "estimated from WAL" if by == "WAL" else f"by {by}" if by == "pg_stat_statements" else "counted"
        numbers = [
            ("active sessions on average", case.sessions(case.moments), ""),
            ("commits", rates.commits_per_s, "/s"),
            ("commits that wrote", rates.writes_per_s, "/s"),
            ("time for each commit", None if commit_s is None else 1000 * commit_s, "ms"),
            (f"rows per commit, {how}", now, ""),
            ("WAL", None if rates.wal_bytes_per_s is None else rates.wal_bytes_per_s / MB, "MB/s"),
        ]
        evidence = [number(name, value, unit) for name, value, unit in numbers if value is not None]
        batch = "more rows at a time"
        if rows is not None:
            batch = f"every {format_count(rows)} rows or more (from there, twice as many gain less than a tenth)"
        clients = _advise_clients(case.header, sessions, commit_s)
        return [case.conclude(code, part, evidence, batch=batch, clients=clients)]


def _advise_clients(header: RecordingHeader, sessions: float, commit_s: float | None) -> str:
    """Return advice for an application with this many sessions in transactions; empty if they are too few."""
    if (delay := header.settings.get("commit_delay", "0")) != "0":
        return f"commit_delay is {delay} microseconds, which each commit waits beside others: try without it."
    if sessions < _FEWEST_CLIENTS:
        return ""
    text = (
        "If each transaction is a client's own, it cannot be longer. Then put pg_wal on a volume with a shorter latency"
    )
    if sessions < _FEWEST_SIBLINGS:
        return f"{text}."
    delay_us = min(_LARGEST_DELAY_US, max(_SMALLEST_DELAY_US, 1e6 * (commit_s or 0.0) / 2))
    change = change_setting(header, "commit_delay", f"{delay_us:.0f}")
    return f"{text}, or let more of them share a flush: {change} (microseconds, about half of a flush)."


def find_missing(standby_names: str, standbys: Sequence[CounterRow]) -> Missing | None:
    """Return the standbys of synchronous_standby_names that pg_stat_replication does not show as streaming.

    Returns None if enough standbys stream, if the setting names no standby, or if the role may not see the rows.
    """
    needed, names = parse_standby_names(standby_names)
    if not names or any(row.get("state") is None for row in standbys):
        return None
    streaming = [row for row in standbys if row["state"] == "streaming" and row.get("sync_state") != "async"]
    if len(streaming) >= needed:
        return None
    present = {str(row.get("application_name")).lower() for row in streaming}
    lost = tuple(name for name in names if name != "*" and name.lower() not in present)
    return needed, len(streaming), lost


def parse_standby_names(value: str) -> tuple[int, tuple[str, ...]]:
    """Return how many standbys a commit waits for, and the names of the standbys that may acknowledge it.

    >>> parse_standby_names('ANY 2 (a1, "b-1", *)')
    (2, ('a1', 'b-1', '*'))
    >>> parse_standby_names("a, b")
    (1, ('a', 'b'))
    """
    found = _LIST.fullmatch(value)
    assert found is not None
    names = tuple((quoted or "").replace('""', '"') or plain for quoted, plain in _NAME.findall(found[2]))
    return int(found[1] or 1), names


# A standby whose distance from the primary is more than one segment of WAL does not replay as fast as the primary
# writes. A standby with a smaller distance acknowledges each commit after a round trip.
_FAR_BYTES = 16 * MIB


_REPLAY = (
    "it has the WAL and does not replay it, which commits wait for with synchronous_commit = remote_apply: if "
    "pg_is_wal_replay_paused() there, SELECT pg_wal_replay_resume(); else a query there may be in the way "
    "(max_standby_streaming_delay)"
)

# A standby stalls if it flushes nothing for so long while commits wait for it.
_STALLED_S = 3.0


class StandbysBehind:
    """The rule for commits that wait for synchronous standbys that replay WAL too slowly."""

    def __init__(self, header: RecordingHeader) -> None:
        self._needed, names = parse_standby_names(header.settings.get(STANDBY_NAMES, ""))
        self._has_names = bool(names)
        self._part = ActivityTally()
        self._behind: list[float] = []
        self._name = ""
        self._now: float | None = None
        # The position of that standby with the time since which it is there, and how long it has stayed there while
        # sessions waited.
        self._flushed: tuple[object, float] = (None, 0.0)
        self._stalled_s = self._longest_s = 0.0
        self._lags = ""
        # WAL in bytes that this standby has flushed and not replayed.
        self._unreplayed = 0

    def see(self, sample: Sample, moments: Sequence[Moment]) -> None:
        """Add a sample. The last reading of pg_stat_replication shows how far behind the standbys are."""
        rows, wal_bytes = sample.counters.get("pg_stat_replication"), sample.progress.wal_bytes
        waiting = [moment for moment in moments if moment.wait == SYNC_REP]
        if rows is not None and wal_bytes is not None and self._has_names:
            self._measure(rows, wal_bytes, sample.at_s, is_waited_for=bool(waiting))
        for moment in waiting:
            self._part.add(moment)
        if waiting and rows is not None and self._now is not None:
            self._behind.append(self._now)
            self._longest_s = max(self._longest_s, self._stalled_s)

    def _measure(self, rows: Sequence[CounterRow], wal_bytes: int, at_s: float, *, is_waited_for: bool) -> None:
        """Record how much WAL, in bytes, the slowest of the needed standbys has not flushed. None if too few stream."""
        distances = sorted(
            (wal_bytes - flushed, str(row.get("application_name")))
            for row in rows
            if row.get("state") == "streaming" and row.get("sync_state") in {"sync", "quorum"}
            if (flushed := parse_lsn(row.get("flush_lsn"))) is not None
        )
        self._now = None
        if len(distances) >= self._needed:
            self._now, self._name = distances[self._needed - 1]
            row = next(row for row in rows if str(row.get("application_name")) == self._name)
            self._see_standby(row, at_s, is_waited_for=is_waited_for)

    def _see_standby(self, row: CounterRow, at_s: float, *, is_waited_for: bool) -> None:
        """Record how far a standby has come. One that stays where it is, although commits wait for it, stalls."""
        flushed, replayed = row.get("flush_lsn"), row.get("replay_lsn")
        if flushed != self._flushed[0] or not is_waited_for:
            self._flushed = flushed, at_s
        self._stalled_s = at_s - self._flushed[1]
        self._unreplayed = (parse_lsn(flushed) or 0) - (parse_lsn(replayed) or parse_lsn(flushed) or 0)
        known = [(what, row.get(f"{what}_lag")) for what in ("write", "flush", "replay")]
        self._lags = ", ".join(f"{what} lag {lag}" for what, lag in known if lag is not None)

    def conclude(self, case: Case) -> list[Diagnosis]:
        """Return a diagnosis if commits wait while a standby that they need is far behind."""
        is_far = bool(self._behind) and median_low(self._behind) >= _FAR_BYTES
        is_stalled = self._longest_s >= _STALLED_S
        if case.share(self._part) < LEAST_SHARE or not (is_far or is_stalled):
            return []
        evidence = [
            number("WAL that the standby has not flushed, median", median_low(self._behind) / MB, "MB"),
            number("WAL that the standby has not flushed, at most", max(self._behind) / MB, "MB"),
        ]
        if (rate := case.rates.wal_bytes_per_s) is not None:
            evidence.append(number("WAL", rate / MB, "MB/s"))
        if is_stalled:
            evidence.append(number("it has flushed nothing while commits waited for it, for", self._longest_s, "s"))
        lags = f" ({self._lags})" if self._lags else ""
        then = "it has stopped, so no commit returns until it goes on" if is_stalled else "less WAL does"
        if is_stalled and self._unreplayed > 0 and self._behind[-1] < self._unreplayed:
            # It has all WAL, so commits wait for its replay (synchronous_commit = remote_apply).
            evidence.append(number("WAL that it has flushed and not replayed", self._unreplayed / MB, "MB"))
            then = _REPLAY
        return [case.conclude("standby-behind", self._part, evidence, name=self._name, lags=lags, then=then)]


# A wait in a shorter transaction is a wait for its commit, which another rule examines.
_LEAST_TRANSACTION_S = 1.0

# Waits while WAL is written, flushed or given a new segment, and waits for another session that does one of these
# (PostgreSQL's wait_event_names.txt).
_WAL = frozenset(
    (
        *("io:walwrite", "io:walsync", "io:walinitwrite", "io:walinitsync", "io:walsyncmethodassign"),
        *("lwlock:walwrite", "lwlock:walinsert", "lwlock:walbufmapping"),
    )
)

# Waits for a lock on the content of a buffer. PostgreSQL 19 has a wait event for each mode of the lock, and earlier
# versions only have LWLock:BufferContent. All of them count as one lock.
_BUFFER_LOCKS = frozenset(("buffer:buffershared", "buffer:buffershareexclusive", "buffer:bufferexclusive"))
_BUFFER_LOCK = "Buffer (LWLock:BufferContent before PostgreSQL 19)"


class IoWaits:
    """Counts waits for I/O of tables and indexes, and for the writing or flushing of WAL. Several rules share them.

    Waits for WAL of short transactions are separate, because they may be waits for commits.
    """

    def __init__(self) -> None:
        self.data = ActivityTally()
        # The same by wait event.
        self.kinds = Shares()
        self.long = ActivityTally()
        self._short = ActivityTally()

    def see(self, moments: Sequence[Moment]) -> None:
        """Count the sessions of a sample that wait for I/O or WAL.

        Call this before the rules see the same sample, because they read the sums.
        """
        for moment in moments:
            if moment.wait.startswith(("io:datafile", "io:aio", "io:slru")) or moment.wait == "ipc:bufferio":
                self.data.add(moment)
                self.kinds.add(name_wait(moment.session), moment.weight_s)
            elif moment.wait in _WAL:
                is_long = (moment.session.transaction_s or 0.0) >= _LEAST_TRANSACTION_S
                (self.long if is_long else self._short).add(moment)

    def join_wal_to(self, part: ActivityTally, *, is_all: bool) -> None:
        """Add the waits for WAL of long transactions to `part`; if `is_all` is true, also those of short ones."""
        part.join(self.long)
        if is_all:
            part.join(self._short)


# Below this part of the WAL, full-page images are not worth a word. So many checkpoints are not typed by anybody.
_FEW_IMAGES = 0.05
_FEWEST_FORCED = 3
_BLOCK_BYTES = 8192

# Source: RDS User Guide, "Using a dedicated log volume (DLV)".
_LOG_VOLUME = (
    " (on RDS the dedicated log volume of an instance with io1 or io2: 1,024 GiB and 3,000 IOPS; PostgreSQL 13.10, "
    "14.7, 15.2, 16 and later; AWS recommends it from 5 TiB on, and the change copies the WAL, with downtime: "
    "aws rds modify-db-instance --dedicated-log-volume)"
)


class WalWrites:
    """The rule for transactions that wait while their WAL is written because they are long or large."""

    def __init__(self, io: IoWaits) -> None:
        self._io = io
        self._images, self._wal_bytes, self._requested = Increase(), Increase(), Increase()

    def see(self, sample: Sample, moments: Sequence[Moment]) -> None:  # noqa: ARG002 (a rule's signature)
        """Add a sample's counters of WAL and of checkpoints. IoWaits counts the waits."""
        for row in sample.counters.get("pg_stat_wal", ()):
            self._images.see(row.get("wal_fpi"))
            self._wal_bytes.see(row.get("wal_bytes"))
        for view, column in (("pg_stat_checkpointer", "num_requested"), ("pg_stat_bgwriter", "checkpoints_req")):
            for row in sample.counters.get(view, ()):
                self._requested.see(row.get(column))

    def conclude(self, case: Case) -> list[Diagnosis]:
        """Return a diagnosis if such transactions wait for WAL."""
        part = ActivityTally()
        self._io.join_wal_to(part, is_all=case.is_bulk)
        if case.share(part) < LEAST_SHARE:
            return []
        rate = case.rates.wal_bytes_per_s
        evidence = [number("sessions that wait for WAL, on average", case.sessions(part))]
        evidence += [] if rate is None else [number("WAL", rate / MB, "MB/s")]
        is_rds = "rds.extensions" in case.header.settings and case.header.flavour != "aurora"
        words = {
            "log_volume": _LOG_VOLUME if is_rds else "",
            "images": "wal_compression makes full-page images smaller." if self._has_images else "",
            "forced": self._describe_forced(case),
        }
        return [case.conclude("wal-write", part, evidence, among=None, **words)]

    @property
    def _has_images(self) -> bool:
        """Return whether full-page images are more than a small part of the WAL, or their part is not known."""
        return not self._wal_bytes.total or self._images.total * _BLOCK_BYTES >= _FEW_IMAGES * self._wal_bytes.total

    def _describe_forced(self, case: Case) -> str:
        """Return a sentence about checkpoints that WAL forces, if that costs little."""
        if self._has_images or self._requested.total < _FEWEST_FORCED:
            return ""
        return (
            f"{self._requested.total} checkpoints were forced in {format_duration(case.counted_s)} by max_wal_size "
            f"{case.header.settings.get('max_wal_size')}; there are no full-page images, so raising it gains little."
        )


def _advise_lock(header: RecordingHeader, name: str) -> str:
    """Return how to need one of the server's internal locks less."""
    if "lockmanager" in name.lower():
        slots = (
            "a larger max_locks_per_transaction, at a restart, has more of these"
            if header.version_num >= 180_000
            else "before PostgreSQL 18 a session has 16 of these, later as many as max_locks_per_transaction"
        )
        return (
            "Each statement locks all tables and indexes that it may need, and those beyond a session's own fast-path "
            "slots go through this lock. Name the partition key in the WHERE, so that other partitions are not opened; "
            f"keep plans, by prepared statements; drop indexes that nobody uses; {slots}."
        )
    if "subtrans" in name.lower():
        return (
            "Snapshots look up the savepoints of a transaction that has more than 64 of them: find it (idle in "
            "transaction, or a function with EXCEPTION in a loop), have it commit sooner, or use fewer savepoints."
        )
    if "multixact" in name.lower():
        return (
            "Several sessions lock the same rows at a time (FOR SHARE, or the keys that inserted rows refer to): "
            "commit sooner, so that fewer hold them together, and VACUUM the table."
        )
    if "buffercontent" in name.lower():
        return (
            "All of them want one page. If it is a sequence's (nextval), ALTER SEQUENCE ... CACHE 100 has each session "
            "take so many numbers at once; if it is the last page of an index on rising numbers or times, spread the "
            "rows by partitions; a row that all update, by several rows. Otherwise let fewer sessions do it at a time."
        )
    return "Let fewer sessions do the same at a time, by a pool in front of the server."


class InternalLocks:
    """The rule for sessions that wait for one of the server's internal locks, such as LWLock:BufferMapping."""

    def __init__(self) -> None:
        self._parts: dict[str, tuple[str, ActivityTally]] = {}
        self._extending = ActivityTally()

    def see(self, sample: Sample, moments: Sequence[Moment]) -> None:  # noqa: ARG002 (a rule's signature)
        for moment in moments:
            if moment.wait == "lock:extend":
                self._extending.add(moment)
            elif moment.wait in _BUFFER_LOCKS:
                _, part = self._parts.setdefault("buffer", (_BUFFER_LOCK, ActivityTally()))
                part.add(moment)
            elif moment.wait.startswith("lwlock:") and moment.wait not in _WAL:
                _, part = self._parts.setdefault(moment.wait, (name_wait(moment.session), ActivityTally()))
                part.add(moment)

    def conclude(self, case: Case) -> list[Diagnosis]:
        """Return a diagnosis for the lock that sessions wait for most, and for waits for the growth of tables."""
        found = []
        if case.share(self._extending) >= LEAST_SHARE:
            evidence = [number("sessions that wait to extend a table, on average", case.sessions(self._extending))]
            found.append(case.conclude("relation-extension", self._extending, evidence))
        if self._parts:
            name, part = max(self._parts.values(), key=lambda each: each[1].seconds)
            if case.share(part) >= LEAST_SHARE:
                evidence = [number("sessions that wait for it, on average", case.sessions(part))]
                way = _advise_lock(case.header, name)
                found.append(case.conclude("lwlock-contention", part, evidence, name=name, way=way))
        return found
