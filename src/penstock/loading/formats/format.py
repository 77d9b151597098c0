"""Defines `Format`, the base class with all that a load needs to know about its files.

The methods that a subclass does not override are for a format whose rows are written as COPY text and whose ranges
count rows. Methods with `sources` or `tools` read files; the others are pure.

Also compares committed ranges with an object's present content, and finds the blocks that are not committed.
"""

from __future__ import annotations

import time
import zlib
from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from types import MappingProxyType
from typing import Literal, Protocol, TypeAlias

from isal import isal_zlib

from penstock.core.errors import DataError
from penstock.core.slotted import slotted
from penstock.core.values.dialect import DialectOptions
from penstock.core.values.job import MAX_RECORD_BYTES, TargetJob
from penstock.core.values.notice import Notice
from penstock.core.values.server import ServerFacts
from penstock.core.values.source import ObjectSample, Range
from penstock.core.values.table import ColumnMap, TableFacts
from penstock.core.words import list_names
from penstock.ledger.rejects import RecordForm
from penstock.ledger.values import CommittedRange, Coverage, LedgerUnit
from penstock.loading.copy.payload import Encoder
from penstock.loading.files.streams import SourceReader
from penstock.loading.formats.columns import map_columns
from penstock.loading.formats.probe.columnar import read_folder_values
from penstock.loading.formats.probe.probing import ProbeResult
from penstock.loading.values.objects import Block, PlannedObject
from penstock.loading.values.plan import TargetPlan, table_after_creation
from penstock.loading.warned import WarningLog


class RangeSums:
    """Compares an object with what the ledger has recorded of it, while the object is read.

    CRC-32 checksums of the committed ranges are compared. `committed` are the rows of the ledger. Each has one
    checksum, which includes all its ranges and the header. `header` is the header record that the object has now; the
    caller sets this attribute if there is one.
    """

    def __init__(self, committed: Sequence[CommittedRange]) -> None:
        self._wanted = [row.checksum for row in committed]
        self._found = [0] * len(committed)
        self._last = max((end for row in committed for _, end in row.ranges), default=0)
        self._last_byte = b""
        self.header: bytes | None = None
        self._parts = sorted((start, end, index) for index, row in enumerate(committed) for start, end in row.ranges)
        self._offset = 0

    def watch(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """Yield the pieces of the object's text, and add each to the checksums.

        The first piece must be the beginning of the object.
        """
        for piece in pieces:
            self._add(piece)
            yield piece

    @property
    def edges(self) -> list[Range]:
        """Return the committed ranges of which a part was not read yet."""
        return [(start, end) for start, end, _ in self._parts]

    @property
    def is_done(self) -> bool:
        """Whether the end of the last committed range was read."""
        return self._offset >= self._last

    @property
    def are_equal(self) -> bool:
        """Whether all committed ranges were read, and their checksums and that of the header are as recorded."""
        # An object that is too short has changed, even if the checksum of what is left matches.
        if not self.is_done:
            return False
        header = isal_zlib.crc32(self.header or b"")
        return all(wanted == found ^ header for wanted, found in zip(self._wanted, self._found, strict=True))

    @property
    def is_followed(self) -> bool:
        """Whether something was read after the last committed range."""
        return self._offset > self._last

    @property
    def state(self) -> Literal["same", "grown", "changed"]:
        """Return how the object differs from what is recorded.

        "same": it ends with the last committed range. "grown": records follow that range. "changed": a committed range
        or the header differs.
        """
        if not self.are_equal or (self.is_followed and self._last_byte not in (b"\r", b"\n")):
            return "changed"
        return "grown" if self.is_followed else "same"

    def _add(self, piece: bytes) -> None:
        reach = self._offset + len(piece)
        if self._offset < self._last <= reach:
            self._last_byte = piece[self._last - self._offset - 1 :][:1]
        parts = self._parts
        while parts and parts[0][0] < reach:
            start, end, index = parts.pop(0)
            view = memoryview(piece)[max(0, start - self._offset) : min(end, reach) - self._offset]
            self._found[index] = isal_zlib.crc32(view, self._found[index])
            if end > reach:
                parts.insert(0, (reach, end, index))
                break
        self._offset = reach


class RowSums(RangeSums):
    """Compares an object whose ranges count rows. The checksums are those of the rows as they are sent.

    Blocks must be cut at `edges`.
    """

    def watch_rows(self, blocks: Iterable[Block]) -> Iterator[Block]:
        """Yield blocks of rows, and add each to the checksums. The first block must begin at the first row."""
        for block in blocks:
            self._add_rows(block)
            yield block

    def _add_rows(self, block: Block) -> None:
        # A whole row ends with a line feed.
        self._last_byte = b"\n"
        while self._parts and self._parts[0][1] <= block.start:
            self._parts.pop(0)
        if self._parts and self._parts[0][0] <= block.start < block.end:
            index = self._parts[0][2]
            for buffer, start, end in block.segments:
                self._found[index] = isal_zlib.crc32(memoryview(buffer)[start:end], self._found[index])
        self._offset = block.end


class Edges:
    """Splits an object's text where committed ranges begin and end, and says which blocks are committed.

    Positions have the unit of the ranges: bytes of the object's text, or rows.
    """

    def __init__(self, ranges: Sequence[Range]) -> None:
        self._starts = [start for start, _ in ranges]
        self._ends = [end for _, end in ranges]
        # Cut one byte after each edge too: if a record ends with a lone carriage return, the next byte shows that.
        self._cuts = sorted({cut for edge in (*self._starts, *self._ends) for cut in (edge, edge + 1)})

    def split(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """Yield the same bytes in pieces, none of which has the beginning or end of a committed range inside.

        The first piece must be the beginning of the object.
        """
        offset = 0
        for piece in pieces:
            end = offset + len(piece)
            cuts = self._cuts[bisect_right(self._cuts, offset) : bisect_right(self._cuts, end - 1)]
            if cuts:
                bounds = [0, *(cut - offset for cut in cuts), len(piece)]
                for start, stop in pairwise(bounds):
                    yield piece[start:stop]
            else:
                yield piece
            offset = end

    def contain(self, start: int, end: int) -> bool:
        """Return whether a committed range contains the block from `start` to `end`.

        >>> Edges([(10, 20)]).contain(12, 20), Edges([(10, 20)]).contain(20, 30)
        (True, False)
        """
        index = bisect_right(self._starts, start) - 1
        return index >= 0 and end <= self._ends[index]

    def lie_within(self, start: int, end: int) -> bool:
        """Return whether a committed range begins or ends inside the block from `start` to `end`.

        If one does, the object has changed since that range was committed.

        >>> Edges([(10, 20)]).lie_within(12, 20), Edges([(10, 20)]).lie_within(15, 21)
        (False, True)
        """
        return any(bisect_right(edges, start) < bisect_left(edges, end) for edges in (self._starts, self._ends))


# How much of each file is checked. "columns" includes the dialect, and "records" also the field count of the first
# records.
Depth = Literal["dialect", "columns", "records"]

_NO_HINTS: Mapping[str, str] = MappingProxyType({})


@slotted
class ReadTools:
    """What is needed to open objects. `clock` returns seconds."""

    sources: SourceReader
    server_major: int
    max_record_bytes: int = MAX_RECORD_BYTES
    # Whether records that cannot be sent are rejected. After a stray quote, only its line is rejected.
    rejects_torn: bool = False
    # Whether the rows of columnar files are sent as COPY text in any case.
    sends_text: bool = False
    clock: Callable[[], float] = time.perf_counter


class ObjectReader(Protocol):
    """An open object. It counts what was read, and the time that this took."""

    @property
    def bytes_read(self) -> int:
        """Return how many bytes of the object, as it is stored, were read. Any thread may call this."""

    @property
    def reading_s(self) -> float:
        """Return how many seconds the reader has waited for the object's bytes."""

    @property
    def text_s(self) -> float:
        """Return how many seconds it took to make records of the object's bytes, including `reading_s`."""

    def __enter__(self) -> object: ...

    def __exit__(self, *_: object) -> None: ...


# An open object, its blocks that are not committed, the encoder of the blocks, and the form of its records.
Opened: TypeAlias = "tuple[ObjectReader, Iterable[Block], Encoder, RecordForm]"


class Format(ABC):
    """A format of files: the functions of a load that depend on the format. Methods raise PenstockError."""

    # The name by which a plan names its format.
    name: str
    # What the committed ranges of an object count in the ledger.
    unit: LedgerUnit = "rows"
    # Whether the files are not text.
    is_binary = False
    sums: type[RangeSums] = RowSums
    # Whether records are fields between delimiters. Then a word may stand for null, and a field may be missing.
    is_delimited = False
    # Whether each record names its fields. Then any record may have fields that no other record has.
    is_by_name = False
    # Whether columns have types of their own. Then --types looks only at the names of the objects' folders.
    is_typed = False
    # Whether the names of an object's folders, such as year=2026, are columns too.
    names_folders = False
    # Whether an object without any text counts as one of this format if the other objects are of this format.
    may_be_blank = False
    # Hints for errors of the server, by SQLSTATE. They replace the hints for text.
    hints: Mapping[str, str] = _NO_HINTS
    # The name of the files in the error that refuses --copy-format, None if the format allows the option.
    own_copy: str | None = None
    # Why the server cannot import such objects, None if it can.
    import_obstacle: str | None = "COPY on the server has no such format."

    # ---------------------------------------------------------------- recognized

    @abstractmethod
    def recognize(self, head: bytes, options: DialectOptions, *, is_whole: bool) -> bool:
        """Return whether an object is of this format, according to its first bytes or to the options.

        `head` are its first decompressed bytes. For a binary format they are at least 512, or the whole object if
        `is_whole` is true. For other formats they are decoded text.
        """

    def is_cut(self, head: bytes) -> bool:
        """Return whether a sample that ends after `head` must be extended to the end of its first line."""
        return False

    def read_own(self, sample: ObjectSample, options: DialectOptions, sources: SourceReader) -> object:
        """Return what this format needs to know of an object of a binary format (ObjectSample.own).

        `sample` has the object's first bytes. Raises PenstockError if the object cannot be loaded.
        """
        return None

    def title(self, own: object) -> str:
        """Return the name of the format in messages. `own` is the result of `read_own` for the object."""
        return self.name

    def check_content(self, sample: ObjectSample, options: DialectOptions) -> None:  # noqa: B027 (most need no check)
        """Raise SourceError if an object is recognized as of this format, but its content cannot be loaded."""

    @abstractmethod
    def probe(
        self, sample: ObjectSample, job: TargetJob, facts: TableFacts | None, *, server: ServerFacts, rejects: bool
    ) -> ProbeResult:
        """Return the dialect, the names of the fields and warnings, given the sample of a target's first object.

        `facts` is None if the table is to be created. `rejects` says whether the load rejects bad records. Raises
        UsageError for options that the format does not have.
        """

    def check_sample(self, sample: ObjectSample, target: TargetPlan, warnings: WarningLog, *, depth: Depth) -> None:
        """Raise DataError or TargetError if an object does not fit the first object of its target, or the table.

        `sample` is the object's beginning. `depth` says how much of it is checked.
        """
        if depth != "dialect":
            self.map_sample(sample, target)

    def count_lines(self, sample: ObjectSample) -> int:
        """Return the number of lines of an object including its header, or 2 if `sample` is not the whole object."""
        return len(sample.head.strip().splitlines()) if sample.is_whole else 2

    # ---------------------------------------------------------------- columns

    def map_first(self, sample: ObjectSample, target: TargetPlan, *, rejects: bool) -> ColumnMap:
        """Return which column each field of a target's first object fills. Raises TargetError, UsageError, SourceError.

        If `rejects` is true, it is no error if only some records have a field that has no column: these are rejected.
        """
        return self.map_object(target.header, target, uri=sample.source.uri)

    def map_object(self, header: Sequence[str] | None, target: TargetPlan, *, uri: str) -> ColumnMap:
        """Return which column each field of one object fills. `header` is the object's own header.

        Raises TargetError if the fields do not fit the table. If rows are staged, one statement stores the rows of all
        objects. Then DataError is raised if the object fills other columns than the first one.
        """
        column_map = map_columns(
            header,
            job=target.job,
            table=table_after_creation(target),
            uri=uri,
            edge=target.edge,
            folder_values=read_folder_values(uri) if self.names_folders else {},
            is_typed=self.is_typed,
        )
        others = set(target.column_map.columns)
        if target.is_staged and others and set(column_map.columns) != others:
            here = [name for name in column_map.columns if name not in others]
            first = [name for name in target.column_map.columns if name not in column_map.columns]
            pairs = ((f"{uri} alone fills", here), ("the first file alone fills", first))
            merged = "With --add-columns, too, one statement stores the records of all files: "
            how = merged if target.job.add_columns else "Skip columns with --skip, or "
            raise DataError(
                "the file has different columns from the first one",
                detail=f"{'; '.join(f'{who} {list_names(names)}' for who, names in pairs if names)}.",
                hint=f"{how}{target.landing.alone}.",
            )
        return column_map

    def map_sample(self, sample: ObjectSample, target: TargetPlan) -> ColumnMap:
        """Return which column each field of another object than the first one fills, given the object's beginning.

        Raises the errors of `map_object`.
        """
        header = self.find_header(sample, target)
        if header is None or tuple(header) == target.header:
            return target.column_map
        return self.map_object(header, target, uri=sample.source.uri)

    def find_header(self, sample: ObjectSample, target: TargetPlan) -> Sequence[str] | None:
        """Return the names of the fields of another object than the first one, None if it has no header."""
        return target.header

    def type_columns(self, own: object, fields: Mapping[str, int], *, uri: str) -> dict[str, str]:
        """Return the types of columns that are to be created, by the names of the columns.

        `own` is the result of `read_own`. `fields` has the index of each column's field, by the column's name.
        """
        return dict.fromkeys(fields, "text")

    # ---------------------------------------------------------------- what the plan says

    def find_notices(
        self, sample: ObjectSample, job: TargetJob, facts: TableFacts | None, sources: SourceReader
    ) -> Sequence[Notice]:
        """Return warnings about the content of a target's first object.

        `facts` is None if the table is to be created.
        """
        return ()

    def describe(self, target: TargetPlan) -> str:
        """Return in one line the format, the encoding and the compression of a target's files."""
        packing = "not compressed" if target.sample.compression == "none" else target.sample.compression
        return f"{self.title(target.own)}, {target.sample.bom or target.dialect.encoding}, {packing}"

    def text_bytes(self, works: Sequence[PlannedObject], sample: ObjectSample, size_bytes: int) -> float:
        """Return the estimated bytes of text that are not committed yet.

        `size_bytes` is the stored size of the objects. `sample` is that of the first object. The estimate assumes that
        the objects are compressed as well as zlib compresses the sample.
        """
        committed = sum(end - start for work in works for start, end in work.coverage.ranges)
        if sample.is_whole and [work.source.uri for work in works] == [sample.source.uri]:
            return float(len(sample.head) - committed)
        is_plain = sample.compression == "none" or not sample.head
        ratio = 1.0 if is_plain else len(sample.head) / len(zlib.compress(sample.head))
        return size_bytes * ratio - committed

    # ---------------------------------------------------------------- reading

    @abstractmethod
    def open(self, work: PlannedObject, tools: ReadTools, *, sums: RangeSums | None = None) -> Opened:
        """Open an object.

        Return the open object, its blocks that are not committed, their encoder and the form of the records. The caller
        closes the first of these. `sums` is given all that is read, from the object's beginning on. Raises SourceError,
        DataError, and TargetError if the object's own fields do not fit the table.
        """

    def compare(
        self, work: PlannedObject, committed: Sequence[CommittedRange], tools: ReadTools
    ) -> Literal["same", "grown", "changed"]:
        """Read an object as far as it is committed, and return how it differs from that (see RangeSums.state)."""
        sums = self.sums(committed)
        stream, blocks, _, _ = self.open(replace(work, coverage=Coverage()), tools, sums=sums)
        with stream:
            for _ in blocks:
                if sums.is_followed:
                    break
        return sums.state
