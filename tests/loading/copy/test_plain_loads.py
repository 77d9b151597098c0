"""Blocks written without quotes and backslashes store the rows, and end with the errors, of the file as it is.

PostgreSQL 19 scans them faster. The model is COPY of the file as it is (--copy-format text).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from penstock.core.connect.connection import ConnectionFactory
from penstock.core.errors import PenstockError
from penstock.core.values.job import LoadJob
from penstock.loading.loader import Loader
from support.loads import IMPATIENT, Loads, target
from support.pairs import pairs

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping
    from pathlib import Path

    from penstock.core.values.job import CopyFormat, TargetJob
    from penstock.loading.values.outcome import LoadOutcome
    from penstock.loading.values.plan import CopyChoice

pytestmark = pytest.mark.pg(">= 19")

ROWS = 1500
# Of jsonb, the binary format is not encoded.
_TABLE = "CREATE TABLE t (n int NOT NULL, w varchar(30), x text, e jsonb)"
_AGAIN = replace(IMPATIENT, again=True)


@pytest.fixture
def loads(ledger: str) -> Loads:
    """Provide loads in tiny blocks into a database with a table t; they are weighed as large ones are."""
    return Loads(ledger, piece_bytes=2000, chunk_bytes=4000, setup=_TABLE, least_binary_bytes=0)


def job(path: Path, copy_format: CopyFormat = "auto", **options: object) -> TargetJob:
    """Return a target whose rows are sent in a format; the file's format is said, so that none is guessed."""
    dialect = {"format": path.suffix[1:], "has_header": False, "encoding": "UTF8"} | options
    return replace(target(path, **dialect), copy_format=copy_format)  # type: ignore[arg-type]


def plan_choice(loads: Loads, job: TargetJob) -> CopyChoice:
    """Return what is planned for a target."""
    with Loader(ConnectionFactory(loads.conninfo), tuning=loads.tuning) as loader:
        return loader.plan(LoadJob(targets=(job,), rules=IMPATIENT)).targets[0].copy


_RECORDS = {"csv": '{n},"w {n}",,"[{n}]"', "text": "{n}\tw {n}\t\\N\t[{n}]", "tsv": "{n}\tw {n}\t\\N\t[{n}]"}


def write(path: Path, others: Mapping[int, str] | None = None, *, line_end: str = "\n", encoding: str = "UTF8") -> Path:
    """Write a file in the format of its suffix; `others` has records that are not as the rest, by their number."""
    record = _RECORDS[path.suffix[1:]]
    records = (record.format(n=n) if n not in (others or {}) else others[n] for n in range(ROWS))  # type: ignore[index]
    path.write_bytes("".join(f"{each}{line_end}" for each in records).encode(encoding, errors="surrogateescape"))
    return path


def run_both(loads: Loads, path: Path, sessions: int = 1, **options: object) -> LoadOutcome:
    """Load a file as it is and as it is chosen, compare the rows and the warnings, and return the second outcome."""
    found = []
    for copy_format in ("text", "auto"):
        loads.notices.clear()
        outcome = loads.run(job(path, copy_format, **options), sessions=sessions, rules=_AGAIN)  # type: ignore[arg-type]
        found.append((outcome.rows, outcome.bytes_copied, loads.rows(), sorted(loads.notices)))
        loads.execute("TRUNCATE t")
    assert found[0][0] == found[1][0] == ROWS
    assert found[0][2:] == found[1][2:]
    return outcome


_ODD = {
    "csv": [
        '1,"say ""hi"", he said",\\,"{""a"": 1}"',
        '2,"","""",',
        '"3",\\N,"\\N",null',
        "4,NULL,,",
        '5," padded ",\\.,"[ 1 ]"',
        '6,é,"語",',
        '7,"ab"c,"d""",[]',
    ],
    "text": ['1\tsay "hi"\t\\\\ \\" \\t\t{}', '2\t\t""\t\\N', "3\t\\\\N\tN\tnull", "4\té\t語\\\\é\t[1]"],
    "tsv": ['1\tsay "hi"\t\\ \\t\t{}', '2\t\t""\t\\N', "3\t\\n\tN\t[]", "4\té\t\\語\t[1]"],
}


def odd_records(file_format: str, each: int) -> dict[int, str]:
    """Return records whose spelling matters, at one place in `each`."""
    odd = _ODD[file_format]
    return {n: odd[n // each % len(odd)] for n in range(3, ROWS, each)}


@pairs(file_format=[*_RECORDS], line_end={"lf": "\n", "crlf": "\r\n"}, sessions=[1, 3])
def test_rows_are_those_of_the_file_as_it_is(
    loads: Loads, tmp_path: Path, file_format: str, line_end: str, sessions: int
) -> None:
    """Of quotes, doubled quotes, escapes, empty strings, and fields that are spelt as a null."""
    path = write(tmp_path / f"f.{file_format}", odd_records(file_format, 7), line_end=line_end)
    assert run_both(loads, path, sessions).bytes_copied < path.stat().st_size


@pytest.mark.parametrize("null", ["", "\\N", "w 7", "é"])
def test_any_null_is_told_from_text(loads: Loads, tmp_path: Path, null: str) -> None:
    """A quoted one is no null."""
    others = {n: f'{n},"{null}",{null},' if not null else f'{n},"{null}",{null},{null}' for n in range(0, ROWS, 9)}
    plain = {n: f'{n},"{null}",{null},"[]"' for n in range(ROWS)}
    path = write(tmp_path / "f.csv", plain | others)
    assert run_both(loads, path, nulls=(null,)).bytes_copied < path.stat().st_size


@pytest.mark.parametrize("encoding", ["UTF8", "LATIN1", "WIN1252", "EUC_JP", "GBK", "UTF16"])
def test_encodings_are_those_of_the_file(loads: Loads, tmp_path: Path, encoding: str) -> None:
    """The server converts the bytes, or penstock does where some of them could be taken for ASCII."""
    word = {"EUC_JP": "ソ表", "GBK": "乗語"}.get(encoding, "é")
    codec = {"WIN1252": "cp1252", "UTF16": "utf-16"}.get(encoding, encoding)
    path = write(tmp_path / "f.csv", {n: f'{n},"{word} ""{n}""",{word},"[]"' for n in range(ROWS)}, encoding=codec)
    run_both(loads, path, encoding=encoding)
    assert plan_choice(loads, job(path, encoding=encoding)).is_plain


_DECLINED = {
    "csv": ['1,"two\nlines",a,"[]"', '1,"a\x1fb",c,"[]"', '1,\x1d,c,"[]"', '1,"a\rb",c,"[]"', '1,a,"\x1e",'],
    "text": ["1\ttwo\\nlines\ta\t[]", "1\t\\xc3\\xa9\ta\t[]", "1\t\\351\\\\\ta\t\\N", "1\ta\x1fb\t\\.\\.\t[]"],
    "tsv": ["1\ta\x1fb\t\\\t[]", "1\t\x1d\t\\\t[]"],
}


@pytest.mark.parametrize("file_format", _DECLINED)
@pytest.mark.parametrize("each", [40, 700], ids=["often", "rarely"])
def test_blocks_that_cannot_be_written_so_go_as_they_are(
    loads: Loads, tmp_path: Path, file_format: str, each: int
) -> None:
    """Some blocks or, where they are many, the rest of the file."""
    for record in _DECLINED[file_format]:
        path = write(tmp_path / f"f.{file_format}", dict.fromkeys(range(5, ROWS, each), record))
        found = []
        for copy_format in ("text", "auto"):
            try:
                loads.run(job(path, copy_format), sessions=1, rules=_AGAIN)  # type: ignore[arg-type]
                result: object = loads.rows()
            except PenstockError as error:
                result = (error.message, error.location)
            found.append(result)
            loads.execute("TRUNCATE t")
        assert found[0] == found[1], record


def test_a_file_without_quotes_goes_as_it_is(loads: Loads, tmp_path: Path) -> None:
    """It is scanned fast already."""
    path = write(tmp_path / "f.csv", {n: f"{n},w {n},,[{n}]" for n in range(ROWS)})
    assert run_both(loads, path).bytes_copied == path.stat().st_size


def test_the_rest_is_written_without_quotes_behind_the_first_one(loads: Loads, tmp_path: Path) -> None:
    """One COPY command for each change between the two."""
    plain = {n: f"{n},w {n},,[{n}]" for n in range(ROWS // 2)}
    path = write(tmp_path / "f.csv", plain)
    quotes = path.read_bytes().count(b'"')
    saved = path.stat().st_size - run_both(loads, path).bytes_copied
    # Each null is one byte longer.
    assert quotes - ROWS < saved < quotes


_REFUSED = {
    "null": ("", ',"a",b,"[]"'),
    "check": ("ALTER TABLE t ADD CHECK (n < 9000)", '9001,"a",b,"[]"'),
    "unique": ("CREATE UNIQUE INDEX ON t (n)", '3,"a",b,"[]"'),
    "length": ("", f'1,"{"w" * 31}",b,"[]"'),
    "type": ("", '"x",a,b,"[]"'),
    "json": ("", '1,a,b,"[1, "'),
    "encoding": ("", '1,"\udce9",b,"[]"'),
    "extra field": ("", '1,"a",b,"[]",c'),
    "missing field": ("", '1,"a",b'),
}


@pytest.mark.parametrize("case", _REFUSED)
@pytest.mark.parametrize("batch_bytes", [None, 10_000], ids=["one batch", "batches"])
def test_errors_are_those_of_the_file_as_it_is(
    loads: Loads, tmp_path: Path, case: str, batch_bytes: int | None
) -> None:
    """Message, detail, hint, SQLSTATE, file, line, column; and as many rows stay."""
    setup, record = _REFUSED[case]
    if setup:
        loads.execute(setup)
    path = write(tmp_path / "f.csv", {1101: record})
    errors = []
    for copy_format in ("text", "auto"):
        with pytest.raises(PenstockError) as caught:
            loads.run(job(path, copy_format), sessions=1, batch_bytes=batch_bytes)  # type: ignore[arg-type]
        error, load_id = caught.value, str(caught.value.load_id)
        texts = [str(text).replace(load_id, "ID") for text in (error.message, error.detail, error.hint)]
        errors.append([type(error), *texts, error.sqlstate, error.location, loads.count()])
        loads.execute("TRUNCATE t; DROP SCHEMA IF EXISTS penstock CASCADE")
    assert errors[0] == errors[1]


@pytest.mark.parametrize("first", ["text", "auto"])
def test_a_load_resumes_in_the_other_form(loads: Loads, tmp_path: Path, first: CopyFormat) -> None:
    """Committed ranges are bytes of the file, whatever was sent for them."""
    path = write(tmp_path / "f.csv", {1200: 'xxxx,"a",b,"[]"'})
    other: CopyFormat = "auto" if first == "text" else "text"
    rows = loads.assert_resumes(job(path, first), job(path, other), lambda: write(path, {1200: '1200,"a",b,"[]"'}))
    assert sorted(n for n, *_ in rows) == list(range(ROWS))


def test_changed_values_are_warned_of_alike(loads: Loads, tmp_path: Path) -> None:
    """Blanks that varchar(30) does not keep."""
    path = write(tmp_path / "f.csv", {900: f'900,"{"w" * 30}  ",,"[]"'})
    run_both(loads, path)
    assert any("does not keep" in notice for notice in loads.notices), loads.notices


def test_random_files_hold_the_rows_of_the_file_as_it_is(loads: Loads, tmp_path: Path, rng: random.Random) -> None:
    """Fields of pieces that mean something to csv or to the form that is written."""
    pieces = ["a", "é", '""', "\\", "\\N", ",", " ", "NULL", "\n", "\x1f", "\x1d", "\x1e"]
    weights = [9] * 8 + [0.02, 0.01, 0.01, 0.01]
    others = {}
    for n in range(ROWS):
        first, second = ("".join(rng.choices(pieces, weights, k=rng.randrange(4))) for _ in range(2))
        others[n] = f'{n},"{first}","{second}",'
    run_both(loads, write(tmp_path / "f.csv", others))
