"""Fields of one record, as COPY reads them."""

from __future__ import annotations

import pytest

from penstock.core.errors import DataError
from penstock.core.values.dialect import Dialect
from penstock.loading.formats.probe.form import split_record

CSV = Dialect(format="csv", delimiter=",", quote='"', escape='"', nulls=("", "NULL"), has_header=False, encoding="UTF8")
BACKSLASH_CSV = Dialect(
    format="csv", delimiter=",", quote='"', escape="\\", nulls=("",), has_header=False, encoding="UTF8"
)
TEXT = Dialect(
    format="text", delimiter="\t", quote=None, escape=None, nulls=("\\N",), has_header=False, encoding="UTF8"
)
TSV = Dialect(format="tsv", delimiter="\t", quote=None, escape=None, nulls=("\\N",), has_header=False, encoding="UTF8")


@pytest.mark.parametrize(
    ("record", "fields"),
    [
        (b"a,b", ["a", "b"]),
        (b"a,", ["a", None]),
        (b"", [None]),
        (b'"",NULL,"NULL"', ["", None, "NULL"]),
        (b'"a,b","c""d"', ["a,b", 'c"d']),
        (b'x"a,b"y,z', ["xa,by", "z"]),
        (b'"a\nb"', ["a\nb"]),
        (b'a\\"b"', ["a\\b"]),
    ],
)
def test_csv(record: bytes, fields: list[str | None]) -> None:
    """Quotes may stand anywhere; only unquoted fields are null."""
    assert split_record(record, CSV) == fields


@pytest.mark.parametrize(
    ("record", "fields"),
    [(rb'"a\"b","c\\"', ['a"b', "c\\"]), (rb'"a\b",c\d', ["a\\b", "c\\d"]), (b'"a""b"', ["ab"])],
)
def test_csv_with_its_own_escape(record: bytes, fields: list[str | None]) -> None:
    """The escape matters inside quotes, before a quote or itself only; a doubled quote closes and opens."""
    assert split_record(record, BACKSLASH_CSV) == fields


def test_csv_quote_that_does_not_end_is_an_error() -> None:
    """The message is COPY's own."""
    with pytest.raises(DataError, match="unterminated CSV quoted field"):
        split_record(b'a,"b', CSV)


@pytest.mark.parametrize(
    ("record", "fields"),
    [
        (rb"a\tb" + b"\t" + rb"\N", ["a\tb", None]),
        (rb"\\N" + b"\t" + rb"\x41\101\q", ["\\N", "AAq"]),
        (b"a\\\tb\tc", ["a\tb", "c"]),
        (rb"\303\251", ["é"]),
        (b"a\\", ["a"]),
        (b"", [""]),
    ],
)
def test_text(record: bytes, fields: list[str | None]) -> None:
    """Backslashes are escapes, and nulls are recognized before the escapes are decoded."""
    assert split_record(record, TEXT) == fields


def test_tsv_keeps_quotes_and_backslashes() -> None:
    """Only the delimiter and the null string mean something."""
    assert split_record(b'["a \\"b\\""]\t\\N\t\\\\N', TSV) == ['["a \\"b\\""]', None, "\\\\N"]


def test_bytes_that_the_encoding_lacks_are_an_error() -> None:
    """The error shows them as PostgreSQL does."""
    with pytest.raises(DataError, match="0xff"):
        split_record(b"a,\xff", CSV)
