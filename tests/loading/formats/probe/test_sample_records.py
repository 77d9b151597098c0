"""Records and fields of a sample: those that the load finds, and what is passed over."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock._native import Form, RecordCutter, RecordError
from penstock.core.values.dialect import Dialect
from penstock.loading.formats.probe.form import split_record

_FORMS = {
    "csv": {"format": "csv", "delimiter": b",", "quote": b'"', "escape": b'"'},
    "csv with backslashes": {"format": "csv", "delimiter": b",", "quote": b'"', "escape": b"\\"},
    "text": {"format": "text", "delimiter": b"\t"},
    "tsv": {"format": "tsv", "delimiter": b"\t"},
}
_PARTS = st.sampled_from([b"a", b"bc", b",", b"\t", b'"', b'"', b"\\", b"\n", b"\n", b"\r\n", b"\r\n", b"\r"])


def _cut_as_load(data: bytes, form: str) -> list[tuple[int, int]]:
    """Return the offset behind each record's line end, and the number of lines before the record."""
    cutter = RecordCutter(**_FORMS[form])  # type: ignore[arg-type]
    records, start, lines = [], 0, 0
    while (cut := cutter.feed_one(data[start:])).records:
        start += cut.end
        records.append((start, lines))
        lines += cut.lines
    if cutter.finish().records:
        records.append((len(data), lines))
    return records


@given(data=st.lists(_PARTS, max_size=25).map(b"".join), form=st.sampled_from(list(_FORMS)))
def test_records_of_a_sample_are_those_of_the_load(data: bytes, form: str) -> None:
    """They end at the same bytes and begin on the same lines, or the load refuses the file and the sample shows why."""
    records = Form(**_FORMS[form]).cut(data, is_whole=True)  # type: ignore[arg-type]
    try:
        expected = _cut_as_load(data, form)
    except RecordError:
        assert records.odd_line is not None or records.open_quote is not None
        return
    assert [record.line for record in records.whole] == [lines + 1 for _, lines in expected]
    for record, (end, _) in zip(records.whole, expected, strict=True):
        assert data[record.start : record.end] == record.text
        assert data[record.end : end] in (b"\n", b"\r\n", b"\r", b"")


@pytest.mark.parametrize(
    ("head", "whole", "rest"),
    [
        (b'a\n"b\r"\nc\nd', [(b"a", 7), (b'"b\r"', 8), (b"c", 9)], (b"d", 10)),
        (b"a\r\nb\nc\r\n", [(b"a", 7), (b"b", 8), (b"c", 9)], None),
        (b'a\n"b\nc', [(b"a", 7)], (b'"b\nc', 8)),
    ],
)
def test_lines_are_those_of_the_file(
    head: bytes, whole: list[tuple[bytes, int]], rest: tuple[bytes, int] | None
) -> None:
    """A sample may begin on another line than the first, and what its end cuts is a piece but no whole record."""
    records = Form(**_FORMS["csv"]).cut(head, is_whole=False, first_line=7)  # type: ignore[arg-type]
    assert [(record.text, record.line) for record in records.whole] == whole
    assert [(record.text, record.line) for record in records.pieces] == [*whole, *([] if rest is None else [rest])]


def test_a_backslash_at_the_end_of_the_file_leaves_an_empty_null() -> None:
    """As COPY does, the backslash is dropped before the field is compared with the null string."""
    dialect = Dialect(
        format="text", delimiter="\t", quote=None, escape=None, nulls=("",), has_header=False, encoding="UTF8"
    )
    assert split_record(b"a\t\\", dialect) == ["a", None]


def test_a_form_has_quotes_exactly_if_it_is_csv() -> None:
    """Half a form is refused."""
    for wrong in (
        {"format": "csv"},
        {"format": "csv", "quote": b'"'},
        {"format": "tsv", "quote": b'"', "escape": b'"'},
    ):
        with pytest.raises(ValueError, match="format is csv with quote and escape"):
            Form(delimiter=b",", **wrong)  # type: ignore[arg-type]
