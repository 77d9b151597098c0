"""Stub of the Rust module: record cutting and rewriting. Buffers go in, counts and bytes come out."""

from collections.abc import Sequence
from typing import Literal, TypeAlias, final

LineEnd: TypeAlias = Literal["lf", "crlf", "cr"]

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
