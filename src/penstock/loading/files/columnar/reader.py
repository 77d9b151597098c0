"""Opens columnar files, checks their footers, and decodes the columns that are needed in batches of bounded size.

Row groups (Parquet) and record batches (Arrow) are read in the file's order. A row group is skipped if all its rows are
committed. Rows are numbered from 0 over the whole file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq
from pyarrow import types

from penstock import _native
from penstock.core.errors import DataError, FileLocation, SourceError
from penstock.core.slotted import slotted
from penstock.core.units import KIB, MIB, count_nouns
from penstock.core.values.source import FORMAT_NAMES, ColumnarField, ColumnarFormat, ColumnarSample, Range
from penstock.loading.files.columnar.types import (
    check_values,
    find_nanoseconds,
    has_dictionary,
    is_encoded,
    is_list,
    name_sql_type,
    text_type,
)

if TYPE_CHECKING:
    from penstock.loading.files.columnar.ranged import RangedFile

# How many bytes at the file's end are read first, in one request to an object store. Most footers are shorter than
# this. pyarrow reads the same number of bytes.
_TAIL_BYTES: Final = 64 * KIB

_MAGIC: Final = b"PAR1"
_ENCRYPTED: Final = b"PARE"
# How many bytes follow the footer at the end of a file: the footer's length (4 bytes) and the magic (4 bytes).
_END_BYTES: Final = 8


class ColumnChunk(NamedTuple):
    """The part of a column that is in one row group."""

    # The column's name. For a nested column, the names of its parents come first, separated by dots.
    path: str
    has_strings: bool
    has_dictionary: bool
    # The number of values, including those in lists.
    values: int
    decompressed_bytes: int
    compressed_bytes: int


@slotted
class Group:
    """A row group of a Parquet file, as its footer describes it."""

    rows: int
    # The decompressed length.
    size_bytes: int
    # The chunks of its columns.
    chunks: Sequence[ColumnChunk]


@slotted
class Footer:
    """The footer of a Parquet file."""

    # pyarrow's FileMetaData.
    metadata: Any
    groups: Sequence[Group]


@slotted
class Leaves:
    """The columns with a Parquet type that the Arrow type does not show.

    A nested column is included if one of its parts has such a type. Each field has the indexes of these columns in the
    Arrow schema.
    """

    # Columns with timestamps of 96 bits.
    int96: frozenset[int]
    # Columns with type INTERVAL.
    intervals: frozenset[int]
    # Columns with BINARY without a logical type.
    binaries: frozenset[int]


def read_footer(file: RangedFile, *, uri: str) -> Footer:
    """Return the footer of a file. Raises SourceError if the file is encrypted, ValueError if it is not valid."""
    tail = _read_tail(file, _TAIL_BYTES)
    if tail.endswith(_ENCRYPTED):
        raise _encrypted(uri)
    if not tail.endswith(_MAGIC) or len(tail) < _END_BYTES:
        raise ValueError("it does not end with a footer")
    length_bytes = int.from_bytes(tail[-_END_BYTES : -len(_MAGIC)], "little")
    if length_bytes > file.size() - _END_BYTES:
        raise ValueError(f"its footer is longer than the file: {length_bytes} bytes")
    if length_bytes > len(tail) - _END_BYTES:
        tail = _read_tail(file, length_bytes + _END_BYTES)
    footer = tail[-length_bytes - _END_BYTES :]
    is_encrypted, groups = _native.read_footer(footer[:-_END_BYTES])
    if is_encrypted:
        raise _encrypted(uri)
    return Footer(
        metadata=pq.read_metadata(pa.BufferReader(_MAGIC + footer)),
        groups=[
            Group(rows=rows, size_bytes=size_bytes, chunks=[ColumnChunk(*chunk) for chunk in chunks])
            for rows, size_bytes, chunks in groups
        ],
    )


def find_leaves(metadata: Any, schema: Any) -> Leaves:
    """Return the columns of an Arrow schema that have a Parquet type which the Arrow schema does not show."""
    owners = [index for index, field in enumerate(schema) for _ in range(_count_leaves(field.type))]
    leaves = [metadata.schema.column(number) for number in range(metadata.num_columns)]

    def find(is_such: Any) -> frozenset[int]:
        return frozenset(owner for owner, leaf in zip(owners, leaves, strict=True) if is_such(leaf))

    return Leaves(
        int96=find(lambda leaf: leaf.physical_type == "INT96"),
        intervals=find(lambda leaf: leaf.converted_type == "INTERVAL"),
        binaries=find(lambda leaf: leaf.physical_type == "BYTE_ARRAY" and leaf.logical_type.type == "NONE"),
    )


def _count_leaves(kind: Any) -> int:
    """Return how many Parquet columns store a column of an Arrow type: several if its values are nested."""
    if isinstance(kind, pa.BaseExtensionType):
        return _count_leaves(kind.storage_type)
    if is_encoded(kind):
        return _count_leaves(kind.value_type)
    if not types.is_nested(kind):
        return 1
    return sum(_count_leaves(part) for part in _list_parts(kind))


def _list_parts(kind: Any) -> Iterator[Any]:
    if types.is_map(kind):
        return iter((kind.key_type, kind.item_type))
    return (kind.field(number).type for number in range(kind.num_fields))


def _read_tail(file: RangedFile, length_bytes: int) -> bytes:
    file.seek(max(file.size() - length_bytes, 0))
    return file.read(length_bytes)


def _encrypted(uri: str) -> SourceError:
    return SourceError(f'"{uri}" is an encrypted Parquet file', hint="Write it without encryption.")


# The most bytes (by the sizes in the footer) and the most rows that one call decodes. With this many rows, the fixed
# cost of a call is small for each row.
_BATCH_BYTES: Final = 4 * MIB
_BATCH_ROWS: Final = 16_384

# The most bytes of strings that one call decodes. A few bytes of a column with a dictionary can stand for long strings,
# so each string counts as the longest one of the dictionary.
_STRINGS_BYTES: Final = 32 * MIB

# The most bytes of a column chunk's dictionary, and of each value of such a chunk: a value is stored as a number that
# refers to an entry of the dictionary.
_DICTIONARY_BYTES: Final = 2 * MIB
_NUMBER_BYTES: Final = 4

# The least length of a value as text, with its tab.
_LEAST_VALUE_BYTES: Final = 4

_DETAIL_SHOWN: Final = 200

# In a row group of at most this size, each column is read in one piece. A remote object needs several requests for such
# a piece. In a larger row group, each column is read through a buffer. All buffers together take about this much
# memory.
_WHOLE_BYTES: Final = 64 * MIB
_LEAST_BUFFER_BYTES: Final = MIB // 4
_MOST_BUFFER_BYTES: Final = 16 * MIB

_NO_LEAVES: Final = Leaves(int96=frozenset(), intervals=frozenset(), binaries=frozenset())


class RecordBatch(NamedTuple):
    """Some rows of a file."""

    # The number of the first row in the file, counted from 0.
    start: int
    # The row group or record batch that contains the rows, as messages name it.
    part: str
    # One array for each requested column.
    columns: Sequence[Any]

    @property
    def rows(self) -> int:
        """Return the number of rows."""
        return len(self.columns[0])

    @property
    def size_bytes(self) -> int:
        """Return the length of the values in memory."""
        return sum(column.nbytes for column in self.columns)

    def slice(self, first: int, stop: int) -> RecordBatch:
        """Return the rows from index `first` to the one before index `stop`."""
        return RecordBatch(
            self.start + first, self.part, [column.slice(first, stop - first) for column in self.columns]
        )


@slotted
class _Part:
    """A row group and its place in the file."""

    # The number of the row group, counted from 0.
    number: int
    # The number of the row group's first row in the file.
    start: int
    group: Group

    @property
    def name(self) -> str:
        return f"row group {self.number + 1}"

    @property
    def rows(self) -> int:
        return self.group.rows

    @property
    def end(self) -> int:
        return self.start + self.rows


class ColumnarFile:
    """An open columnar file. Raises SourceError if it cannot be read or is not valid."""

    def __init__(self, file: RangedFile, file_format: ColumnarFormat, *, uri: str) -> None:
        self._file = file
        self._format = file_format
        self._uri = uri
        self._footer: Footer | None = None
        self._leaves = _NO_LEAVES
        self._as_text: frozenset[str] = frozenset()
        with self._explaining():
            self._handle = pa.PythonFile(file, mode="r")
            self._opened: Any = pa.ipc.open_file(self._handle) if file_format == "arrow" else self._open_parquet()
            self._schema = self._opened.schema if file_format == "arrow" else self._opened.schema_arrow
            self._names = self._schema.names
            self._parts = _list_file_parts(self._footer)
            self.rows: int = (
                self._opened.count_rows() if self._footer is None else sum(part.rows for part in self._parts)
            )

    def describe(self) -> ColumnarSample:
        """Return the columns of the file, its number of rows and parts, and the expected length of a row."""
        with self._explaining():
            fields = tuple(self._describe_field(index, field) for index, field in enumerate(self._schema))
        is_parquet = self._format == "parquet"
        size_bytes = sum(part.group.size_bytes for part in self._parts) if is_parquet else self._file.size()
        return ColumnarSample(
            format=self._format,
            fields=fields,
            rows=self.rows,
            parts=len(self._parts) if is_parquet else self._opened.num_record_batches,
            row_bytes=max(size_bytes / self.rows, _LEAST_VALUE_BYTES * len(fields)) if self.rows else 0.0,
        )

    def _describe_field(self, index: int, field: Any) -> ColumnarField:
        if index in self._leaves.intervals:
            return ColumnarField(name=field.name, type_name="INTERVAL", sql_type=None)
        is_untold = index in self._leaves.binaries and text_type(field.type) is not None
        return ColumnarField(
            name=field.name, type_name=str(field.type), sql_type=name_sql_type(field.type), is_untold=is_untold
        )

    def types(self, names: Sequence[str]) -> list[Any]:
        """Return the Arrow types of the columns of these names."""
        kinds = [self._schema.field(name).type for name in names]
        return [text_type(kind) if name in self._as_text else kind for name, kind in zip(names, kinds, strict=True)]

    def read_as_text(self, names: Sequence[str]) -> list[str]:
        """Find out which of these columns have texts in BINARY, read them as texts from now on, and return their names.

        Some writers store texts as BINARY without a logical type. Such a column contains texts if all its values are
        UTF-8, so this method reads all of them.
        """
        before = self._file.bytes_read
        untold = {field.name for field in self.describe().fields if field.is_untold}
        found = [name for name in names if name in untold and self._holds_texts(name)]
        self._as_text |= {*found}
        # The load will read these columns again. Its progress must count their bytes only once.
        self._file.bytes_read = before
        return found

    def _holds_texts(self, name: str) -> bool:
        return all(_is_text(batch.columns[0]) for batch in self.batches([name], [(0, self.rows)]))

    def batches(self, names: Sequence[str], ranges: Sequence[Range]) -> Iterator[RecordBatch]:
        """Yield the rows within ascending ranges of row numbers, with the columns of these names."""
        for batch in self._read_groups(names, ranges) if self._format == "parquet" else self._read_batches(names):
            for start, end in ranges:
                first, stop = max(start - batch.start, 0), min(end - batch.start, batch.rows)
                if first < stop:
                    yield batch.slice(first, stop)

    def _read_groups(self, names: Sequence[str], ranges: Sequence[Range]) -> Iterator[RecordBatch]:
        for part in self._parts:
            at, last = part.start, max((min(end, part.end) for start, end in ranges if start < part.end), default=0)
            decoded = self._decode(part, names) if at < last else iter(())
            while at < last:
                found = self._take(decoded)
                if found is None:
                    raise self._refuse(
                        f"{part.name} has {count_nouns(at - part.start, 'row')}, and its metadata says {part.rows}"
                    )
                yield RecordBatch(at, part.name, [self._column(found, name) for name in names])
                at += found.num_rows

    def _read_batches(self, names: Sequence[str]) -> Iterator[RecordBatch]:
        # Every record batch is read from its first row, because the format has no pages at which a read could begin.
        numbers = range(self._opened.num_record_batches)
        decoded = (self._opened.get_batch(number).select(list(names)) for number in numbers)
        at = number = 0
        while (found := self._take(decoded)) is not None:
            number += 1
            yield RecordBatch(at, f"record batch {number}", [found.column(name) for name in names])
            at += found.num_rows

    def _column(self, found: Any, name: str) -> Any:
        column = found.column(name)
        return column.view(text_type(column.type)) if name in self._as_text else column

    def _take(self, decoded: Iterator[Any]) -> Any:
        with self._explaining():
            found = next(decoded, None)
            if found is not None:
                found.validate()
                # The offsets of values that are decoded from Parquet are pyarrow's own, so they are valid. pyarrow does
                # not check indices into dictionaries. In an Arrow file, validate() checks only the lengths of buffers.
                check_values(found, lambda kind: self._format == "arrow" or has_dictionary(kind))
            return found

    def _open_parquet(self) -> Any:
        self._footer = read_footer(self._file, uri=self._uri)
        opened = self._open_as(self._footer)
        self._leaves = find_leaves(self._footer.metadata, opened.schema_arrow)
        return self._open_as(self._footer, coerce_int96_timestamp_unit="us") if self._leaves.int96 else opened

    def _open_as(self, footer: Footer, **options: Any) -> Any:
        fixed = {"pre_buffer": False, "page_checksum_verification": True, "arrow_extensions_enabled": True}
        return pq.ParquetFile(
            self._handle, metadata=footer.metadata, **{"buffer_size": _choose_buffer(footer.groups), **fixed, **options}
        )

    def _decode(self, part: _Part, names: Sequence[str]) -> Iterator[Any]:
        rows = max(1, min(_BATCH_ROWS, _BATCH_BYTES * part.rows // max(part.group.size_bytes, 1)))
        rows = max(1, min(rows, _STRINGS_BYTES // self._find_longest(part, names, rows)))
        decoded: Iterator[Any] = self._opened.iter_batches(rows, row_groups=[part.number], columns=list(names))
        exact = [name for name in names if self._names.index(name) in self._leaves.int96]
        return self._check_int96(decoded, exact, part, rows) if exact else decoded

    def _find_longest(self, part: _Part, names: Sequence[str], rows: int) -> int:
        """Return the most bytes that one row's strings from dictionaries can have. Return 1 if they need no limit."""
        assert self._footer is not None
        suspects = [
            chunk
            for chunk in part.group.chunks
            if chunk.has_strings
            and chunk.has_dictionary
            and (chunk.path in names or chunk.path.split(".")[0] in names)
            and _STRINGS_BYTES // rows < chunk.decompressed_bytes
            and chunk.decompressed_bytes < _DICTIONARY_BYTES + _NUMBER_BYTES * chunk.values
        ]
        if not suspects:
            return 1
        paths = [chunk.path for chunk in suspects]
        with self._explaining():
            opened = self._open_as(self._footer, read_dictionary=paths, buffer_size=_LEAST_BUFFER_BYTES)
            first = next(opened.iter_batches(1, row_groups=[part.number], columns=paths), None)
            found = [texts for column in first or () for texts in _list_dictionaries(column)]
        values = max(-(-chunk.values // max(part.rows, 1)) for chunk in suspects)
        return int(values) * max((_longest(texts, limit_bytes=_STRINGS_BYTES // rows) for texts in found), default=1)

    def _check_int96(self, decoded: Iterator[Any], names: Sequence[str], part: _Part, rows: int) -> Iterator[Any]:
        """Yield the batches of `decoded`, whose INT96 columns are read in microseconds.

        Raises DataError if a value of the columns `names` has nanoseconds.
        """
        assert self._footer is not None
        exact = self._open_as(self._footer).iter_batches(rows, row_groups=[part.number], columns=list(names))
        at = part.start
        for found in decoded:
            twin = next(exact)
            for name in names:
                row = find_nanoseconds(twin.column(name), found.column(name))
                if row is not None:
                    location = FileLocation(file=self._uri, line=at + row + 1, column=name, part=part.name)
                    raise DataError(
                        "PostgreSQL has no nanoseconds",
                        detail=f'{location}, column "{name}", in microseconds: "{found.column(name)[row]}".',
                        hint="Write the file with timestamps of microseconds, or skip the column with --skip.",
                        location=location,
                    )
            at += found.num_rows
            yield found

    @contextmanager
    def _explaining(self) -> Iterator[None]:
        """Turn pyarrow's errors in the block into SourceError.

        If reading the object has failed, raise that error instead.
        """
        try:
            yield
        except (pa.ArrowException, OSError, ValueError, KeyError, EOFError) as exc:
            if self._file.failure is not None:
                raise self._file.failure from None
            words = " ".join(str(exc).split())
            raise self._refuse(words if len(words) <= _DETAIL_SHOWN else f"{words[:_DETAIL_SHOWN]}...") from exc

    def _refuse(self, detail: str) -> SourceError:
        name = FORMAT_NAMES[self._format]
        return SourceError(
            f'could not read "{self._uri}": it is not a valid {name} file', detail=f"{detail.rstrip('.')}."
        )


def _list_file_parts(footer: Footer | None) -> list[_Part]:
    parts: list[_Part] = []
    for number, group in enumerate(() if footer is None else footer.groups):
        parts.append(_Part(number=number, start=parts[-1].end if parts else 0, group=group))
    return parts


def _is_text(column: Any) -> bool:
    try:
        column.view(text_type(column.type)).validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _list_dictionaries(array: Any) -> list[Any]:
    """Return the dictionaries of an array, and of the lists, structs and maps in it."""
    kind = array.type
    if pa.types.is_dictionary(kind):
        return [array.dictionary]
    if is_list(kind) or pa.types.is_map(kind):
        return _list_dictionaries(array.values)
    parts = [array.field(number) for number in range(kind.num_fields)] if pa.types.is_struct(kind) else []
    return [found for part in parts for found in _list_dictionaries(part)]


def _longest(texts: Any, *, limit_bytes: int) -> int:
    """Return the length of the longest string in bytes.

    If all strings together are within the limit, return their total length, which needs no search.
    """
    if texts.nbytes <= limit_bytes:
        return int(texts.nbytes) or 1
    import pyarrow.compute as pc  # noqa: PLC0415 (40 ms)

    return int(pc.max(pc.binary_length(texts)).as_py() or 1)


def _choose_buffer(groups: Sequence[Group]) -> int:
    """Return the size of the buffer through which each column is read, 0 to read columns in one piece."""
    sizes = (sum(chunk.compressed_bytes for chunk in group.chunks) for group in groups)
    if max(sizes, default=0) <= _WHOLE_BYTES:
        return 0
    columns = max(len(group.chunks) for group in groups)
    return int(min(max(_WHOLE_BYTES // columns, _LEAST_BUFFER_BYTES), _MOST_BUFFER_BYTES))
