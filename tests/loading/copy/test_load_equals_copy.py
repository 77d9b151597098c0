r"""A load leaves the rows that one COPY of the whole file leaves, or both are refused and nothing is left.

Whatever the dialect, the bytes, and where blocks, COPY commands and sessions part them. Rows are compared as
multisets, since a table has no order. tsv, for which COPY has no option, is held against csv with a quote that does
not occur. What is different by intent:

- a UTF-8 byte-order mark is skipped, where COPY makes it part of the first value;
- a header that never ends is an error, where COPY takes the whole file for it;
- data behind an end-of-data marker is an error, where COPY drops it without a word;
- before PostgreSQL 18 COPY takes a row that stands in front of `\.` on the same line of text: an error here;
- one blank field more in all records is left out with a warning, where COPY refuses the file: held against COPY into a
  table with one column more.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import psycopg
import pytest
from hypothesis import HealthCheck, assume, event, given, settings
from hypothesis import strategies as st
from psycopg import sql

from penstock.core.errors import PenstockError, UsageError
from support.loads import AGAIN, Loads, target

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from hypothesis.strategies import DrawFn

    from penstock.core.values.job import CopyFormat

Format = Literal["csv", "text", "tsv"]

BOM = b"\xef\xbb\xbf"
WIDTHS = (1, 2, 3)
FORMATS: tuple[Format, ...] = ("csv", "text", "tsv")
# A byte that no example holds, for reading tsv as csv.
ABSENT = "\x01"

EXAMPLES = settings(
    max_examples=5 * settings().max_examples, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
FEWER_EXAMPLES = settings(EXAMPLES, max_examples=settings().max_examples)


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """A file, its dialect, and how it is parted on its way."""

    format: Format
    delimiter: str
    quote: str | None
    escape: str | None
    null: str
    has_header: bool
    width: int
    data: bytes
    piece_bytes: int
    chunk_bytes: int
    sessions: int
    copy_format: CopyFormat = "auto"


def _parts(file_format: Format, delimiter: str, quote: str | None, escape: str | None) -> list[bytes]:
    """Return what fields are made of: what an ordinary file holds, and what the format makes awkward."""
    parts = [
        b"",
        b"a",
        b"xyz",
        "é".encode(),
        "日本".encode(),
        b"\\N",
        b"NULL",
        b"N",
        b" ",
        b"\\",
        b"\\\\",
        b".",
        b"\\.",
    ]
    if file_format == "text":
        parts += [b"\\" + delimiter.encode(), b"\\\n", b"\\\r", b"\\x41", b"\\101", b"\\t"]
    if quote is not None and escape is not None:
        marks, escaped = quote.encode(), (escape + quote).encode()
        inner = [b"", b"\n", b"\r\n", b"\r", delimiter.encode(), escaped, b"\\.", b"\n\\.\n", b"\\N", "é\n".encode()]
        parts += [marks + part + marks for part in inner]
        parts += [marks + b"line\n" * 40 + marks]
    return parts


def _rare_parts(delimiter: str, quote: str | None, escape: str | None) -> list[bytes]:
    """Return what mostly makes a file unreadable."""
    marks = [text.encode() for text in (delimiter, quote, escape) if text is not None]
    return [*marks, b"\n", b"\r", b"\r\n", b"\x00", b"\xff", b"\xc3", b"\n\\.\n", b"\xc3\x28"]


@st.composite
def _records(draw: DrawFn, *, parts: list[bytes], rare: list[bytes], width: int, delimiter: bytes) -> list[bytes]:
    part = st.sampled_from(parts)
    if draw(st.integers(0, 5)) == 5:
        part = st.one_of(part, part, part, st.sampled_from(rare))
    field = st.lists(part, max_size=3).map(b"".join)
    records = draw(st.lists(st.lists(field, min_size=width, max_size=width), max_size=12))
    if draw(st.integers(0, 11)) == 11:
        records.append(draw(st.lists(field, max_size=width + 1)))
    if records and draw(st.integers(0, 7)) == 7:
        records[0][:1] = [b"long" * draw(st.sampled_from((200, 20_000)))]
    return [delimiter.join(record) for record in records]


@st.composite
def _files(draw: DrawFn, *, formats: tuple[Format, ...] = FORMATS) -> File:
    file_format = draw(st.sampled_from(formats))
    delimiter = draw(st.sampled_from(",\t|;^"))
    quote = draw(st.sampled_from("\"'$~")) if file_format == "csv" else None
    escape = draw(st.sampled_from((quote, quote, "\\", "#"))) if quote else None
    nulls = ("\\N",) if file_format == "tsv" else ("", "\\N", "NULL", "a")
    width = draw(st.sampled_from(WIDTHS))
    parts, rare = _parts(file_format, delimiter, quote, escape), _rare_parts(delimiter, quote, escape)
    records = draw(_records(parts=parts, rare=rare, width=width, delimiter=delimiter.encode()))
    has_header = draw(st.booleans())
    if has_header:
        # Names that --columns replaces are not looked at, where COPY minds their encoding.
        records.insert(0, b"".join(draw(st.lists(st.sampled_from(parts), max_size=3))))
    line_end = draw(st.sampled_from((b"\n", b"\n", b"\r\n", b"\r")))
    other = draw(st.sampled_from((line_end,) * 9 + (b"\n", b"\r\n", b"\r")))
    ends = [line_end] * len(records)
    if ends:
        ends[draw(st.integers(0, len(ends) - 1))] = other
        ends[-1] = draw(st.sampled_from((ends[-1], b"")))
    mark = draw(st.sampled_from((b"", b"", b"", b"", BOM)))
    return File(
        format=file_format,
        delimiter=delimiter,
        quote=quote,
        escape=escape,
        null=draw(st.sampled_from(nulls)),
        has_header=has_header,
        width=width,
        data=mark + b"".join(record + end for record, end in zip(records, ends, strict=True)),
        piece_bytes=draw(st.sampled_from((1, 2, 3, 7, 16, 64, 1000, 1_000_000))),
        chunk_bytes=draw(st.sampled_from((1, 10, 100, 100_000))),
        sessions=draw(st.integers(1, 4)),
        copy_format=draw(st.sampled_from(("text", "binary"))),
    )


class Database:
    """A database with a table of text columns for each width."""

    def __init__(self, conninfo: str) -> None:
        self.conninfo = conninfo
        self.connection: psycopg.Connection[tuple[Any, ...]] = psycopg.connect(conninfo, autocommit=True)
        for width in (*WIDTHS, WIDTHS[-1] + 1):
            names = ", ".join(f"c{number} text" for number in range(width))
            self.connection.execute(sql.SQL(f"CREATE TABLE t{width} ({names})"))  # type: ignore[arg-type]

    @property
    def major(self) -> int:
        """Return the server's major version."""
        return self.connection.info.server_version // 10_000

    def take_rows(self, width: int) -> Counter[tuple[Any, ...]]:
        """Return the rows of the table of that width and leave it empty."""
        return self.take(f"t{width}")

    def take(self, name: str) -> Counter[tuple[Any, ...]]:
        """Return the rows of a table and leave it empty."""
        table = sql.Identifier(name)
        rows = self.connection.execute(sql.SQL("SELECT * FROM {}").format(table)).fetchall()
        self.connection.execute(sql.SQL("DELETE FROM {}").format(table))
        return Counter(rows)


@pytest.fixture
def newest(database18: str) -> Iterator[Database]:
    """Provide a database with its tables on the newest version."""
    found = Database(database18)
    with found.connection:
        yield found


@pytest.fixture
def every(database: str) -> Iterator[Database]:
    """Provide a database with its tables on each version in turn."""
    found = Database(database)
    with found.connection:
        yield found


def _copy_statement(file: File) -> sql.Composed:
    options = sql.SQL("FORMAT {}, DELIMITER {}, NULL {}, ENCODING 'UTF8'").format(
        sql.SQL("text" if file.format == "text" else "csv"), file.delimiter, file.null
    )
    if file.has_header:
        options += sql.SQL(", HEADER")
    if file.format != "text":
        quote, escape = (file.quote, file.escape) if file.format == "csv" else (ABSENT, ABSENT)
        options += sql.SQL(", QUOTE {}, ESCAPE {}").format(quote, escape)
    return sql.SQL("COPY {} FROM STDIN ({})").format(sql.Identifier(f"t{file.width}"), options)


def _copy_whole(server: Database, file: File) -> Counter[tuple[Any, ...]] | psycopg.Error:
    """Load the file by one COPY and return the rows it left, or why it was refused."""
    try:
        with server.connection.cursor() as cursor, cursor.copy(_copy_statement(file)) as copy:
            copy.write(file.data.removeprefix(BOM))
    except psycopg.errors.DataError as error:
        return error
    return server.take_rows(file.width)


def _copy_narrowed(server: Database, file: File) -> Counter[tuple[Any, ...]] | psycopg.Error:
    """Load the file by one COPY into a table with one column more, and return the rows without it: it is blank."""
    rows = _copy_whole(server, replace(file, width=file.width + 1))
    # An empty line is a record of one column, and has no other.
    assume(not isinstance(rows, psycopg.Error))
    assert not any((row[-1] or "").strip() for row in rows)
    return Counter(row[:-1] for row in rows.elements())


def _load(server: Database, file: File, path: Path) -> tuple[Counter[tuple[Any, ...]] | PenstockError, bool]:
    """Load the file by penstock; return the rows it left, or why it was refused, and whether a field was left out."""
    path.write_bytes(file.data)
    job = target(
        path,
        into=f"t{file.width}",
        columns=[f"c{number}" for number in range(file.width)],
        format=file.format,
        delimiter=file.delimiter,
        quote=file.quote,
        escape=file.escape,
        nulls=(file.null,),
        has_header=file.has_header,
        encoding="UTF8",
    )
    try:
        loads = Loads(server.conninfo, piece_bytes=file.piece_bytes, chunk_bytes=file.chunk_bytes)
        try:
            outcome = loads.run(replace(job, copy_format=file.copy_format), sessions=file.sessions, rules=AGAIN)
        except UsageError as error:
            # The binary format cannot carry this dialect.
            if "--copy-format binary" not in error.message:
                raise
            event("text instead")
            outcome = loads.run(job, sessions=file.sessions, rules=AGAIN)
    except PenstockError as error:
        assert not server.take_rows(file.width)
        return error, False
    rows = server.take_rows(file.width)
    assert outcome.rows == rows.total()
    return rows, any(warning.code == "empty-field" for warning in outcome.warnings)


def _assume_comparable(server: Database, file: File) -> None:
    """Leave out what COPY, or the csv that stands for tsv, cannot be asked."""
    if file.format == "text":
        assume(server.major >= 15 or not file.has_header)
    if file.format == "tsv" and server.major < 18:
        assume(b"\\." not in file.data)


def _check(server: Database, file: File, path: Path) -> None:
    _assume_comparable(server, file)
    expected = _copy_whole(server, file)
    found, is_narrowed = _load(server, file, path)
    if is_narrowed:
        event("blank field left out")
        assert isinstance(expected, psycopg.Error)
        expected = _copy_narrowed(server, file)
    if isinstance(found, PenstockError) and "end-of-copy marker" in found.message:
        # COPY dropped what stands behind the marker, or took what stands before it.
        event("marker")
        assert b"\\." in file.data
        return
    if isinstance(expected, psycopg.Error):
        event("refused")
        assert isinstance(found, PenstockError), f"COPY: {expected}"
        return
    event("loaded")
    assert found == expected


@pytest.mark.part("rest")
@EXAMPLES
@given(file=_files())
def test_load_equals_copy(newest: Database, tmp_path: Path, file: File) -> None:
    """Any file, parted anywhere, loads as COPY loads it, on the newest version."""
    _check(newest, file, tmp_path / "file")


@pytest.mark.versions
@FEWER_EXAMPLES
@given(file=_files())
def test_load_equals_copy_on_every_version(every: Database, tmp_path: Path, file: File) -> None:
    """Any file, parted anywhere, loads as that version's COPY loads it."""
    _check(every, file, tmp_path / "file")


# ---------------------------------------------------------------- columns, against a model in plain Python

COLUMNS = ("k", "l", "m", "n")
VALUES = ("", "a", "NULL", "\\N", "-", "b c", "é", "\\", '"', "x\\y", "\\.")
NULLS = ("", "NULL", "\\N", "-")
CONSTANTS = {"{null}": None, "{filename}": "file", "plain": "plain", "\\N": "\\N", "": ""}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reshaped:
    """A file whose header names some of the columns, in any order, and what is to be made of it."""

    format: Format
    header: tuple[str, ...]
    skip: tuple[str, ...]
    constants: dict[str, str]
    nulls: tuple[str, ...]
    records: list[tuple[str, ...]]
    line_end: str
    piece_bytes: int
    sessions: int

    def data(self) -> bytes:
        """Return the file: csv quotes what is no null and looks like one, or holds a quote; tsv cannot."""
        lines = [",".join(self.header), *(",".join(map(self._spell, record)) for record in self.records)]
        return "".join(line + self.line_end for line in lines).encode()

    def _spell(self, value: str) -> str:
        return '"' + value.replace('"', '""') + '"' if self.format == "csv" and '"' in value else value

    def rows(self) -> Counter[tuple[Any, ...]]:
        """Return the rows that the table should have."""
        return Counter(self._row(record) for record in self.records)

    def _row(self, record: tuple[str, ...]) -> tuple[Any, ...]:
        named = dict(zip(self.header, record, strict=True))
        row = {name: None if value in self.nulls else value for name, value in named.items()}
        row |= {name: CONSTANTS[value] for name, value in self.constants.items()}
        return tuple(row[name] for name in COLUMNS)


@st.composite
def _reshaped(draw: DrawFn) -> Reshaped:
    named = draw(st.permutations(COLUMNS))
    given_by_set = draw(st.lists(st.sampled_from(COLUMNS), max_size=3, unique=True))
    skip = draw(st.lists(st.sampled_from(("spare", "other")), max_size=2, unique=True))
    header = draw(st.permutations([*(name for name in named if name not in given_by_set), *skip]))
    return Reshaped(
        format=draw(st.sampled_from(("csv", "tsv"))),
        header=tuple(header),
        skip=tuple(skip),
        constants={name: draw(st.sampled_from(tuple(CONSTANTS))) for name in given_by_set},
        nulls=tuple(draw(st.lists(st.sampled_from(NULLS), min_size=1, max_size=3, unique=True))),
        records=draw(st.lists(st.tuples(*[st.sampled_from(VALUES)] * len(header)), max_size=20)),
        line_end=draw(st.sampled_from(("\n", "\r\n", "\r"))),
        piece_bytes=draw(st.sampled_from((1, 5, 50, 1000))),
        sessions=draw(st.integers(1, 3)),
    )


@pytest.mark.part("rest")
@FEWER_EXAMPLES
@given(file=_reshaped())
def test_columns_are_filled_as_the_header_and_options_say(newest: Database, tmp_path: Path, file: Reshaped) -> None:
    """Fields in any order, some left out, constants added, several spellings of null."""
    newest.connection.execute("CREATE TABLE IF NOT EXISTS reshaped (k text, l text, m text, n text)")
    path = tmp_path / "file"
    path.write_bytes(file.data())
    job = target(
        path,
        into="reshaped",
        skip=file.skip,
        constants=file.constants,
        format=file.format,
        delimiter=",",
        nulls=file.nulls,
        has_header=True,
    )
    Loads(newest.conninfo, piece_bytes=file.piece_bytes, chunk_bytes=100).run(job, sessions=file.sessions, rules=AGAIN)
    assert newest.take("reshaped") == file.rows()
