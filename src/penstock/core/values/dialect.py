"""The dialect of a file (how it writes records, fields and nulls, in COPY's terms), and the warnings about files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Literal

from penstock.core.slotted import slotted
from penstock.core.values.names import name_columns, snake_name
from penstock.core.values.options import (
    CHARACTER,
    COUNT,
    NAMES,
    RENAMES,
    SWITCH,
    options_in,
    read_options,
    text,
    texts,
    words,
    words_by_column,
)

# The formats of text files, and the formats of all files.
TextFormat = Literal["csv", "text", "tsv", "jsonl"]
FileFormat = Literal["csv", "text", "tsv", "jsonl", "parquet", "arrow"]
# How the names of a file's columns are spelled as names of the table's.
Spelling = Literal["lower", "snake"]


@slotted
class Dialect:
    r"""The dialect of one file, with every option decided."""

    # "csv" and "text" are COPY's formats. "tsv" has fields separated by `delimiter`, no quoting and no escapes, so that
    # quotes and backslashes are data (IMDb's files are so; COPY has no option for it). "jsonl" is JSON Lines, whose
    # records are converted to text.
    format: TextFormat
    delimiter: str
    # The quoting character of csv, None for other formats. The same applies to `escape`.
    quote: str | None
    escape: str | None
    # A field that equals one of these is null. In csv this applies only to fields without quotes.
    nulls: tuple[str, ...]
    has_header: bool
    # PostgreSQL's name of the file's encoding, or a Unicode encoding that PostgreSQL does not have (UTF16, UTF32).
    encoding: str
    # The number of lines before the header or the first record.
    skip_lines: int = 0
    # In csv, the columns in which a quoted field is null too if it equals the null string; "*" for all columns.
    force_null: tuple[str, ...] = ()


_files = options_in("How the files are written")
_columns = options_in("Columns")

# The options that apply to files of every format.
_FOR_ALL_FORMATS = ("format", "names", "rename")


@slotted
class DialectOptions:
    """The options of the dialect that the user gave; None if the file's beginning decides. Raises UsageError."""

    format: FileFormat | None = _files(
        None,
        words(FileFormat),
        "csv and text as COPY has them, or tsv: tab separated without quoting, so that quotes and backslashes are "
        "data. jsonl (JSON Lines), parquet and arrow (Arrow IPC) have none of the options of delimited text. "
        "By default found in the file's first block, as is all that follows.",
    )
    delimiter: str | None = _files(None, CHARACTER, "Character between fields. A tab may be written \\t.")
    quote: str | None = _files(None, CHARACTER, "Quoting character of csv.")
    escape: str | None = _files(
        None,
        CHARACTER,
        "Character before a quote inside quotes (csv); by default the quote itself.",
    )
    null: tuple[str, ...] | None = _files(None, texts("TEXT"), "What stands for null. May be given several times.")
    force_null: tuple[str, ...] = _files(
        (),
        NAMES,
        "Columns of the table whose quoted fields are null too if they equal --null, as in a,b, or * for all (csv). "
        "May be given several times.",
    )
    decimal_comma: tuple[str, ...] = _files(
        (),
        NAMES,
        "Columns of the table whose numbers have a comma before their decimals, as in price,weight, or * for all "
        "columns of numbers. Other values are refused, here and with the next two options. "
        "May be given several times.",
    )
    thousands: Mapping[str, str] = _files(
        {},
        words_by_column((" ", ".", ",", "'"), "CHAR"),
        "What separates thousands in the numbers of a column, as in price=CHAR, or of all columns of numbers: a blank, "
        "which stands for no-break blanks too, a point, a comma or an apostrophe. May be given several times.",
    )
    date_order: Mapping[str, str] = _files(
        {},
        words_by_column(("dmy", "mdy", "ymd"), "ORDER"),
        "Order of day, month and year in a column, or in all columns of dates and timestamps: dmy, mdy or ymd, as in "
        "born=dmy. 31.12.2025 and 31/12/25 10:00 are dmy. By default DateStyle decides. May be given several times.",
    )
    skip_lines: int = _files(
        0, COUNT, "Skip the first N lines of each file. The next one is its header or first record (default: 0)."
    )
    header: bool | None = _files(None, SWITCH, "Whether each file's first line names columns.")
    encoding: str | None = _files(
        None,
        text("NAME"),
        "Encoding of the files, by PostgreSQL's name, or UTF16 or UTF32 (default: UTF8).",
    )

    names: Spelling = _columns(
        "lower",
        words(Spelling),
        "How names of the file's columns become names of the table's. lower: in lower case. snake: also with _ in "
        "place of blanks and punctuation, so that Culmen Length (mm) is culmen_length_mm; a column with the file's own "
        "name is still found (default: lower).",
    )
    rename: Mapping[str, str] = _columns(
        {},
        RENAMES,
        "Load column OLD of the file into column NEW. A name that no file has is an error. May be given several times.",
    )

    def __post_init__(self) -> None:
        read_options(self)

    def spell(self, name: str) -> str:
        """Return the table's column for a column of the file, as --rename and --names have it, before it is folded."""
        renamed = self.rename.get(name.strip())
        return renamed if renamed is not None else snake_name(name) if self.names == "snake" else name

    def name_columns(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return the names of a new table's columns for the names of a file's columns."""
        return name_columns([self.spell(name) for name in names])

    @property
    def text_format(self) -> TextFormat | None:
        """Return the format that the user gave, None if it is columnar or if none was given."""
        return None if self.format == "parquet" or self.format == "arrow" else self.format  # noqa: PLR1714 (mypy)

    def find_text_option(self) -> str | None:
        """Return the field of an option that was given and applies to text only, None if no such option was given."""
        default = DialectOptions()
        given = (field.name for field in fields(self) if getattr(self, field.name) != getattr(default, field.name))
        return next((name for name in given if name not in _FOR_ALL_FORMATS), None)

    @property
    def may_name_separator(self) -> bool:
        """Return whether a first line such as sep=; is read as the name of the delimiter, and not as data."""
        return self.delimiter is None and self.format in (None, "csv")
