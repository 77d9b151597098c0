"""What the rewriter makes of records, seen from Python; its rules are tested in rust/src/rewrite.rs."""

from __future__ import annotations

import pytest

from penstock._native import RecordError, Rewriter


def test_segments_are_joined_inside_a_record() -> None:
    """A record, and even a quoted field, may begin in one buffer and end in another."""
    rewriter = Rewriter(format="csv", delimiter=b",", quote=b'"', escape=b'"', nulls=[b"", b"NULL"])
    first, second = b'-skipped-\na,"b', b'\n,c"\nNULL,d\nbehind'
    segments = [(first, 10, len(first)), (second, 0, len(second) - len(b"behind"))]
    assert rewriter.rewrite(segments, "lf") == b'a,"b\n,c"\n,d\n'


def test_no_segments_give_no_bytes() -> None:
    """A chunk without records is nothing to send."""
    assert Rewriter(format="text", delimiter=b"\t", nulls=[b"\\N"]).rewrite([], "lf") == b""


def test_segment_beyond_its_buffer_is_refused() -> None:
    """A wrong offset is an error, not a shorter record."""
    rewriter = Rewriter(format="tsv", delimiter=b"\t", nulls=[b"\\N"])
    with pytest.raises(ValueError, match="reaches beyond its buffer"):
        rewriter.rewrite([(b"a\n", 0, 3)], "lf")


def test_tsv_becomes_copy_text() -> None:
    r"""Only a field that is \N stays null; every other backslash is data."""
    rewriter = Rewriter(format="tsv", delimiter=b"\t", nulls=[b"\\N"])
    block = b'\\N\t\\Nx\t["a\\"b"]\r\n'
    assert rewriter.rewrite([(block, 0, len(block))], "crlf") == b'\\N\t\\\\Nx\t["a\\\\"b"]\n'


def test_kept_fields_come_in_the_order_asked_and_constants_behind() -> None:
    """The column list of COPY names fields first, then what --set adds."""
    rewriter = Rewriter(
        format="csv",
        delimiter=b",",
        quote=b'"',
        escape=b'"',
        nulls=[b""],
        keep=[2, 0],
        constants=[b'say "hi"', None],
        field_count=3,
    )
    assert rewriter.rewrite([(b"a,b,c\n", 0, 6)], "lf") == b'c,a,"say ""hi""",\n'


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (b"c", "missing data for column 2: expected 2 columns, found 1"),
        (b"c,d,e", "extra data after last expected column: expected 2 columns, found 3"),
    ],
)
def test_wrong_field_count_names_record_and_line(record: bytes, message: str) -> None:
    """The line counts line feeds in quotes too, so that an editor finds it."""
    rewriter = Rewriter(format="csv", delimiter=b",", quote=b'"', escape=b'"', nulls=[b""], field_count=2)
    block = b'"a\n",b\n' + record + b"\n"
    with pytest.raises(RecordError) as caught:
        rewriter.rewrite([(block, 0, len(block))], "lf")
    assert caught.value.args == (message, 1, 2)


def test_empty_constant_needs_another_null_string_in_text() -> None:
    """What the format cannot express is refused before any data."""
    with pytest.raises(ValueError, match="an empty string cannot be told from null"):
        Rewriter(format="text", delimiter=b"\t", nulls=[b""], constants=[b""])


def test_null_string_with_the_delimiter_is_refused() -> None:
    """Such a null string would become two fields."""
    with pytest.raises(ValueError, match="null string cannot hold the delimiter"):
        Rewriter(format="csv", delimiter=b",", quote=b'"', escape=b'"', nulls=[b"a,b"])


def test_missing_kept_field_is_an_error_without_a_field_count() -> None:
    """A short record must not lose a column in silence."""
    rewriter = Rewriter(format="text", delimiter=b"\t", nulls=[b"\\N"], keep=[0, 2])
    with pytest.raises(RecordError, match="expected 3 columns, found 2"):
        rewriter.rewrite([(b"a\tb\n", 0, 4)], "lf")
