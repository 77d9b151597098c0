"""Records of JSON Lines become what json_populate_record makes of them, or are rejected with their bytes and line.

However the file is parted on its way. The model refuses what Python's json refuses, and besides NaN, names that repeat
in an object, names without a column, half surrogate pairs and zero characters; of the rest the server decides.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from penstock.core.errors import DataError
from penstock.core.values.job import LoadRules
from support.loads import Loads, target

if TYPE_CHECKING:
    from pathlib import Path

    from hypothesis.strategies import DrawFn

EXAMPLES = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])

_TABLE = """
    DROP TABLE IF EXISTS t, expected, whole CASCADE;
    DROP DOMAIN IF EXISTS document CASCADE;
    CREATE DOMAIN document AS jsonb;
    CREATE TABLE t (a int, "B" text, n numeric, ok boolean, j jsonb, r json, d document, at timestamptz, x varchar(4));
    CREATE TABLE expected (LIKE t);
    CREATE TABLE whole (doc jsonb)
"""
_NAMES = ("a", "B", "n", "ok", "j", "r", "d", "at", "x")
_ROWS = 'SELECT a, "B", n::text, ok, j::text, r::jsonb::text, d::text, at, x FROM {}'

_TEXTS = (
    "",
    "x",
    "12",
    "yes",
    "2024-02-29",
    "a\tb",
    "l\nr\r",
    "\\N",
    "\\.",
    'q"',
    "é",
    "😀",
    "\x7f",
    "toolong",
    "\b\f/",
)
_NUMBERS = ("0", "-0", "1", "-17", "1.50", "1e5", "0.1E-3", "12345678901234567890.123456789012345678901", "2147483648")
_SPECIAL = (
    '"\\ud800"',
    '"\\udc00x"',
    '"\\u0000"',
    "NaN",
    "01",
    "1.",
    "+1",
    '"\t"',
    '"\\x"',
    "nul",
    "",
    "[1,]",
    '{"a"}',
)
_BLANKS = ("", "", "", " ", "\t", " \r ")


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """A file, and how it is parted on its way."""

    text: str
    piece_bytes: int
    chunk_bytes: int
    batch_bytes: int


@st.composite
def _strings(draw: DrawFn) -> str:
    text = draw(st.sampled_from(_TEXTS))
    is_ascii = draw(st.booleans())
    written = json.dumps(text, ensure_ascii=is_ascii)
    return written.replace("/", "\\/") if draw(st.booleans()) else written


@st.composite
def _values(draw: DrawFn, depth: int = 2) -> str:
    kind = draw(st.sampled_from(("string", "number", "word", "string", "number", "array", "object", "special")))
    if kind == "special" and draw(st.integers(0, 3)) == 0:
        return draw(st.sampled_from(_SPECIAL))
    if kind in ("array", "object") and depth:
        items = draw(st.lists(_values(depth=depth - 1), max_size=3))
        blank = draw(st.sampled_from(_BLANKS))
        if kind == "array":
            return f"[{blank}{f',{blank}'.join(items)}]"
        names = [draw(_strings()) for _ in items]
        return "{" + ",".join(f"{name}{blank}:{blank}{item}" for name, item in zip(names, items, strict=True)) + "}"
    if kind == "number":
        return draw(st.sampled_from(_NUMBERS))
    return draw(st.sampled_from(("true", "false", "null"))) if kind == "word" else draw(_strings())


@st.composite
def _lines(draw: DrawFn) -> str:
    kind = draw(st.sampled_from((*("record",) * 12, "twice", "unknown", "value", "blank", "cut")))
    blank = draw(st.sampled_from(_BLANKS))
    if kind == "blank":
        return blank
    if kind == "value":
        return draw(_values())
    names = draw(st.lists(st.sampled_from(_NAMES), max_size=4, unique=True))
    names += {"twice": names[:1], "unknown": ["zz"]}.get(kind, [])
    fields = [f"{blank}{_spell(draw, name)}:{draw(_values())}" for name in names]
    record = f"{blank}{{{','.join(fields)}}}{blank}"
    return record[: draw(st.integers(0, len(record)))] if kind == "cut" else record


def _spell(draw: DrawFn, name: str) -> str:
    """Return a name in quotes: as it is, in another case, or with an escape."""
    how = draw(st.integers(0, 9))
    if how == 0:
        return f'"{name.swapcase()}"'
    return f'"\\u{ord(name[0]):04X}{name[1:]}"' if how == 1 else f'"{name}"'


@st.composite
def _files(draw: DrawFn) -> File:
    lines = draw(st.lists(_lines(), max_size=40))
    end = draw(st.sampled_from(("\n", "\n", "\r\n")))
    text = "".join(line + end for line in lines)
    return File(
        text=text.removesuffix(end) if draw(st.booleans()) else text,
        piece_bytes=draw(st.sampled_from((1, 7, 64, 100_000))),
        chunk_bytes=draw(st.sampled_from((10, 200, 100_000))),
        batch_bytes=draw(st.sampled_from((20, 500, 100_000))),
    )


class _Refused(ValueError):
    """The model refuses a record."""


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    if len(set(names)) < len(names):
        raise _Refused
    return dict(pairs)


def _refuse(_: str) -> None:
    raise _Refused


def _check(value: Any) -> None:
    """Raise _Refused if a text is not one that PostgreSQL stores."""
    if isinstance(value, str) and any(each == "\0" or "\ud800" <= each <= "\udfff" for each in value):
        raise _Refused
    for each in (
        (*value.keys(), *value.values()) if isinstance(value, dict) else value if isinstance(value, list) else ()
    ):
        _check(each)


def _read(line: str) -> dict[str, Any]:
    value = json.loads(line, object_pairs_hook=_unique, parse_constant=_refuse)
    if not isinstance(value, dict):
        raise _Refused
    _check(value)
    return value


def _model(connection: psycopg.Connection[Any], text: str) -> Counter[tuple[int, str]]:
    """Insert what is accepted into table `expected`, and return the others, each with its line."""
    refused = Counter[tuple[int, str]]()
    by_fold = {name.lower(): name for name in _NAMES}
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip(" \t\r"):
            continue
        try:
            value = {by_fold.get(name.strip().lower(), ""): name for name in _read(line)}
            if "" in value or len(value) < len(_read(line)):
                raise _Refused
            # The model knows the exact names only.
            pairs = json.dumps([[name, column] for column, name in value.items()])
            with connection.transaction():
                connection.execute(
                    "INSERT INTO expected SELECT p.* FROM (SELECT json_object_agg(n.pair ->> 1, e.value) AS o"
                    " FROM json_each(%(line)s::json) AS e JOIN json_array_elements(%(pairs)s::json) AS n(pair)"
                    " ON n.pair ->> 0 = e.key) AS one, json_populate_record(NULL::expected, coalesce(o, '{}')) AS p",
                    {"line": line, "pairs": pairs},
                )
        except (ValueError, psycopg.DataError):
            refused[number, line.strip(" \t\r")] += 1
    return refused


@pytest.mark.part("rest")
@EXAMPLES
@given(file=_files())
def test_loads_equal_the_model(database18: str, tmp_path: Path, file: File) -> None:
    """Rows, rejects and lines; and of no record twice, whatever the blocks."""
    path = tmp_path / "f.jsonl"
    path.write_text(file.text, encoding="utf-8", newline="")
    loads = Loads(database18, setup=_TABLE, piece_bytes=file.piece_bytes, chunk_bytes=file.chunk_bytes)
    with psycopg.connect(database18, autocommit=True) as connection:
        refused = _model(connection, file.text)
    rows = Counter(loads.execute(_ROWS.format("expected")))
    event(f"{bool(rows)} rows, {bool(refused)} rejects")
    rules = LoadRules(retry_for=0.0, again=True, vacuum=False, on_error="reject")
    if not rows and len(refused.values()) and all(_has_own_fault(line) for _, line in refused) and refused.total() > 1:
        # No record can be written: the whole file is refused.
        with pytest.raises(DataError) as caught:
            loads.run(target(path, format="jsonl"), rules=rules)
        assert caught.value.location is not None
        return
    outcome = loads.run(target(path, format="jsonl"), rules=rules, batch_bytes=file.batch_bytes)
    assert Counter(loads.execute(_ROWS.format("t"))) == rows
    assert outcome.rows == rows.total()
    stored = (
        loads.execute(f"SELECT line, raw FROM penstock.rejects WHERE load = '{outcome.load_id}'") if refused else []
    )
    assert Counter((line, raw.decode().strip(" \t\r\n")) for line, raw in stored) == refused


def _has_own_fault(line: str) -> bool:
    """Return whether a record is refused before the server sees it."""
    try:
        names = [name.strip().lower() for name in _read(line)]
    except ValueError:
        return True
    return len(set(names)) < len(names) or not set(names) <= {name.lower() for name in _NAMES}


@pytest.mark.part("rest")
@EXAMPLES
@given(file=_files())
def test_whole_records_equal_the_model(database18: str, tmp_path: Path, file: File) -> None:
    """A table with one column of type jsonb has each record as the server reads it."""
    path = tmp_path / "f.jsonl"
    path.write_text(file.text, encoding="utf-8", newline="")
    loads = Loads(database18, setup=_TABLE, piece_bytes=file.piece_bytes, chunk_bytes=file.chunk_bytes)
    expected, refused = Counter[str](), 0
    for line in file.text.split("\n"):
        if line.strip(" \t\r"):
            try:
                _read(line)
                with psycopg.connect(database18) as connection:
                    expected[connection.execute("SELECT %s::jsonb::text", [line]).fetchall()[0][0]] += 1
            except (ValueError, psycopg.DataError):
                refused += 1
    if not expected and refused > 1:
        return
    rules = LoadRules(retry_for=0.0, again=True, vacuum=False, on_error="reject")
    outcome = loads.run(target(path, into="whole", format="jsonl"), rules=rules, batch_bytes=file.batch_bytes)
    assert Counter(text for (text,) in loads.execute("SELECT doc::text FROM whole")) == expected
    assert (outcome.rows, outcome.rejected) == (expected.total(), refused)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_values_keep_their_digits(database18: str, tmp_path: Path, end: str) -> None:
    """A number in a column of type text or numeric is the file's, digit for digit."""
    loads = Loads(database18, setup="CREATE TABLE t (a text, n numeric, j json)")
    path = tmp_path / "f.jsonl"
    numbers = ("1.0000000000000000000000000001", "-0", "1E400", "100000000000000000000000000000000000001", "0.10")
    path.write_text("".join(f'{{"a":{number},"j":{{"k":  {number}}}}}{end}' for number in numbers), newline="")
    loads.run(target(path))
    assert [row[0] for row in loads.execute("SELECT a FROM t ORDER BY ctid")] == list(numbers)
    assert [row[0] for row in loads.execute("SELECT j::text FROM t")] == [f'{{"k":  {number}}}' for number in numbers]
