"""Records far behind the sample can contradict the dialect that was found in the sample."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from penstock.core.errors import UsageError
from support.loads import IMPATIENT, Loads, target
from support.pairs import pairs

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.loading.values.outcome import CheckOutcome, LoadOutcome

_PLAIN_ROWS = 60_000
_STRICT = replace(IMPATIENT, warnings="error")


@pytest.fixture
def loads(ledger18: str) -> Loads:
    """Provide a database with a table of two texts."""
    return Loads(ledger18, setup="CREATE TABLE t (a text, b text)")


def write(path: Path, tail: str, *, head: str = "") -> Path:
    """Write a megabyte that any format with tabs explains, and what does not."""
    path.write_text(head + "".join(f"{number}\tsome words\n" for number in range(_PLAIN_ROWS)) + tail)
    return path


def told(outcome: LoadOutcome | CheckOutcome) -> list[tuple[str, str, int | None]]:
    """Return the warnings without their files."""
    return [(notice.code, notice.message, notice.line) for notice in outcome.warnings]


QUOTED = ("quote-kept", "fields in quotes, which are kept as data: 3 from this line on", _PLAIN_ROWS + 2)
ESCAPED = (
    "backslash-kept",
    "backslash escapes, which format tsv keeps as they are: 2 from this line on",
    _PLAIN_ROWS + 1,
)


@pytest.mark.parametrize(
    ("tail", "expected"),
    [
        ('5" x 3"\tsay "x"\n"a b"\t"c"\nd\t"e ""f"""\n', [QUOTED]),
        ("a\\tb\tc\nd\te\\\\f\n", [ESCAPED]),
        ("C:\\temp\tC:\\Users\n", []),
        ("\\N\t\\N\n", []),
    ],
)
def test_tsv_that_later_lines_contradict_is_warned_of(
    loads: Loads, tmp_path: Path, tail: str, expected: list[tuple[str, str, int]]
) -> None:
    """Quotes around fields, and backslashes that are all as COPY TO writes them, with count and first line."""
    path = write(tmp_path / "t.tsv", tail)
    assert told(loads.run(target(path))) == expected
    assert told(loads.check(target(path))) == expected


@pytest.mark.parametrize(
    ("tail", "count"),
    [
        ('a,5" x 3"\nsay "x" y,b\n', 3),
        ('"a"b,c\n', 1),
        ('a,some name 5"\nb,c\nd,e 6"\n', 1),
        ('"a ""b"" c","d, e"\n"",""""\n"f\ng",h\n', 0),
    ],
)
def test_csv_with_quotes_in_later_fields_is_warned_of(loads: Loads, tmp_path: Path, tail: str, count: int) -> None:
    """COPY drops them: a size in inches loses what it is measured in."""
    path = tmp_path / "t.csv"
    path.write_text("".join(f'"{number}","some, words"\n' for number in range(_PLAIN_ROWS)) + tail)
    message = f"quotes that are not around a whole field, which csv drops: {count} from this line on"
    expected = [("quote-dropped", message, _PLAIN_ROWS + 1)] if count else []
    assert told(loads.run(target(path))) == expected
    assert told(loads.check(target(path))) == expected


@pytest.mark.parametrize(
    ("tail", "code"),
    [
        ("C:\\\\new,a\n", "backslash-kept"),
        ("'a',b\n", "quote-kept"),
        ("NULL,a\n", "literal-null"),
        ("\\N,a\n", "literal-null"),
        ('"NULL","a"\n', "literal-null"),
        ("C:\\new,C:\\Users\n", None),
        ("'twas,dogs'\n", None),
        ("x,\"a NULL, 'b'\"\n", None),
    ],
)
def test_csv_that_later_lines_contradict_is_warned_of(
    loads: Loads, tmp_path: Path, tail: str, code: str | None
) -> None:
    """What the first lines of a file are warned of, later lines are as well, by its line."""
    path = tmp_path / "t.csv"
    path.write_text("".join(f"{number},some words\n" for number in range(_PLAIN_ROWS)) + tail)
    found = [(notice.code, notice.line) for notice in loads.run(target(path)).warnings]
    assert found == ([(code, _PLAIN_ROWS + 1)] if code else [])


def test_text_that_later_lines_contradict_is_warned_of(loads: Loads, tmp_path: Path) -> None:
    r"""COPY takes the backslash of \U away."""
    path = write(tmp_path / "t.txt", "x\tC:\\Users\\Public\n", head="0\tb\\\\c\n")
    message = "backslashes that format text decodes, though COPY TO never wrote them: 2 from this line on"
    assert told(loads.run(target(path))) == [("backslash-escape", message, _PLAIN_ROWS + 2)]


def test_format_that_an_option_gives_is_certain(loads: Loads, tmp_path: Path) -> None:
    """Then quotes are what its format says."""
    path = write(tmp_path / "t.tsv", '"a"\t"b"\n')
    assert told(loads.run(target(path, format="tsv"))) == []


def test_strict_load_ends_where_a_line_contradicts(loads: Loads, tmp_path: Path) -> None:
    """Nothing is committed of the batch that the line is in."""
    path = write(tmp_path / "t.tsv", '"a"\t"b"\n')
    with pytest.raises(UsageError) as caught:
        loads.run(target(path), rules=_STRICT)
    assert f"{path} line {_PLAIN_ROWS + 1}" in str(caught.value.detail)
    assert loads.count() == 0


def test_strict_load_ends_before_the_batch_of_that_line(database18: str, tmp_path: Path) -> None:
    """Not at its end: what comes behind is not committed either."""
    loads = Loads(database18, piece_bytes=20_000, setup="CREATE TABLE t (a text, b text)")
    path = write(tmp_path / "t.tsv", '"a"\t"b"\n')
    path.write_text(path.read_text() + "".join(f"{number}\tmore\n" for number in range(_PLAIN_ROWS)))
    with pytest.raises(UsageError):
        loads.run(target(path), rules=_STRICT, sessions=1, batch_bytes=1)
    assert 0 < loads.count() <= _PLAIN_ROWS


def test_block_that_is_read_again_testifies_once(loads: Loads, tmp_path: Path) -> None:
    """Another attempt reads again what was not committed."""
    quoted = '"a"\t"b"\n'
    path = write(tmp_path / "t.tsv", f"{quoted}x\ty\n")
    loads.execute("CREATE SEQUENCE calls")
    loads.execute("""
        CREATE FUNCTION fail_once() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
          IF NEW.a = 'x' AND nextval('public.calls') = 1 THEN
            RAISE EXCEPTION 'gone' USING ERRCODE = 'serialization_failure';
          END IF;
          RETURN NEW; END $$;
        CREATE TRIGGER fail BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION fail_once()
    """)
    outcome = loads.run(target(path), rules=replace(IMPATIENT, retry_for=60.0))
    kept = [message for code, message, _ in told(outcome) if code == "quote-kept"]
    assert kept == ["fields in quotes, which are kept as data: 2 from this line on"]
    assert loads.execute("SELECT last_value > 1 FROM calls") == [(True,)]


_SIGNED = b"1,\x93caf\xe9\x94\n"


@pairs(rows=[1, _PLAIN_ROWS], encoding=["LATIN1", "iso-8859-2", "LATIN9"], format_name=[None, "csv"])
def test_control_characters_of_iso_8859_are_warned_of(
    loads: Loads, tmp_path: Path, rows: int, encoding: str, format_name: str | None
) -> None:
    """They are letters and signs in the code page of Windows, wherever in the file, and whether its format is given."""
    page = "WIN1250" if encoding == "iso-8859-2" else "WIN1252"
    path = tmp_path / "t.csv"
    path.write_bytes(b"0,plain\n" * rows + _SIGNED + b"2,\x80\n")
    for outcome in (
        loads.run(target(path, encoding=encoding, format=format_name)),
        loads.check(target(path, encoding=encoding)),
    ):
        (notice,) = outcome.warnings
        assert (notice.code, notice.line) == ("control-bytes", rows + 1)
        assert f"--encoding {page}" in (notice.hint or "")


@pytest.mark.parametrize("encoding", ["WIN1252", "WIN1251", "KOI8R"])
def test_letters_of_other_encodings_are_no_control_characters(loads: Loads, tmp_path: Path, encoding: str) -> None:
    """Only those of ISO 8859 have control characters there."""
    path = tmp_path / "t.csv"
    path.write_bytes(b"0,plain\n" * _PLAIN_ROWS + _SIGNED)
    assert told(loads.run(target(path, encoding=encoding))) == []
