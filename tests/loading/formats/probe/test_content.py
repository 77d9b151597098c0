"""What a text is by how it begins: JSON Lines is loaded; other JSON, markup and SQL are refused by name.

If a format is given, the text is read as that format has it.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from penstock.core.errors import SourceError, UsageError
from penstock.core.values.dialect import DialectOptions, TextFormat
from penstock.loading.formats.jsonl import JsonLines, probe_json_lines
from penstock.loading.formats.probe.content import check_is_delimited
from penstock.loading.formats.probe.probing import probe_dialect

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.core.values.source import Compression

_OBJECTS = [{"id": number, "name": "Ann, Bob", "tags": ["a", 1]} for number in range(9)]
_LINES = "".join(f"{json.dumps(each)}\n" for each in _OBJECTS)


def _probe(text: str, *, is_whole: bool = True, format_name: TextFormat | None = None) -> str:
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
        ('["a", "b"]', True, "a JSON array of values"),
        ("[[1, 2], [3, 4]]", True, "a JSON array of arrays"),
        ("[1, 2]\n[3, 4]\n", True, "lines of JSON arrays"),
        (json.dumps(_OBJECTS[0], indent=2), True, "JSON whose objects do not have a line each"),
        (json.dumps(_OBJECTS[0], indent=2)[:-9], False, "JSON whose objects do not have a line each"),
        ('{"a":1} {"a":2}\n', True, "JSON whose objects do not have a line each"),
        (_LINES.replace("\n", ",\n"), True, "JSON with a comma after each record"),
        (_LINES.replace("\n", ",\n")[:-2], True, "JSON with a comma after each record"),
    ],
)
def test_json_is_refused_by_name_and_the_hint_converts_it(
    text: str, is_whole: bool, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the hint's command writes is JSON Lines or CSV; with a format that is given, the file is read as it is."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "f.json"
    path.write_text(text)
    with pytest.raises(SourceError, match=f'"f.json" is {name}, not delimited text') as caught:
        _probe(text, is_whole=is_whole)
    command = re.search(r": ((?:jq|sed) .* > \S+?)(?:\.? |$)", caught.value.hint or "")
    assert command is not None
    if is_whole and shutil.which("jq"):
        subprocess.run(["sh", "-ec", command[1]], check=True)
        written = (tmp_path / command[1].split()[-1]).read_bytes()
        assert written
        if command[1].endswith(".csv"):
            assert _probe(written.decode()) == "csv"
        else:
            assert JsonLines().recognize(written, DialectOptions(), is_whole=True)
    for format_name in ("csv", "text", "tsv"):
        assert _probe(text, is_whole=is_whole, format_name=format_name) == format_name  # type: ignore[arg-type]


@pytest.mark.parametrize("text", [json.dumps(_OBJECTS), json.dumps(_OBJECTS, indent=2), _LINES.replace("\n", ",\n")])
def test_json_without_a_line_for_each_record_is_refused_as_json_lines_too(text: str) -> None:
    """The option cannot make records of its lines."""
    with pytest.raises(SourceError, match="not JSON Lines") as caught:
        probe_json_lines(
            text.encode(), options=DialectOptions(format="jsonl"), is_whole=True, table_columns=[], uri="f.json"
        )
    assert re.search("(jq -c|sed) .* f.json > f.json.jsonl$", caught.value.hint or "")


@pytest.mark.parametrize(
    ("uri", "compression", "command"),
    [
        ("data/my file.json", "none", "jq -c '.[]' 'data/my file.json' > 'data/my file.json.jsonl'"),
        ("f.json.gz", "gzip", "zcat f.json.gz | jq -c '.[]' > f.json.gz.jsonl"),
        ("s3://bucket/a/f.json", "none", "Download it. .*: jq -c '.[]' f.json > f.json.jsonl"),
        ("stdin", "none", "put jq -c '.[]' before penstock in the pipe"),
        ("year=2026/f.json", "none", "jq -c '.[]' ./year=2026/f.json > ./year=2026/f.json.jsonl"),
    ],
)
def test_hint_names_the_file_as_it_is_read(uri: str, compression: Compression, command: str) -> None:
    """Paths are quoted for the shell, and compressed files are decompressed."""
    with pytest.raises(SourceError) as caught:
        check_is_delimited(b'[{"a": 1}]', is_whole=True, uri=uri, options=DialectOptions(), compression=compression)
    assert re.search(command.replace("[", r"\["), caught.value.hint or "")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("<!DOCTYPE html>\n<p>Not found", "an HTML page"),
        ("\n<html lang='en'><head>", "an HTML page"),
        ('<?xml version="1.0"?>\n<rows>', "XML"),
        ('<rows>\n  <row id="1"/>\n', "XML"),
        ("--\n-- PostgreSQL database dump\n--\n\nSET client_encoding = 'UTF8';\n", "an SQL dump by pg_dump"),
        ("--\n-- PostgreSQL database cluster dump\n--\n\n\\restrict x\n", "an SQL dump by pg_dump"),
        ("-- MySQL dump 10.13  Distrib 8.0.36\n--\n/*!40101 SET NAMES utf8 */;\n", "an SQL dump of MySQL or MariaDB"),
        ("/*M!999999\\- enable the sandbox mode */\n-- MariaDB dump 10.19\n", "an SQL dump of MySQL or MariaDB"),
        ("PRAGMA foreign_keys=OFF;\nBEGIN TRANSACTION;\n", "SQL"),
        ("-- all orders\nCREATE TABLE t (a int);\n", "SQL"),
        ("COPY public.m (a, b, c) FROM stdin;\n1\t2\t3\n", "SQL"),
        ("insert into t values (1, 'a');\n", "SQL"),
        ("begin;\n", "SQL"),
    ],
)
def test_markup_and_dumps_are_refused_by_name(text: str, name: str) -> None:
    """The hint also names the format with which such text is loaded as it is."""
    with pytest.raises(SourceError, match=f'"f.json" is {name}, not delimited text') as caught:
        _probe(text)
    assert "use --format csv" in (caught.value.hint or "")
    assert _probe(text, format_name="csv") == "csv"


@pytest.mark.parametrize(
    "text", ["<unknown>,1\n<5,2\n", "--,--\n1,2\n", "set,copy\nto,from\n", "begin,end\n1,2\n", "/*,*/\n", "\\N,1\n"]
)
def test_delimited_text_may_begin_like_markup_or_sql(text: str) -> None:
    """A tag or a statement has to be whole."""
    assert _probe(text) == "csv"


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
    assert JsonLines().recognize(text.encode(), DialectOptions(), is_whole=is_whole)
    assert not JsonLines().recognize(text.encode(), DialectOptions(format="csv"), is_whole=is_whole)
    found = probe_json_lines(text.encode(), options=DialectOptions(), is_whole=is_whole, table_columns=[], uri="f")
    assert found.header == (("a",) if "a" in (found.header or ()) else ("id", "name", "tags"))
    assert found.dialect.format == "jsonl"


@pytest.mark.parametrize("text", ["1\n2\n", "a,b\n{}", "{}\n{}\n", "", "\n"])
def test_what_is_no_json_lines_is_json_lines_only_if_an_option_says_so(text: str) -> None:
    """A format that is given counts."""
    assert not JsonLines().recognize(text.encode(), DialectOptions(), is_whole=True)
    assert JsonLines().recognize(text.encode(), DialectOptions(format="jsonl"), is_whole=True)


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
    ("text", "format_name"),
    [
        ('{"a":1}\tx\n{"a":2}\ty\n', "tsv"),
        ('[{"a":1},{"a":2}]\tx\n[]\ty\n', "tsv"),
        ("{1,2}\t\\N\n{3}\ta\\tb\n", "text"),
        ("{1,2};x\n{3};y\n", "csv"),
        ("{}\n{}\n", "csv"),
        ('{"a","b"}\n{"c"}\n', "csv"),
        ("[1.5,2.5]\n[3,4]\n", "csv"),
        ("[1,2,3]", "csv"),
        ("[1,10)\n", "csv"),
        ("[section]\na=b\n", "csv"),
        ("[2026-11-01 12:00:00] started\n[2026-11-01 12:00:01] ended\n", "csv"),
        ("{\n", "csv"),
        ("[", "csv"),
    ],
)
@pytest.mark.parametrize("is_whole", [True, False])
def test_field_that_begins_like_json_is_loaded_if_a_format_is_given(
    text: str, format_name: str, is_whole: bool
) -> None:
    """Fields of JSON, PostgreSQL's arrays, ranges and vectors: the hint names the format."""
    with pytest.raises(SourceError) as caught:
        _probe(text, is_whole=is_whole)
    (named,) = re.findall(r"delimited text, use --format (\w+)\.$", caught.value.hint or "")
    assert named == format_name
    assert _probe(text, is_whole=is_whole, format_name=named) == format_name


@pytest.mark.parametrize("text", ['"{""a"":1}",x\n"{""a"":2}",y\n', "1\n2\n", "id,doc\n1,{}\n", '"{1,2}"\n'])
def test_other_beginnings_are_delimited_text(text: str) -> None:
    """JSON in quotes, or behind a header, is a field."""
    assert _probe(text) == "csv"


@pytest.mark.parametrize("depth", [999, 1000, 100_000])
@pytest.mark.parametrize(("begin", "end"), [("[", "]"), ('{"a":', "}")])
def test_head_may_be_nested_at_any_depth(begin: str, end: str, depth: int) -> None:
    """Objects are JSON Lines, whose records the load judges; arrays are refused by name."""
    text = f"{begin * depth}1{end * depth}\n"
    assert JsonLines().recognize(text.encode(), DialectOptions(), is_whole=True) == (begin != "[")
    with pytest.raises(SourceError):
        _probe(text)
