"""What the devices below a server's tablespaces did, and what is free on them."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from penstock.model.recording import LOCAL_STORAGE
from penstock.model.server.device import LOCAL_METRICS, DeviceCounters, rates

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from penstock.model.recording import CounterRow, Sample
    from penstock.model.server.device import DeviceRates

# The data directory's tablespace
DATA = "pg_default"

_COUNTERS = tuple(field.name for field in fields(DeviceCounters))
_NUMBERS = (*_COUNTERS, "free_bytes", "size_bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceUse:
    """A device between the first and the last reading; `tablespaces` are those on it, bytes those of the last."""

    device: str
    kind: str
    tablespaces: tuple[str, ...]
    rates: DeviceRates
    free_bytes: int
    size_bytes: int

    @property
    def has_data(self) -> bool:
        """Whether the data directory is on it."""
        return DATA in self.tablespaces

    def as_metrics(self) -> dict[str, float | None]:
        """Return the seven metrics of local storage under CloudWatch's names and in its units."""
        return {**self.rates.as_metrics(), "FreeLocalStorage": self.free_bytes}


def measure_devices(samples: Iterable[Sample]) -> tuple[DeviceUse, ...]:
    """Return what each device did, the data directory's first; none that was read fewer than two times."""
    rows: dict[str, list[CounterRow]] = {}
    for sample in samples:
        for row in sample.counters.get("host_devices", ()):
            if are_counters(row):
                rows.setdefault(str(row.get("device")), []).append(row)
    found = (_measure(device, seen) for device, seen in rows.items())
    return tuple(sorted((use for use in found if use is not None), key=lambda use: not use.has_data))


def find_local_storage(samples: Sequence[Sample]) -> dict[str, object] | None:
    """Return the newest of CloudWatch's metrics of local storage, by their names, with instance and measured_at."""
    rows = (row for sample in reversed(samples) for row in sample.counters.get(LOCAL_STORAGE, ()))
    newest = next(rows, None)
    return None if newest is None else dict(newest)


def local_metrics(row: Mapping[str, object]) -> dict[str, float]:
    """Return what of a row are metrics of local storage."""
    return {name: float(value) for name in LOCAL_METRICS if isinstance(value := row.get(name), int | float)}


def are_counters(row: CounterRow) -> bool:
    """Return whether a row has all numbers of a device: recordings may come from anywhere."""
    return all(isinstance(row.get(name), int | float) for name in _NUMBERS)


def _measure(device: str, rows: list[CounterRow]) -> DeviceUse | None:
    first, last = _counters(rows[0]), _counters(rows[-1])
    if last.at_s <= first.at_s:
        return None
    end: Any = rows[-1]
    return DeviceUse(
        device=device,
        kind=str(end.get("kind")),
        tablespaces=tuple(dict.fromkeys(str(row.get("tablespace")) for row in rows)),
        rates=rates(first, last),
        free_bytes=int(end["free_bytes"]),
        size_bytes=int(end["size_bytes"]),
    )


def _counters(row: CounterRow) -> DeviceCounters:
    values: dict[str, Any] = {name: row[name] for name in _COUNTERS}
    return DeviceCounters(**values)
