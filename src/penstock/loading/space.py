"""How much disk space a load takes: from a sample of its records, and how the table's rows are laid out. Pure.

A row is what heap_form_tuple makes of it (src/backend/access/common/heaptuple.c), an index entry what btree stores.
Values that are compressed or stored out of line count as they are: the estimate is rather too high.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from penstock import _native
from penstock.errors import DataError, TargetError
from penstock.files.blocks import make_cutter
from penstock.files.probe import split_record
from penstock.loading.rebuild_plan import RebuildPlan, peak_beyond, plan_rebuild
from penstock.model.space import ColumnSpace, DiskForecast, SpaceNeed
from penstock.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from penstock.loading.work import ObjectWork
    from penstock.model.plan import ObjectSample, TargetPlan
    from penstock.model.source import Compression
    from penstock.model.space import IndexSpace, TablePlace, TableSpace

# Enough to know an average to some per cent, and read in some milliseconds.
_RECORDS = 500
_SAMPLE_BYTES = 64 * 1024

# Versions differ in what ends csv data, which a sample's beginning hardly has.
_ANY_MAJOR = 18

_PAGE_BYTES = 8192
_PAGE_ROOM_BYTES = _PAGE_BYTES - 24
_TUPLE_HEADER_BYTES = 23
_LINE_POINTER_BYTES = 4
_INDEX_HEADER_BYTES = 8

# Pages of an index whose keys come in no order are filled so far; and what else an access method takes, of a btree's.
_INDEX_FILL = 0.7
_INDEX_SHARE = {"brin": 0.001, "hash": 0.8}

# Those that are made by a sort; an entry has its length before it on disk, and takes that much more memory.
_SORTED_METHODS = ("btree", "hash")
_SORT_LENGTH_BYTES = 4
_SORT_MEMORY_FACTOR = 2

# What an expression's value is taken for.
_EXPRESSION_BYTES = 16

# A record of the WAL for a row of a COPY, and for an index entry, beside the data.
_WAL_ROW_BYTES = 12
_WAL_ENTRY_BYTES = 64

# A staging table's records carry the object's number and their place (model/landing.py).
_POSITION_BYTES = 24

# What stored bytes may become at the most, in rows and indexes, but for what compresses hardly ever.
_GENEROUSLY = 40

# A value of varying length has a header of one byte up to this length, and then one of four, aligned.
_SHORT_VARLENA = 127


@dataclass(frozen=True, slots=True, kw_only=True)
class RowShape:
    """What a sample's records are on the average, in bytes: in the file, as a row of the table, each column's value."""

    file_bytes: float
    row_bytes: float
    widths: dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class SpaceInput:
    """What is known of one target's space, and a sample of its first object.

    `sorts_out`: records that a merge refuses are put aside, for which it copies all of them. `cpu_count` and
    `memory_bytes` are the server's, None where they are not known.
    """

    sample: ObjectSample
    space: TableSpace
    sorts_out: bool = False
    cpu_count: int | None = None
    memory_bytes: int | None = None


def estimate_needs(
    works: Iterable[ObjectWork], inputs: Sequence[SpaceInput], *, wal_bytes: int | None
) -> list[SpaceNeed]:
    """Return what objects are expected to add to the directories of their tables and of the WAL.

    `inputs` are the targets'; `wal_bytes` is what the WAL takes now, None where that is unknown. Left out is what
    cannot be known: an object without a size, a sample without a record, a directory that the role may not know.
    """
    by_place: dict[int, list[ObjectWork]] = {}
    for work in works:
        by_place.setdefault(work.place, []).append(work)
    needs: list[SpaceNeed] = []
    written_bytes = 0
    for number, group in by_place.items():
        parts, target_bytes = _estimate_target(group, inputs[number])
        needs += parts
        written_bytes += target_bytes
    if wal_bytes is None or not inputs:
        return needs
    # It grows until a checkpoint lets segments be used again.
    place = inputs[0].space.place
    growth_bytes = min(written_bytes, place.wal_limit_bytes - wal_bytes)
    if place.wal_path is None or growth_bytes <= 0:
        return needs
    return [*needs, SpaceNeed(path=place.wal_path, what="WAL", needed_bytes=growth_bytes)]


def estimate_wal(works: Iterable[ObjectWork], inputs: Sequence[SpaceInput]) -> int | None:
    """Return how much WAL objects are expected to write, None where that cannot be known of one; as estimate_needs."""
    by_place: dict[int, list[ObjectWork]] = {}
    for work in works:
        by_place.setdefault(work.place, []).append(work)
    parts = [_estimate_target(group, inputs[number])[1] for number, group in by_place.items()]
    return sum(parts) if all(parts) else None


def _estimate_target(works: Sequence[ObjectWork], gathered: SpaceInput) -> tuple[list[SpaceNeed], int]:
    """Return what one target's objects add, and how much WAL they write."""
    target, space = works[0].target, gathered.space
    rows = measure_rows(target, gathered.sample, space.columns)
    size_bytes = text_bytes(works, gathered.sample)
    if rows is None or size_bytes is None:
        return [], 0
    count = size_bytes / rows.file_bytes
    sizes = {
        f"table {target.table}": count * rows.row_bytes,
        f"indexes of {target.table}": count * sum(index_entry_bytes(index, rows) for index in space.indexes),
    }
    if target.landing == "staging":
        sizes[f"staging table of {target.table}"] = count * (rows.row_bytes + _POSITION_BYTES)
    written = sum(sizes.values()) + count * (_WAL_ROW_BYTES + _WAL_ENTRY_BYTES * len(space.indexes))
    if target.job.mode == "truncate":
        sizes[f"rows of {target.table} that are truncated"] = -(space.place.table_bytes + space.place.index_bytes)
    needs = [
        *_needs(space.place.path, sizes),
        *_needs(space.place.temp_path, _temporary(gathered, target, rows, count)),
    ]
    return needs, round(written)


def _needs(path: str | None, sizes: dict[str, float]) -> list[SpaceNeed]:
    if path is None:
        return []
    return [SpaceNeed(path=path, what=what, needed_bytes=round(size)) for what, size in sizes.items() if round(size)]


def _temporary(gathered: SpaceInput, target: TargetPlan, rows: RowShape, count: float) -> dict[str, float]:
    """Return what a target needs beside, for a while: sorts when its indexes are made again, a merge's own copy."""
    sizes = {}
    if target.landing == "staging" and gathered.sorts_out:
        sizes[f"merging rows of {target.table}"] = count * rows.row_bytes
    parked = set() if target.parking is None else {part.name for part in target.parking.parked}
    indexes = [index for index in gathered.space.indexes if index.name in parked]
    rebuild = plan_rebuild(len(indexes), cpu_count=gathered.cpu_count, memory_bytes=gathered.memory_bytes)
    # Where sorts have a disk of their own, what stands already takes nothing of it.
    is_shared = gathered.space.place.temp_path == gathered.space.place.path
    steps = [
        (is_shared * count * index_entry_bytes(index, rows), _spilled_bytes(index, rows, count, rebuild))
        for index in indexes
    ]
    sizes[f"sorting indexes of {target.table}"] = peak_beyond(steps, sessions=rebuild.sessions)
    return sizes


def _spilled_bytes(index: IndexSpace, rows: RowShape, count: float, rebuild: RebuildPlan) -> float:
    """Return what the sort of an index writes to disk: nothing where its memory is enough."""
    if index.method not in _SORTED_METHODS:
        return 0.0
    sorted_bytes = count * (_INDEX_HEADER_BYTES + _align(_key_bytes(index, rows), 8) + _SORT_LENGTH_BYTES)
    return sorted_bytes if sorted_bytes * _SORT_MEMORY_FACTOR > rebuild.memory_bytes else 0.0


def forecast_disks(needs: Sequence[SpaceNeed], measure: Callable[[str], tuple[str, int] | None]) -> list[DiskForecast]:
    """Return the file systems that needs fall on; `measure` tells the device and the free bytes of a directory.

    Those of directories that cannot be reached from here are left out.
    """
    by_device: dict[tuple[str, int], list[SpaceNeed]] = {}
    for need in needs:
        if (disk := measure(need.path)) is not None:
            by_device.setdefault(disk, []).append(need)
    return [
        DiskForecast(device=device, free_bytes=free_bytes, needs=tuple(found))
        for (device, free_bytes), found in by_device.items()
    ]


def describe_needs(disk: DiskForecast) -> str:
    """Return what a load is expected to add to a file system, part by part."""
    return ", ".join(f"{need.what} {format_bytes(need.needed_bytes)}" for need in disk.needs if need.needed_bytes > 0)


def describe_shortage(disk: DiskForecast) -> TargetError:
    """Return the error for a load that would fill a file system."""
    parts = describe_needs(disk)
    return TargetError(
        f"the load would fill {disk.device}",
        detail=f"It is expected to need {format_bytes(disk.needed_bytes)}, and {format_bytes(disk.free_bytes)} are"
        f" free: {parts}.",
        hint="Make room, or say --ignore-space to load all the same: what is committed when the disk is full stays.",
    )


def could_fill(works: Iterable[ObjectWork], places: Sequence[TablePlace], free_bytes: int) -> bool:
    """Whether a closer look pays: objects as they are stored, taken generously, and the WAL, might fill a disk."""
    sizes = [work.source.size_bytes for work in works]
    wal_bytes = max((place.wal_limit_bytes for place in places), default=0)
    return all(size is not None for size in sizes) and (
        sum(size or 0 for size in sizes) * _GENEROUSLY + wal_bytes > free_bytes
    )


# ---------------------------------------------------------------- the files


def text_bytes(works: Sequence[ObjectWork], sample: ObjectSample) -> float | None:
    """Return what is left to load of a target's objects, decompressed; None where one does not tell how large it is.

    They are taken to be compressed as well as the sample is when it is compressed again.
    """
    sizes = [work.source.size_bytes for work in works]
    if any(size is None for size in sizes):
        return None
    committed = sum(end - start for work in works for start, end in work.coverage.ranges)
    if sample.is_whole and [work.source.uri for work in works] == [sample.source.uri]:
        return float(max(0, len(sample.head) - committed))
    return max(0.0, sum(size or 0 for size in sizes) * expansion(sample.head, sample.compression) - committed)


def expansion(head: bytes, compression: Compression) -> float:
    """Return how many bytes of text one stored byte stands for."""
    if compression == "none" or not head:
        return 1.0
    return len(head) / len(_compress(head, compression))


def _compress(head: bytes, compression: Compression) -> bytes:
    if compression == "zstd":
        from penstock.files.zstd import zstd  # noqa: PLC0415 (only the codec needed is imported)

        return zstd.compress(head)
    if compression == "lz4":
        import lz4.frame  # noqa: PLC0415 (only the codec needed is imported)

        return bytes(lz4.frame.compress(head))
    if compression == "bzip2":
        import bz2  # noqa: PLC0415 (only the codec needed is imported)

        return bz2.compress(head)
    if compression == "xz":
        import lzma  # noqa: PLC0415 (only the codec needed is imported)

        return lzma.compress(head)
    return zlib.compress(head)


def _sample_records(sample: ObjectSample, target: TargetPlan) -> Iterator[bytes]:
    """Yield the sample's first records, each with its line end and none that the sample's end may have cut."""
    cutter = make_cutter(target.dialect, server_major=_ANY_MAJOR)
    head, at, is_header = sample.head[:_SAMPLE_BYTES], 0, target.header is not None
    while at < len(head):
        cut = cutter.feed_one(head[at:])
        if not cut.records:
            return
        if not is_header:
            yield head[at : at + cut.end]
        is_header = False
        at += cut.end


# ---------------------------------------------------------------- the table


def measure_rows(target: TargetPlan, sample: ObjectSample, columns: Sequence[ColumnSpace]) -> RowShape | None:
    """Return what the sample's records are on the average; None without a whole one, or where they cannot be read.

    A table that is still to be made has text columns.
    """
    mapped = target.column_map
    laid_out = columns or [ColumnSpace(name=name, type_name="text", length=-1, alignment=4) for name in mapped.columns]
    sizes, file_bytes, totals = [], 0, dict.fromkeys((column.name for column in laid_out), 0)
    try:
        for record in islice(_sample_records(sample, target), _RECORDS):
            fields = split_record(record.rstrip(b"\r\n"), target.dialect)
            kept = fields if mapped.keep is None else [fields[index] for index in mapped.keep]
            values = dict(zip(mapped.columns, [*kept, *mapped.constants], strict=False))
            widths = {column.name: value_bytes(values.get(column.name), column) for column in laid_out}
            sizes.append(tuple_bytes(widths, laid_out))
            file_bytes += len(record)
            for name, width in widths.items():
                totals[name] += width or 0
    except (DataError, IndexError, _native.RecordError):
        return None
    if not sizes:
        return None
    return RowShape(
        file_bytes=file_bytes / len(sizes),
        row_bytes=page_share(sum(sizes) / len(sizes)),
        widths={name: total / len(sizes) for name, total in totals.items()},
    )


def value_bytes(value: str | None, column: ColumnSpace) -> int | None:
    """Return how many bytes a value takes in a row, its header included; None for null."""
    if value is None:
        return None
    if column.length >= 0:
        return column.length
    length = len(value.encode())
    if column.type_name == "numeric":
        # Two bytes for four digits, from the decimal point to both sides, and a short header.
        whole, _, fraction = value.lstrip("+-").partition(".")
        length = 2 + 2 * (-(-len(whole) // 4) + -(-len(fraction) // 4))
    return length + (1 if length < _SHORT_VARLENA else 4)


def tuple_bytes(widths: dict[str, int | None], columns: Sequence[ColumnSpace]) -> int:
    """Return the size of a row in its page, its line pointer included."""
    has_null = any(widths[column.name] is None for column in columns)
    at = _align(_TUPLE_HEADER_BYTES + (len(columns) + 7) // 8 * has_null, 8)
    for column in columns:
        width = widths[column.name]
        if width is not None:
            is_short = column.length < 0 and width <= _SHORT_VARLENA
            at = _align(at, 1 if is_short else column.alignment) + width
    return _align(at, 8) + _LINE_POINTER_BYTES


def page_share(size_bytes: float) -> float:
    """Return what a row of a size takes of pages: their headers, and what is left over at their ends, too."""
    if size_bytes >= _PAGE_ROOM_BYTES / 4:
        # Stored out of line, in parts of a quarter of a page.
        return size_bytes * _PAGE_BYTES / _PAGE_ROOM_BYTES + _TUPLE_HEADER_BYTES
    return size_bytes * _PAGE_BYTES / (_PAGE_ROOM_BYTES - size_bytes / 2)


def index_entry_bytes(index: IndexSpace, rows: RowShape) -> float:
    """Return what a row takes in an index on the average."""
    entry = _INDEX_HEADER_BYTES + _align(_key_bytes(index, rows), 8) + _LINE_POINTER_BYTES
    return entry / _INDEX_FILL * _INDEX_SHARE.get(index.method, 1.0)


def _key_bytes(index: IndexSpace, rows: RowShape) -> int:
    return round(sum(_EXPRESSION_BYTES if name is None else rows.widths.get(name, 0) for name in index.columns))


def _align(offset: int, alignment: int) -> int:
    return -(-offset // alignment) * alignment
