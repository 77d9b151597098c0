"""JSON Lines is recognized, other JSON is refused by name unless the format is given, and what is none is loaded."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.errors import SourceError, UsageError
from penstock.files.probe import probe_dialect
from penstock.files.probe.json_lines import is_json_lines, probe_json_lines
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
    assert "jq -c" in (caught.value.hint or "")
    for format_name in ("csv", "text", "tsv"):
        assert _probe(text, is_whole=is_whole, format_name=format_name) == format_name  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "is_whole"),
    [
        (_LINES, True),
        (f"\n  {_LINES[:-30]}", False),
        (_LINES[:60].partition("\n")[0], True),
        ('{}\r\n{"a": 1}\r\n', True),
        ('{"a": 1}\nbad\n', True),
    ],
)
def test_json_lines_are_recognized(text: str, is_whole: bool) -> None:
    """By the first lines, unless the options name another format; the names of all records are the header."""
    assert is_json_lines(text.encode(), DialectOptions(), is_whole=is_whole)
    assert not is_json_lines(text.encode(), DialectOptions(format="csv"), is_whole=is_whole)
    found = probe_json_lines(text.encode(), options=DialectOptions(), is_whole=is_whole, table_columns=[], uri="f")
    assert found.header == (("a",) if "a" in (found.header or ()) else ("id", "name", "tags"))
    assert found.dialect.format == "jsonl"


@pytest.mark.parametrize("text", ["1\n2\n", "a,b\n{}", "{}\n{}\n", '{"a":1,\n"b":2}', "", "\n"])
def test_what_is_no_json_lines_is_json_lines_only_if_an_option_says_so(text: str) -> None:
    """A format that is given counts."""
    assert not is_json_lines(text.encode(), DialectOptions(), is_whole=True)
    assert is_json_lines(text.encode(), DialectOptions(format="jsonl"), is_whole=True)


@pytest.mark.parametrize(
    "options",
    [
        {"delimiter": ","},
        {"quote": "'"},
        {"escape": "'"},
        {"null": ("NULL",)},
        {"force_null": ("*",)},
        {"header": False},
        {"encoding": "LATIN1"},
    ],
)
def test_options_of_delimited_text_are_refused_by_name(options: dict[str, Any]) -> None:
    """Whether the format is given or recognized."""
    (name,) = options
    for given in (DialectOptions(**options), DialectOptions(format="jsonl", **options)):
        with pytest.raises(UsageError, match=f"--{name.replace('_', '-')} .*cannot be used with format jsonl"):
            probe_json_lines(_LINES.encode(), options=given, is_whole=True, table_columns=[], uri="f")


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
