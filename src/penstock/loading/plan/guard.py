"""Keeps a load from filling a disk: checks the free space before the first row, if the server is on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from penstock.frozen import frozen
from penstock.host import measure_disk, measure_files
from penstock.loading.plan.space import estimate_needs, forecast_disks
from penstock.loading.work import ObjectWork
from penstock.model.load.plan import LoadPlan
from penstock.model.load.space import DiskForecast, TableStorage
from penstock.model.source.source import ObjectSample
from penstock.server.connect.connection import Connection
from penstock.server.table.catalog import read_table_storage


@frozen
class SpaceGuard:
    """Checks disk space, given a sample of each target's objects. The server must run on this machine."""

    samples: tuple[ObjectSample, ...]

    def forecast(self, plan: LoadPlan, works: Sequence[ObjectWork], connection: Connection) -> list[DiskForecast]:
        """Return what objects are expected to add to this machine's disks, as far as that is known.

        Raises ServerError.
        """
        storages = _read_storage(plan, connection)
        wal_path = storages[0].wal_path
        wal_bytes = None if wal_path is None else measure_files(Path(wal_path))
        return forecast_disks(estimate_needs(works, self.samples, storages, wal_bytes=wal_bytes), _measure)

    def forecast_volume(
        self, plan: LoadPlan, works: Sequence[ObjectWork], connection: Connection, *, device: str, free_bytes: int
    ) -> DiskForecast:
        """Return what objects are expected to add to a server that has all its files on one volume.

        The present size of its WAL is not known, so it may grow by all of max_wal_size. Raises ServerError.
        """
        storages = [replace(each, path=device, wal_path=device) for each in _read_storage(plan, connection)]
        needs = estimate_needs(works, self.samples, storages, wal_bytes=0)
        return DiskForecast(device=device, free_bytes=free_bytes, needs=tuple(needs))


def _read_storage(plan: LoadPlan, connection: Connection) -> list[TableStorage]:
    return read_table_storage(connection, [0 if target.facts is None else target.facts.oid for target in plan.targets])


def _measure(path: str) -> tuple[str, int] | None:
    disk = measure_disk(Path(path))
    return None if disk is None else (disk.device, disk.free_bytes)
