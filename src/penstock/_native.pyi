"""Stub of the Rust module: records are cut, split and rewritten. Buffers go in, counts and bytes come out."""

from collections.abc import Sequence
from typing import Literal, TypeAlias, final

LineEnd: TypeAlias = Literal["lf", "crlf", "cr"]
# What the values of a column allow: types as bits, the first value that is not null, and the values at which types
# were lost.
Types: TypeAlias = tuple[int, tuple[int, bytes] | None, list[tuple[int, tuple[int, bytes]]]]
# Values that a column would store otherwise: its index, what is lost as bits, how many they are, and the
# first one's line in the runs, from 0, and its first 60 bytes.
Change: TypeAlias = tuple[int, int, int, int, bytes]

class RecordError(ValueError):
    """A record breaks the dialect; args are (message, record, line), both 0-based from the first buffer fed."""

@final
class Cut:
    r"""What one fed buffer completed: counts since the previous cut, and where its last whole record ends.

    `end` is an offset in the buffer, 0 where no record ended in it (or one ended just before it: `records` tells).
    `lines` are the file's physical lines, `server_lines` what the server's line counter advances by. Those
    `stray_backslashes` of tsv are no \N field's and must be doubled in COPY text. `is_end`: the end-of-data marker was
    met.
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
        """Take no more than the first record of `data`; feed what is behind `end` again."""

    def finish(self) -> Cut:
        """Tell what is left at the object's end: a last record without a line end, or nothing."""

    def salvage(self) -> Cut:
        """Tell which whole records were met since the last cut before an error; `end` counts from that cut's end."""

    def restart(self, line_end: LineEnd | None) -> None:
        """Begin anew at the beginning of a record, with what is known of how records end."""

    def find_torn(
        self, segments: Sequence[tuple[bytes, int, int]], *, field_count: int, ends_empty: bool
    ) -> tuple[int, int, int, str] | None:
        """Return the first of whole records that spans lines and has another number of fields.

        With `ends_empty` one blank field more is none.

        That is where it begins, the records and lines before it, and why it is none.
        """

    @property
    def line_end(self) -> LineEnd | None:
        """How the object ends its records, known after the first."""

@final
class Rewriter:
    """Writes whole records again for COPY: nulls united, fields left out, constants appended, tsv as COPY text."""

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
    def fits_any(self, segments: Sequence[tuple[bytes, int, int]], line_end: LineEnd) -> bool:
        """Tell whether any record of the runs has the number of fields that all must have."""

    def rewrite(
        self,
        segments: Sequence[tuple[bytes, int, int]],
        line_end: LineEnd,
        *,
        extra: Sequence[bytes | None] | None = None,
    ) -> bytes:
        """Return the records of the (buffer, start, end) runs, each ended by a line feed; raises RecordError.

        `extra` are constants of these records alone, appended behind the rewriter's own.
        """

    def find_changes(
        self,
        segments: Sequence[tuple[bytes, int, int]],
        line_end: LineEnd,
        *,
        columns: Sequence[tuple[str, int]],
        forced: Sequence[bool],
    ) -> list[Change]:
        """Return what the columns that are kept, of these types with their limits, would store otherwise.

        `forced` says of which columns quoted nulls are null.
        """

    def find_types(
        self, segments: Sequence[tuple[bytes, int, int]], line_end: LineEnd, *, wanted: int, forced: Sequence[bool]
    ) -> list[Types]:
        """Return, for each column that is kept, which types of `wanted` take all its values; [] without records.

        Types are bits (`KEPT`). A column has its bits, its first value that is not null, and
        the values at which bits were lost, each value with its line in the runs, from 0, and cut after 60 bytes.
        `forced` says of which columns quoted nulls are null. Records of another width than expected are passed over.
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
    ) -> JsonRewriter:
        """`names` have the index of their column, None if their values are skipped.

        Without names, the whole record is the value of the only column. `takes_json` says of each column whether it
        takes values as JSON.
        """

    def fits_any(self, segments: Sequence[tuple[bytes, int, int]], line_end: LineEnd) -> bool:
        """Tell whether any record of the runs can be written."""

    def find_partial(self, segments: Sequence[tuple[bytes, int, int]]) -> tuple[int, int] | None:
        """Return the line, from 0, of the first record that names not all columns, and the index of one that it lacks.

        None if all records name all columns. Records that cannot be read are passed over.
        """

    def rewrite(
        self,
        segments: Sequence[tuple[bytes, int, int]],
        line_end: LineEnd,
        *,
        extra: Sequence[bytes | None] | None = None,
    ) -> bytes:
        """Return the records of the (buffer, start, end) runs as Rewriter does; raises RecordError."""

    def find_changes(
        self,
        segments: Sequence[tuple[bytes, int, int]],
        line_end: LineEnd,
        *,
        columns: Sequence[tuple[str, int]],
        forced: Sequence[bool],
    ) -> list[Change]:
        """Return what columns would store otherwise, as Rewriter does. Records that cannot be read are passed over."""

def find_json_types(segments: Sequence[tuple[bytes, int, int]], *, wanted: int) -> list[tuple[bytes, Types]]:
    """Return the names in records of JSON Lines, in the order in which they first appear, and what their values allow.

    Records that cannot be read are passed over.
    """

def find_json_end(text: bytes) -> int | None:
    """Return where the object or array that begins a text ends, None if it does not; it need not be valid JSON."""

@final
class Record:
    """A record of a sample: bytes [start, end) without the line end, which are `text`; `line` is the file's."""

    start: int
    end: int
    line: int
    text: bytes

@final
class Records:
    """A sample cut into records.

    `whole` are the records that end within the sample. `pieces` has one more if something is left: a record cut by the
    sample's end, or with a quoted field that begins at `open_quote` and never ends. `odd_line` is the first line with
    another line end than the first line's.
    """

    whole: tuple[Record, ...]
    pieces: tuple[Record, ...]
    line_end: LineEnd | None
    odd_line: int | None
    open_quote: int | None

@final
class BinaryEncoder:
    """Encodes whole records of csv (escape and quote the same), text or tsv in COPY's binary format."""

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
        """With `column_types`, names and limits, a block with a value that its column does not keep is not encoded."""

    def encode(self, segments: Sequence[tuple[bytes, int, int]], line_end: LineEnd, records: int) -> bytes | None:
        """Return the rows, without header and end; None if the block must be sent as text."""

    def examine(
        self, segments: Sequence[tuple[bytes, int, int]], line_end: LineEnd
    ) -> tuple[int, list[tuple[int, int]], tuple[int, int | None, str] | None]:
        """Return the number of records, each column's values that are not null and their bytes, and no refusal.

        If the records are not encoded: the first one that is not, nothing, and (record, column, rule).
        """

@final
class Form:
    """The characters that decide where records and fields end, one byte each; only csv has quotes, and it has both.

    The records and fields are those that the load will find, but what COPY refuses is passed over.
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
        """Return the sample's records; a last one without a line end is whole only if the sample `is_whole`."""

    def count_fields(self, record: bytes) -> int:
        """Return how many fields a record, or the beginning of one, has."""

    def split(self, record: bytes) -> list[tuple[bytes, bytes | None]]:
        """Return the fields of a record without line end; raises RecordError for a quoted field that does not end.

        Each is a value without quotes and escapes, and the bytes to compare with null strings: None if it is quoted.
        """

    def find_stray_quote(self, record: bytes) -> int | None:
        """Return the index of the first field with a quote where csv does not allow one, or None."""

    def encloses_fields(self, records: Sequence[bytes]) -> bool:
        """Return whether the quotes of csv records enclose fields, and are not data."""

def recognize(value: bytes, wanted: int) -> tuple[int, int]:
    """Return the types of `wanted` that take a value, and those that would write it so, as bits."""

def find_change(value: bytes, name: str, limit: int) -> int:
    """Return what a column of a type with a limit does not keep of a value, as bits (`KEPT`)."""

def double_backslashes(segments: Sequence[tuple[bytes, int, int]], *, delimiter: bytes, count: int) -> bytes:
    """Return tsv records that end with line feeds as COPY text; `count` are their stray backslashes."""

def find_doubts(
    segments: Sequence[tuple[bytes, int, int]],
    *,
    is_csv: bool,
    delimiter: bytes,
    line_end: LineEnd,
    nulls: Sequence[bytes],
    with_backslashes: bool,
) -> list[tuple[int, int]]:
    r"""Return how often each kind of doubt is met in a format that was guessed, and its first's line from 0.

    The runs together hold whole records. The kinds: fields in quotes of a format without quotes; backslashes that
    COPY TO writes; other backslashes; quotes of csv that open behind a value or close before one; fields in single
    quotes; fields that are one of `nulls`. Fields that are \N are no backslashes.
    """

# A kind, its width or scale, its unit, then the values, offsets and validity of the rows, and the first row's bit.
Buffers: TypeAlias = tuple[str, int, str, bytes, bytes | None, bytes | None, int]

def encode_rows(columns: Sequence[Buffers], rows: int) -> bytes:
    """Return the rows of Arrow's buffers as COPY's binary format has them, without its header and end.

    Raises RecordError, with the row and the column from 0, for a value that its type does not hold.
    """

# Its path, whether it has byte strings of any length and a dictionary, its values, its bytes decompressed and stored.
Chunk: TypeAlias = tuple[str, bool, bool, int, int, int]

def read_footer(footer: bytes) -> tuple[bool, list[tuple[int, int, list[Chunk]]]]:
    """Return whether a Parquet file is encrypted, and for each row group its rows, its bytes and its columns' chunks.

    `footer` is the file's end without its last eight bytes. Raises ValueError if it is not valid.
    """
