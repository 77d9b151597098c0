"""JSON is refused by name unless the format is given, and what only looks like it is loaded."""

from __future__ import annotations

import json

import pytest

from penstock.errors import SourceError
from penstock.files.probe import probe_dialect
from penstock.model.source.dialect import DialectOptions, Format

_OBJECTS = [{"id": number, "name": "Ann, Bob", "tags": ["a", 1]} for number in range(9)]
_LINES = "".join(f"{json.dumps(each)}\n" for each in _OBJECTS)


def _probe(text: str, *, is_whole: bool = True, format_name: Format | None = None) -> str:
    options = DialectOptions(format=format_name)
    found = probe_dialect(
        text.encode(), options=options, is_whole=is_whole, table_columns=["a"], uri="f.json", bom=None
    )
    return found.dialect.format


@pytest.mark.parametrize(
    ("text", "is_whole", "name"),
    [
        (_LINES, True, "JSON Lines"),
        (f"\n  {_LINES[:-30]}", False, "JSON Lines"),
        (_LINES[:60].partition("\n")[0], True, "JSON Lines"),
        (json.dumps(_OBJECTS), True, "a JSON array"),
        (json.dumps(_OBJECTS)[:-40], False, "a JSON array"),
        (json.dumps(_OBJECTS, indent=2), True, "a JSON array"),
        (json.dumps(_OBJECTS, indent=2)[:-40], False, "a JSON array"),
        ('["a", "b"]', True, "a JSON array"),
        (json.dumps(_OBJECTS[0], indent=2), True, "a JSON object"),
    ],
)
def test_json_is_refused_by_name(text: str, is_whole: bool, name: str) -> None:
    """The hint says how to load it all the same, and that way is open."""
    with pytest.raises(SourceError, match=f'"f.json" is {name}, not delimited text') as caught:
        _probe(text, is_whole=is_whole)
    assert "--format tsv" in (caught.value.hint or "")
    for format_name in ("csv", "text", "tsv"):
        assert _probe(text, is_whole=is_whole, format_name=format_name) == format_name  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text",
    [
        '{"a":1}\tx\n{"a":2}\ty\n',
        '"{""a"":1}",x\n"{""a"":2}",y\n',
        '[{"a":1},{"a":2}]\tx\n[]\ty\n',
        "{1,2}\n{3}\n",
        "{}\n{}\n",
        '{"a","b"}\n{"c"}\n',
        "[1.5,2.5]\n[3,4]\n",
        "[1,2,3]",
        "[1,10)\n",
        "[section]\na=b\n",
        "{\n",
        "[",
        "1\n2\n",
        "id,doc\n1,{}\n",
    ],
)
@pytest.mark.parametrize("is_whole", [True, False])
def test_what_is_no_json_is_loaded(text: str, is_whole: bool) -> None:
    """Fields of JSON, PostgreSQL's arrays, ranges and vectors."""
    _probe(text, is_whole=is_whole)
