"""Keeps a load from filling a disk: looks at the room there is, on a server of this machine, before the first row."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.host import cpu_count, measure_disk, measure_files, memory_bytes
from penstock.loading.space import SpaceInput, could_fill, describe_shortage, estimate_needs, forecast_disks
from penstock.model.space import DiskForecast
from penstock.server.space import read_table_spaces

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.loading.work import ObjectWork
    from penstock.model.plan import LoadPlan, ObjectSample
    from penstock.model.space import TableSpace
    from penstock.server.connection import Connection


@dataclass(frozen=True, slots=True, kw_only=True)
class SpaceGuard:
    """Knows a sample of each target's objects. The server's directories are this machine's."""

    samples: tuple[ObjectSample, ...]

    def refuse_shortage(self, plan: LoadPlan, works: Sequence[ObjectWork], connection: Connection) -> None:
        """Raise TargetError where what is left to load would fill a disk; ServerError."""
        spaces = _read_spaces(plan, connection)
        places = [space.place for space in spaces]
        disks = [disk for place in places if place.path is not None and (disk := measure_disk(Path(place.path)))]
        if not any(could_fill(works, places, disk.free_bytes) for disk in disks):
            return
        for forecast in self._forecast(plan, works, spaces):
            if forecast.is_short:
                raise describe_shortage(forecast)

    def forecast(self, plan: LoadPlan, works: Sequence[ObjectWork], connection: Connection) -> list[DiskForecast]:
        """Return what objects are expected to add to this machine's disks, as far as that can be known.

        Raises ServerError.
        """
        return self._forecast(plan, works, _read_spaces(plan, connection))

    def forecast_volume(
        self, plan: LoadPlan, works: Sequence[ObjectWork], connection: Connection, *, device: str, free_bytes: int
    ) -> DiskForecast:
        """Return what objects are expected to add to a server that has all its files on one volume.

        How large its WAL is now is not known: it may grow by all of max_wal_size. Raises ServerError.
        """
        inputs = [
            SpaceInput(
                sample=sample,
                space=replace(space, place=replace(space.place, path=device, temp_path=device, wal_path=device)),
                sorts_out=_sorts_out(plan),
            )
            for sample, space in zip(self.samples, _read_spaces(plan, connection), strict=True)
        ]
        needs = estimate_needs(works, inputs, wal_bytes=0)
        return DiskForecast(device=device, free_bytes=free_bytes, needs=tuple(needs))

    def _forecast(
        self, plan: LoadPlan, works: Sequence[ObjectWork], spaces: Sequence[TableSpace]
    ) -> list[DiskForecast]:
        wal_path = spaces[0].place.wal_path
        inputs = [
            SpaceInput(
                sample=sample,
                space=space,
                sorts_out=_sorts_out(plan),
                cpu_count=cpu_count(),
                memory_bytes=memory_bytes(),
            )
            for sample, space in zip(self.samples, spaces, strict=True)
        ]
        wal_bytes = None if wal_path is None else measure_files(Path(wal_path))
        return forecast_disks(estimate_needs(works, inputs, wal_bytes=wal_bytes), _measure)


def _read_spaces(plan: LoadPlan, connection: Connection) -> list[TableSpace]:
    return read_table_spaces(connection, [0 if target.facts is None else target.facts.oid for target in plan.targets])


def _sorts_out(plan: LoadPlan) -> bool:
    return plan.job.rules.on_error == "reject"


def _measure(path: str) -> tuple[str, int] | None:
    disk = measure_disk(Path(path))
    return None if disk is None else (disk.device, disk.free_bytes)
