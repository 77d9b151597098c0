"""A record is found by its index, and by the line at which the server complained of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import _native
from penstock.loading.rejects.pieces import index_records, knowing

if TYPE_CHECKING:
    from penstock.loading.values.objects import LineEnd

LINE_ENDS: dict[LineEnd, bytes] = {"lf": b"\n", "crlf": b"\r\n", "cr": b"\r"}


def _cutter() -> _native.RecordCutter:
    return _native.RecordCutter(format="csv", delimiter=b",", quote=b'"', escape=b'"')


@given(
    records=st.lists(st.sampled_from([b"", b"a", b"b,c", b'"x?y"', b'"?"']), min_size=1, max_size=20),
    kind=st.sampled_from(tuple(LINE_ENDS)),
    is_ended=st.booleans(),
)
def test_every_record_is_found_by_its_index(records: list[bytes], kind: LineEnd, is_ended: bool) -> None:
    """With its bytes and the lines before it, also the last one, which may lack its line end."""
    end = LINE_ENDS[kind]
    spelled = [record.replace(b"?", end) + end for record in records]
    if not is_ended:
        spelled[-1] = spelled[-1].removesuffix(end)
    found = index_records(b"".join(spelled), len(records), knowing(kind, _cutter)())
    before = [b"".join(spelled[:index]) for index in range(len(records) + 1)]
    assert found.starts == list(map(len, before))
    assert found.lines == [data.count(end) for data in before[:-1]]


@pytest.mark.parametrize(("line", "index"), [(1, 0), (2, 1), (3, 2), (4, 2), (5, 3)])
def test_record_is_found_by_the_servers_line(line: int, index: int) -> None:
    """Any of the lines of a record of several finds it."""
    found = index_records(b'a\nb\n"c\nc"\nd\n', 4, _cutter())
    assert found.find_server_line(line) == index


def test_first_record_counts_as_the_server_does() -> None:
    """Before its first line end the server counts carriage returns in quotes, not line feeds."""
    data = b'"a\n\n\na"\nb\nc\n'
    assert index_records(data, 3, _cutter()).find_server_line(2) == 1
    assert index_records(data, 3, knowing("lf", _cutter)()).find_server_line(5) == 1


def test_record_that_is_longer_than_the_window_is_indexed() -> None:
    """Also the first one, whose lines count otherwise."""
    data = b'"' + b"a\n" * 9000 + b'"\n"' + b"b\n" * 9000 + b'"\nc\n'
    found = index_records(data, 3, _cutter())
    assert found.starts == [0, 18003, 36006, 36008]
    assert (found.lines, found.server_lines) == ([0, 9001, 18002], [0, 1, 9002])
