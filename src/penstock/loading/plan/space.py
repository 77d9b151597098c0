"""Estimates how much disk space a load takes: bytes of text times a factor for the kind of table. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from penstock.core.catalogue.catalog import DiskForecast, SpaceNeed, TableStorage, read_table_storage
from penstock.core.connect.connection import Connection
from penstock.core.errors import TargetError
from penstock.core.host.disks import measure_disk, measure_files
from penstock.core.slotted import slotted
from penstock.core.units import count_nouns, format_bytes
from penstock.core.values.accounts import PlanPart
from penstock.core.values.notice import Notice
from penstock.loading.formats import format_of
from penstock.loading.values.objects import PlannedObject
from penstock.loading.values.plan import LoadPlan, TargetPlan, total_size

# Bytes on disk for each byte of text: in the table, in each index, and in a staging table with the sorts of its merge.
# Narrow rows take up to 1.6 times these numbers. A load that takes half of the free space gets a warning, which is
# early enough for narrow rows too (docs/disk-space.md).
_TABLE_FACTOR = 1.6
_INDEX_FACTOR = 0.5
_STAGING_FACTOR = 3.0

# Enough lines for the lengths of columns.
_SHARE_LINES = 100


def estimate_needs(
    works: Sequence[PlannedObject],
    storages: Sequence[TableStorage],
    *,
    wal_bytes: int | None,
) -> list[SpaceNeed]:
    """Return how many bytes objects are expected to add to the directories of their tables and of the WAL.

    `works` are the objects that are not loaded yet. `storages` has one item for each target. `wal_bytes` is the present
    size of the WAL; if it is None, the WAL is not estimated. The result does not include targets with an object of
    unknown size, nor directories that the role may not see.
    """
    needs, written_bytes = [], 0
    for target, storage, needed_bytes in _estimate_targets(works, storages):
        written_bytes += needed_bytes or 0
        if storage.path is not None and needed_bytes:
            needs.append(SpaceNeed(path=storage.path, what=_describe_kind(target, storage), needed_bytes=needed_bytes))
            if target.landing.truncates and storage.stored_bytes:
                what = f"rows of {target.table} that are truncated"
                needs.append(SpaceNeed(path=storage.path, what=what, needed_bytes=-storage.stored_bytes))
    if not storages or storages[0].wal_path is None or wal_bytes is None:
        return needs
    # The WAL grows at most to its limit. At the limit, a checkpoint allows its segments to be reused, unless a slot or
    # the archiver keeps them.
    limit_bytes, kept_for = storages[0].wal_limit_bytes, storages[0].wal_kept_for
    growth_bytes = written_bytes if limit_bytes is None else min(written_bytes, limit_bytes - wal_bytes)
    what = "WAL" if kept_for is None else f"WAL, kept for {kept_for}"
    wal = SpaceNeed(path=storages[0].wal_path, what=what, needed_bytes=growth_bytes)
    return [*needs, wal] if growth_bytes > 0 else needs


def estimate_wal(works: Sequence[PlannedObject], storages: Sequence[TableStorage]) -> int | None:
    """Return how many bytes of WAL a load of the objects is expected to write.

    Return None if the size of an object is not known.
    """
    parts = [needed_bytes for _, _, needed_bytes in _estimate_targets(works, storages)]
    return None if None in parts else sum(part or 0 for part in parts)


def _estimate_targets(
    works: Sequence[PlannedObject], storages: Sequence[TableStorage]
) -> Iterator[tuple[TargetPlan, TableStorage, int | None]]:
    """Yield the bytes on disk that the objects of each target take, None if the size of an object is not known."""
    for number in sorted({work.target_index for work in works}):
        group = [work for work in works if work.target_index == number]
        target, storage = group[0].target, storages[number]
        size_bytes = text_bytes(group)
        factor = _TABLE_FACTOR + _INDEX_FACTOR * storage.index_count
        factor += _STAGING_FACTOR if target.is_staged else 0
        yield target, storage, None if size_bytes is None else round(size_bytes * factor * _share_of_loaded(target))


def _share_of_loaded(target: TargetPlan) -> float:
    """Return the share of the text that is in loaded columns, by lines of the sample. Quotes are not looked at."""
    keep = target.column_map.keep
    if keep is None or not format_of(target).is_delimited:
        return 1.0
    delimiter = target.dialect.delimiter.encode()
    lines = [line.split(delimiter) for line in target.sample.head.splitlines()[:_SHARE_LINES]]
    loaded = sum(len(fields[index]) + 1 for fields in lines for index in keep if index < len(fields))
    return loaded / sum(len(field) + 1 for fields in lines for field in fields) if loaded else 1.0


def _describe_kind(target: TargetPlan, storage: TableStorage) -> str:
    indexes = f", {count_nouns(storage.index_count, 'index', 'indexes')}" if storage.index_count else ""
    return f"table {target.table}{indexes}{', staging table' if target.is_staged else ''}"


def forecast_disks(needs: Sequence[SpaceNeed], measure: Callable[[str], tuple[str, int] | None]) -> list[DiskForecast]:
    """Return a forecast for each file system: its free bytes, and what `needs` will add to it.

    `measure` returns the device and the free bytes of a directory's file system. Directories for which it returns None,
    because they cannot be read, are skipped.
    """
    by_device: dict[tuple[str, int], list[SpaceNeed]] = {}
    for need in needs:
        if (disk := measure(need.path)) is not None:
            by_device.setdefault(disk, []).append(need)
    return [
        DiskForecast(device=device, free_bytes=free_bytes, needs=tuple(found))
        for (device, free_bytes), found in by_device.items()
    ]


@slotted
class DiskSpace(PlanPart):
    """What the load will add to each disk of the server.

    With `is_ignored` (--ignore-space), the load begins even if a disk may become full.
    """

    disks: tuple[DiskForecast, ...]
    is_ignored: bool = False

    @property
    def is_refusing(self) -> bool:
        """Whether the load does not begin because it would fill a disk."""
        return not self.is_ignored and any(disk.is_short for disk in self.disks)

    def describe(self) -> list[str]:
        """Return a line for each disk."""
        return [f"disk  {disk.device}, {describe_disk(disk)}" for disk in self.disks]


def describe_disk(disk: DiskForecast) -> str:
    """Return a text that says how many bytes a load is expected to add to a file system, of how many free, for what."""
    parts = "; ".join(f"{need.what}: {format_bytes(need.needed_bytes)}" for need in disk.needs if need.needed_bytes > 0)
    needed = format_bytes(max(0, disk.needed_bytes))
    return f"{needed} expected of {format_bytes(disk.free_bytes)} free" + (f" ({parts})" if parts else "")


def describe_shortage(disk: DiskForecast) -> TargetError:
    """Return the error for a load that would fill a file system."""
    return TargetError(
        f"the load would fill {disk.device}",
        detail=f"{describe_disk(disk)}.",
        hint="Free space, or load all the same with --ignore-space: what is committed when the disk is full stays.",
    )


def note_disk(disk: DiskForecast) -> Notice | None:
    """Return the warning for a load that would fill a file system or take over half of its free space, or None."""
    if disk.is_short:
        error = describe_shortage(disk)
        return Notice(code="disk-short", message=f"{error.message}: {describe_disk(disk)}", hint=error.hint)
    if disk.is_tight:
        message = f"the load takes more than half of what is free on {disk.device}: {describe_disk(disk)}"
        return Notice(code="disk-short", message=message, hint="The estimate may be far off: docs/disk-space.md.")
    return None


def text_bytes(works: Sequence[PlannedObject]) -> float | None:
    """Return how many bytes of decompressed text of a target's objects are not loaded yet.

    It is an estimate if objects are compressed or are not text. Return None if the size of an object is unknown.
    """
    target, size_bytes = works[0].target, total_size(work.source for work in works)
    return None if size_bytes is None else max(0.0, format_of(target).text_bytes(works, target.sample, size_bytes))


@slotted
class SpaceGuard:
    """Checks disk space. The server must run on this machine."""

    def forecast(self, plan: LoadPlan, works: Sequence[PlannedObject], connection: Connection) -> list[DiskForecast]:
        """Return what a load of the objects is expected to add to each disk of this machine, as far as that is known.

        Raises ServerError.
        """
        storages = _read_storage(plan, connection)
        wal_path = storages[0].wal_path
        wal_bytes = None if wal_path is None else measure_files(Path(wal_path))
        return forecast_disks(estimate_needs(works, storages, wal_bytes=wal_bytes), _measure)

    def forecast_volume(
        self, plan: LoadPlan, works: Sequence[PlannedObject], connection: Connection, *, device: str, free_bytes: int
    ) -> DiskForecast:
        """Return what a load of the objects is expected to add to a server that has all its files on one volume.

        `device` is the volume's name, `free_bytes` its free space. The present size of the WAL is not known, so the WAL
        is expected to grow by up to max_wal_size. Raises ServerError.
        """
        storages = [replace(each, path=device, wal_path=device) for each in _read_storage(plan, connection)]
        needs = estimate_needs(works, storages, wal_bytes=0)
        return DiskForecast(device=device, free_bytes=free_bytes, needs=tuple(needs))


def _read_storage(plan: LoadPlan, connection: Connection) -> list[TableStorage]:
    return read_table_storage(connection, [0 if target.facts is None else target.facts.oid for target in plan.targets])


def _measure(path: str) -> tuple[str, int] | None:
    disk = measure_disk(Path(path))
    return None if disk is None else (disk.device, disk.free_bytes)
