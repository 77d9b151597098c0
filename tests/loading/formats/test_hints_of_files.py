"""What an error or a warning about a file suggests works as it stands: the option loads it, the command converts it."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from penstock.core.errors import DataError, PenstockError, UsageError
from penstock.core.values.job import LoadRules
from penstock.core.values.mode import LANDINGS
from support.loads import IMPATIENT, Loads, target
from support.modes import mode_target

if TYPE_CHECKING:
    from pathlib import Path

_REJECTING = replace(IMPATIENT, on_error="reject")


@pytest.fixture
def loads(ledger18: str) -> Loads:
    """Provide loads into a database with nothing but a ledger."""
    return Loads(ledger18)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Provide a file's path, which a shell would divide."""
    return tmp_path / "my file"


def _hint(error: PenstockError) -> str:
    assert error.hint is not None
    return error.hint


def _convert(hint: str, path: Path) -> Path:
    """Run the command in a hint that reads and writes a file; return the file that it writes."""
    command = re.search(r": ((?:awk|iconv|jq|sed) .* > ('.*?'|\S+))", hint)
    assert command is not None, hint
    if shutil.which(command[1].split()[0]) is None:
        pytest.skip(f"no {command[1].split()[0]} here")
    subprocess.run(["sh", "-ec", command[1]], check=True, cwd=path.parent)
    return path.parent / shlex.split(command[2].rstrip("."))[0]


# ---------------------------------------------------------------- encodings


@pytest.mark.parametrize(
    ("encoding", "codec", "texts"),
    [
        ("WIN1251", "cp1251", ("Завод Ромашка", "Привет", "№ 5")),
        ("KOI8R", "koi8-r", ("Завод Ромашка", "Привет")),
        ("WIN866", "cp866", ("Ромашка", "Привет, мир")),
        ("WIN1253", "cp1253", ("Αθήνα", "Θεσσαλονίκη", "Πάτρας")),
        ("WIN1250", "cp1250", ("Łódź", "Gdańsk")),
        ("LATIN1", "latin-1", ("Müller", "Straße", "Ærø")),
        ("WIN1252", "cp1252", ("“so”", "5 €", "naïve")),
        ("EUC_JP", "euc-jp", ("サンプル", "東京都")),
        ("EUC_KR", "euc-kr", ("서울특별시", "부산")),
        ("GB18030", "gb18030", ("北京市", "上海")),
    ],
)
def test_suggested_encoding_is_that_of_the_text(
    loads: Loads, path: Path, encoding: str, codec: str, texts: tuple[str, ...]
) -> None:
    """The first one that is suggested; each comes with how the text reads in it."""
    path.write_text("id;name\n" + "".join(f"{number};{text}\n" for number, text in enumerate(texts)), encoding=codec)
    hint = _hint(loads.refuse(target(path, create=True)))
    suggested = re.findall(r'--encoding=(\w+) \("([^"]*)"\)', hint)
    assert suggested[0][0] == encoding
    assert len({reading for _, reading in suggested}) == len(suggested)
    if encoding != "WIN1252":
        assert texts[0] in suggested[0][1]
    loads.run(target(path, create=True, encoding=suggested[0][0]))
    assert [name for _, name in loads.execute("SELECT * FROM t ORDER BY id")] == list(texts)


def test_letters_that_are_not_latin_are_never_suggested_as_latin1(loads: Loads, path: Path) -> None:
    """LATIN1 has a character for every byte, so that a load with it would store other texts without an error."""
    path.write_bytes("1;мама\n2;мыла\n3;раму\n".encode("cp1251"))
    hint = _hint(loads.refuse(target(path, create=True)))
    assert "WIN1251" in hint
    assert not re.search("LATIN1|WIN1252", hint)


def test_json_lines_in_another_encoding_are_converted_by_the_hint(loads: Loads, path: Path) -> None:
    """The option is refused for JSON Lines, with the same command."""
    path.write_bytes('{"id":1,"v":"é"}\n{"id":2,"v":"Müller"}\n'.encode("latin-1"))
    found = loads.refuse(target(path, create=True))
    with pytest.raises(UsageError) as caught:
        loads.run(target(path, create=True, encoding="LATIN1"))
    for error in (found, caught.value):
        loads.execute("DROP TABLE IF EXISTS t")
        assert "--encoding" not in _hint(error)
        loads.run(target(_convert(_hint(error), path), create=True), rules=replace(IMPATIENT, again=True))
        assert loads.execute("SELECT v FROM t ORDER BY id") == [("é",), ("Müller",)]


# ---------------------------------------------------------------- fields


@pytest.mark.parametrize("options", [{}, {"constants": {"c": "x"}}], ids=["plain", "with a constant"])
@pytest.mark.parametrize(
    "text",
    ['"a","b"\n"1","say \\"yes\\", twice"\n', '"a","b"\n"1","\\"yes\\", or no, said he"\n"2","x"\n'],
)
def test_quotes_escaped_by_backslashes_name_the_option(
    loads: Loads, path: Path, text: str, options: dict[str, Any]
) -> None:
    """As a warning where the record has the right number of fields, else as the error's hint."""
    loads.execute("CREATE TABLE t (a int, b text, c text DEFAULT 'x')")
    path.write_text(text)
    try:
        hints = [notice.hint for notice in loads.run(target(path, **options)).warnings]
    except DataError as error:
        hints = [error.hint]
    assert any(r"--escape '\\'" in (hint or "") for hint in hints)
    loads.execute("TRUNCATE t")
    (escape,) = shlex.split(r"'\\'")
    outcome = loads.run(target(path, escape=escape, **options), rules=replace(IMPATIENT, again=True))
    assert not outcome.warnings
    assert '"yes", ' in loads.execute("SELECT b FROM t ORDER BY a")[0][0]


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("a,b,c\n1,x,y\n2\n3,z\n", {}),
        ("a;b;c\n1;x;y\n2\n3;z\n" + "4;x;y\n" * 20, {}),
        ("1\tx\ty\n2\n3\tz\n", {"format": "text", "columns": ["a", "b", "c"]}),
        ("a,b,c\n1,x,y\n2\n3,z\n", {"constants": {"d": "x"}}),
    ],
)
def test_records_that_omit_their_last_fields_are_filled_by_the_hint(
    loads: Loads, path: Path, text: str, options: dict[str, Any]
) -> None:
    """The fields are null then; with --on-error reject, the other records are loaded."""
    loads.execute("CREATE TABLE t (a int, b text, c text, d text DEFAULT 'd')")
    path.write_text(text)
    error = loads.refuse(target(path, **options))
    assert "--on-error reject" in _hint(error)
    loads.run(target(_convert(_hint(error), path), **options))
    assert loads.execute("SELECT a, b FROM t WHERE a < 4 ORDER BY a") == [(1, "x"), (2, None), (3, "z")]


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ("id,name\n1,a\n\n2,b\n \n", ["a", "b"]),
        ('id,name\n1,"a\n\n  \nc"\n\n2,"""b"\n', ["a\n\n  \nc", '"b']),
        ("id\tname\n1\ta\n\t\n \n2\tb\n", ["a", "b", None]),
        ("id,name\r\n1,a\r\n\r\n2,b\r\n", ["a", "b"]),
    ],
)
def test_blank_lines_are_removed_by_the_hint(loads: Loads, path: Path, text: str, stored: list[str | None]) -> None:
    """Between records or at the end, but not those in quotes; nor records of blank fields."""
    path.write_bytes(text.encode())
    options = {"nulls": ("",), "format": "tsv"} if "\t" in text else {}
    error = loads.refuse(target(path, create=True, **options))
    loads.run(target(_convert(_hint(error), path), create=True, **options))
    assert [name for (name,) in loads.execute("SELECT name FROM t ORDER BY nullif(id, '')")] == stored


@pytest.mark.parametrize(
    ("text", "options", "stored"),
    [
        ('a,b,c\n1,"x\nu\n",y\n2\n3,"z",\n', {}, ["x\nu\n", None, "z"]),
        ("a,b,c\r\n1,x,y\r\n2\r\n3,z,\r\n", {}, ["x", None, "z"]),
        ('a,b,c\r\n1,"x\r\nu",y\r\n2\r\n3,z,\r\n', {}, ["x\r\nu", None, "z"]),
        ("a b c\n1  y\n2\n3 z y\n", {"format": "csv", "delimiter": " "}, [None, None, "z"]),
        ("1\tx\\\nu\ty\n2\n3\tz\ty\n\\.\n", {"format": "text", "has_header": False}, ["x\nu", None, "z"]),
    ],
)
def test_short_records_are_filled_by_the_hint_beside_quotes_and_line_ends(
    loads: Loads, path: Path, text: str, options: dict[str, Any], stored: list[str | None]
) -> None:
    """The lines of quoted values, carriage returns and runs of a blank delimiter stay as they are."""
    loads.execute("CREATE TABLE t (a int, b text, c text)")
    path.write_bytes(text.encode())
    error = loads.refuse(target(path, **options))
    loads.run(target(_convert(_hint(error), path), **options))
    assert loads.execute("SELECT b FROM t ORDER BY a") == [(value,) for value in stored]


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("a,b\n1,'x'\n2\n", {"quote": "'"}),
        ("a,b\n1,x\n\n2,y\n", {"escape": "\\"}),
        ("a,b\n1,x\n2\n", {"encoding": "UTF16"}),
    ],
)
def test_no_command_is_named_that_would_read_the_file_otherwise(
    loads: Loads, path: Path, text: str, options: dict[str, Any]
) -> None:
    """With other quotes or escapes, and in an encoding whose line ends have several bytes."""
    loads.execute("CREATE TABLE t (a int, b text)")
    path.write_bytes(text.encode("utf-16-le" if "encoding" in options else "utf-8"))
    hint = _hint(loads.refuse(target(path, **options)))
    assert "--on-error reject" in hint
    assert "awk" not in hint


@pytest.mark.parametrize(
    ("value", "stored", "type_name"),
    [
        ("1.234,00", "1234.00", "numeric"),
        ("0,5", "0.5", "float8"),
        ("-1 234 567,25", "-1234567.25", "numeric(12,2)"),
        ("1'000,5", "1000.5", "real"),
        ("1,234.5", "1234.5", "numeric"),
        ("31.12.2025", "2025-12-31", "date"),
    ],
)
def test_other_notations_are_read_with_the_options_of_the_hint(
    loads: Loads, path: Path, value: str, stored: str, type_name: str
) -> None:
    """Of numbers and dates, in a column whose name needs quotes."""
    loads.execute(f'CREATE TABLE t (name text, "Amount" {type_name})')
    path.write_text(f"name;Amount\nA;{value}\n")
    hint = _hint(loads.refuse(target(path, has_header=True)))
    words = shlex.split(hint.removeprefix("Use ").partition(", or correct")[0])
    options = {name[2:].replace("-", "_"): each for name, each in zip(words[::2], words[1::2], strict=True)}
    loads.run(target(path, has_header=True, **options))
    assert loads.execute('SELECT "Amount"::text FROM t') == [(stored,)]


@pytest.mark.parametrize("value", ["a,b", "12,", "1,2,3", "1.5"])
def test_other_values_are_not_taken_for_numbers(loads: Loads, path: Path, value: str) -> None:
    """Only a number with a comma has this hint."""
    loads.execute("CREATE TABLE t (a int)")
    path.write_text(f"{value}\n")
    hint = _hint(loads.refuse(target(path, format="csv", delimiter=";", has_header=False)))
    assert not re.search("--decimal-comma|--thousands", hint)


# ---------------------------------------------------------------- names


@pytest.mark.parametrize("header", ["Name,Amount,Date,,,", ",Name,Amount,Date,,"])
def test_fields_without_names_are_skipped_by_the_hint(loads: Loads, path: Path, header: str) -> None:
    """As Excel writes columns that were emptied: the options name all fields."""
    loads.execute("CREATE TABLE t (name text, amount numeric, date date)")
    path.write_text(f"{header}\n{header.replace('Name,Amount,Date', 'A,1,2025-12-31')}\n")
    hint = _hint(loads.refuse(target(path)))
    options = shlex.split(hint.partition(": ")[2])
    names = options[1].split(",")
    skipped = [name for option, name in zip(options[2::2], options[3::2], strict=True) if option == "--skip"]
    assert (options[0], bool(skipped)) == ("--columns", True)
    loads.run(target(path, columns=names, skip=skipped))
    assert loads.execute("SELECT name, amount::int FROM t") == [("A", 1)]


@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
def test_names_may_differ_in_the_case_of_any_letter(loads: Loads, path: Path, suffix: str) -> None:
    """In tables that exist and in those that are created, in the first record and later."""
    texts = {".csv": ["ÄRZTE,Größe\n1,2\n", "ärzte,GRÖßE\n3,4\n"]}
    texts[".jsonl"] = ['{"ÄRZTE":1,"Größe":2}\n', '{"ärzte":3,"GRÖßE":4}\n{"Ärzte":5}\n']
    paths = [path.with_name(f"{number}{suffix}") for number in range(2)]
    for each, text in zip(paths, texts[suffix], strict=True):
        each.write_text(text)
    loads.execute('CREATE TABLE t ("ärzte" text, größe text)')
    loads.run(target(paths))
    loads.run(target(paths, into="made", create=True))
    for table in ("t", "made"):
        assert loads.execute(f"SELECT * FROM {table} ORDER BY 1")[:2] == [("1", "2"), ("3", "4")]


# ---------------------------------------------------------------- JSON Lines that replace rows


def test_upsert_warns_of_records_that_omit_a_column(loads: Loads, path: Path) -> None:
    """The value becomes null; loads of the parts that the hint's commands write keep it."""
    loads.execute("CREATE TABLE t (id int PRIMARY KEY, a text, b text); INSERT INTO t VALUES (1,'A','B'), (2,'A','B')")
    path.write_text('{"id":1,"a":"x"}\n{"id":2,"b":"y"}\n')
    (notice,) = loads.run(mode_target(path, "upsert", key=("id",))).warnings
    assert (notice.code, notice.line, notice.uri) == ("omitted-names", 1, str(path))
    assert loads.execute("SELECT a, b FROM t ORDER BY id") == [("x", None), (None, "y")]
    loads.execute("UPDATE t SET a = 'A', b = 'B'")
    without = _convert(notice.hint or "", path)
    loads.run(mode_target(without, "upsert", key=("id",)))
    other = path.with_name("other")
    with other.open("wb") as written:
        subprocess.run(["jq", "-c", 'select(has("b"))', str(path)], check=True, stdout=written)
    assert not loads.run(mode_target(other, "upsert", key=("id",))).warnings
    assert loads.execute("SELECT a, b FROM t ORDER BY id") == [("x", "B"), ("A", "y")]


def test_sync_is_never_told_to_load_a_part_of_its_records(loads: Loads, path: Path) -> None:
    """A sync of a part deletes the rows of the other records; so do a truncation and a replacement."""
    loads.execute("CREATE TABLE t (id int PRIMARY KEY, a text, b text); INSERT INTO t VALUES (1,'A','B'), (2,'A','B')")
    path.write_text('{"id":1,"a":"x"}\n{"id":2,"b":"y"}\n')
    (notice,) = loads.run(mode_target(path, "sync", key=("id",))).warnings
    assert notice.code == "omitted-names"
    assert "in every record" in str(notice.hint)
    assert "jq" not in str(notice.hint)
    for mode in "sync", "truncate", "replace":
        assert "separately" not in LANDINGS[mode].alone
    assert "separately" in LANDINGS["upsert"].alone


@pytest.mark.parametrize("strict", [False, True])
def test_omitted_names_are_found_in_late_records_too(loads: Loads, path: Path, strict: bool) -> None:
    """One warning for all of them; if warnings are errors, no row is changed."""
    loads.execute("CREATE TABLE t (id int PRIMARY KEY, a text); INSERT INTO t VALUES (-1, 'A')")
    path.write_text("".join(f'{{"id":{number},"a":"x"}}\n' for number in range(30_000)) + '{"id":-1}\n{"id":-2}\n')
    rules = LoadRules(retry_for=0.0, warnings="error" if strict else "show")
    job = mode_target(path, "upsert", key=("id",))
    if strict:
        with pytest.raises(PenstockError, match="does not name column"):
            loads.run(job, rules=rules)
    else:
        (notice,) = loads.run(job, rules=rules).warnings
        assert (notice.code, notice.line) == ("omitted-names", 30_001)
    assert loads.execute("SELECT a FROM t WHERE id = -1") == [("A" if strict else None,)]


@pytest.mark.parametrize(("mode", "key"), [("append", ()), ("insert-new", ("id",))])
def test_records_that_add_rows_may_omit_columns(loads: Loads, path: Path, mode: str, key: tuple[str, ...]) -> None:
    """No row loses a value then."""
    loads.execute("CREATE TABLE t (id int PRIMARY KEY, a text)")
    path.write_text('{"id":1,"a":"x"}\n{"id":2}\n')
    assert not loads.run(mode_target(path, mode, key=key)).warnings
