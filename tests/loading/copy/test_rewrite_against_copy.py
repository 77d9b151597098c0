"""Rewritten records load as COPY itself loads the originals, or both are refused."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import psycopg
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from psycopg import sql

from penstock._native import RecordCutter, RecordError, Rewriter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hypothesis.strategies import DrawFn

    from penstock.loading.values.objects import LineEnd, Segment

Format = Literal["csv", "text", "tsv"]
Row = tuple[str | None, ...]
Connection = psycopg.Connection[tuple[Any, ...]]

FORMATS: tuple[Format, ...] = ("csv", "text", "tsv")

CONSTANTS = (None, "", "NULL", "\\N", "\\.", "-", "é", "A|,;.\"'", "\\\b\t\n\v\f\r")

NULLS = ("\\N", "", "NULL", "-", "\\x", "é")

# What fields are made of: the spellings of null, escapes of text, and pieces of them.
PARTS = ("", "a", "N", "\\N", "NULL", "-", "x", "é", "\\", "\\\\", "\\x4", "41", "\\1", ".")

# One session serves all examples: each works in transactions that are rolled back.
AGAINST_SERVER = settings(
    max_examples=3 * settings().max_examples, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """A file and its dialect; `width` is the number of columns it should have."""

    format: Format
    delimiter: str
    quote: str | None
    escape: str | None
    nulls: tuple[str, ...]
    width: int
    data: bytes


def _field_parts(file_format: Format, delimiter: str, quote: str | None, escape: str | None) -> tuple[str, ...]:
    if quote is None or escape is None:
        return PARTS if file_format == "tsv" else (*PARTS, f"\\{delimiter}", "\\\n")
    quoted = (f"{delimiter}\n", "\r\n", f"a{escape}{quote}", escape + escape, "\\", "")
    return (*PARTS, *(quote + content + quote for content in quoted), escape)


@st.composite
def _files(draw: DrawFn) -> File:
    file_format = draw(st.sampled_from(FORMATS))
    delimiter = draw(st.sampled_from((",", "\t", "|", ";")))
    quote = draw(st.sampled_from("\"'$")) if file_format == "csv" else None
    escape = draw(st.sampled_from((quote, "\\", "^"))) if quote else None
    nulls = draw(st.lists(st.sampled_from(NULLS), min_size=1, max_size=3, unique=True))
    parts = st.sampled_from(_field_parts(file_format, delimiter, quote, escape))
    field = st.one_of(st.sampled_from(nulls), st.lists(parts, max_size=3).map("".join))
    width = draw(st.integers(1, 3))
    records = draw(st.lists(st.lists(field, min_size=width, max_size=width), max_size=5))
    if draw(st.integers(0, 4)) == 4:
        records.append(draw(st.lists(field, min_size=1, max_size=4)))
    line_end = draw(st.sampled_from(("\n", "\r\n", "\r")))
    text = line_end.join(map(delimiter.join, records)) + draw(st.sampled_from(("", line_end)))
    return File(
        format=file_format,
        delimiter=delimiter,
        quote=quote,
        escape=escape,
        nulls=tuple(nulls),
        width=width,
        data=text.encode(),
    )


@st.composite
def _choices(draw: DrawFn) -> tuple[File, list[int], list[str | None]]:
    """Draw a file, the fields to keep of it, and constants; together they are at least one column."""
    file = draw(_files())
    keep = draw(st.lists(st.sampled_from(range(file.width)), max_size=file.width, unique=True))
    is_empty_null = file.format == "text" and file.nulls[0] == ""
    constants = st.sampled_from([value for value in CONSTANTS if not (value == "" and is_empty_null)])
    return file, keep, draw(st.lists(constants, min_size=0 if keep else 1, max_size=2))


def _copy(
    connection: Connection, data: bytes, *, file: File, file_format: Format, null: str, width: int
) -> list[Row] | None:
    """Load `data` by one COPY and return the rows, or None where the server refuses it."""
    options = sql.SQL("FORMAT {}, DELIMITER {}, NULL {}, ENCODING 'UTF8'").format(
        sql.SQL("text" if file_format == "text" else "csv"), file.delimiter, null
    )
    if file_format != "text":
        # COPY reads tsv as csv whose quote does not occur.
        quote, escape = (file.quote, file.escape) if file_format == "csv" else ("\x01", "\x01")
        options += sql.SQL(", QUOTE {}, ESCAPE {}").format(quote, escape)
    columns = sql.SQL(", ").join(sql.SQL("c{} text").format(index) for index in range(width))
    try:
        with connection.transaction(force_rollback=True), connection.cursor() as cursor:
            cursor.execute(sql.SQL("CREATE TEMP TABLE loaded ({})").format(columns))
            with cursor.copy(sql.SQL("COPY loaded FROM STDIN ({})").format(options)) as copy:
                copy.write(data)
            return cursor.execute("SELECT * FROM loaded").fetchall()
    except psycopg.errors.DataError:
        return None


def _copy_original(connection: Connection, file: File) -> list[Row] | None:
    """Load the file once for each null string; a value is null where any of the loads has it so."""
    if file.format == "tsv" and connection.info.server_version < 180000:
        # As csv, which tsv is read as here, such a line would end the data.
        assume(b"\\." not in file.data.splitlines())
    loads = [
        _copy(connection, file.data, file=file, file_format=file.format, null=null, width=file.width)
        for null in file.nulls
    ]
    rows_of_loads = [rows for rows in loads if rows is not None]
    if len(rows_of_loads) < len(loads):
        return None
    return [
        tuple(None if None in values else values[0] for values in zip(*rows, strict=True))
        for rows in zip(*rows_of_loads, strict=True)
    ]


def _make_rewriter(file: File, *, keep: list[int] | None, constants: Sequence[str | None] = ()) -> Rewriter:
    return Rewriter(
        format=file.format,
        delimiter=file.delimiter.encode(),
        quote=file.quote.encode() if file.quote else None,
        escape=file.escape.encode() if file.escape else None,
        nulls=[null.encode() for null in file.nulls],
        keep=keep,
        constants=[None if constant is None else constant.encode() for constant in constants],
        field_count=None if keep is None else file.width,
    )


def _cut(connection: Connection, file: File) -> tuple[list[Segment], LineEnd, int]:
    """Return two segments that hold the file's records, how the records end, and how many there are."""
    cutter = RecordCutter(
        format=file.format,
        delimiter=file.delimiter.encode(),
        quote=file.quote.encode() if file.quote else None,
        escape=file.escape.encode() if file.escape else None,
        checks_end_marker=connection.info.server_version < 180000,
    )
    middle = len(file.data) // 2
    cuts = (cutter.feed(file.data), cutter.finish())
    assume(not any(cut.is_end for cut in cuts))
    segments = [(file.data, 0, middle), (file.data, middle, len(file.data))]
    return segments, cutter.line_end or "lf", sum(cut.records for cut in cuts)


def _copy_rewritten(
    connection: Connection, file: File, *, keep: list[int] | None, constants: Sequence[str | None]
) -> list[Row] | None:
    """Cut the file, rewrite it in two segments, and load what comes out."""
    rewriter = _make_rewriter(file, keep=keep, constants=constants)
    try:
        segments, line_end, _ = _cut(connection, file)
        rewritten = rewriter.rewrite(segments, line_end)
    except RecordError as error:
        # The server drops what stands behind the end marker; the cutter refuses it.
        assume("end-of-copy marker" not in error.args[0])
        return None
    width = len(constants) + (file.width if keep is None else len(keep))
    file_format: Format = "csv" if file.format == "csv" else "text"
    null = "\\N" if file.format == "tsv" else file.nulls[0]
    return _copy(connection, rewritten, file=file, file_format=file_format, null=null, width=width)


@AGAINST_SERVER
@given(file=_files())
def test_rewritten_records_load_as_the_originals(connection: Connection, file: File) -> None:
    """Line ends, several null strings and tsv change nothing but the spelling."""
    expected = _copy_original(connection, file)
    assert _copy_rewritten(connection, file, keep=None, constants=()) == expected


@AGAINST_SERVER
@given(choice=_choices())
def test_kept_fields_and_constants_load_as_chosen(
    connection: Connection, choice: tuple[File, list[int], list[str | None]]
) -> None:
    """Fields arrive in the order of `keep`, and constants behind them as they were given."""
    file, keep, constants = choice
    original = _copy_original(connection, file)
    expected = original and [(*(row[index] for index in keep), *constants) for row in original]
    assert _copy_rewritten(connection, file, keep=keep, constants=constants) == expected


# The marks of csv without quotes, in some examples bytes that the files have.
_MARKS = ("\x1f\x1e\x1d", "\x1f\x1e\x1d", "41N", "|a-")


@AGAINST_SERVER
@given(file=_files(), marks=st.sampled_from(_MARKS), keeps=st.booleans())
def test_records_without_quotes_load_as_the_originals(
    connection: Connection, file: File, marks: str, keeps: bool
) -> None:
    """What is written has neither quote nor backslash to COPY; what cannot be written so is declined."""
    keep = [*reversed(range(file.width))] if keeps else None
    try:
        segments, line_end, records = _cut(connection, file)
    except RecordError:
        return
    rewriter = _make_rewriter(file, keep=keep)
    written = rewriter.write_plain(segments, line_end, records, marks=marks.encode(), columns=file.width)
    if written is None:
        return
    delimiter, quote, null = marks
    as_csv = replace(file, format="csv", delimiter=delimiter, quote=quote, escape=quote)
    if connection.info.server_version < 180000:
        # Such a line would end the data of csv.
        assume(b"\\." not in written.splitlines())
    loaded = _copy(connection, written, file=as_csv, file_format="csv", null=null, width=file.width)
    original = _copy_original(connection, file)
    assert original is not None
    assert loaded == [tuple(row[index] for index in keep) if keep else row for row in original]
    assert quote.encode() not in written
