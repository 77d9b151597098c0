"""Keeps a load from filling a disk: looks at the room there is, on a server of this machine, before the first row."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.host import measure_disk, measure_files
from penstock.loading.plan.space import describe_shortage, estimate_needs, forecast_disks, note_disk
from penstock.model.load.space import DiskForecast
from penstock.server.table.space import read_table_places

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.loading.plan.work import ObjectWork
    from penstock.loading.warned import WarningLog
    from penstock.model.load.plan import LoadPlan, ObjectSample
    from penstock.model.load.space import TablePlace
    from penstock.server.connect.connection import Connection


@dataclass(frozen=True, slots=True, kw_only=True)
class SpaceGuard:
    """Knows a sample of each target's objects. The server's directories are this machine's."""

    samples: tuple[ObjectSample, ...]

    def refuse_shortage(
        self, plan: LoadPlan, works: Sequence[ObjectWork], connection: Connection, warnings: WarningLog
    ) -> None:
        """Raise TargetError where what is left to load would fill a disk, and warn where it would half; ServerError."""
        for forecast in self.forecast(plan, works, connection):
            if forecast.is_short:
                raise describe_shortage(forecast)
            if (notice := note_disk(forecast)) is not None:
                warnings.add(notice)

    def forecast(self, plan: LoadPlan, works: Sequence[ObjectWork], connection: Connection) -> list[DiskForecast]:
        """Return what objects are expected to add to this machine's disks, as far as that can be known.

        Raises ServerError.
        """
        places = _read_places(plan, connection)
        wal_path = places[0].wal_path
        wal_bytes = None if wal_path is None else measure_files(Path(wal_path))
        return forecast_disks(estimate_needs(works, self.samples, places, wal_bytes=wal_bytes), _measure)

    def forecast_volume(
        self, plan: LoadPlan, works: Sequence[ObjectWork], connection: Connection, *, device: str, free_bytes: int
    ) -> DiskForecast:
        """Return what objects are expected to add to a server that has all its files on one volume.

        How large its WAL is now is not known: it may grow by all of max_wal_size. Raises ServerError.
        """
        places = [replace(place, path=device, wal_path=device) for place in _read_places(plan, connection)]
        needs = estimate_needs(works, self.samples, places, wal_bytes=0)
        return DiskForecast(device=device, free_bytes=free_bytes, needs=tuple(needs))


def _read_places(plan: LoadPlan, connection: Connection) -> list[TablePlace]:
    return read_table_places(connection, [0 if target.facts is None else target.facts.oid for target in plan.targets])


def _measure(path: str) -> tuple[str, int] | None:
    disk = measure_disk(Path(path))
    return None if disk is None else (disk.device, disk.free_bytes)
