"""Opens columnar files, and decodes the columns that are needed in batches of bounded size.

Row groups (Parquet) and record batches (Arrow) are read in the file's order. One that is committed as a whole is not
read. Rows are numbered from 0 over the whole file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq

from penstock.errors import DataError, FileLocation, SourceError
from penstock.files.columnar.types import is_list, name_sql_type
from penstock.frozen import frozen
from penstock.model.source.columnar import FORMAT_NAMES, ColumnarField, ColumnarFormat, ColumnarSample
from penstock.units import MIB

if TYPE_CHECKING:
    from penstock.files.columnar.ranged import RangedFile
    from penstock.model.load.ledger import Range

# How many bytes, by the footer's count, are decoded at once: enough that a call costs little for each row.
_BATCH_BYTES: Final = 4 * MIB
_BATCH_ROWS: Final = 16_384

# A dictionary may have longer strings than the bytes of its column let expect: so much at once, if all are the longest.
_STRINGS_BYTES: Final = 32 * MIB

# A column that a dictionary stands for takes at most so much for it, and for each value.
_DICTIONARY_BYTES: Final = 2 * MIB
_NUMBER_BYTES: Final = 4

# What a value takes as text at least, with its tab.
_LEAST_VALUE_BYTES: Final = 4

_DETAIL_SHOWN: Final = 200

# Up to this size a row group's columns are each read by one range, which a remote object splits into several requests.
# The columns of a larger one are read by buffers that take about as much memory together.
_WHOLE_BYTES: Final = 64 * MIB
_LEAST_BUFFER_BYTES: Final = MIB // 4
_MOST_BUFFER_BYTES: Final = 16 * MIB


class Batch(NamedTuple):
    """Some rows: the number of the first one, the part of the file that they are of, and a column for each name."""

    start: int
    part: str
    columns: Sequence[Any]

    @property
    def rows(self) -> int:
        """Return how many rows there are."""
        return len(self.columns[0])

    @property
    def size_bytes(self) -> int:
        """Return the length of the values in memory."""
        return sum(column.nbytes for column in self.columns)

    def slice(self, first: int, stop: int) -> Batch:
        """Return the rows from index `first` to the one before index `stop`."""
        return Batch(self.start + first, self.part, [column.slice(first, stop - first) for column in self.columns])


@frozen
class _Part:
    """A row group: its name in errors, its number from 0, its first row, how many rows, and its length decompressed."""

    name: str
    number: int
    start: int
    rows: int
    size_bytes: int

    @property
    def end(self) -> int:
        return self.start + self.rows


class ColumnarFile:
    """An open columnar file. Raises SourceError if it cannot be read or is not valid."""

    def __init__(self, file: RangedFile, file_format: ColumnarFormat, *, uri: str) -> None:
        self._file = file
        self._format = file_format
        self._uri = uri
        self._int96: frozenset[str] = frozenset()
        with self._explaining():
            self._handle = pa.PythonFile(file, mode="r")
            self._opened: Any = pa.ipc.open_file(self._handle) if file_format == "arrow" else self._open_parquet()
            self._parts = self._list_groups() if file_format == "parquet" else []
            self.rows: int = self._opened.metadata.num_rows if file_format == "parquet" else self._opened.count_rows()

    @property
    def _schema(self) -> Any:
        return self._opened.schema_arrow if self._format == "parquet" else self._opened.schema

    def describe(self) -> ColumnarSample:
        """Return the columns of the file, and how much it has."""
        fields = tuple(
            ColumnarField(name=field.name, type_name=str(field.type), sql_type=name_sql_type(field.type))
            for field in self._schema
        )
        is_parquet = self._format == "parquet"
        size_bytes = sum(part.size_bytes for part in self._parts) if is_parquet else self._file.size()
        return ColumnarSample(
            format=self._format,
            fields=fields,
            rows=self.rows,
            parts=len(self._parts) if is_parquet else self._opened.num_record_batches,
            row_bytes=max(size_bytes / self.rows, _LEAST_VALUE_BYTES * len(fields)) if self.rows else 0.0,
        )

    def types(self, names: Sequence[str]) -> list[Any]:
        """Return the Arrow types of the columns of these names."""
        return [self._schema.field(name).type for name in names]

    def batches(self, names: Sequence[str], ranges: Sequence[Range]) -> Iterator[Batch]:
        """Yield the rows within ascending ranges of row numbers, with the columns of these names."""
        for batch in self._read_groups(names, ranges) if self._format == "parquet" else self._read_batches(names):
            for start, end in ranges:
                first, stop = max(start - batch.start, 0), min(end - batch.start, batch.rows)
                if first < stop:
                    yield batch.slice(first, stop)

    def _read_groups(self, names: Sequence[str], ranges: Sequence[Range]) -> Iterator[Batch]:
        for part in self._parts:
            at, last = part.start, max((min(end, part.end) for start, end in ranges if start < part.end), default=0)
            decoded = self._decode(part, names) if at < last else iter(())
            while at < last:
                found = self._take(decoded)
                if found is None:
                    raise self._refuse(f"{part.name} has {at - part.start} rows, and its metadata says {part.rows}")
                yield Batch(at, part.name, [found.column(name) for name in names])
                at += found.num_rows

    def _read_batches(self, names: Sequence[str]) -> Iterator[Batch]:
        # A record batch is read as a whole: its columns are not cut into pages.
        decoded = map(self._opened.get_batch, range(self._opened.num_record_batches))
        at = number = 0
        while (found := self._take(decoded)) is not None:
            number += 1
            yield Batch(at, f"record batch {number}", [found.column(name) for name in names])
            at += found.num_rows

    def _take(self, decoded: Iterator[Any]) -> Any:
        with self._explaining():
            found = next(decoded, None)
            if found is not None:
                found.validate()
            return found

    def _open_parquet(self) -> Any:
        metadata = pq.read_metadata(self._handle)
        self._int96 = _list_int96(metadata)
        return self._open_as(metadata, coerce_int96_timestamp_unit="us" if self._int96 else None)

    def _open_as(self, metadata: Any, **options: Any) -> Any:
        fixed = {"pre_buffer": False, "page_checksum_verification": True, "arrow_extensions_enabled": True}
        return pq.ParquetFile(
            self._handle, metadata=metadata, **{"buffer_size": _choose_buffer(metadata), **fixed, **options}
        )

    def _list_groups(self) -> list[_Part]:
        metadata, start, parts = self._opened.metadata, 0, []
        for number in range(metadata.num_row_groups):
            group = metadata.row_group(number)
            parts.append(
                _Part(
                    name=f"row group {number + 1}",
                    number=number,
                    start=start,
                    rows=group.num_rows,
                    size_bytes=group.total_byte_size,
                )
            )
            start += group.num_rows
        return parts

    def _decode(self, part: _Part, names: Sequence[str]) -> Iterator[Any]:
        rows = max(1, min(_BATCH_ROWS, _BATCH_BYTES * part.rows // max(part.size_bytes, 1)))
        rows = max(1, min(rows, _STRINGS_BYTES // self._find_longest(part, names, rows)))
        decoded: Iterator[Any] = self._opened.iter_batches(rows, row_groups=[part.number], columns=list(names))
        exact = [name for name in names if name in self._int96]
        return self._check_int96(decoded, exact, part, rows) if exact else decoded

    def _find_longest(self, part: _Part, names: Sequence[str], rows: int) -> int:
        """Return a length that no row's strings have together, of those that dictionaries of a row group stand for."""
        group = self._opened.metadata.row_group(part.number)
        columns = [group.column(number) for number in range(group.num_columns)]
        suspects = [
            column
            for column in columns
            if column.physical_type == "BYTE_ARRAY"
            and column.has_dictionary_page
            and (column.path_in_schema in names or column.path_in_schema.split(".")[0] in names)
            and _STRINGS_BYTES // rows < column.total_uncompressed_size
            and column.total_uncompressed_size < _DICTIONARY_BYTES + _NUMBER_BYTES * column.num_values
        ]
        if not suspects:
            return 1
        paths = [column.path_in_schema for column in suspects]
        with self._explaining():
            opened = self._open_as(self._opened.metadata, read_dictionary=paths, buffer_size=_LEAST_BUFFER_BYTES)
            first = next(opened.iter_batches(1, row_groups=[part.number], columns=paths), None)
        found = [texts for column in first or () for texts in _list_dictionaries(column)]
        values = max(-(-column.num_values // max(part.rows, 1)) for column in suspects)
        return int(values) * max((_longest(texts, limit_bytes=_STRINGS_BYTES // rows) for texts in found), default=1)

    def _check_int96(self, decoded: Iterator[Any], names: Sequence[str], part: _Part, rows: int) -> Iterator[Any]:
        """Yield batches whose INT96 columns are in microseconds. Raises DataError if that is not exact.

        INT96 is a day and its nanoseconds, without bounds. Read as 64-bit nanoseconds, a year such as 9999 becomes
        another one, but the difference to its microseconds is right in the lowest 64 bits.
        """
        exact = self._open_as(self._opened.metadata).iter_batches(rows, row_groups=[part.number], columns=list(names))
        at = part.start
        for found in decoded:
            twin = next(exact)
            for name in names:
                rest = _subtract_microseconds(twin.column(name), found.column(name))
                if rest is not None:
                    location = FileLocation(file=self._uri, line=at + rest + 1, column=name, part=part.name)
                    raise DataError(
                        "PostgreSQL has no nanoseconds",
                        detail=f'{location}, column "{name}", in microseconds: "{found.column(name)[rest]}".',
                        hint="Write the file with timestamps of microseconds, or skip the column with --skip.",
                        location=location,
                    )
            at += found.num_rows
            yield found

    @contextmanager
    def _explaining(self) -> Iterator[None]:
        """Raise SourceError for an error of pyarrow. An error of the file that pyarrow reads is raised unchanged."""
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


def _list_int96(metadata: Any) -> frozenset[str]:
    """Return the columns of type INT96, none if one is in a list or a struct."""
    columns = [metadata.schema.column(number) for number in range(metadata.num_columns)]
    found = [column for column in columns if column.physical_type == "INT96"]
    has_nested = any(column.max_repetition_level or column.path != column.name for column in found)
    return frozenset() if has_nested else frozenset(column.name for column in found)


def _subtract_microseconds(nanoseconds: Any, microseconds: Any) -> int | None:
    """Return the first row whose nanoseconds are not whole microseconds."""
    import pyarrow.compute as pc  # noqa: PLC0415 (40 ms)

    # These multiply and subtract without a check: in the lowest 64 bits.
    rest = pc.subtract(nanoseconds.view(pa.int64()), pc.multiply(microseconds.view(pa.int64()), 1000))
    row = pc.index(pc.equal(rest, 0), pa.scalar(value=False)).as_py()
    return None if row < 0 else int(row)


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
    """Return the length of the longest string, or the length of all if that is within the limit."""
    if texts.nbytes <= limit_bytes:
        return int(texts.nbytes) or 1
    import pyarrow.compute as pc  # noqa: PLC0415 (40 ms)

    return int(pc.max(pc.binary_length(texts)).as_py() or 1)


def _choose_buffer(metadata: Any) -> int:
    """Return by how many bytes a column is read, 0 if as a whole."""
    groups = (metadata.row_group(number) for number in range(metadata.num_row_groups))
    sizes = (sum(group.column(n).total_compressed_size for n in range(group.num_columns)) for group in groups)
    if max(sizes, default=0) <= _WHOLE_BYTES:
        return 0
    return int(min(max(_WHOLE_BYTES // metadata.num_columns, _LEAST_BUFFER_BYTES), _MOST_BUFFER_BYTES))
