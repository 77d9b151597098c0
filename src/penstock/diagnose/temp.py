"""Whether a workload waits for its temporary files, on which disk, and whether that one runs out of space."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from penstock.diagnose.case import Case, number, share_of
from penstock.diagnose.devices import DATA, are_counters, find_local_storage, local_metrics, measure_devices
from penstock.model.recording import LOCAL_STORAGE
from penstock.units import MB, format_bytes, format_duration

if TYPE_CHECKING:
    from penstock.diagnose.activity import Moment
    from penstock.diagnose.devices import DeviceUse
    from penstock.model.diagnosis import Diagnosis, Evidence
    from penstock.model.recording import CounterRow, Sample

# Reads and writes of spills and of files shared by parallel workers, by PostgreSQL's wait_event_names.txt.
_SPILL_WAITS = frozenset(("io:buffileread", "io:buffilewrite", "io:buffiletruncate"))

# Below this, no disk could make a workload a tenth faster.
_LEAST_SHARE = 0.1

# A device that has work for so much of the time is what is waited for.
_BUSY = 0.8

# Of a device that is full to this, or will be full so soon at the rate seen, somebody should know.
_LEAST_FREE = 0.1
_SOON_S = 600.0


def find_temporary_work(case: Case) -> list[Diagnosis]:
    """Return what temporary files are waited for, and whether their disk runs out of space."""
    devices = measure_devices(case.recording.samples)
    return [*_find_spill_waits(case, devices), *_find_low_space(case, devices), *_find_low_local_storage(case)]


def _find_spill_waits(case: Case, devices: tuple[DeviceUse, ...]) -> list[Diagnosis]:
    part = case.select(lambda moment: moment.wait in _SPILL_WAITS)
    if share_of(part, case.moments) < _LEAST_SHARE:
        return []
    places = _spill_bytes(case.recording.samples)
    place = max(places, key=lambda name: places[name]) if places else None
    device = next((use for use in devices if place in use.tablespaces), None)
    evidence = [number("sessions that wait for temporary files, on average", case.sessions(part))]
    if place is not None:
        evidence.append(number(f"temporary files in tablespace {place}, at most", places[place] / MB, "MB"))
    if device is None:
        return [_conclude_elsewhere(case, part, evidence)]
    evidence += _describe(device)
    if not device.has_data:
        return [case.conclude("temp-disk-slow", part, evidence, device=device.device)]
    if device.rates.busy >= _BUSY:
        return [case.conclude("temp-spill-on-data-volume", part, evidence, device=device.device)]
    return [case.conclude("temp-spill", part, evidence)]


def _conclude_elsewhere(case: Case, part: list[Moment], evidence: list[Evidence]) -> Diagnosis:
    """Return what is waited for on a server whose devices are not seen: RDS tells of local storage alone."""
    row = find_local_storage(case.recording.samples)
    metrics = {} if row is None else local_metrics(row)
    written = metrics.get("WriteIOPSLocalStorage", 0.0)
    if not written:
        return case.conclude("temp-spill", part, evidence)
    evidence = [*evidence, number("local storage by CloudWatch: writes", written, "/s")]
    if (latency_s := metrics.get("WriteLatencyLocalStorage")) is not None:
        evidence.append(number("local storage by CloudWatch: time for a write", 1e3 * latency_s, "ms"))
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


def _find_low_space(case: Case, devices: tuple[DeviceUse, ...]) -> list[Diagnosis]:
    """Return whether a disk that temporary files lie on is nearly full; its share is of the sessions that have them."""
    samples = case.recording.samples
    places = _spill_bytes(samples)
    found = []
    for device in devices:
        names = [name for name in device.tablespaces if name in places]
        left_s = _time_until_full(samples, device)
        is_low = device.free_bytes < _LEAST_FREE * device.size_bytes
        if not names or not (is_low or (left_s is not None and left_s < _SOON_S)):
            continue
        users = {row.get("pid") for sample in samples for row in _files(sample) if row.get("tablespace") in names}
        part = case.select(lambda moment, pids=users: moment.session.pid in pids)  # type: ignore[misc]
        if not part:
            continue
        evidence = [
            number(f"free on device {device.device}", device.free_bytes / MB, "MB"),
            number("temporary files there, at most", sum(places[name] for name in names) / MB, "MB"),
        ]
        when = "" if left_s is None else f", and full in {format_duration(left_s)} at this rate"
        free = f"{format_bytes(device.free_bytes)} of {format_bytes(device.size_bytes)}"
        found.append(case.conclude("temp-space-low", part, evidence, device=device.device, free=free, when=when))
    return found


def _find_low_local_storage(case: Case) -> list[Diagnosis]:
    """Return whether an instance's local storage will soon be full; CloudWatch does not say how large it is."""
    rows = [row for sample in case.recording.samples for row in sample.counters.get(LOCAL_STORAGE, ())]
    if not rows:
        return []
    (first, began), (last, ended) = ((local_metrics(row), _measured_at(row)) for row in (rows[0], rows[-1]))
    free, before = last.get("FreeLocalStorage"), first.get("FreeLocalStorage")
    if free is None or before is None or began is None or ended is None or before <= free or ended <= began:
        return []
    left_s = free * (ended - began).total_seconds() / (before - free)
    users = {row.get("pid") for sample in case.recording.samples for row in _files(sample)}
    part = case.select(lambda moment: moment.session.pid in users)
    if left_s >= _SOON_S or not part:
        return []
    evidence = [number("free on local storage by CloudWatch", free / MB, "MB")]
    when = f", and full in {format_duration(left_s)} at this rate"
    free_text = format_bytes(round(free))
    return [case.conclude("temp-space-low", part, evidence, device="local storage", free=free_text, when=when)]


def _measured_at(row: CounterRow) -> datetime | None:
    try:
        return datetime.fromisoformat(str(row.get("measured_at")))
    except ValueError:
        # Recordings may come from anywhere.
        return None


def _files(sample: Sample) -> tuple[dict[str, object], ...]:
    return tuple(dict(row) for row in sample.counters.get("temp_files", ()))


def _spill_bytes(samples: tuple[Sample, ...]) -> dict[str, float]:
    """Return the most bytes of temporary files that were seen at once, by tablespace."""
    most: dict[str, float] = {}
    for sample in samples:
        now: dict[str, float] = {}
        for row in _files(sample):
            name = str(row.get("tablespace") or DATA)
            size = row.get("bytes")
            now[name] = now.get(name, 0.0) + (float(size) if isinstance(size, int | float) else 0.0)
        for name, size_bytes in now.items():
            most[name] = max(most.get(name, 0.0), size_bytes)
    return most


def _time_until_full(samples: tuple[Sample, ...], device: DeviceUse) -> float | None:
    """Return in how many seconds a device will be full at the rate seen, None where it does not fill.

    Temporary files come and go: it fills if the least that was free in the second half is less than in the first.
    """
    rows: list[tuple[Any, Any]] = [
        (row["free_bytes"], row["at_s"])
        for sample in samples
        for row in sample.counters.get("host_devices", ())
        if row.get("tablespace") == device.tablespaces[0] and are_counters(row)
    ]
    half = len(rows) // 2
    if not half:
        return None
    (before, began_s), (least, ended_s) = min(rows[:half]), min(rows[half:])
    return device.free_bytes * (ended_s - began_s) / (before - least) if least < before else None
