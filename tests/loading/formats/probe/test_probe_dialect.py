"""What probing makes of a file's first block."""

from __future__ import annotations

import gzip
import re
from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.core.errors import DataError, PenstockError, UsageError
from penstock.core.values.dialect import DialectOptions
from penstock.loading.formats.probe.form import split_record
from penstock.loading.formats.probe.probing import ProbeResult, probe_dialect
from penstock_lab.datasets.people import IMDB_TABLES
from penstock_lab.datasets.writer import write_imdb

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

STRAY_QUOTE = "quote in the middle of a field: csv drops it and treats the rest as quoted"


def probe(
    head: bytes,
    *,
    is_whole: bool = True,
    table_columns: Sequence[str] | None = None,
    bom: str | None = None,
    options: DialectOptions | None = None,
    rejects: bool = False,
) -> ProbeResult:
    return probe_dialect(
        head,
        options=options or DialectOptions(),
        is_whole=is_whole,
        table_columns=table_columns,
        uri="file.txt",
        bom=bom,
        rejects=rejects,
    )


def messages(result: ProbeResult) -> list[tuple[str, int | None, int | None]]:
    return [(notice.message, notice.line, notice.column) for notice in result.notices]


@pytest.mark.parametrize("table", IMDB_TABLES)
def test_imdb_files_are_tsv_with_a_header(tmp_path: Path, table: str) -> None:
    """The dialect of all seven files is found from their heads, cut anywhere, with and without a table."""
    (file,) = write_imdb(tmp_path, scale=0.0005, tables=[table])
    head = gzip.decompress(file.path.read_bytes())[: 100 * 1024 + 7]
    for table_columns in (None, IMDB_TABLES[table]):
        result = probe(head, is_whole=False, table_columns=table_columns)
        assert (result.dialect.format, result.dialect.delimiter, result.dialect.nulls) == ("tsv", "\t", ("\\N",))
        assert result.header == IMDB_TABLES[table]
        assert result.notices == ()


IMDB_ROWS = (
    b"tconst\tordering\tnconst\tcategory\tjob\tcharacters\n"
    b'tt1\t1\tnm1\tself\t\\N\t["Self"]\n'
    b'tt1\t2\tnm2\tactor\t\\N\t["John \\"Jack\\" Doe"]\n'
)


def test_imdb_as_csv_with_tabs_warns_of_quotes_and_nulls() -> None:
    """For the published way to load IMDb, a warning says with line and column that it changes values."""
    result = probe(IMDB_ROWS, options=DialectOptions(format="csv", delimiter="\t"))
    assert (STRAY_QUOTE, 2, 6) in messages(result)
    assert ("\\N is not null in this dialect, but text", 2, 5) in messages(result)
    assert all(notice.uri == "file.txt" and notice.hint for notice in result.notices)


def test_imdb_as_text_warns_of_backslashes() -> None:
    """COPY text would turn an escaped quote into a quote."""
    result = probe(IMDB_ROWS, options=DialectOptions(format="text"))
    assert messages(result) == [("backslash that format text will decode", 3, 6)]


@pytest.mark.parametrize(
    ("head", "format_name", "delimiter"),
    [
        (b"a,b\n1,2\n", "csv", ","),
        (b"a;b\n1,5;2\n", "csv", ";"),
        (b"a|b|c\n1|2|3\n", "csv", "|"),
        (b"a\tb\n1\t2\n", "tsv", "\t"),
        (b"a\tb\nx\\ty\t2\n", "text", "\t"),
        (b"a\tb\nx\\\\y\t\\N\n", "text", "\t"),
        (b"a\tb\nC:\\Users\t\\N\n", "tsv", "\t"),
        (b"a\tb\nC:\\temp\\x\t2\n", "tsv", "\t"),
        (b'"a"\t"b"\n"x"\t"2"\n', "csv", "\t"),
        (b'a\tb\n"x\ny"\t2\n', "csv", "\t"),
        (b'a\tb\n"x ""y"""\t2\nz\t3\n', "csv", "\t"),
        (b'a\tb\n"Weird Al" Yankovic\t2\n', "tsv", "\t"),
        (b'a\tb\n"Manos"\t2\nThe "Great" Escape\t2\n', "tsv", "\t"),
        (b'a\tb\n6"\t2\n5"\t2\n', "tsv", "\t"),
        (b'id,text\n1,"a\tb; c | d"\n2,"e\nf"\n', "csv", ","),
        (b'1,"a;b;c"\n2,"d;e;f"\n', "csv", ","),
        (b"one\ntwo\nthree\n", "csv", ","),
        (b"Hello, world\nno comma here\nnor here\n", "csv", ","),
        (b"a\r\n", "csv", ","),
        (b"", "csv", ","),
    ],
)
def test_format_and_delimiter(head: bytes, format_name: str, delimiter: str) -> None:
    """Small files whose dialect a reader would recognize at once."""
    result = probe(head)
    assert (result.dialect.format, result.dialect.delimiter) == (format_name, delimiter), result.reason


def test_tables_column_count_decides_between_delimiters() -> None:
    """If commas and semicolons both divide the records evenly, the table's column count decides."""
    head = b"1,5;2,5\n3,5;4,5\n"
    assert probe(head, table_columns=["a", "b"]).dialect.delimiter == ";"
    assert probe(head, table_columns=["a", "b", "c"]).dialect.delimiter == ","


def test_a_few_broken_records_do_not_hide_the_delimiter() -> None:
    """One record in twenty may have another field count."""
    head = b"a;b\n" + b"1;2\n" * 18 + b"1;2;3\n"
    assert probe(head).dialect.delimiter == ";"


def test_options_win_over_the_sample() -> None:
    """What is given is kept as it is, what is not is COPY's default for the format."""
    result = probe(b"a,b\n", options=DialectOptions(format="text", delimiter="|", null=("NULL", "")))
    assert (result.dialect.format, result.dialect.delimiter, result.dialect.nulls) == ("text", "|", ("NULL", ""))
    assert (result.dialect.quote, result.dialect.escape) == (None, None)


def test_a_quote_option_means_csv() -> None:
    """Only csv has quotes, and escape defaults to the quote."""
    dialect = probe(b"a\tb\n'x'\ty\n", options=DialectOptions(quote="'")).dialect
    assert (dialect.format, dialect.delimiter, dialect.quote, dialect.escape) == ("csv", "\t", "'", "'")


def test_a_null_string_rules_delimiters_out() -> None:
    """COPY refuses a delimiter that stands in the null string, so probing does not choose it."""
    assert probe(b"a,b;c,d\n", options=DialectOptions(null=("n,a",))).dialect.delimiter == ";"


def test_defaults_of_csv() -> None:
    """Quote, escape, null and encoding are COPY's."""
    dialect = probe(b"a,b\n").dialect
    assert (dialect.quote, dialect.escape, dialect.nulls, dialect.encoding) == ('"', '"', ("",), "UTF8")


@pytest.mark.parametrize(
    ("head", "table_columns", "header"),
    [
        (b"ID, Name \n1,x\n", ["id", "name", "other"], ("ID", " Name ")),
        (b"id,foo\n1,x\n", ["id", "name"], ("id", "foo")),
        (b"x,y,id\nw,x,z\n", ["id", "name"], ("x", "y", "id")),
        (b"x,,id\nw,x,z\n", ["id", "name"], None),
        (b"id,name,1960,1961,1962\n1,x,2,3,4\n", ["id", "name", "a", "b", "c"], ("id", "name", "1960", "1961", "1962")),
        (b"1960,1961,1962\n1,2,3\n", ["id", "name", "a"], None),
        (b"a,,b,c,\n1,x,2,z,\n", None, ("a", "", "b", "c", "")),
        (b",a\n0,x\n1,y\n", None, ("", "a")),
        (b",a\n0,x\n2,y\n", None, None),
        (b"tconst,rating\nt1,5\n", ["id", "score"], ("tconst", "rating")),
        (b"tconst,rating\nt1,\nt2,5\nt3,x\n", ["id", "score"], ("tconst", "rating")),
        (b"name,is_adult\nann,f\n", ["id", "score"], ("name", "is_adult")),
        (b"ann,note\nbob,\neve,\n", ["id", "score"], None),
        (b"ann,x\nbob,z\neve,5\n", ["id", "score"], None),
        (b"ann,yes\nbob,no\n", ["id", "score"], None),
        (b'"a b","c""d"\n1,2\n', None, ("a b", 'c"d')),
        (b"A,a\n1,2\n", None, ("A", "a")),
        (b"A,a\nx,z\n", None, None),
        (b"a,\n1,2\n", None, None),
        (b"a,1\n1,2\n", None, None),
        (b"a,2024-01-31\n1,2\n", None, None),
        (b"a,-1.5e3\n1,2\n", None, None),
        (b"a\t\\N\n1\t2\n", None, None),
        (b"a\\tb\tc\n1\\t\t2\n", None, ("a\tb", "c")),
        (b"", None, None),
    ],
)
def test_header(head: bytes, table_columns: list[str] | None, header: tuple[str, ...] | None) -> None:
    """Names of the table make a header; without a table, names that look like names."""
    result = probe(head, table_columns=table_columns)
    assert result.header == header
    assert result.dialect.has_header is (header is not None)


@pytest.mark.parametrize(
    ("head", "is_told"),
    [
        (b"name,city\nann,ulm\n", True),
        (b"name,city\n", True),
        (b"ann,ulm\nann,bonn\n", False),
        (b"ann b,ulm\neve,bonn\n", False),
        (b"1,ulm\n2,bonn\n", False),
    ],
)
def test_words_above_words_are_data_and_told(head: bytes, *, is_told: bool) -> None:
    """They may be names that the table lacks, unless one is also a value, is no single word or is a number."""
    result = probe(head, table_columns=["id", "score"])
    assert not result.dialect.has_header
    message = ("first line looks like a header but is treated as data", 1, None)
    assert messages(result) == ([message] if is_told else [])
    assert probe(head, table_columns=["a"], options=DialectOptions(header=False)).notices == ()


@pytest.mark.parametrize(
    ("head", "table_columns", "is_asked"),
    [
        (b"name,age,,\nAnn,3,,\nBo,4,,\n", None, True),
        (b"name,age,,\nAnn,3,,\nBo,4,,\n", ["a", "b", "c", "d"], False),
        (b"Ann,ulm,,\nBo,bonn,,\n", None, False),
        (b"Ann,3,,\nBo,4,,\n", None, False),
        (b"1,2,,\n3,4,,\n", None, False),
    ],
)
def test_words_beside_blank_fields_are_asked_about_for_a_new_table(
    head: bytes, table_columns: list[str] | None, *, is_asked: bool
) -> None:
    """Spreadsheets write such a header; as a row it would make every column text."""
    result = probe(head, table_columns=table_columns)
    assert (result.header is not None) is is_asked
    message = ("first line is taken for a header but could be data", 1, None)
    assert (message in messages(result)) is is_asked


def test_header_option_wins() -> None:
    """Numbers become names, and names data, when the user says so."""
    assert probe(b"1,2\n", options=DialectOptions(header=True)).header == ("1", "2")
    assert probe(b"a,b\n", options=DialectOptions(header=False)).header is None
    assert probe(b"", options=DialectOptions(header=True)).dialect.has_header


def test_header_longer_than_the_sample_is_an_error() -> None:
    """Half a header would name the wrong columns."""
    with pytest.raises(DataError, match="header does not end within 7 bytes"):
        probe(b"aaa,bbb", is_whole=False, options=DialectOptions(header=True))


def test_field_count_is_the_first_records() -> None:
    """Quoted delimiters do not count; an empty file has none."""
    assert probe(b'1,"a,b",3\n').field_count == 3
    assert probe(b"").field_count == 0


def test_invalid_utf8_names_line_column_and_guesses() -> None:
    """Without --encoding the file must be UTF-8; the hint says what to try."""
    with pytest.raises(DataError, match='encoding "UTF8": 0xe9') as caught:
        probe(b"id,name\n1,Jos\xe9\n")
    assert caught.value.detail == "file.txt line 2, column 2."
    assert "--encoding=LATIN1" in (caught.value.hint or "")
    with pytest.raises(DataError) as caught:
        probe(b"id,name\n1,\x93x\x94\n")
    assert "--encoding=WIN1252" in (caught.value.hint or "")


_ROWS = b"kunde;betrag;ort\n1;1.234,50;Ulm\n2;99,00;Bonn\n"


@pytest.mark.parametrize(
    ("head", "delimiter", "message"),
    [
        (b"Umsatz;;\n" + _ROWS, ";", "line 1 fills at most 1 of 3 fields, line 2 looks like the header"),
        (b"Umsatz;;\n;;\n" + _ROWS, ";", "lines 1 to 2 fill at most 1 of 3 fields, line 3 looks like the header"),
        (b"Umsatz\n;;\n" + _ROWS, ";", "lines 1 to 2 fill at most 1 of 3 fields, line 3 looks like the header"),
        (b";;\n" + _ROWS, ";", "line 1 fills at most 1 of 3 fields, line 2 looks like the header"),
        (b"a,b\nx,\nc,1\nd,2\ne,3\n", ",", None),
        (
            b"Umsatz,\nkunde,betrag\n1,1.5\n2,2.5\n",
            ",",
            "line 1 fills at most 1 of 2 fields, line 2 looks like the header",
        ),
        (
            b"Umsatz, Januar\n\n" + _ROWS,
            ";",
            "lines 1 to 2 do not look like a header or records: 3 fields begin on line 3",
        ),
        (
            b"Umsatz\nvon heute\n\nkunde;betrag\n1;1,5\n\n",
            ";",
            "lines 1 to 3 do not look like a header or records: 2 fields begin on line 4",
        ),
    ],
)
def test_title_lines_are_neither_data_nor_a_header_in_silence(head: bytes, delimiter: str, message: str | None) -> None:
    """With or without separators. The delimiter is that of the lines below, and the hint skips the titles."""
    result = probe(head)
    found = [notice for notice in result.notices if notice.code == "preamble"]
    assert (result.dialect.delimiter, [notice.message for notice in found]) == (delimiter, [message] if message else [])
    for notice in found:
        assert notice.hint is not None
        skipped = int(notice.hint.removeprefix("Use --skip-lines ").split()[0])
        below = probe(b"".join(head.splitlines(keepends=True)[skipped:]), options=DialectOptions(header=True))
        assert (below.dialect.delimiter, (below.header or ("",))[0]) == (delimiter, "kunde")


@pytest.mark.parametrize(
    "head",
    [
        b"1;;\n2;x;y\n3;x;z\n",
        b"Ann;;\nBob;x;1\nEve;y;2\n",
        b"a\nb\nc|d\ne|f\n",
        b"x,\nname,city\nann,rome\nbob,oslo\n",
        b"\na\nb\nc\n",
    ],
)
def test_sparse_first_records_are_no_titles(head: bytes) -> None:
    """If no header follows them, and if columns of one field only are meant."""
    assert [notice.code for notice in probe(head).notices if notice.code == "preamble"] == []


def test_an_unknown_encoding_is_told_with_the_lines_to_skip() -> None:
    """Both options are needed for the next attempt."""
    with pytest.raises(DataError) as caught:
        probe("Umsätze;;\n".encode("latin-1") + _ROWS)
    for option in ("--encoding=LATIN1", "--skip-lines 1"):
        assert option in (caught.value.hint or "")


def test_a_character_cut_by_the_samples_end_is_valid() -> None:
    """The next block brings its other half; at the end of a whole file there is none."""
    assert probe("a,é".encode()[:-1], is_whole=False).dialect.encoding == "UTF8"
    with pytest.raises(DataError):
        probe("a,é".encode()[:-1])


@pytest.mark.parametrize("delimiter", ["\t", "|", ";"])
def test_decimal_commas_are_not_taken_for_delimiters(delimiter: str) -> None:
    """Where each record has as many of them as of the true ones."""
    head = "red|37,91|23,20\n|95,49|6,59\n".replace("|", delimiter).encode()
    for columns in (["a", "b", "c"], None):
        assert probe(head, table_columns=columns).dialect.delimiter == delimiter


def test_quoted_header_over_numbers_is_csv() -> None:
    """Who quotes all that is no number, as R does, quotes nothing else there."""
    result = probe(b'"id"\t"price"\n1\t2.5\n2\t3.5\n')
    assert (result.dialect.format, result.header) == ("csv", ("id", "price"))


def test_file_that_is_utf8_but_for_a_few_bytes_is_not_taken_for_another() -> None:
    """In any other encoding its other characters would be spoilt."""
    with pytest.raises(DataError) as caught:
        probe("id,name\n1,é\n2,日本\n3,".encode() + b"\xff\n")
    assert "--encoding=UTF8" in (caught.value.hint or "")


def test_with_rejects_a_few_invalid_lines_are_not_another_encoding() -> None:
    """They are rejected; where more lines are invalid and none has UTF-8 beyond ASCII, the encoding is asked for."""
    few, valid = b"id,name\n1,\xff\n2,b\n3,\xe9\xe9\xe9\xe9\n", "é\n".encode()
    assert probe(few, rejects=True).dialect.encoding == "UTF8"
    assert probe(few + 9 * b"4,\xe9\n" + 20 * valid, rejects=True).dialect.encoding == "UTF8"
    with pytest.raises(DataError) as caught:
        probe(few + 9 * b"4,\xe9\n", rejects=True)
    assert re.search("perhaps --encoding=LATIN1 .*, or --encoding=UTF8 to reject", caught.value.hint or "")


def test_encoding_with_control_characters_is_not_suggested() -> None:
    """A quotation mark of Windows is one in LATIN1, among words that both encodings have."""
    with pytest.raises(DataError) as caught:
        probe(b"id,name\n" + "".join(f"{n},café\n" for n in range(50)).encode("latin-1") + b"51,\x93x\x94\n")
    assert "--encoding=WIN1252" in (caught.value.hint or "")
    assert "LATIN1" not in (caught.value.hint or "")


def test_given_encoding_is_kept_and_reads_the_header() -> None:
    """A LATIN1 header is decoded as such."""
    result = probe(b"id;pr\xe9nom\n", options=DialectOptions(encoding="LATIN1"))
    assert (result.dialect.encoding, result.header) == ("LATIN1", ("id", "prénom"))


@pytest.mark.parametrize(
    ("head", "message", "line", "column"),
    [
        (b"a,b\n1,2\r\n3,4\n", "line ends differ: the first line ends in newline", 2, None),
        (b"a,b\r\n1,2\n", "line ends differ: the first line ends in carriage return and newline", 2, None),
        (b"a,b\r1,2\r", "lines end in carriage return only", 1, None),
        (b"a,b\n1,2\n\\.\n3,4\n", "a line is COPY's end-of-data mark, a lone \\.", 3, 1),
        (b"a\tb\n\\.\n", "a line is COPY's end-of-data mark, a lone \\.", 2, 1),
        (b"a,b\n1,x\0\n", "zero byte, which PostgreSQL's text cannot hold", 2, 2),
        (b'a,b\n1,"x\n2,y\n', "quoted field does not end", 2, 2),
        (b'a,b\n"x\ny",2\n3,5" disk "\n', STRAY_QUOTE, 4, 2),
        (b"a,b\n1,\\N\n", "\\N is not null in this dialect, but text", 2, 2),
    ],
)  # fmt: skip
def test_notices_name_line_and_column(head: bytes, message: str, line: int, column: int | None) -> None:
    """Each kind of change is reported once, at its first place in the file."""
    assert (message, line, column) in messages(probe(head))


def test_byte_order_mark_is_told() -> None:
    """The mark was skipped before probing."""
    assert messages(probe(b"a,b\n1,2\n", bom="UTF8")) == [("byte-order mark skipped", 1, 1)]


def test_clean_files_have_no_notices() -> None:
    """Line ends and quotes inside quoted fields, and escapes of COPY text, are in order."""
    assert messages(probe(b'a,b\r\n1,"x\n""y"""\r\n')) == []
    assert messages(probe(b"a\tb\n1\\n\t\\N\n", options=DialectOptions(format="text"))) == []
    assert messages(probe(b"a,b\n1,\\N\n", options=DialectOptions(null=("", "\\N")))) == []


def test_a_first_record_that_does_not_end_is_told() -> None:
    """A binary file, or one record larger than the sample."""
    assert messages(probe(b"x" * 5000, is_whole=False)) == [("the first record does not end within 5.00 kB", 1, None)]


def test_a_quote_that_swallows_the_rest_of_a_long_sample_is_told() -> None:
    """An odd quote in a long file shows as a field that goes on for 64 KiB."""
    head = b'a,b\n1,"x\n' + b"2,y\n" * 30_000
    assert ("quoted field does not end", 2, 2) in messages(probe(head, is_whole=False, table_columns=["a", "b"]))


def test_copy_escapes_under_tsv_are_told() -> None:
    """A file that COPY TO wrote keeps its escapes when it is loaded as tsv."""
    result = probe(b"a\tb\nx\\ty\t1\n", options=DialectOptions(format="tsv"))
    assert messages(result) == [("backslash escape that format tsv keeps as it is", 2, 1)]


def test_utf16_without_mark_is_hinted_at() -> None:
    """Every other byte is zero. Whether the first or the second byte is zero shows the byte order."""
    for codec, name in (("utf-16-le", "UTF16LE"), ("utf-16-be", "UTF16BE")):
        result = probe("id,name\n1,x\n".encode(codec))
        assert any(f"--encoding={name}" in (notice.hint or "") for notice in result.notices)
        with pytest.raises(DataError) as caught:
            probe("id,name\n1,\xe9\n".encode(codec))
        assert f"--encoding={name}" in (caught.value.hint or "")


def test_probed_delimiter_is_checked_with_the_options() -> None:
    """What was found must go with what was given."""
    with pytest.raises(UsageError, match="must not appear in the NULL"):
        probe(b"a,b\n", options=DialectOptions(null=("x,y|z;\t",)))


alphabet = st.lists(
    st.sampled_from([*"\"'\\,\t;|\n\ra1\0é", "\\N", "\\.", "\r\n", "x" * 70]).map(str.encode) | st.just(b"\xe9"),
    max_size=60,
).map(b"".join)
characters = st.none() | st.sampled_from(['"', "'", "\\", ",", "\t", "|", "a", "\n", "é", "", "ab"])
any_options = st.builds(
    DialectOptions,
    format=st.none() | st.sampled_from(["csv", "text", "tsv"]),
    delimiter=characters,
    quote=characters,
    escape=characters,
    null=st.none() | st.lists(st.sampled_from(["", "\\N", "NULL", ",", '"', "\n"]), max_size=3).map(tuple),
    header=st.none() | st.booleans(),
    encoding=st.none() | st.sampled_from(["UTF8", "LATIN1", "WIN1252", "EUC_JP", "SQL_ASCII", "KOI8R", "UTF16", "x"]),
)
plain_options = st.builds(DialectOptions, format=st.none() | st.sampled_from(["csv", "text", "tsv"]))


@given(
    head=alphabet | st.binary(max_size=200),
    options=any_options | plain_options,
    is_whole=st.booleans(),
    table_columns=st.none() | st.lists(st.sampled_from(["a", "1", "b"]), max_size=3),
)
@example(head=b'"', options=DialectOptions(format="csv"), is_whole=False, table_columns=None)
def test_probing_fails_with_a_penstock_error_or_not_at_all(
    head: bytes, options: DialectOptions, *, is_whole: bool, table_columns: list[str] | None
) -> None:
    """Whatever the bytes and options, the caller gets a dialect that keeps the options, or an error to show."""
    try:
        result = probe(head, options=options, is_whole=is_whole, table_columns=table_columns)
    except PenstockError:
        return
    assert options.format in (None, result.dialect.format)
    assert options.delimiter in (None, result.dialect.delimiter)
    assert options.header in (None, result.dialect.has_header)
    assert all(notice.line is None or notice.line >= 1 for notice in result.notices)


field = st.text(st.sampled_from('ab1é,;|\t"\n \\'), min_size=1, max_size=8).filter(lambda text: text != "\\.")


@given(rows=st.lists(st.lists(field, min_size=3, max_size=3), min_size=2, max_size=6))
def test_fully_quoted_csv_is_told_and_read_back(rows: list[list[str]]) -> None:
    """A file with every field quoted has one reading, tabs and newlines in its fields or not."""
    lines = [",".join('"' + value.replace('"', '""') + '"' for value in row).encode() for row in rows]
    options = DialectOptions(format="csv", header=False)
    result = probe(b"\n".join(lines) + b"\n", options=options, table_columns=["x", "y", "z"])
    assert result.dialect.delimiter == ","
    assert [split_record(line, result.dialect) for line in lines] == rows


@pytest.mark.parametrize(
    ("head", "options"),
    [
        (b'id,tags\n1,"{a,NULL,b}"\n2,"{NULL,null}"\n', DialectOptions()),
        (b'id;tags\n1;"[1;NULL;3]"\n2;"[2]"\n', DialectOptions()),
        (b"id,tags\n1,\"{'a','b','c'}\"\n2,\"{'d'}\"\n", DialectOptions()),
        (b'id,doc\n1,"{""a"":[1,NULL,\\N,2]}"\n2,"{}"\n', DialectOptions()),
        (b'id,doc\n1,"{\\"a\\",NULL,b}"\n2,"{}"\n', DialectOptions(escape="\\")),
        (b"id\ttags\n1\t{a,NULL,b}\n2\t{NULL}\n", DialectOptions()),
    ],
)
def test_element_of_an_array_is_no_field(head: bytes, options: DialectOptions) -> None:
    """NULL within an array literal is the array's null, and quotes there are the array's."""
    assert not probe(head, options=options).notices


@pytest.mark.parametrize(
    ("head", "delimiter"),
    [
        (b"1,5;2,5\n3,5;4,5\n", ";"),
        (b'"1,5"|2.234,5|-7,0\r\n3,5|4,5|1,1\r\n', "|"),
        (b"1,a;b,x\n2,c;d,y\n", ","),
        (b"48.85;2.35,Paris,FR\n1.1;2.2,Rome,IT\n", ","),
    ],
)
def test_comma_is_no_delimiter_if_all_fields_are_numbers_with_one(head: bytes, delimiter: str) -> None:
    """It divides each record into one field more than the delimiter does."""
    assert probe(head).dialect.delimiter == delimiter


def test_null_word_of_a_file_with_empty_fields_has_both_null_texts() -> None:
    """Otherwise the empty fields, which were null, become texts."""
    (notice,) = probe(b"id,name\n1,NULL\n2,\n").notices
    assert notice.hint == "Use --null='NULL' (with --null '' too, if empty fields do)."


def test_null_word_is_found_behind_an_array_with_nulls() -> None:
    """The fields after such an array are fields again."""
    (notice,) = probe(b'id,tags,name\n1,"{a,NULL,b}",NULL\n2,"{}",x\n').notices
    assert (notice.code, notice.line, notice.column) == ("literal-null", 2, 3)
