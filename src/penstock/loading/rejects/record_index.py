"""Where the records of a buffer begin, and on which lines, as the file counts them and as the server does. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from penstock import _native
from penstock.loading.values.block import CopySpec, LineEnd

MakeCutter = Callable[[], _native.RecordCutter]

# An empty record with each line end. The byte after the lone carriage return shows that no line feed follows. The
# cutter does not consume that byte.
_EMPTY_RECORDS: dict[LineEnd, bytes] = {"lf": b"\n", "crlf": b"\r\n", "cr": b"\r."}

# How many bytes are searched first for the end of a record. If the search fails, the number is doubled.
_WINDOW_BYTES = 4096


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RecordIndex:
    """Where each record of a buffer begins."""

    data: bytes
    # The offset of each record, followed by the offset at which the last one ends.
    starts: Sequence[int]
    # The number of lines before each record, None if each record is one line.
    lines: Sequence[int] | None = None
    # The number of lines before each record, as the server counts them in a COPY of the buffer.
    server_lines: Sequence[int] = ()

    def find_server_line(self, line: int) -> int:
        """Return the index of the record in which an error of COPY says "line N", where N is `line`."""
        return bisect_left(self.server_lines, line) - 1


def index_records(data: bytes, records: int, cutter: _native.RecordCutter) -> RecordIndex:
    """Return where each of the `records` records of a buffer begins. Records may contain line ends.

    `cutter` is a new cutter, which no data was given to.
    """
    starts, lines, server_lines = [0], [0], [0]
    feed_one = cutter.feed_one
    for _ in range(records - 1):
        at, length, line_end = starts[-1], _WINDOW_BYTES, cutter.line_end
        while not (cut := feed_one(data[at : at + length])).records:
            cutter.restart(line_end)
            length *= 2
            assert at + length < 2 * len(data) + 2 * _WINDOW_BYTES
        starts.append(at + cut.end)
        lines.append(lines[-1] + cut.lines)
        server_lines.append(server_lines[-1] + cut.server_lines)
    return RecordIndex(data=data, starts=[*starts, len(data)], lines=lines, server_lines=server_lines)


def make_payload_cutter(spec: CopySpec) -> _native.RecordCutter:
    """Return a new cutter that finds the records in the payload of a COPY command."""
    return _native.RecordCutter(
        format=spec.format,
        delimiter=spec.delimiter.encode(),
        quote=None if spec.quote is None else spec.quote.encode(),
        escape=None if spec.escape is None else spec.escape.encode(),
    )


def knowing(line_end: LineEnd, make_cutter: MakeCutter) -> MakeCutter:
    """Return a function that makes the same cutters as `make_cutter`, but for data after an object's first record.

    These cutters know from the start that lines end with `line_end`. A new cutter counts the lines inside the first
    record differently, as the server does until it has seen a line end (copyfromparse.c, CopyReadLineText).
    """

    def make() -> _native.RecordCutter:
        cutter = make_cutter()
        if not cutter.feed_one(_EMPTY_RECORDS[line_end]).records:
            # In JSON Lines, an empty line is not a record.
            cutter.restart(None)
        return cutter

    return make
