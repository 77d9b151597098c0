"""A record is found by its index, and by the line at which the server complained of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import _native
from penstock.loading.rejects.bisect import find_by_index, find_by_server_line, knowing

if TYPE_CHECKING:
    from penstock.loading.values.block import LineEnd

LINE_ENDS: dict[LineEnd, bytes] = {"lf": b"\n", "crlf": b"\r\n", "cr": b"\r"}


def _cutter() -> _native.RecordCutter:
    return _native.RecordCutter(format="csv", delimiter=b",", quote=b'"', escape=b'"')


@given(
    records=st.lists(st.sampled_from([b"", b"a", b"b,c", b'"x?y"', b'"?"']), min_size=1, max_size=20),
    kind=st.sampled_from(tuple(LINE_ENDS)),
    data=st.data(),
)
def test_every_record_is_found_by_its_index(records: list[bytes], kind: LineEnd, data: st.DataObject) -> None:
    """With its bytes, the lines before it and its own."""
    end = LINE_ENDS[kind]
    spelled = [record.replace(b"?", end) + end for record in records]
    index = data.draw(st.integers(0, len(records) - 1))
    found = find_by_index(b"".join(spelled), index, knowing(kind, _cutter))
    before = b"".join(spelled[:index])
    assert (found.index, found.start, found.end) == (index, len(before), len(before) + len(spelled[index]))
    assert (found.lines_before, found.lines) == (before.count(end), spelled[index].count(end))


@pytest.mark.parametrize(("line", "index"), [(1, 0), (2, 1), (3, 2), (4, 2), (5, 3)])
def test_record_is_found_by_the_servers_line(line: int, index: int) -> None:
    """Any of the lines of a record of several finds it."""
    assert find_by_server_line(b'a\nb\n"c\nc"\nd\n', line, _cutter).index == index


def test_first_record_counts_as_the_server_does() -> None:
    """Before its first line end the server counts carriage returns in quotes, not line feeds."""
    data = b'"a\n\n\na"\nb\nc\n'
    assert find_by_server_line(data, 2, _cutter).index == 1
    assert find_by_server_line(data, 5, knowing("lf", _cutter)).index == 1


def test_last_record_without_a_line_end_is_found() -> None:
    """It goes to the end of the buffer."""
    found = find_by_index(b"a\nb", 1, _cutter)
    assert (found.start, found.end, found.lines_before) == (2, 3, 1)
