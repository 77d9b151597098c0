r"""What cannot be loaded is refused with the place in the file, and nothing of it stays."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING

import psycopg
import pytest

from penstock.core.errors import DataError, SourceError, TargetError
from penstock.core.values.job import LoadRules
from support.files import write_to
from support.loads import Loads, target
from support.pairs import pairs

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def loads(ledger18: str) -> Loads:
    """Provide loads in tiny blocks into a database with table t (a int, b text)."""
    return Loads(ledger18, piece_bytes=501, setup="CREATE TABLE t (a int, b text)")


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Provide a function (data, name="file") that writes a file and returns its path."""

    def write(data: str | bytes, name: str = "file") -> Path:
        return write_to(tmp_path / name, data.encode() if isinstance(data, str) else data)

    return write


Write = "Callable[..., Path]"


# ---------------------------------------------------------------- dialects that mangle


def test_imdb_file_under_csv_is_warned_of(loads: Loads, write: Write) -> None:
    """Quotes in a tab-separated file that is said to be csv: the warning names line and column."""
    path = write('a\tb\n1\tplain\n2\t["Self"]\n')
    loads.run(target(path, format="csv", delimiter="\t"))
    assert ("file", 3, 2) in [(w.uri and w.uri.rpartition("/")[2], w.line, w.column) for w in loads.warnings]


def test_imdb_file_loads_as_it_is(loads: Loads, write: Write) -> None:
    r"""Probed as tsv: quotes and backslashes are data, \N is null."""
    path = write('a\tb\n1\t["Self"]\n2\t"odd\n3\t\\N\n4\tback\\slash\n5\t\\.\n')
    loads.run(target(path))
    assert loads.rows() == [(1, '["Self"]'), (2, '"odd'), (3, None), (4, "back\\slash"), (5, "\\.")]


def test_byte_order_mark_is_no_part_of_the_header(loads: Loads, write: Write) -> None:
    """A file that a spreadsheet saved can be loaded, and its mark is reported."""
    loads.run(target(write(b"\xef\xbb\xbfa,b\n1,x\n")))
    assert loads.rows() == [(1, "x")]
    assert any("byte-order mark" in warning.message for warning in loads.warnings)


# ---------------------------------------------------------------- records that COPY refuses


def _many(line_end: str, *, bad: str, at: int, total: int = 3000, header: str = "") -> tuple[str, int]:
    """Return a csv file whose every third record spans two lines, with `bad` as record `at`, and its line."""
    records = [f'{n},"two{line_end}lines"' if n % 3 == 0 else f"{n},one" for n in range(total)]
    records[at] = bad
    before = header + "".join(record + line_end for record in records[:at])
    return header + "".join(record + line_end for record in records), before.count(line_end) + 1


BAD_RECORDS = [
    ("17", "missing data for column", None),
    ("17,x,y", "extra data after last expected column", None),
    ("seventeen,x", 'invalid input syntax for type integer: "seventeen"', "a"),
    ("17000000000,x", "out of range", "a"),
]


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"], ids=["lf", "crlf", "cr"])
@pytest.mark.parametrize(("bad", "message", "column"), BAD_RECORDS, ids=["missing", "extra", "syntax", "range"])
def test_error_names_the_line_of_the_file(
    loads: Loads, write: Write, line_end: str, bad: str, message: str, column: str
) -> None:
    """In the middle of a parallel load, behind records of several lines, whatever ends the lines."""
    loads.chop(4000)
    data, line = _many(line_end, bad=bad, at=2000, header=f"a,b{line_end}")
    error = loads.refuse(target(write(data), format="csv", has_header=True), sessions=3)
    assert isinstance(error, DataError)
    assert message in error.message
    assert f"file line {line}" in str(error.detail)
    assert column is None or f'column "{column}"' in str(error.detail)


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"], ids=["lf", "crlf", "cr"])
@pytest.mark.parametrize(("bad", "message", "column"), BAD_RECORDS, ids=["missing", "extra", "syntax", "range"])
def test_error_names_the_line_of_a_rewritten_file(
    loads: Loads, write: Write, line_end: str, bad: str, message: str, column: str
) -> None:
    """Likewise where constants are added, so that the server sees other bytes than the file's."""
    loads.chop(4000)
    loads.execute("ALTER TABLE t ADD c text")
    data, line = _many(line_end, bad=bad, at=2000, header=f"a,b{line_end}")
    job = target(write(data), format="csv", has_header=True, constants={"c": "x"})
    error = loads.refuse(job, sessions=3)
    assert message in error.message
    assert f"file line {line}" in str(error.detail)


@pairs(at=[0, 1, 2, 3, 10], line_end={"lf": "\n", "crlf": "\r\n"}, constants={"untouched": {}, "rewritten": {"c": "x"}})
def test_error_names_the_line_in_one_command(
    loads: Loads, write: Write, line_end: str, at: int, constants: dict[str, str]
) -> None:
    """Also early in a command, whose first record the server counts in its own way."""
    loads.execute("ALTER TABLE t ADD c text DEFAULT 'c'")
    data, line = _many(line_end, bad="bad,x", at=at, total=20)
    columns = ("a", "b")
    error = loads.refuse(target(write(data), format="csv", has_header=False, columns=columns, constants=constants))
    assert f"file line {line}," in str(error.detail)


@pytest.mark.parametrize("constants", [{}, {"c": "x"}], ids=["untouched", "rewritten"])
@pytest.mark.parametrize("file_format", ["csv", "text"])
def test_error_names_the_line_behind_line_ends_the_server_does_not_count(
    loads: Loads, write: Write, file_format: str, constants: dict[str, str]
) -> None:
    """Line feeds in quotes of a file with CR LF, and escaped ones in text, are lines of the file all the same."""
    loads.execute("ALTER TABLE t ADD c text DEFAULT 'c'")
    record = '1,"x\ny"\r\n' if file_format == "csv" else "1,x\\\ny\n"
    ended = "bad,x\r\n" if file_format == "csv" else "bad,x\n"
    path = write(record * 300 + ended + record * 300)
    job = target(path, format=file_format, delimiter=",", has_header=False, columns=("a", "b"), constants=constants)
    assert "file line 601," in str(loads.refuse(job).detail)


def test_bad_value_is_quoted_with_its_column_and_code(loads: Loads, write: Write) -> None:
    """The value is shortened; the SQLSTATE and a hint stand with it."""
    error = loads.refuse(target(write("a,b\n1,x\n" + "z" * 500 + ",y\n"), format="csv"))
    assert 'file line 3, column "a": "zzz' in str(error.detail)
    assert "SQLSTATE 22P02" in str(error.detail)
    assert len(str(error.detail)) < 400
    assert error.hint


@pytest.mark.parametrize(
    ("column", "sqlstate"),
    [
        ("b varchar(3)", "22001"),
        ("b text CHECK (b <> 'wrong')", "23514"),
        ("b text CHECK (b <> 'wrong') NOT VALID", "23514"),
        ("b int", "22P02"),
        ("b date", "22007"),
        ("b jsonb", "22P02"),
    ],
)
def test_value_that_its_column_refuses_is_an_error(database18: str, write: Write, column: str, sqlstate: str) -> None:
    """Too long, against a CHECK, of no such type: with line and code."""
    loads = Loads(database18, setup=f"CREATE TABLE t (a int, {column.replace(' NOT VALID', '')})")
    error = loads.refuse(target(write("a,b\n1,wrong\n"), format="csv", has_header=True))
    assert isinstance(error, DataError)
    assert "file line 2" in str(error.detail)
    assert f"SQLSTATE {sqlstate}" in str(error.detail)


def test_null_in_a_column_that_has_none_is_an_error(loads: Loads, write: Write) -> None:
    """The hint shows how nulls are spelled, because that is mostly the cause."""
    loads.execute("ALTER TABLE t ALTER b SET NOT NULL")
    error = loads.refuse(target(write("a,b\n1,x\n2,\n"), format="csv"))
    assert "SQLSTATE 23502" in str(error.detail)
    assert "file line 3" in str(error.detail)
    assert "--null" in str(error.hint)


def test_key_that_is_there_already_is_an_error(loads: Loads, write: Write) -> None:
    """A second load of a file with a key fails, and the first one's rows stay."""
    loads.execute("ALTER TABLE t ADD PRIMARY KEY (a)")
    path = write("a,b\n1,x\n2,y\n")
    loads.run(target(path))
    with pytest.raises(DataError, match="duplicate key") as caught:
        loads.run(target(path), rules=LoadRules(again=True))
    assert "SQLSTATE 23505" in str(caught.value.detail)
    assert loads.count() == 2


@pytest.mark.parametrize("file_format", ["csv", "text", "tsv"])
def test_mixed_line_ends_are_refused_with_their_line(loads: Loads, write: Write, file_format: str) -> None:
    """The first line's end binds the file, as in COPY; a warning comes before."""
    path = write("1,x\n" * 1000 + "2,y\r\n" + "3,z\n" * 1000)
    job = target(path, format=file_format, delimiter=",", has_header=False)
    error = loads.refuse(job, sessions=3)
    assert "carriage return found in data" in error.message
    assert "file line 1001" in str(error.detail)
    assert "Make all line ends alike" in str(error.hint)


def test_quote_that_never_ends_is_refused_with_its_line(loads: Loads, write: Write) -> None:
    """Where the record began that swallowed the rest of the file."""
    error = loads.refuse(target(write("1,x\n" * 700 + '2,"y\n' + "3,z\n" * 700), format="csv", has_header=False))
    assert error.message == "unterminated CSV quoted field"
    assert "file line 701" in str(error.detail)
    assert "--format tsv" in str(error.hint)


# ---------------------------------------------------------------- the end-of-data marker


def test_data_behind_the_marker_of_text_is_refused(database: str, write: Write) -> None:
    """COPY would drop it without a word."""
    loads = Loads(database, setup="CREATE TABLE t (a int, b text)")
    job = target(write("1\tx\n\\.\n2\ty\n"), format="text", has_header=False)
    error = loads.refuse(job)
    assert error.message == "data found after the end-of-copy marker"
    assert "file line 3" in str(error.detail)


def test_marker_at_the_end_of_text_ends_the_data(database: str, write: Write) -> None:
    """The form that pg_dump and old tools write."""
    loads = Loads(database, setup="CREATE TABLE t (a int, b text)")
    loads.run(target(write("1\tx\n\\.\n"), format="text", has_header=False))
    assert loads.rows() == [(1, "x")]


@pytest.mark.pg("< 18")
def test_data_behind_the_marker_of_csv_is_refused(database: str, write: Write) -> None:
    """Before PostgreSQL 18 the marker ends csv too."""
    loads = Loads(database, setup="CREATE TABLE t (a text)")
    error = loads.refuse(target(write("x\n\\.\ny\n"), format="csv", has_header=False))
    assert "file line 3" in str(error.detail)


@pytest.mark.pg(">= 18")
def test_marker_is_data_in_csv(database: str, write: Write) -> None:
    """From PostgreSQL 18 on."""
    loads = Loads(database, setup="CREATE TABLE t (a text)")
    loads.run(target(write("x\n\\.\ny\n"), format="csv", has_header=False))
    assert loads.rows() == [("\\.",), ("x",), ("y",)]


# ---------------------------------------------------------------- encodings and bytes


@pytest.mark.parametrize("encoding", [None, "UTF8"])
def test_wrong_encoding_is_refused_with_its_line(loads: Loads, write: Write, encoding: str | None) -> None:
    """Latin 1 that is taken for UTF-8, in the probed block and when the encoding is stated."""
    path = write(b"1,x\n" * 500 + "2,é\n".encode("latin-1") + b"3,z\n" * 500)
    job = target(path, format="csv", has_header=False, encoding=encoding)
    error = loads.refuse(job, sessions=3)
    assert isinstance(error, DataError)
    assert "file line 501" in str(error.detail)
    assert "--encoding" in str(error.hint)


def test_wrong_encoding_far_into_the_file_is_refused_with_its_line(database18: str, write: Write) -> None:
    """Behind what was probed, by the server."""
    loads = Loads(database18, setup="CREATE TABLE t (a int, b text)")
    path = write(b"1,xxxxxxxxxxxx\n" * 40_000 + "2,é\n".encode("latin-1") + b"3,z\n")
    error = loads.refuse(target(path, format="csv", has_header=False))
    assert "file line 40001" in str(error.detail)
    assert "SQLSTATE 22021" in str(error.detail)


@pytest.mark.parametrize("encoding", ["LATIN1", "UTF16", "GBK", "WIN1252"])
def test_named_encoding_is_read(loads: Loads, write: Write, encoding: str) -> None:
    """Those the server converts and those that are transcoded before records are cut."""
    codec = {"GBK": "gbk", "UTF16": "utf-16", "WIN1252": "cp1252"}.get(encoding, encoding.lower())
    text = "表文" if encoding == "GBK" else "é"
    loads.run(target(write(f"a,b\n1,{text}\n".encode(codec)), format="csv", encoding=encoding))
    assert loads.rows() == [(1, text)]


@pytest.mark.parametrize("file_format", ["csv", "text", "tsv"])
def test_nul_byte_is_refused_with_its_line(loads: Loads, write: Write, file_format: str) -> None:
    """No text of PostgreSQL can hold it."""
    path = write(b"1,x\n" * 900 + b"2,y\x00\n" + b"3,z\n" * 100)
    error = loads.refuse(target(path, format=file_format, delimiter=",", has_header=False), sessions=3)
    assert isinstance(error, DataError)
    assert "file line 901" in str(error.detail)


# ---------------------------------------------------------------- objects


def test_truncated_gzip_is_refused_and_the_created_table_dropped(loads: Loads, write: Write) -> None:
    """The rows before the cut were on their way; table and schema were made for them."""
    whole = gzip.compress("".join(f"{n},{n * 7919 % 10007}\n" for n in range(100_000)).encode())
    path = write(whole[: len(whole) // 2], "cut.gz")
    error = loads.refuse(target(path, into="made.new", create=True, columns=("x", "y"), format="csv", has_header=False))
    assert isinstance(error, SourceError)
    assert "byte" in str(error)
    assert not loads.has_table("made.new")
    assert loads.execute("SELECT 1 FROM pg_namespace WHERE nspname = 'made'") == []


def test_created_table_is_dropped_whatever_its_name(loads: Loads, write: Write) -> None:
    """Characters that mean something to SQL, to the driver or to nobody."""
    path = write("a,b\n1,x\n1,x,y\n")
    for name in ('"100% new"', '"%s"', '"two ""quotes"""', '"a.b"'):
        with pytest.raises(DataError):
            loads.run(target(path, into=f"made.{name}", create=True, format="csv", has_header=True))
        assert not loads.has_table(f"made.{name}")
    assert loads.execute("SELECT 1 FROM pg_namespace WHERE nspname = 'made'") == []


def test_failed_load_keeps_a_table_that_was_there(loads: Loads, write: Write) -> None:
    """--create is no licence to drop what others made."""
    loads.refuse(target(write("a,b\nbad,x\n"), format="csv", create=True))
    assert loads.has_table("t")


def test_file_that_changes_under_the_load_is_refused(loads: Loads, write: Write) -> None:
    """Rows of two versions of a file would be in the table."""
    path = write("".join(f"{n},xxxxxxxxxx\n" for n in range(10_000)))

    def append(piece: int) -> None:
        if piece == 100:
            with path.open("a") as file:
                file.write("1,y\n")

    loads.at_piece = append
    error = loads.refuse(target(path, format="csv", has_header=False))
    assert isinstance(error, SourceError)
    assert "changed while it was read" in error.message


# ---------------------------------------------------------------- headers


def test_column_unknown_to_the_table_is_refused(loads: Loads, write: Write) -> None:
    """With the near name as a hint."""
    error = loads.refuse(target(write("a,bb\n1,x\n"), format="csv", has_header=True))
    assert isinstance(error, TargetError)
    assert '"bb"' in error.message
    assert '"b"' in str(error.hint)


def test_column_that_the_file_lacks_is_refused(loads: Loads, write: Write) -> None:
    """Unless it has a default or --set gives one."""
    path = write("a\n1\n")
    error = loads.refuse(target(path, format="csv", has_header=True))
    assert '"b"' in error.message
    assert str(error.detail).endswith('lacks "b", which has no default.')
    assert "--set" in str(error.hint)
    loads.run(target(path, format="csv", has_header=True, constants={"b": "{filename}"}))
    assert loads.rows() == [(1, "file")]


def test_later_file_with_another_header_is_refused(loads: Loads, write: Write) -> None:
    """The file is named, and the first file's rows are not kept, nor the table made for them."""
    paths = [write("a,b\n1,x\n", "first.csv"), write("a,zz\n1,x\n", "second.csv")]
    error = loads.refuse(target(paths, into="made", create=True, format="csv", has_header=True), sessions=1)
    assert isinstance(error, TargetError)
    assert "second.csv" in str(error.detail)
    assert not loads.has_table("made")


@pytest.mark.parametrize("delimiter", ["A", "F"])
@pytest.mark.parametrize("constants", [{}, {"c": "x"}], ids=["untouched", "rewritten"])
def test_letters_of_hexadecimal_digits_are_delimiters_of_text(
    loads: Loads, write: Write, delimiter: str, constants: dict[str, str]
) -> None:
    r"""As to COPY: digits of \x4A belong to the escape, and one that a constant follows ends where it did."""
    data = "1|\\x4A|\n2|\\x4|\n3|a\\x|\n4|\\\\x4|\n".replace("|", delimiter).replace(f"{delimiter}\n", "\n")
    path = write(data)
    loads.execute("ALTER TABLE t ADD c text DEFAULT 'none'; CREATE TABLE u (LIKE t)")
    with psycopg.connect(loads.conninfo) as connection, connection.cursor() as cursor:
        with cursor.copy(f"COPY u (a, b) FROM STDIN (DELIMITER '{delimiter}')") as copy:  # type: ignore[call-overload]
            copy.write(data.encode())
        cursor.execute("UPDATE u SET c = %s", [constants.get("c", "none")])
    loads.run(target(path, format="text", delimiter=delimiter, columns=["a", "b"], constants=constants))
    assert loads.rows() == loads.rows("u")


def test_null_that_no_field_of_text_can_be_is_taken_as_copy_takes_it(loads: Loads, write: Write) -> None:
    r"""Such as a lone backslash."""
    loads.run(target(write("1\t\\N\n2\tx\n"), format="text", null=("\\",)))
    assert loads.rows() == [(1, "N"), (2, "x")]
    loads.run(target(write("3,\\\n", "other"), format="csv", null=("\\",)))
    assert (3, None) in loads.rows()


def test_stray_line_feed_of_a_file_with_carriage_returns_is_told_on_its_line(loads: Loads, write: Write) -> None:
    """Line feeds end no lines there."""
    refused = loads.refuse(target(write("1,x\r2,y\n3,z\r4,w\r", "cr.csv")))
    assert "cr.csv line 2" in (refused.detail or "")


@pytest.mark.parametrize("is_first", [True, False])
def test_invalid_bytes_of_a_header_are_told_with_file_and_line(loads: Loads, write: Write, *, is_first: bool) -> None:
    """Of the first file and of any other, behind skipped lines."""
    good, bad = write("x\na,b\n1,x\n", "good"), write(b"x\na,b\xff\n2,y\n", "bad")
    paths = [bad, good] if is_first else [good, bad]
    refused = loads.refuse(target(paths, encoding="UTF8", skip_lines=1, header=True))
    assert refused.message == 'invalid byte sequence for encoding "UTF8": 0xff'
    assert "bad line 2, the header." in (refused.detail or "")
    assert refused.location is not None
    assert refused.location.line == 2
