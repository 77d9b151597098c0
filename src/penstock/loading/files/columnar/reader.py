"""Opens columnar files. Python reads their bytes, always from the version that was listed; the Rust core decodes them.

Row groups (Parquet) and record batches (Arrow) are read in the file's order. A row group is skipped if all its rows are
committed. Rows are numbered from 0 over the whole file.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple, Protocol, Self

from penstock import _native
from penstock.core.errors import SourceError
from penstock.core.values.source import FORMAT_NAMES, ColumnarField, ColumnarFormat, ColumnarSample, Range

# The least length of a value as text, with its tab.
_LEAST_VALUE_BYTES: Final = 4
_DETAIL_SHOWN: Final = 200
# How many bytes of rows become one block. A larger block would save only some microseconds for each column, and queues
# hold eight blocks of an object in memory.
_BLOCK_BYTES: Final = 960 * 1024


class RangedObject(Protocol):
    """An opened object whose ranges can be read in any order. Raises SourceError."""

    def read_at(self, start: int, length_bytes: int) -> bytes:
        """Return the stored bytes from `start`."""

    def close(self) -> None:
        """Close the file or the connections."""


class RangedFile:
    """An object of a known length.

    `bytes_read` and `reading_s` are what was read of it and the seconds that this took. `text_s` is the seconds of
    decoding rows, including `reading_s`.
    """

    def __init__(self, stored: RangedObject, *, size_bytes: int) -> None:
        self._stored = stored
        self.size_bytes = size_bytes
        self.bytes_read = 0
        self.reading_s = self.text_s = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read_at(self, start: int, length_bytes: int) -> bytes:
        """Return the bytes from `start`, fewer only at the end of the object. Raises SourceError."""
        began_s, wanted = time.perf_counter(), min(length_bytes, self.size_bytes - start)
        data = self._stored.read_at(start, wanted) if wanted > 0 else b""
        self.reading_s += time.perf_counter() - began_s
        self.bytes_read += len(data)
        return data

    def close(self) -> None:
        """Close the object."""
        self._stored.close()


class SentColumn(NamedTuple):
    """A column of a file, and the column of the table that it fills."""

    name: str
    # The name of the table's type, and of the type below its domains. None if the table has no such column.
    type_name: str | None
    base_name: str | None


class SentRows(NamedTuple):
    """Some rows as COPY takes them: those with the numbers from `start` up to but not including `end`."""

    data: bytes
    start: int
    end: int
    # The row group or record batch that contains the rows, as messages name it.
    part: str
    # The place of the column with a value that cannot be sent, and why, if this is one row with such a value.
    fault: tuple[int, str] | None


class ColumnarFile:
    """An open columnar file. Raises SourceError if it cannot be read or is not valid."""

    def __init__(self, file: RangedFile, file_format: ColumnarFormat, *, uri: str) -> None:
        self._file = file
        self._format = file_format
        self._uri = uri
        self._as_text: frozenset[int] = frozenset()
        with self._explaining():
            is_parquet = file_format == "parquet"
            self._opened = _native.ColumnarDecoder(file.read_at, size_bytes=file.size_bytes, is_parquet=is_parquet)
        self._numbers = {column[0]: number for number, column in enumerate(self._opened.columns)}
        self.rows = self._opened.rows

    def describe(self) -> ColumnarSample:
        """Return the columns of the file, with the expected lengths of their values, and its rows and parts."""
        rows = self.rows
        fields = [
            ColumnarField(
                name=name,
                type_name=type_name,
                sql_type=sql_type,
                is_untold=is_untold,
                value_bytes=max(size_bytes / rows, _LEAST_VALUE_BYTES) if rows else 0.0,
            )
            for name, type_name, sql_type, is_untold, size_bytes in self._opened.columns
        ]
        return ColumnarSample(format=self._format, fields=tuple(fields), rows=rows, parts=self._opened.parts)

    def read_as_text(self, names: Sequence[str]) -> dict[str, bool]:
        """Find out which of these columns have texts in BINARY, and read them as texts from now on.

        Some writers store texts as BINARY without a logical type. Such a column contains texts if all its values are
        UTF-8, so this method reads all of them. Returns whether that is so for each column of BINARY that has values.
        """
        before, columns = self._file.bytes_read, self._opened.columns
        with self._explaining():
            found = {
                name: is_text
                for name in names
                if columns[self._numbers[name]][3]
                and (is_text := self._opened.holds_texts(self._numbers[name])) is not None
            }
        self._as_text |= {self._numbers[name] for name, is_text in found.items() if is_text}
        # The load will read these columns again. Its progress must count their bytes only once.
        self._file.bytes_read = before
        return found

    def may_differ(self, name: str, kept: tuple[str, int]) -> bool:
        """Return whether a column of the type `kept` (copy/payload.py) may change values of this column."""
        number = self._numbers[name]
        return self._opened.may_differ(number, kept, is_text=number in self._as_text)

    def fits_binary(self, column: SentColumn) -> bool:
        """Return whether the binary format has the column's values, stored as those of their text are."""
        number = self._numbers[column.name]
        return self._opened.fits_binary(number, column.type_name or "", is_text=number in self._as_text)

    def read(
        self, columns: Sequence[SentColumn], ranges: Sequence[Range], *, is_binary: bool, rejects: bool
    ) -> Iterator[SentRows]:
        """Yield the rows within ascending ranges of row numbers, in COPY's binary format or as text.

        With `rejects`, a row with a value that cannot be sent is yielded by itself. Without, RecordError is raised,
        with the reason, the row, the column's place, the value as text, the part, and whether the type's range is why.
        """
        wanted = [
            (number, number in self._as_text, column.type_name, column.base_name)
            for column, number in ((column, self._numbers[column.name]) for column in columns)
        ]
        with self._explaining():
            found = self._opened.read(wanted, ranges, is_binary=is_binary, rejects=rejects, block_bytes=_BLOCK_BYTES)
            while True:
                began_s = time.perf_counter()
                rows = next(found, None)
                self._file.text_s += time.perf_counter() - began_s
                if rows is None:
                    return
                yield SentRows(*rows)

    @contextmanager
    def _explaining(self) -> Iterator[None]:
        """Turn errors of the Rust core in the block into SourceError."""
        name = FORMAT_NAMES[self._format]
        try:
            yield
        except _native.EncryptedError as exc:
            message = f'"{self._uri}" is an encrypted {name} file'
            raise SourceError(message, hint="Write it without encryption.") from exc
        except _native.ColumnarError as exc:
            words = " ".join(str(exc).split())
            shown = words if len(words) <= _DETAIL_SHOWN else f"{words[:_DETAIL_SHOWN]}..."
            message = f'could not read "{self._uri}": it is not a valid {name} file'
            raise SourceError(message, detail=f"{shown.rstrip('.')}.") from exc
