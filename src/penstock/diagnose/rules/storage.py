"""Rules for sessions that wait for the volume with the data, or for temporary files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from statistics import median
from typing import TYPE_CHECKING, TypeVar

from penstock.core.units import KIB, MB, format_bytes, format_duration
from penstock.core.values.device import LOCAL_STORAGE, CounterRow, VolumeLimits, count_bytes
from penstock.diagnose.rules.case import LEAST_SHARE, Case, bounded, number
from penstock.diagnose.rules.limits import DeviceIntervals, Interval, MetricIntervals, find_ceiling, forecast_balance
from penstock.diagnose.uses import read_balance
from penstock.watch.devices import DATA, DeviceUse, local_metrics, time_until_full
from penstock.watch.rates import DatabaseIncrease, Increase
from penstock.watch.waits import ActivityTally, Moment, is_build

if TYPE_CHECKING:
    from penstock.core.values.diagnosis import Diagnosis, Evidence
    from penstock.diagnose.rules.background import IoWaits
    from penstock.watch.risks import RiskMeter
    from penstock.watch.values import RecordingHeader, Sample

_MOST_OF_THE_TIME = 0.5

# If at least this share of the time is waits for I/O, the waits are reported even if the volume is not known to be at a
# limit.
_LEAST_WITHOUT_LIMIT = 0.2

_WAITS_SHOWN = 3

# The name of an RDS instance's volumes in a diagnosis. Outside of RDS, these devices have no names.
_RDS_STORAGE = "the instance's storage"

# A burst balance that lasts longer than this is not reported.
_SOON_S = 4 * 3600.0

# If a device is busy for less than this part of the time that sessions wait for it, the operating system's cache serves
# most of the reads.
_CACHED = 0.25

_BLOCK_BYTES = 8192

# An index costs random reads if, for each changed row, at least this many blocks of the index are read.
_LEAST_READS = 0.2

# Indexes are the cause of reads only if at least this part of all blocks that were read is of indexes. An index that is
# searched more often than rows change is not the cause either, because its blocks are read for searches.
_MOST_READS = 0.5

# In IPC:BufferIO, a session waits for a block that another session is reading.
_READ = frozenset(("io:datafileread", "io:aioiocompletion", "io:datafileprefetch", "ipc:bufferio"))

_Key = TypeVar("_Key")


class DataVolume:
    """The rule for sessions that wait for a volume that serves as many requests, or bytes, as it can.

    Waits for WAL count if pg_wal is on the same device, or if its device is not known. CloudWatch's metrics are used
    for RDS, because its devices cannot be read.
    """

    def __init__(self, io: IoWaits, header: RecordingHeader) -> None:
        self._io = io
        self._devices = DeviceIntervals()
        self._metrics = MetricIntervals(header.started_at)

    def see(self, sample: Sample, moments: Sequence[Moment]) -> None:  # noqa: ARG002 (a rule's signature)
        data_s, wal_s = self._io.data.seconds, self._io.long.seconds
        self._devices.see(sample, data_s=data_s, wal_s=wal_s)
        self._metrics.see(sample, data_s + wal_s)

    def conclude(self, case: Case) -> list[Diagnosis]:
        """Return a diagnosis if sessions wait for a volume at its limit, and one if its burst balance runs out."""
        limits, device = case.header.volume, self._devices.device_of.get(DATA)
        intervals = self._devices.by_device.get(device or "", [])
        if device is None and (intervals := self._metrics.intervals()):
            device, limits = _RDS_STORAGE, _with_balance(limits, self._metrics.rows.values())
        part = ActivityTally()
        part.join(self._io.data)
        if self._devices.has_wal:
            self._io.join_wal_to(part, is_all=case.is_bulk)
        if not part.count:
            return []
        if device is None:
            return self._report_waits(case, intervals)
        found = []
        ceiling = find_ceiling(intervals, limits)
        # A steady rate is taken for a limit only if sessions wait for I/O most of the time.
        least = LEAST_SHARE if limits is not None else _MOST_OF_THE_TIME
        if ceiling is not None and case.share(part) >= least:
            evidence = _describe(ceiling.intervals)
            found.append(case.conclude(ceiling.code, part, evidence, device=device, reached=ceiling.reached))
        if (left := forecast_balance(intervals, limits)) is not None and limits is not None and left[0] < _SOON_S:
            evidence = [number("sustained IOPS of the volume", limits.iops or 0.0), *_describe(intervals)]
            iops = f"{limits.iops:,}"
            found.append(case.conclude("volume-balance", part, evidence, device=device, when=left[1], iops=iops))
        return found or self._report_waits(case, intervals)

    def _report_waits(self, case: Case, intervals: Sequence[Interval]) -> list[Diagnosis]:
        """Return a diagnosis of the waits alone, for a volume that cannot be seen or is not at a limit."""
        if case.share(self._io.data) < _LEAST_WITHOUT_LIMIT:
            return []
        why = "cannot tell if the volume is at its limit"
        remedy = (
            "Record where the volume can be seen: on the server's machine, or on RDS for more than five minutes, with "
            "the right to read CloudWatch's metrics. penstock storage show has them afterwards."
        )
        seen = _describe(intervals)
        if intervals and self._is_cached(case, intervals):
            busy = median(each.rates.busy for each in intervals)
            seen.append(number("of the time the device is busy", 100 * busy, "%"))
            why = "the device is nearly idle, so the operating system's cache serves most of them"
            remedy = "Another volume does not help: larger shared_buffers spare the copies from that cache."
        elif intervals:
            why = "the volume is not seen to be at a limit, so the time of each request counts"
            remedy = "Use a volume with a shorter latency, or more sessions at a time if processors are idle."
        waits = [
            number(f"of active time in {part.name}", 100 * case.share(self._io.data) * part.share, "%")
            for part in self._io.kinds.parts(1.0)[:_WAITS_SHOWN]
        ]
        return [case.conclude("data-io", self._io.data, [*waits, *seen], why=why, remedy=remedy)]

    def _is_cached(self, case: Case, intervals: Sequence[Interval]) -> bool:
        """Return whether the device is too idle to explain the waits. Return False if only CloudWatch measures it."""
        if self._devices.device_of.get(DATA) is None:
            return False
        return median(each.rates.busy for each in intervals) < _CACHED * min(1.0, case.sessions(self._io.data))


def _with_balance(limits: VolumeLimits | None, rows: Iterable[CounterRow]) -> VolumeLimits | None:
    """Return the limits of RDS's storage. The burst balance is the earliest that CloudWatch reports."""
    share = read_balance(rows)
    if limits is None or limits.burst_ios is None or share is None:
        return limits
    return replace(limits, balance_ios=share * limits.burst_ios)


def _describe(intervals: Sequence[Interval]) -> list[Evidence]:
    seen = [each.rates for each in intervals]
    figures: list[tuple[str, str, list[float]]] = [
        ("reads per second", "", [each.read_iops for each in seen]),
        ("writes per second", "", [each.write_iops for each in seen]),
        ("read and written", "MB/s", [count_bytes(each) / MB for each in seen]),
        ("size of a request", "KiB", [each.request_bytes / KIB for each in seen if each.request_bytes]),
        ("requests in the queue", "", [each.queue for each in seen]),
        ("read latency", "ms", [1000 * each.read_latency_s for each in seen if each.read_latency_s]),
        ("write latency", "ms", [1000 * each.write_latency_s for each in seen if each.write_latency_s]),
    ]
    return [number(name, median(values), unit) for name, unit, values in figures if values]


class IndexReads:
    """The rule for sessions that wait for reads of index blocks, because the indexes do not fit into memory."""

    def __init__(self, io: IoWaits) -> None:
        self._io = io
        self._part = ActivityTally()
        # The blocks that sessions have written to make room for others, and before PostgreSQL 16 also new ones.
        self._evicted = Increase()
        self._written = Increase()
        self._reads: dict[tuple[str, str], Increase] = {}
        self._scans: dict[tuple[str, str], Increase] = {}
        self._rows: dict[str, Increase] = {}
        self._all_reads = DatabaseIncrease("blks_read")
        self._is_read = False

    def see(self, sample: Sample, moments: Sequence[Moment]) -> None:
        rows = sample.counters.get("pg_statio_user_indexes")
        for row in rows or ():
            table = f"{row.get('schemaname')}.{row.get('relname')}"
            key = (table, str(row.get("indexrelname")))
            self._count(self._reads, key, row.get("idx_blks_read"))
            self._count(self._scans, key, row.get("idx_scan"))
            self._count(self._rows, table, row.get("n_tup_changed"))
        self._is_read = self._is_read or rows is not None
        self._all_reads.see(sample)
        for row in sample.counters.get("pg_stat_bgwriter", ()):
            self._written.see(row.get("buffers_backend"))
        for row in filter(_is_eviction, sample.counters.get("pg_stat_io", ())):
            self._evicted.see(row.get("writes"))
        for moment in moments:
            if moment.wait in _READ:
                self._part.add(moment)

    def _count(self, counters: dict[_Key, Increase], key: _Key, value: object) -> None:
        if key not in counters:
            counters[key] = Increase()
            # Tables without changed rows are not sampled, so the counters of an index that appears later began at 0.
            if self._is_read:
                counters[key].see(0)
        counters[key].see(value)

    def conclude(self, case: Case) -> list[Diagnosis]:
        """Return a diagnosis that names the index with the most reads, if these reads are due to changed rows."""
        if not self._reads:
            return []
        (table, index), reads = max(self._reads.items(), key=lambda item: item[1].total)
        evicted = self._evicted.total or self._written.total
        is_evicting = evicted >= _LEAST_READS * max(1, self._rows[table].total)
        if is_evicting:
            # A changed block can be written only when its WAL has been flushed.
            self._io.join_wal_to(self._part, is_all=True)
        if case.share(self._part) < LEAST_SHARE:
            return []
        rows, scans = self._rows[table].total, self._scans[table, index].total
        of_indexes = sum(each.total for each in self._reads.values())
        all_reads: float = self._all_reads.total
        if case.io is not None and case.io.read_bytes is not None:
            # Leave out the reads of other sessions, which are not part of this workload.
            all_reads = max(of_indexes, case.io.read_bytes / _BLOCK_BYTES)
        is_most = of_indexes >= _MOST_READS * all_reads
        if not rows or reads.total / rows < _LEAST_READS or scans > rows or not is_most:
            return []
        evidence = [
            number("blocks of it read for each row", reads.total / rows),
            number("rows inserted, updated or deleted", rows),
        ]
        if all_reads:
            evidence.append(number("of all blocks read are of indexes", 100 * of_indexes / all_reads, "%"))
        if is_evicting:
            evidence.append(number("blocks that sessions write for each row, to make room", evicted / rows))
        room = ", for which changed blocks must be written, after their WAL" if is_evicting else ""
        found = case.conclude("index-reads", self._part, evidence, index=index, table=table, room=room)
        # An index less also leaves less WAL, and less to compute.
        is_bounded = all_reads and not is_evicting
        return [bounded(found, min(1.0, reads.total / all_reads)) if is_bounded else found]


def _is_eviction(row: CounterRow) -> bool:
    """Return whether a row of pg_stat_io counts what sessions write because shared buffers have no free block."""
    return (row.get("backend_type"), row.get("object"), row.get("context")) == ("client backend", "relation", "normal")


# Wait events of spills and of files shared by parallel workers (PostgreSQL's wait_event_names.txt).
_SPILL_WAITS = frozenset(("io:buffileread", "io:buffilewrite", "io:buffiletruncate"))

# If a device is busy for this share of the time, sessions wait for the device.
_BUSY = 0.8

_KINDS = ("Write", "Read")

# A statement has failed at temp_file_limit if it had written this part of it. The last file may be small.
_MOST_OF_LIMIT = 0.8
# The limit is for each process, and a statement may have parallel workers.
_WELL_ABOVE_LIMIT = 4.0

# Report a device with less than this share free, or one that will be full within this time at the measured rate.
_LEAST_FREE = 0.1
_FULL_SOON_S = 600.0

# A device was full if less than this share was free. The free space is reserved, or a failed statement has released it.
_FULL = 0.01


class TemporaryWork:
    """The rule for sessions that wait for temporary files, and for disks with such files that run out of space."""

    def __init__(self, seen: RiskMeter) -> None:
        self._seen = seen
        self._spilling = ActivityTally()
        self._most_bytes: dict[str, float] = {}
        self._pids: dict[str, set[object]] = {}
        self._any_pids: set[object] = set()
        self._users: dict[str, ActivityTally] = {}
        self._anyone = ActivityTally()
        self._storage: list[CounterRow] = []
        self._written = DatabaseIncrease("temp_bytes")

    def see(self, sample: Sample, moments: Sequence[Moment]) -> None:
        self._see_files(sample)
        self._written.see(sample)
        for row in sample.counters.get(LOCAL_STORAGE, ()):
            # The sampler reads the newest metrics every second, but CloudWatch measures only every minute.
            if not self._storage or self._storage[-1].get("measured_at") != row.get("measured_at"):
                self._storage.append(row)
        for moment in moments:
            # A build sorts with maintenance_work_mem, and spills on purpose.
            if moment.wait in _SPILL_WAITS and not is_build(moment.session):
                self._spilling.add(moment)
            if moment.session.pid in self._any_pids:
                self._anyone.add(moment)
                for name, pids in self._pids.items():
                    if moment.session.pid in pids:
                        self._users.setdefault(name, ActivityTally()).add(moment)

    def _see_files(self, sample: Sample) -> None:
        """Record which sessions have temporary files in each tablespace, and the largest size of the files so far."""
        if (files := sample.counters.get("temp_files")) is None:
            return
        now: dict[str, float] = {}
        for row in files:
            name, size = str(row.get("tablespace") or DATA), row.get("bytes")
            now[name] = now.get(name, 0.0) + (float(size) if isinstance(size, int | float) else 0.0)
            self._pids.setdefault(name, set()).add(row.get("pid"))
            self._any_pids.add(row.get("pid"))
        for name, size_bytes in now.items():
            self._most_bytes[name] = max(self._most_bytes.get(name, 0.0), size_bytes)

    def conclude(self, case: Case) -> list[Diagnosis]:
        """Return diagnoses if sessions wait for temporary files, and if a disk with such files runs out of space."""
        devices = self._seen.devices.result()
        low = (self._find_low_space(case, device) for device in devices)
        found = [self._find_waits(case, devices), self._find_limit(case), *low, self._find_low_local_storage(case)]
        return [each for each in found if each is not None]

    def _find_waits(self, case: Case, devices: tuple[DeviceUse, ...]) -> Diagnosis | None:
        part = self._spilling
        if case.share(part) < LEAST_SHARE:
            return None
        sizes = self._most_bytes
        tablespace = max(sizes, key=lambda name: sizes[name]) if sizes else None
        device = next((use for use in devices if tablespace in use.tablespaces), None)
        evidence = [number("sessions that wait for temporary files, on average", case.sessions(part))]
        if tablespace is not None:
            most_mb = sizes[tablespace] / MB
            evidence.append(number(f"temporary files in tablespace {tablespace}, at most", most_mb, "MB"))
        if device is None:
            return _conclude_elsewhere(case, part, evidence, self._storage[-1] if self._storage else None)
        evidence += _describe_disk(device)
        if device.rates.busy < _BUSY:
            # The device is often idle, so the sessions wait for the operating system's cache, or for processors.
            return case.conclude("temp-spill", part, evidence)
        code = "temp-spill-on-data-volume" if device.has_data else "temp-disk-slow"
        return case.conclude(code, part, evidence, device=device.device)

    def _find_limit(self, case: Case) -> Diagnosis | None:
        """Return a diagnosis if statements that are rolled back have written as much as temp_file_limit allows each."""
        limit, count = self._seen.number("temp_file_limit"), (case.rates.rollbacks_per_s or 0.0) * case.rates.elapsed_s
        part = max(self._anyone, self._spilling, key=lambda each: each.seconds)
        # What is written far beyond that was written by statements that did not fail.
        allowed = 0.0 if limit is None else limit * count
        is_near = _MOST_OF_LIMIT * allowed <= self._written.total <= _WELL_ABOVE_LIMIT * allowed
        if round(count) < 1 or not (allowed and is_near) or case.share(part) < LEAST_SHARE:
            return None
        evidence = [
            number("rollbacks", count),
            number("temporary files written for each", self._written.total / count / MB, "MB"),
        ]
        setting = case.header.settings["temp_file_limit"]
        return case.conclude("temp-file-limit", part, evidence, setting=setting) if part.count else None

    def _find_low_space(self, case: Case, device: DeviceUse) -> Diagnosis | None:
        """Return a diagnosis if a disk with temporary files is nearly full, or None.

        The share of the diagnosis is the time of sessions that have temporary files on the disk.
        """
        names = [name for name in device.tablespaces if name in self._users]
        left_s = device.full_in_s
        is_low = device.least_free_bytes < _LEAST_FREE * device.size_bytes
        is_full = device.least_free_bytes < _FULL * device.size_bytes
        # No reading of the tablespaces shows files that exist for less than a second.
        is_filled = bool(names) or (is_full and self._spilling.count)
        if not is_filled or not (is_low or (left_s is not None and left_s < _FULL_SOON_S)):
            return None
        part = max((self._users[name] for name in names), key=lambda users: users.seconds, default=self._spilling)
        evidence = [
            number(f"least free on device {device.device}", device.least_free_bytes / MB, "MB"),
            number(f"free on device {device.device} at the end", device.free_bytes / MB, "MB"),
            number("temporary files there, at most", sum(self._most_bytes[name] for name in names) / MB, "MB"),
        ]
        if case.rates.rollbacks_per_s:
            evidence.append(number("rollbacks, of failed statements too", case.rates.rollbacks_per_s, "/s"))
        if is_full:
            size = format_bytes(device.size_bytes)
            return case.conclude("temp-disk-full", part, evidence, device=device.device, size=size)
        when = "" if left_s is None else f", and full in {format_duration(left_s)} at this rate"
        free = f"{format_bytes(device.least_free_bytes)} of {format_bytes(device.size_bytes)}"
        return case.conclude("temp-space-low", part, evidence, device=device.device, free=free, when=when)

    def _find_low_local_storage(self, case: Case) -> Diagnosis | None:
        """Return a diagnosis if an RDS instance's local storage will soon be full, or None.

        CloudWatch does not report the size of local storage, so only the rate at which it fills is used.
        """
        if not self._storage or not self._anyone.count:
            return None
        read = [(_measured_at(row), local_metrics(row).get("FreeLocalStorage")) for row in self._storage]
        known = [(at, free) for at, free in read if at is not None and free is not None]
        left_s = time_until_full([at.timestamp() for at, _ in known], [free for _, free in known])
        if left_s is None or left_s >= _FULL_SOON_S:
            return None
        free = min(free for _, free in known)
        evidence = [number("least free on local storage by CloudWatch", free / MB, "MB")]
        when = f", and full in {format_duration(left_s)} at this rate"
        free_text = format_bytes(round(free))
        return case.conclude(
            "temp-space-low", self._anyone, evidence, device="local storage", free=free_text, when=when
        )


def _conclude_elsewhere(case: Case, part: ActivityTally, evidence: list[Evidence], row: CounterRow | None) -> Diagnosis:
    """Return the diagnosis for a server whose devices cannot be read. On RDS, only metrics of local storage exist."""
    metrics = {} if row is None else local_metrics(row)
    kinds = [(metrics.get(f"{kind}IOPSLocalStorage"), metrics.get(f"{kind}LatencyLocalStorage")) for kind in _KINDS]
    evidence = [*evidence]
    for kind, (iops, latency_s) in zip(_KINDS, kinds, strict=True):
        if iops and latency_s is not None:
            evidence.append(number(f"local storage by CloudWatch: {kind.lower()}s", iops, "/s"))
            evidence.append(number(f"local storage by CloudWatch: time for a {kind.lower()}", 1e3 * latency_s, "ms"))
    # By Little's law, if fewer I/Os than this are in flight on average, the device is idle for a part of the time.
    if sum((iops or 0.0) * (latency_s or 0.0) for iops, latency_s in kinds) < _BUSY:
        return case.conclude("temp-spill", part, evidence)
    return case.conclude("temp-disk-slow", part, evidence, device="local storage")


def _describe_disk(device: DeviceUse) -> list[Evidence]:
    rates = device.rates
    found = [
        number(f"device {device.device}: busy", 100 * rates.busy, "%"),
        number(f"device {device.device}: reads and writes", rates.read_iops + rates.write_iops, "/s"),
        number(
            f"device {device.device}: read and written", (rates.read_bytes_per_s + rates.write_bytes_per_s) / MB, "MB/s"
        ),
    ]
    if rates.write_latency_s is not None:
        found.append(number(f"device {device.device}: time for a write", 1e3 * rates.write_latency_s, "ms"))
    return found


def _measured_at(row: CounterRow) -> datetime | None:
    try:
        return datetime.fromisoformat(str(row.get("measured_at")))
    except ValueError:
        # Another program may have written the recording, so this value may be of any type.
        return None
