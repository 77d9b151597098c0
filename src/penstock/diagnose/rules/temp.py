"""The rule for workloads that wait for temporary files, and for disks with temporary files that run out of space."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from penstock.diagnose.activity import Moment, Tally
from penstock.diagnose.devices import DATA, DeviceMeter, DeviceUse, local_metrics, time_until_full
from penstock.diagnose.rules.case import LEAST_SHARE, Case, number
from penstock.model.server.counters import LOCAL_STORAGE, CounterRow
from penstock.units import MB, format_bytes, format_duration

if TYPE_CHECKING:
    from penstock.model.diagnosis import Diagnosis, Evidence
    from penstock.model.recording import Sample

# Wait events of spills and of files shared by parallel workers (PostgreSQL's wait_event_names.txt).
_SPILL_WAITS = frozenset(("io:buffileread", "io:buffilewrite", "io:buffiletruncate"))

# If a device is busy for this share of the time, sessions wait for the device.
_BUSY = 0.8

_KINDS = ("Write", "Read")

# Report a device with less than this share free, or one that will be full within this time at the measured rate.
_LEAST_FREE = 0.1
_SOON_S = 600.0


class TemporaryWork:
    """The rule for sessions that wait for temporary files, and for disks with such files that run out of space."""

    def __init__(self) -> None:
        self._spilling = Tally()
        self._devices = DeviceMeter()
        self._most_bytes: dict[str, float] = {}
        self._pids: dict[str, set[object]] = {}
        self._any_pids: set[object] = set()
        self._users: dict[str, Tally] = {}
        self._anyone = Tally()
        self._storage: list[CounterRow] = []

    def see(self, sample: Sample, moments: Sequence[Moment]) -> None:
        self._devices.see(sample)
        self._see_files(sample)
        for row in sample.counters.get(LOCAL_STORAGE, ()):
            # The newest metrics are read every second, but CloudWatch measures them every minute.
            if not self._storage or self._storage[-1].get("measured_at") != row.get("measured_at"):
                self._storage.append(row)
        for moment in moments:
            if moment.wait in _SPILL_WAITS:
                self._spilling.add(moment)
            if moment.session.pid in self._any_pids:
                self._anyone.add(moment)
                for name, pids in self._pids.items():
                    if moment.session.pid in pids:
                        self._users.setdefault(name, Tally()).add(moment)

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
        devices = self._devices.result()
        low = (self._find_low_space(case, device) for device in devices)
        found = [self._find_waits(case, devices), *low, self._find_low_local_storage(case)]
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
        evidence += _describe(device)
        if device.rates.busy < _BUSY:
            # The device is often idle: the sessions wait for the operating system's cache, or for processors.
            return case.conclude("temp-spill", part, evidence)
        code = "temp-spill-on-data-volume" if device.has_data else "temp-disk-slow"
        return case.conclude(code, part, evidence, device=device.device)

    def _find_low_space(self, case: Case, device: DeviceUse) -> Diagnosis | None:
        """Return a diagnosis if a disk with temporary files is nearly full, or None.

        Its share is the share of time of sessions that have temporary files on the disk.
        """
        names = [name for name in device.tablespaces if name in self._users]
        left_s = device.full_in_s
        is_low = device.least_free_bytes < _LEAST_FREE * device.size_bytes
        if not names or not (is_low or (left_s is not None and left_s < _SOON_S)):
            return None
        part = max((self._users[name] for name in names), key=lambda users: users.seconds)
        evidence = [
            number(f"least free on device {device.device}", device.least_free_bytes / MB, "MB"),
            number(f"free on device {device.device} at the end", device.free_bytes / MB, "MB"),
            number("temporary files there, at most", sum(self._most_bytes[name] for name in names) / MB, "MB"),
        ]
        if case.rates.rollbacks_per_s:
            evidence.append(number("rollbacks, of failed statements too", case.rates.rollbacks_per_s, "/s"))
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
        if left_s is None or left_s >= _SOON_S:
            return None
        free = min(free for _, free in known)
        evidence = [number("least free on local storage by CloudWatch", free / MB, "MB")]
        when = f", and full in {format_duration(left_s)} at this rate"
        free_text = format_bytes(round(free))
        return case.conclude(
            "temp-space-low", self._anyone, evidence, device="local storage", free=free_text, when=when
        )


def _conclude_elsewhere(case: Case, part: Tally, evidence: list[Evidence], row: CounterRow | None) -> Diagnosis:
    """Return the diagnosis for a server whose devices cannot be read. On RDS, only metrics of local storage exist."""
    metrics = {} if row is None else local_metrics(row)
    kinds = [(metrics.get(f"{kind}IOPSLocalStorage"), metrics.get(f"{kind}LatencyLocalStorage")) for kind in _KINDS]
    evidence = [*evidence]
    for kind, (iops, latency_s) in zip(_KINDS, kinds, strict=True):
        if iops and latency_s is not None:
            evidence.append(number(f"local storage by CloudWatch: {kind.lower()}s", iops, "/s"))
            evidence.append(number(f"local storage by CloudWatch: time for a {kind.lower()}", 1e3 * latency_s, "ms"))
    # Little's law: if fewer I/Os than this are in flight on average, the device is idle for a part of the time.
    if sum((iops or 0.0) * (latency_s or 0.0) for iops, latency_s in kinds) < _BUSY:
        return case.conclude("temp-spill", part, evidence)
    return case.conclude("temp-disk-slow", part, evidence, device="local storage")


def _describe(device: DeviceUse) -> list[Evidence]:
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
        # A recording that another program wrote may have anything here.
        return None
