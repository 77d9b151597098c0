"""No guess stores other values than were written without a word: every content in every dialect.

Each is read as the probe says: as written, or with a warning, or refused, by the probe or for its number of fields.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import pytest

from penstock.core.errors import PenstockError
from penstock.core.values.dialect import DialectOptions
from penstock.core.values.job import TargetJob
from penstock.core.values.table import TableName
from penstock.loading.formats.columns import naming_notice
from penstock.loading.formats.probe.form import make_form, split_record
from penstock.loading.formats.probe.probing import probe_dialect, refuse_unclear_escapes

if TYPE_CHECKING:
    from collections.abc import Callable

Rows = list[list[str | None]]

_JOB = TargetJob(sources=("f",), into=TableName(schema=None, name="t"))
_HEADER = ["id", "name", "note"]
_CONTENTS: dict[str, Rows] = {
    "plain": [["1", "Ann", "one"], ["2", "Bob", "two"], ["3", "Eve", "three"]],
    "words": [["x", "Ann", "one"], ["y", "Bob", "two"], ["z", "Eve", "three"]],
    "blanks": [["1", "Ann Smith", "at home"], ["2", "Bob", ""], ["3", " Eve ", "x y z"]],
    "commas": [["1", "Smith, Ann", "a,b"], ["2", "Roe, Bob", "c,d"], ["3", "Poe, Eve", "e,f"]],
    "semicolons": [["1", "a;b", "x"], ["2", "c;d", "y"], ["3", "e;f", "z"]],
    "quotes": [["1", 'the "best"', "x"], ["2", '"all"', "y"], ["3", "none", 'six" pipe']],
    "apostrophes": [["1", "O'Hara", "it's"], ["2", "'twas", "y"], ["3", "dogs'", "z"]],
    "lines": [["1", "a\nb", "x"], ["2", "c", "y\nz"], ["3", "e", "f"]],
    "backslashes": [["1", "C:\\new\\table", "x"], ["2", "\\\\host\\share", "y"], ["3", "a\\", "z"]],
    "nulls": [["1", None, "x"], ["2", None, "y"], ["3", "Eve", None]],
    "decimals": [["1", "1,5", "2,5"], ["2", "3,5", "4,5"], ["3", "5,5", "6,5"]],
    "times": [["1", "10:15", "a"], ["2", "11:30", "b"], ["3", "12:45", "c"]],
}


def _csv(delimiter: str, quote: str, *, escape: str, when: str, null: str) -> Callable[[list[str | None]], str]:
    def field(value: str | None) -> str:
        if value is None:
            return null
        needs = any(character in value for character in (delimiter, quote, "\n", "\r")) or value == null
        if when == "all" or needs:
            spelled = value.replace("\\", "\\\\") if escape == "\\" else value
            return quote + spelled.replace(quote, escape + quote) + quote
        return value.replace("\\", "\\\\") if escape == "\\" else value

    return lambda row: delimiter.join(map(field, row))


def _text(delimiter: str) -> Callable[[list[str | None]], str]:
    def field(value: str | None) -> str:
        if value is None:
            return "\\N"
        escaped = value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
        return escaped if delimiter == "\t" else escaped.replace(delimiter, "\\" + delimiter)

    return lambda row: delimiter.join(map(field, row))


def _raw(delimiter: str, null: str) -> Callable[[list[str | None]], str]:
    return lambda row: delimiter.join(null if value is None else value for value in row)


def _dialects() -> dict[str, Callable[[list[str | None]], str]]:
    ways: dict[str, Callable[[list[str | None]], str]] = {}
    for delimiter, quote, when, null in product(",;\t|", "\"'", ("needed", "all"), ("", "NULL", "\\N")):
        for escape in (quote, "\\"):
            name = f"csv {delimiter!r} {quote} {escape} {when} {null!r}"
            ways[name] = _csv(delimiter, quote, escape=escape, when=when, null=null)
    ways["csv all quoted 'NULL'"] = lambda row: ",".join(f'"{"NULL" if value is None else value}"' for value in row)
    ways["csv escaped, not quoted"] = lambda row: "\t".join((value or "").replace('"', '\\"') for value in row)
    ways["csv with blanks"] = lambda row: ", ".join(value or "" for value in row)
    for delimiter in ",;\t|:^\x01 ":
        ways[f"text {delimiter!r}"] = _text(delimiter)
        for null in ("", "NULL", "\\N"):
            ways[f"raw {delimiter} {null!r}"] = _raw(delimiter, null)
    return ways


_DIALECTS = _dialects()


def _is_told(head: bytes, wanted: Rows, *, table_columns: list[str] | None, has_header: bool) -> bool:
    """Return whether a file is read as written, or refused, or loaded with a warning."""
    options = DialectOptions()
    try:
        found = probe_dialect(head, options=options, is_whole=True, table_columns=table_columns, uri="f", bom=None)
        refuse_unclear_escapes(head, is_whole=True, dialect=found.dialect, options=options, uri="f")
        form = make_form(found.dialect.format, found.dialect.delimiter, options)
        records = form.cut(head, is_whole=True)
        read = [split_record(record.text, found.dialect) for record in records.whole]
    except PenstockError:
        return True
    if found.notices or records.open_quote is not None or records.odd_line is not None:
        return True
    if table_columns is None and naming_notice(found.header, found.field_count, _JOB, uri="f") is not None:
        return True
    width = found.field_count if table_columns is None else len(table_columns)
    rows = read[1:] if found.dialect.has_header else read
    if any(len(row) != width for row in rows):
        return True
    if (found.header is not None) is not has_header:
        return False
    # Nothing shows whether null or the empty string was meant.
    return [[value or None for value in row] for row in rows] == [[value or None for value in row] for row in wanted]


@pytest.mark.parametrize("content", _CONTENTS)
@pytest.mark.parametrize("has_header", [True, False], ids=["header", "bare"])
@pytest.mark.parametrize("is_new", [True, False], ids=["created", "existing"])
def test_no_guess_is_silently_wrong(content: str, *, has_header: bool, is_new: bool) -> None:
    """Neither for a table of texts that exists, nor for one that is created."""
    rows = _CONTENTS[content]
    silent = []
    for name, write in _DIALECTS.items():
        if name.startswith("raw") and any(
            value and (name[4] in value or "\n" in value) for row in rows for value in row
        ):
            continue  # Nobody can read it
        lines = [write(row) for row in rows]
        if has_header:
            lines.insert(0, write([*_HEADER]))
        head = "".join(f"{line}\n" for line in lines).encode()
        if not _is_told(head, rows, table_columns=None if is_new else _HEADER, has_header=has_header):
            silent.append(name)
    assert silent == []
