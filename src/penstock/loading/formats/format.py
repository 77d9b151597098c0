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
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from isal import isal_zlib

from penstock.core.errors import DataError
from penstock.core.slotted import slotted
from penstock.core.values.job import MAX_RECORD_BYTES, TargetJob
from penstock.core.values.source import ObjectSample, Range
from penstock.core.words import list_names
from penstock.ledger.values import CommittedRange, Coverage, LedgerUnit
from penstock.loading.formats.columns import map_columns
from penstock.loading.formats.probe.columnar import read_folder_values
from penstock.loading.values.block import Block
from penstock.loading.values.plan import TargetPlan, table_after_creation

if TYPE_CHECKING:
    from penstock.core.values.dialect import DialectOptions
    from penstock.core.values.notice import Notice
    from penstock.core.values.server import ServerFacts
    from penstock.core.values.table import ColumnMap, TableFacts
    from penstock.ledger.rejects import RecordForm
    from penstock.loading.copy.payload import Encoder
    from penstock.loading.files.streams import SourceReader
    from penstock.loading.formats.probe.probing import ProbeResult
    from penstock.loading.values.work import PlannedObject
    from penstock.loading.warned import WarningLog


class RangeSums:
    """Computes the CRC-32 of an object's present bytes in committed ranges, as the object's pieces are read.

    Each row of `committed` has one checksum, for all its ranges together. `header` is the object's present header
    record; the caller sets it if there is one.
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
        """Add each piece to the checksums, and yield it. The first piece must begin at the object's start."""
        for piece in pieces:
            self._add(piece)
            yield piece

    @property
    def edges(self) -> list[Range]:
        """Return the committed ranges whose checksums are not complete yet."""
        return [(start, end) for start, end, _ in self._parts]

    @property
    def is_done(self) -> bool:
        """Whether the last range has been read."""
        return self._offset >= self._last

    @property
    def are_equal(self) -> bool:
        """Whether all ranges have been read and are the same as when they were committed."""
        # An object that is too short has changed, even if the checksum of what is left matches.
        if not self.is_done:
            return False
        header = isal_zlib.crc32(self.header or b"")
        return all(wanted == found ^ header for wanted, found in zip(self._wanted, self._found, strict=True))

    @property
    def is_followed(self) -> bool:
        """Whether bytes have been read after the last range."""
        return self._offset > self._last

    @property
    def state(self) -> Literal["same", "grown", "changed"]:
        """Return "same" if the object ends with the last range, "grown" if records follow it, else "changed"."""
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
    """Computes the CRC-32 of rows in the form in which they are sent. Blocks must be cut at `edges`."""

    def watch_rows(self, blocks: Iterable[Block]) -> Iterator[Block]:
        """Add each block to the checksums, and yield it. The first block must begin at the first row."""
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
    """Splits an object's pieces at the edges of committed ranges, and finds out which blocks are committed."""

    def __init__(self, ranges: Sequence[Range]) -> None:
        self._starts = [start for start, _ in ranges]
        self._ends = [end for _, end in ranges]
        # Cut one byte after each edge too: if a record ends with a lone carriage return, the next byte shows that.
        self._cuts = sorted({cut for edge in (*self._starts, *self._ends) for cut in (edge, edge + 1)})

    def split(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """Yield the same bytes in pieces that have no edge inside. The first piece must begin at the object's start."""
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
        """Return whether a block, from `start` to `end`, is committed.

        >>> Edges([(10, 20)]).contain(12, 20), Edges([(10, 20)]).contain(20, 30)
        (True, False)
        """
        index = bisect_right(self._starts, start) - 1
        return index >= 0 and end <= self._ends[index]

    def lie_within(self, start: int, end: int) -> bool:
        """Return whether a committed range begins or ends inside a block. Then the object has changed since.

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
    """What is needed to open objects."""

    sources: SourceReader
    server_major: int
    max_record_bytes: int = MAX_RECORD_BYTES
    # Whether records that cannot be sent are rejected. After a stray quote, only its line is rejected.
    rejects_torn: bool = False
    # Whether the rows of columnar files are sent as COPY text in any case.
    sends_text: bool = False
    clock: Callable[[], float] = time.perf_counter


class ObjectReader(Protocol):
    """An open object: how much of it was read, and the time that took."""

    @property
    def bytes_read(self) -> int:
        """Return how many stored bytes were read. Any thread may call this."""

    @property
    def reading_s(self) -> float:
        """Return the seconds of waiting for stored bytes."""

    @property
    def text_s(self) -> float:
        """Return the seconds of turning stored bytes into records, including `reading_s`."""

    def __enter__(self) -> object: ...

    def __exit__(self, *_: object) -> None: ...


# An open object, its blocks that are not committed, the encoder of the blocks, and the form of its records.
Opened: TypeAlias = "tuple[ObjectReader, Iterable[Block], Encoder, RecordForm]"


class Format(ABC):
    """A format of files: what a load needs to know that depends on it. Methods raise PenstockError."""

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
        """Return whether an object with this beginning is of this format, or the options say so.

        `head` is decompressed. A binary format gets at least 512 bytes, unless `is_whole` says that the object has
        fewer. Other formats get decoded text.
        """

    def is_cut(self, head: bytes) -> bool:
        """Return whether a sample, of which `head` was read, must go on to the end of its first line."""
        return False

    def read_own(self, sample: ObjectSample, options: DialectOptions, sources: SourceReader) -> object:
        """Return ObjectSample.own for an object of a binary format. `sample` has the object's first bytes.

        Raises PenstockError if the object cannot be loaded.
        """
        return None

    def title(self, own: object) -> str:
        """Return the format's name in messages. `own` is what `read_own` has returned for the object."""
        return self.name

    def check_content(self, sample: ObjectSample, options: DialectOptions) -> None:  # noqa: B027 (most need no check)
        """Raise SourceError if an object begins like this format but has other content."""

    @abstractmethod
    def probe(
        self, sample: ObjectSample, job: TargetJob, facts: TableFacts | None, *, server: ServerFacts, rejects: bool
    ) -> ProbeResult:
        """Find the dialect and the names of the fields from the first object's sample.

        `facts` is None if the table is to be created. Raises UsageError for options that the format does not have.
        """

    def check_sample(self, sample: ObjectSample, target: TargetPlan, warnings: WarningLog, *, depth: Depth) -> None:
        """Raise DataError or TargetError if another object of this format does not fit the first one or the table."""
        if depth != "dialect":
            self.map_sample(sample, target)

    def count_lines(self, sample: ObjectSample) -> int:
        """Return the number of lines of an object, with its header. 2 stands for any larger number."""
        return len(sample.head.strip().splitlines()) if sample.is_whole else 2

    # ---------------------------------------------------------------- columns

    def map_first(self, sample: ObjectSample, target: TargetPlan, *, rejects: bool) -> ColumnMap:
        """Return the column of each field of the first object. Raises TargetError, UsageError, SourceError.

        With `rejects`, a field that only some records have needs no column: the records with it are rejected.
        """
        return self.map_object(target.header, target, uri=sample.source.uri)

    def map_object(self, header: Sequence[str] | None, target: TargetPlan, *, uri: str) -> ColumnMap:
        """Return the column of each field of one object, given the object's own header.

        Raises TargetError if the columns do not fit the table. If rows are staged, one statement moves the rows of all
        objects, so DataError is raised if the first object has other columns.
        """
        column_map = map_columns(
            header,
            job=target.job,
            table=table_after_creation(target),
            uri=uri,
            edge=target.edge,
            folder_values=read_folder_values(uri) if self.names_folders else {},
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
        """Return the columns of another object's fields, given its beginning. Raises the errors of `map_object`."""
        header = self.find_header(sample, target)
        if header is None or tuple(header) == target.header:
            return target.column_map
        return self.map_object(header, target, uri=sample.source.uri)

    def find_header(self, sample: ObjectSample, target: TargetPlan) -> Sequence[str] | None:
        """Return the names of the fields of another object, None if it has no header."""
        return target.header

    def type_columns(self, own: object, fields: Mapping[str, int], *, uri: str) -> dict[str, str]:
        """Return the types of columns that are to be created. `fields` has the index of each column's field."""
        return dict.fromkeys(fields, "text")

    # ---------------------------------------------------------------- what the plan says

    def find_notices(
        self, sample: ObjectSample, job: TargetJob, facts: TableFacts | None, sources: SourceReader
    ) -> Sequence[Notice]:
        """Return warnings about the first object's content. `facts` is None if the table is to be created."""
        return ()

    def describe(self, target: TargetPlan) -> str:
        """Return the format of a target's files in one line."""
        packing = "not compressed" if target.sample.compression == "none" else target.sample.compression
        return f"{self.title(target.own)}, {target.sample.bom or target.dialect.encoding}, {packing}"

    def text_bytes(self, works: Sequence[PlannedObject], sample: ObjectSample, size_bytes: int) -> float:
        """Estimate the bytes of text that are left of objects with this stored size.

        `sample` is the sample of the first object.

        The estimate assumes that the objects are compressed as well as zlib compresses the sample.
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
        """Open an object to read what is not committed. The caller closes the stream.

        `sums` computes checksums of all that is read from the beginning on. Raises SourceError, DataError, and
        TargetError if the object's own fields do not fit the table.
        """

    def compare(
        self, work: PlannedObject, committed: Sequence[CommittedRange], tools: ReadTools
    ) -> Literal["same", "grown", "changed"]:
        """Compare an object with the ranges that are committed. RangeSums.state explains the results."""
        sums = self.sums(committed)
        stream, blocks, _, _ = self.open(replace(work, coverage=Coverage()), tools, sums=sums)
        with stream:
            for _ in blocks:
                if sums.is_followed:
                    break
        return sums.state
