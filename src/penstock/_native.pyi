"""Stub of the Rust module, which cuts, splits and rewrites records. It takes buffers and returns counts and bytes."""

import os
from collections.abc import Callable, Sequence
from typing import Literal, Self, TypeAlias, final

LineEnd: TypeAlias = Literal["lf", "crlf", "cr"]
# The types that the values of a column allow: their bits, the first value that is not null, and the values at which
# types were lost, each with the bits of these types. A value comes with its line.
Types: TypeAlias = tuple[int, tuple[int, bytes] | None, list[tuple[int, tuple[int, bytes]]]]
# Values that a column would change: the index of the column, the bits of the change, the number of values, and the line
# of the first one in the runs, from 0, with its first 60 bytes.
Change: TypeAlias = tuple[int, int, int, int, bytes]

# The words that other programs write for null.
NULL_WORDS: list[str]

class RecordError(ValueError):
    """A record violates the dialect. The args are (message, record, line), counted from 0 in the first buffer."""

@final
class Cut:
    r"""What the last buffer has completed: counts since the previous cut, and where the last whole record ends.

    `end` is an offset in the buffer. It is 0 if no record ended in the buffer, or if one ended just before it
    (`records` shows which). `lines` are the file's physical lines. `server_lines` is by how much the server's line
    counter advances. `stray_backslashes` are the backslashes of tsv, except those of \N fields; they must be doubled in
    COPY text. `is_end` is true if the end-of-data marker was found.
    """

    end: int
    records: int
    lines: int
    server_lines: int
    stray_backslashes: int
    is_end: bool

@final
class RecordCutter:
    """Finds where records end, by the rules of PostgreSQL's CopyReadLineText; raises RecordError."""

    def __new__(
        cls,
        *,
        format: str,
        delimiter: bytes,
        quote: bytes | None = None,
        escape: bytes | None = None,
        checks_end_marker: bool = False,
    ) -> RecordCutter: ...
    def feed(self, data: bytes) -> Cut:
        """Take the next bytes of the object."""

    def feed_one(self, data: bytes) -> Cut:
        """Take only the first record of `data`. The caller feeds what follows `end` again."""

    def finish(self) -> Cut:
        """Return what is left at the end of the object: a last record without a line end, or nothing."""

    def salvage(self) -> Cut:
        """Return the whole records between the last cut and an error. `end` counts from the end of that cut."""

    def restart(self, line_end: LineEnd | None) -> None:
        """Begin again at the beginning of a record. `line_end` is how records end, if that is known."""

    def find_torn(
        self, segments: Sequence[tuple[bytes, int, int]], *, field_count: int, ends_empty: bool
    ) -> tuple[int, int, int, str] | None:
        """Find the first of whole records that has several lines and a wrong number of fields.

        If `ends_empty` is true, a record may have one more field that is blank. Return where the record begins, how
        many records and lines are before it, and the error.
        """

    @property
    def line_end(self) -> LineEnd | None:
        """Return how the object ends its records, None before the first one has ended."""

@final
class Rewriter:
    """Writes whole records again for COPY: one null string, fewer fields, more constants, and tsv as COPY text."""

    def __new__(
        cls,
        *,
        format: str,
        delimiter: bytes,
        quote: bytes | None = None,
        escape: bytes | None = None,
        nulls: Sequence[bytes],
        keep: Sequence[int] | None = None,
        constants: Sequence[bytes | None] | None = None,
        field_count: int | None = None,
        ends_empty: bool = False,
    ) -> Rewriter: ...
    def with_notations(self, notations: Sequence[tuple[str, str, Sequence[bytes], bool] | None]) -> Rewriter:
        """Return the rewriter that writes values in a column's notation in their plain form.

        For each column that is kept: its name, the notation (see ColumnMap.notations), what separates thousands, and
        whether a quoted null is null; None if its values are written as they are.
        """

    def fits_any(self, segments: Sequence[tuple[bytes, int, int]], line_end: LineEnd) -> bool:
        """Return whether at least one record of the runs has the number of fields that all must have."""

    def rewrite(
        self,
        segments: Sequence[tuple[bytes, int, int]],
        line_end: LineEnd,
        *,
        extra: Sequence[bytes | None] | None = None,
    ) -> bytes:
        """Return the records of the (buffer, start, end) runs, each ended by a line feed. Raises RecordError.

        `extra` are constants of these records alone. They follow the rewriter's own.
        """

    def write_plain(
        self,
        segments: Sequence[tuple[bytes, int, int]],
        line_end: LineEnd,
        records: int,
        *,
        marks: bytes,
        columns: int,
    ) -> bytes | None:
        """Return the records as csv without quotes, None if they cannot be written so; constants are left out.

        `marks` are its delimiter, its quote, which does not occur, and its null. Each record gets `columns` fields.
        """

    def find_changes(
        self,
        segments: Sequence[tuple[bytes, int, int]],
        line_end: LineEnd,
        *,
        columns: Sequence[tuple[str, int]],
        forced: Sequence[bool],
    ) -> list[Change]:
        """Return the values that columns would change. `columns` are the types of the columns, with their limits.

        `forced` says for each column whether a quoted null string is null in it.
        """

    def find_types(
        self, segments: Sequence[tuple[bytes, int, int]], line_end: LineEnd, *, wanted: int, forced: Sequence[bool]
    ) -> list[Types]:
        """Return, for each written column, the types of `wanted` that accept all its values; [] without records.

        Types are bits (`TYPES` and `KEPT` in loading/values/types.py). A column has its bits, its first value that is
        not null, and the values at which bits were lost. Each value has its line in the runs, from 0, and is cut after
        60 bytes. `forced` says for each column whether a quoted null string is null in it. Records with a wrong number
        of fields are skipped.
        """

@final
class JsonRewriter:
    r"""Writes records of JSON Lines as COPY text with tabs and \N."""

    def __new__(
        cls,
        *,
        names: Sequence[tuple[bytes, int | None]],
        takes_json: Sequence[bool],
        constants: Sequence[bytes | None] | None = None,
        skips_others: bool = False,
    ) -> JsonRewriter:
        """Return a rewriter. `names` have the index of their column, None if their values are skipped.

        If `skips_others`, the values of all other names are skipped, too; otherwise a record with one is an error.

        Without names, the whole record is the value of the only column. `takes_json` says for each column whether it
        gets its values as JSON.
        """

    def fits_any(self, segments: Sequence[tuple[bytes, int, int]], line_end: LineEnd) -> bool:
        """Return whether at least one record of the runs can be written."""

    def find_partial(self, segments: Sequence[tuple[bytes, int, int]]) -> tuple[int, int] | None:
        """Return the line, from 0, of the first record that lacks a column's name, and the index of that column.

        None if all records name all columns. Records that cannot be read are skipped.
        """

    def rewrite(
        self,
        segments: Sequence[tuple[bytes, int, int]],
        line_end: LineEnd,
        *,
        extra: Sequence[bytes | None] | None = None,
    ) -> bytes:
        """Return the records of the (buffer, start, end) runs as Rewriter does. Raises RecordError."""

    def find_changes(
        self,
        segments: Sequence[tuple[bytes, int, int]],
        line_end: LineEnd,
        *,
        columns: Sequence[tuple[str, int]],
        forced: Sequence[bool],
    ) -> list[Change]:
        """Return the values that columns would change, as Rewriter does. Records that cannot be read are skipped."""

def find_json_types(
    segments: Sequence[tuple[bytes, int, int]], *, wanted: int, only: set[bytes] | None = None
) -> list[tuple[bytes, Types]]:
    """Return the names in records of JSON Lines, in the order in which they first appear, and what their values allow.

    Records that cannot be read are skipped. If `only` is given, names are skipped that it does not have in lower case
    without blanks around them.
    """

def find_json_end(text: bytes) -> int | None:
    """Return where the object or array that begins a text ends, None if it does not end. The JSON need not be valid."""

@final
class Record:
    """A record of a sample: the bytes [start, end) without the line end, which are `text`, and its line in the file."""

    start: int
    end: int
    line: int
    text: bytes

@final
class Records:
    """A sample cut into records.

    `whole` are the records that end within the sample. `pieces` has one more record if something is left: a record that
    the sample's end cuts, or one with a quoted field that begins at `open_quote` and never ends. `odd_line` is the
    first line that does not end as the first line does.
    """

    whole: tuple[Record, ...]
    pieces: tuple[Record, ...]
    line_end: LineEnd | None
    odd_line: int | None
    open_quote: int | None

@final
class BinaryEncoder:
    """Encodes whole records of csv, text or tsv in COPY's binary format. In csv, the quote must be the escape."""

    def __new__(
        cls,
        *,
        format: str,
        delimiter: bytes,
        quote: bytes | None = None,
        null: bytes,
        kinds: Sequence[str],
        column_types: Sequence[tuple[str, int]] | None = None,
    ) -> BinaryEncoder:
        """`column_types` are names and limits. A block with a value that its column does not keep is not encoded."""

    def encode(self, segments: Sequence[tuple[bytes, int, int]], line_end: LineEnd, records: int) -> bytes | None:
        """Return the rows without COPY's header and trailer, None if the block must be sent as text."""

    def examine(
        self, segments: Sequence[tuple[bytes, int, int]], line_end: LineEnd
    ) -> tuple[int, list[tuple[int, int]], tuple[int, int | None, str] | None]:
        """Return the number of records, the count and the bytes of each column's values that are not null, and None.

        If the block cannot be encoded, return the first record that cannot, an empty list, and (record, column, rule).
        """

@final
class Form:
    """The characters that decide where records and fields end, one byte each. Only csv has a quote and an escape.

    The records and fields are those that the load will find. But what COPY refuses is passed over here.
    """

    def __new__(
        cls, *, format: str, delimiter: bytes, quote: bytes | None = None, escape: bytes | None = None
    ) -> Form: ...
    @property
    def format(self) -> Literal["csv", "text", "tsv", "jsonl"]: ...
    @property
    def delimiter(self) -> bytes: ...
    @property
    def quote(self) -> bytes | None: ...
    def cut(self, data: bytes, *, is_whole: bool, first_line: int = 1) -> Records:
        """Return the sample's records. If the last one has no line end, it is whole only if the sample `is_whole`."""

    def count_fields(self, record: bytes) -> int:
        """Return how many fields a record, or the beginning of one, has."""

    def split(self, record: bytes) -> list[tuple[bytes, bytes | None]]:
        """Return the fields of a record without its line end. Raises RecordError for a quoted field that does not end.

        Each field is its value without quotes and escapes, and the bytes to compare with null strings, None if it is
        quoted.
        """

    def find_stray_quote(self, record: bytes) -> int | None:
        """Return the index of the first field with a stray quote, None if there is none."""

    def encloses_fields(self, records: Sequence[bytes]) -> bool:
        """Return whether the quotes of csv records enclose fields, and are not data."""

def used_features() -> list[str]:
    """Return the features of the processor that the core uses, such as avx2."""

def recognize(value: bytes, wanted: int) -> tuple[int, int]:
    """Return the types of `wanted` that accept a value, and those that would write it in the same form, as bits."""

def find_change(value: bytes, name: str, limit: int) -> int:
    """Return what a column of a type with a limit does not keep of a value, as bits (`CHANGES`)."""

def double_backslashes(segments: Sequence[tuple[bytes, int, int]], *, delimiter: bytes, count: int) -> bytes:
    """Return tsv records, which end with line feeds, as COPY text. `count` is the number of their stray backslashes."""

def find_doubts(
    segments: Sequence[tuple[bytes, int, int]],
    *,
    is_csv: bool,
    delimiter: bytes,
    line_end: LineEnd,
    nulls: Sequence[bytes],
    with_backslashes: bool,
) -> list[tuple[int, int]]:
    r"""Return how often each kind of doubt was found in a format that was guessed, and the line of the first, from 0.

    The runs together hold whole records. The kinds: fields in quotes of a format without quotes; backslashes that COPY
    TO writes; other backslashes; quotes of csv that open behind a value or close before one; fields in single quotes;
    fields that are one of `nulls`. The backslashes of \N fields do not count.
    """

def find_controls(segments: Sequence[tuple[bytes, int, int]], *, line_end: LineEnd) -> tuple[int, int]:
    """Return how many bytes are control characters in ISO 8859 (0x80 to 0x9F), and the line of the first, from 0."""

class ColumnarError(ValueError):
    """A columnar file that is damaged, or a table in memory that cannot be copied."""

class EncryptedError(ColumnarError):
    """A Parquet file that is encrypted, or has columns that are."""

# A column that is read: its number, whether its byte strings are texts, and the names of the table's type and of the
# type below its domains.
Wanted: TypeAlias = tuple[int, bool, str | None, str | None]

# Rows, the numbers of the first one and of the one behind the last one, the name of their part, and the place of the
# column with a fault and the reason.
FoundRows: TypeAlias = tuple[bytes, int, int, str, tuple[int, str] | None]

@final
class ColumnarDecoder:
    """An open Parquet or Arrow file.

    `read_at` returns the bytes from a place of the file, of a length. Methods raise what it raises, and ColumnarError.
    """

    def __new__(cls, read_at: Callable[[int, int], bytes], *, size_bytes: int, is_parquet: bool) -> Self: ...
    @property
    def rows(self) -> int: ...
    @property
    def parts(self) -> int:
        """Return the number of row groups or record batches."""
    @property
    def columns(self) -> list[tuple[str, str, str | None, bool, int]]:
        """Return each column's name, its type's name in Arrow, the type of a column that has its values, and more.

        The third is None if such values cannot be loaded. The fourth is whether it is unknown if they are texts or
        bytes, and the last the length of all values, decoded; in an Arrow file all columns have the same.
        """
    def holds_texts(self, column: int) -> bool | None:
        """Return whether all values of a column of byte strings or of lists of them are UTF-8, None without values."""
    def may_differ(self, column: int, kept: tuple[str, int], *, is_text: bool) -> bool:
        """Return whether a column of a type and a limit (copy/payload.py) may change a value."""
    def fits_binary(self, column: int, type_name: str, *, is_text: bool) -> bool:
        """Return whether values can be sent to a column of a type in the binary format."""
    def read(
        self,
        columns: Sequence[Wanted],
        ranges: Sequence[tuple[int, int]],
        *,
        is_binary: bool,
        rejects: bool,
        block_bytes: int,
    ) -> ColumnarRows:
        """Return the rows within ascending ranges, in blocks that end with the row that makes them so long.

        With `rejects`, a row with a value that cannot be sent is a block of its own. Without, RecordError has the
        reason, the row, the column's place, the value as text, the part, and whether the type's range is the reason.
        """

@final
class ColumnarRows:
    """Rows of a columnar file, in blocks."""

    def __iter__(self) -> Self: ...
    def __next__(self) -> FoundRows: ...

def write_stream(capsule: object, path: os.PathLike[str]) -> None:
    """Copy a stream of the Arrow C stream interface, which is read once, to a new Arrow file. Raises ColumnarError."""
