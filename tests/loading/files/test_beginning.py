"""What stands before a header or first record."""

from __future__ import annotations

import pytest

from penstock.core.errors import SourceError
from penstock.core.values.dialect import DialectOptions
from penstock.loading.files.streams import skip_beginning


@pytest.mark.parametrize("line", [b"sep=x\n", b"sep=\r\r\n", b"sep=1\n"])
def test_line_that_names_no_usual_delimiter_is_data(line: bytes) -> None:
    """Only what Excel's users separate by is taken for a separator."""
    text, separator, skipped = skip_beginning(iter((line, b"1\n")), DialectOptions(), uri="a.csv")
    assert (b"".join(text), separator, skipped) == (line + b"1\n", None, 0)


def test_more_lines_to_skip_than_the_file_has_are_refused() -> None:
    """Else the file would count as loaded, with no rows."""
    with pytest.raises(SourceError, match="fewer lines"):
        skip_beginning(iter((b"a\nb\n",)), DialectOptions(skip_lines=3), uri="a.csv")


@pytest.mark.parametrize("content", [b"", b"a\nb", b"a\nb\n", b"a\r\nb\r"])
def test_file_of_skipped_lines_alone_and_empty_file_hold_no_rows(content: bytes) -> None:
    """Its last line needs no end."""
    text, _, _ = skip_beginning(iter((content,) if content else ()), DialectOptions(skip_lines=2), uri="a.csv")
    assert b"".join(text) == b""
