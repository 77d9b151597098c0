"""Runs of records that are parted at any of them: each keeps its bytes, its place and its line, and none is lost."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Literal

from hypothesis import assume, given
from hypothesis import strategies as st

from penstock.core.values.dialect import Dialect
from penstock.core.values.table import ColumnMap, TableName
from penstock.ledger.rejects import RecordForm
from penstock.loading.formats.blocks import BlockReader, make_cutter
from penstock.loading.rejects.pieces import (
    Piece,
    count_records,
    find_positions,
    form_from_json,
    form_to_json,
    make_origin,
    take_records,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hypothesis.strategies import DrawFn

    from penstock.loading.values.objects import LineEnd

Format = Literal["csv", "text", "tsv"]

_LINE_ENDS: dict[LineEnd, bytes] = {"lf": b"\n", "crlf": b"\r\n", "cr": b"\r"}


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """A file as its records, each with its line end, and the pieces that it comes in."""

    format: Format
    records: list[bytes]
    line_end: LineEnd
    piece_bytes: int

    def pieces(self) -> list[Piece]:
        """Return the file's records as one session keeps them."""
        origin = make_origin(form_of(self.format), number=0, uri="file", server_major=18)
        data = b"".join(self.records)
        parts = [data[start : start + self.piece_bytes] for start in range(0, len(data), self.piece_bytes)]
        blocks = BlockReader(parts, make_cutter(origin.form.dialect, server_major=18), uri="file")
        return [Piece(origin=origin, block=block) for block in blocks if block.records]

    def places(self) -> list[tuple[bytes, int, int]]:
        """Return each record's bytes, where it begins, and the line it begins on."""
        found, start, line = [], 0, 1
        for record in self.records:
            found.append((record, start, line))
            start += len(record)
            line += record.replace(b"\r\n", b"\n").replace(b"\r", b"\n").count(b"\n")
        return found


def form_of(file_format: Format) -> RecordForm:
    """Return how records of two columns are read."""
    is_csv = file_format == "csv"
    dialect = Dialect(
        format=file_format,
        delimiter="\t",
        quote='"' if is_csv else None,
        escape='"' if is_csv else None,
        nulls=("" if is_csv else "\\N",),
        has_header=False,
        encoding="UTF8",
    )
    columns = ColumnMap(columns=("a", "b"))
    return RecordForm(dialect=dialect, column_map=columns, table=TableName(schema="s", name="t"), encoding="UTF8")


@st.composite
def files(draw: DrawFn) -> File:
    """Draw a file: with line ends inside of quotes and behind backslashes, and perhaps none at its end."""
    file_format = draw(st.sampled_from(("csv", "text", "tsv")))
    line_end = draw(st.sampled_from(("lf", "crlf", "cr")))
    end = _LINE_ENDS[line_end]
    values = {
        "csv": [b"", b"x", b'"a' + end + b'b"', b'""""', b'"' + end + end + b'"'],
        "text": [b"\\N", b"x", b"a\\\nb" if end == b"\n" else b"y", b"\\\\", b"\\t"],
        "tsv": [b"\\N", b"x", b"\\", b"\\\\N", b'"'],
    }[file_format]
    field = st.sampled_from(values)
    records = [draw(field) + b"\t" + draw(field) + end for _ in range(draw(st.integers(1, 30)))]
    if draw(st.booleans()):
        records[-1] = records[-1][: -len(end)]
    return File(format=file_format, records=records, line_end=line_end, piece_bytes=draw(st.integers(1, 200)))


def places_of(pieces: Sequence[Piece]) -> list[tuple[bytes, int, int]]:
    """Return each record's bytes, start and line according to the pieces. They must agree with the record's end."""
    found = []
    for piece in pieces:
        for record in range(piece.records):
            raw, (start, end, line) = piece.raw(record), piece.bounds(record)
            assert end - start == len(raw)
            found.append((raw, start, line))
    return found


@given(file=files(), data=st.data())
def test_records_keep_their_places_however_pieces_are_cut(file: File, data: st.DataObject) -> None:
    """Cut in two; and each byte leads to its record."""
    pieces = file.pieces()
    places = file.places()
    assert places_of(pieces) == places
    for piece in pieces:
        middle = data.draw(st.integers(0, piece.records))
        cuts = [piece.cut(start, end) for start, end in ((0, middle), (middle, piece.records)) if start < end]
        assert places_of(cuts) == places_of([piece])
        for cut in cuts:
            lengths = [len(cut.raw(record)) for record in range(cut.records)]
            ends = accumulate(lengths)
            assert [cut.record_at(end - 1) for end in ends] == list(range(cut.records))


@given(file=files(), limits=st.lists(st.integers(1, 10), min_size=1))
def test_records_are_taken_in_order(file: File, limits: list[int]) -> None:
    """As many as requested, until there are none."""
    left = deque(file.pieces())
    places = file.places()
    for limit in limits:
        taken = take_records(left, limit)
        assert places_of(taken) == places[:limit]
        assert count_records(taken) == min(limit, len(places))
        places = places[limit:]
    assert places_of(list(left)) == places


@given(file=files(), data=st.data())
def test_lines_of_the_command_lead_to_their_records(file: File, data: st.DataObject) -> None:
    """By the last line of each, as the server counts: in text one a record."""
    assume(file.format != "csv" or file.line_end == "lf")
    pieces = file.pieces()
    ends = list(accumulate(_server_lines(file, number) for number in range(len(file.records))))
    numbers = sorted(data.draw(st.sets(st.integers(0, len(ends) - 1))))
    found = find_positions(pieces, pieces[0].origin.encoder.spec, [ends[number] for number in numbers])
    assert found == [number + 1 for number in numbers]


def _server_lines(file: File, number: int) -> int:
    """Return what the server's counter advances by; line feeds in quotes count once it knows how lines end."""
    record = file.records[number]
    if file.format != "csv" or number == 0:
        return 1
    return record.count(b"\n") + (not record.endswith(b"\n"))


@given(
    header=st.none() | st.binary(max_size=20),
    keep=st.none() | st.lists(st.integers(0, 3), min_size=2, max_size=2, unique=True),
    constants=st.lists(st.none() | st.text(max_size=5), max_size=2),
    file_format=st.sampled_from(("csv", "text", "tsv")),
)
def test_form_survives_json(
    header: bytes | None, keep: list[int] | None, constants: list[str | None], file_format: Format
) -> None:
    """A header of any bytes, columns in any order, constants that are null."""
    form = form_of(file_format)
    columns = ColumnMap(
        columns=("a", "b", *(f"c{number}" for number in range(len(constants)))),
        keep=None if keep is None else tuple(keep),
        constants=tuple(constants),
        field_count=None if keep is None else 4,
    )
    changed = RecordForm(dialect=form.dialect, column_map=columns, table=form.table, encoding="UTF8", header=header)
    assert form_from_json(form_to_json(changed)) == changed
