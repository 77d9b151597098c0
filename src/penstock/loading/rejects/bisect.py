"""Finds one record in a block's bytes, by the line that the server named or by its index. Pure.

The cutter counts the records that end within a prefix, so the record is found by bisection: about twenty cuts of a
buffer, at gigabytes per second.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock import _native
from penstock.core.frozen import frozen
from penstock.loading.values.block import CopySpec, LineEnd

MakeCutter = Callable[[], _native.RecordCutter]

# An empty record with each line end. The byte after the lone carriage return shows that no line feed follows. The
# cutter does not consume that byte.
_EMPTY_RECORDS: dict[LineEnd, bytes] = {"lf": b"\n", "crlf": b"\r\n", "cr": b"\r."}


@frozen
class FoundRecord:
    """A record's bytes [start, end) within the buffer, its index, and the physical lines before it and in it."""

    start: int
    end: int
    index: int
    lines_before: int
    lines: int


def find_by_server_line(data: bytes, line: int, make_cutter: MakeCutter) -> FoundRecord:
    """Return the record for which the server would report "line N" in a COPY of `data`. N is `line`."""
    return _find(data, make_cutter, lambda cut: cut.server_lines >= line)


def find_by_index(data: bytes, index: int, make_cutter: MakeCutter) -> FoundRecord:
    """Return the record with this index, counted from 0."""
    return _find(data, make_cutter, lambda cut: cut.records > index)


def make_payload_cutter(spec: CopySpec) -> _native.RecordCutter:
    """Return a new cutter for the payload of a COPY command."""
    return _native.RecordCutter(
        format=spec.format,
        delimiter=spec.delimiter.encode(),
        quote=None if spec.quote is None else spec.quote.encode(),
        escape=None if spec.escape is None else spec.escape.encode(),
    )


def knowing(line_end: LineEnd, make_cutter: MakeCutter) -> MakeCutter:
    """Return a function that makes cutters in the state after a line end, as in the middle of an object.

    Before the first line end, lines inside a record are counted differently (copyfromparse.c, CopyReadLineText).
    """

    def make() -> _native.RecordCutter:
        cutter = make_cutter()
        if not cutter.feed_one(_EMPTY_RECORDS[line_end]).records:
            # In JSON Lines, an empty line is not a record.
            cutter.restart(None)
        return cutter

    return make


def _find(data: bytes, make_cutter: MakeCutter, has_reached: Callable[[_native.Cut], bool]) -> FoundRecord:
    """Return the first record at whose end `has_reached` is true. If there is none, return the last record.

    The last record has no line end.
    """
    low, high = 0, len(data)
    while low < high:
        middle = (low + high) // 2
        if has_reached(make_cutter().feed(data[:middle])):
            high = middle
        else:
            low = middle + 1
    before = make_cutter().feed(data[: max(0, low - 1)])
    reached = make_cutter().feed(data[:low])
    is_ended = reached.records > before.records
    return FoundRecord(
        start=before.end,
        end=reached.end if is_ended else len(data),
        index=before.records,
        lines_before=before.lines,
        lines=reached.lines - before.lines if is_ended else 0,
    )
