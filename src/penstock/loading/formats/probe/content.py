"""Recognizes text that is not delimited (JSON, HTML, XML, SQL) by its beginning, and says how to load it. Pure."""

from __future__ import annotations

import re
import shlex
from itertools import islice
from typing import Final

from penstock import _native
from penstock.core.errors import SourceError
from penstock.core.slotted import slotted
from penstock.core.values.dialect import DialectOptions
from penstock.core.values.source import Compression
from penstock.loading.formats.probe.form import choose_form

_LINES_LOOKED_AT: Final = 5
# How much of the text is searched for HTML, XML and SQL. The comment at the top of a dump is shorter.
_BEGINNING_BYTES: Final = 4096

# Matches the beginning of a JSON object with a name, but not {1,2}, {"a","b"} and {}, which are arrays of PostgreSQL.
_OBJECT: Final = re.compile(rb'\{\s*"(?:[^"\\]|\\.)*+"\s*:', re.DOTALL)
# Matches the beginning of a JSON array, but not [section] and [2026-11-01 12:00], which are lines of other files.
_ELEMENT: Final = re.compile(rb'\[\s*(?:[]"[{-]|\d+\s*[],.]|(?:true|false|null)\s*[],])')
_MARKUP: Final = re.compile(
    rb"<(?:\?xml\s|!--|!doctype\s|html\b|([a-z][\w:.-]*+)(?:\s[^<>]*+)?/?>(?:\s*<|[^<]*</\1\s*>))", re.IGNORECASE
)
_HTML: Final = re.compile(rb"<!doctype\s+html|<html\b", re.IGNORECASE)
_PG_DUMP: Final = re.compile(rb"-- PostgreSQL database (?:cluster )?dump")
_MYSQL_DUMP: Final = re.compile(rb"-- (?:MySQL|MariaDB) dump|/\*M?!\d{5,}")
_COMMENTS: Final = re.compile(rb"(?:\s++|--[^\n]*+(?:\n|\Z)|/\*.*?\*/)*+", re.DOTALL)
_STATEMENT: Final = re.compile(
    rb"(?:create|alter|drop)\s+(?:or\s+replace\s+|temp(?:orary)?\s+|unlogged\s+|unique\s+)?"
    rb"(?:table|database|schema|sequence|type|extension|index|view|function|role|user)\s"
    rb"|insert\s+into\s|copy\s[^\n]*\sfrom\s+stdin\b|set\s+[\w.]+\s*(?:=|\sto\s)|begin\s*(?:transaction|work)?\s*;"
    rb"|start\s+transaction\b|pragma\s+\w+\s*=|use\s+\S+\s*;|lock\s+tables\s|select\s+pg_catalog\.set_config\("
    rb"|\\(?:restrict|connect)\s",
    re.IGNORECASE,
)

_PROGRAMS: Final[dict[Compression, str]] = {
    "gzip": "zcat",
    "zstd": "zstdcat",
    "bzip2": "bzcat",
    "xz": "xzcat",
    "lz4": "lz4cat",
}


class OtherContent(SourceError):
    """A file is neither delimited text nor JSON Lines, but has other content, such as HTML."""


@slotted
class Content:
    """A kind of content that is not delimited text, and how to load it."""

    # The name of the content, which completes "the file is".
    name: str
    # What to do with the file. If there is a command, it follows this text.
    advice: str
    # A command that reads the file.
    command: str | None = None
    # The suffix of the file that the command writes, None if the command writes no file.
    suffix: str | None = None
    # Whether the text cannot be delimited text.
    is_certain: bool = False


JSON_LINES: Final = Content(name="JSON Lines", advice="Load it with --format jsonl.")
BY_JQ: Final = " (with jq 1.7 or later, since older ones round long numbers)"
_TO_LINES: Final = "Convert it to JSON Lines, one record on each line"
_TO_CSV: Final = f"Convert it to CSV{BY_JQ}"
_COMMAS: Final = Content(
    name="JSON with a comma after each record",
    advice=_TO_LINES,
    command="sed 's/,[[:space:]]*$//'",
    suffix=".jsonl",
    is_certain=True,
)
_OBJECTS: Final = Content(
    name="JSON whose objects do not have a line each",
    advice=f"{_TO_LINES}{BY_JQ}",
    command="jq -c .",
    suffix=".jsonl",
    is_certain=True,
)
_ARRAY: Final = Content(
    name="a JSON array", advice=f"{_TO_LINES}{BY_JQ}", command="jq -c '.[]'", suffix=".jsonl", is_certain=True
)
_ARRAY_OF_ARRAYS: Final = Content(
    name="a JSON array of arrays", advice=_TO_CSV, command="jq -r '.[] | @csv'", suffix=".csv"
)
_ARRAY_OF_VALUES: Final = Content(
    name="a JSON array of values", advice=_TO_CSV, command="jq -r '.[] | [.] | @csv'", suffix=".csv"
)
_ARRAYS: Final = Content(name="lines of JSON arrays", advice=_TO_CSV, command="jq -r @csv", suffix=".csv")
_HTML_PAGE: Final = Content(
    name="an HTML page",
    advice="Check where it comes from: servers send such a page in place of a file, to log in or for an error.",
)
_XML: Final = Content(name="XML", advice="Convert it to CSV or JSON Lines first.")
_RESTORE: Final = "psql -v ON_ERROR_STOP=1 -f"
_DUMP: Final = Content(name="an SQL dump by pg_dump", advice="Run it with psql", command=_RESTORE)
_MYSQL: Final = Content(
    name="an SQL dump of MySQL or MariaDB",
    advice="Dump each table as text with mysqldump --tab=FOLDER DATABASE, and load the .txt files with --format text.",
)
_SQL: Final = Content(name="SQL", advice="If it was written for PostgreSQL, run it with psql", command=_RESTORE)


def recognize(head: bytes, *, is_whole: bool) -> Content | None:
    """Return what a sample contains if it does not look like delimited text, otherwise None.

    `is_whole` says whether the sample is the whole file. A text that begins with a brace or a bracket never counts as
    delimited, because parts of JSON could then be stored.
    """
    text = head.lstrip()
    if text[:1] == b"{":
        return _name_objects(text, is_whole=is_whole)
    if text[:1] == b"[":
        return _name_array(text, is_whole=is_whole)
    return _name_statements(text[:_BEGINNING_BYTES])


def check_is_delimited(
    head: bytes, *, is_whole: bool, uri: str, options: DialectOptions, compression: Compression = "none"
) -> None:
    """Raise OtherContent if a sample does not look like delimited text, and no option gives a format."""
    if options.format is None and (found := recognize(head, is_whole=is_whole)) is not None:
        hint = describe_conversion(found, uri=uri, compression=compression)
        if not found.is_certain:
            form = choose_form(head, options=options, is_whole=is_whole, column_count=None).form
            hint += f" If it is delimited text, use --format {form.format}."
        raise OtherContent(f'"{uri}" is {found.name}, not delimited text', hint=hint)


def describe_conversion(found: Content, *, uri: str, compression: Compression) -> str:
    """Return the advice how to load a file with this content, with the command that converts the file."""
    if found.command is None:
        return f"{found.advice.rstrip('.')}."
    if uri == "stdin":
        return f"{found.advice}: put {found.command.removesuffix(' -f')} before penstock in the pipe."
    name = uri.rsplit("/", 1)[-1] if "://" in uri else uri
    # awk takes a name such as year=2026/f.csv for an assignment, unless it begins with ./.
    name = shlex.quote(f"./{name}" if "=" in name.partition("/")[0] else name)
    command = f"{found.command} {name}"
    if compression in _PROGRAMS:
        command = f"{_PROGRAMS[compression]} {name} | {found.command.removesuffix(' -f')}"
    if found.suffix is not None:
        command += f" > {shlex.quote(shlex.split(name)[0] + found.suffix)}"
    return f"{'Download it. ' if '://' in uri else ''}{found.advice}: {command}"


def _unknown(start: str) -> Content:
    return Content(
        name=f'text that begins with "{start}" as JSON does, but not JSON Lines',
        advice="If it is meant to be JSON Lines, --format jsonl shows what is wrong.",
    )


def _name_objects(text: bytes, *, is_whole: bool) -> Content:
    """Return the content of a text that begins with a brace.

    The content is JSON Lines if half of the first lines, or more, are objects; the other lines may be bad records.
    """
    lines = _first_lines(text, is_whole=is_whole)
    if not lines and _OBJECT.match(text):
        # The first record is longer than the sample. Only records longer than --max-record do not fit into a sample.
        return JSON_LINES
    rests = [_find_rest(line) for line in lines if line == b"{}" or _OBJECT.match(line)]
    records, commas = rests.count(b""), rests.count(b",")
    if commas and 2 * (commas + records) >= len(lines):
        return _COMMAS
    if 2 * records >= len(lines) and any(map(_OBJECT.match, lines)):
        return JSON_LINES
    end = _native.find_json_end(text)
    following = b"" if end is None else text[end:].partition(b"\n")[0].strip()
    is_divided = b"\n" in text.strip() and not following
    return _OBJECTS if _OBJECT.match(text) and (is_divided or following.startswith(b"{")) else _unknown("{")


def _name_array(text: bytes, *, is_whole: bool) -> Content:
    """Return the content of a text that begins with a bracket."""
    lines = _first_lines(text, is_whole=is_whole)
    arrays = sum(_ELEMENT.match(line) is not None and _find_rest(line) == b"" for line in lines)
    if len(lines) > 1 and 2 * arrays >= len(lines):
        return _ARRAYS
    end = _native.find_json_end(text)
    inside = text[1:].lstrip()
    is_followed = text[end:].strip() if end is not None else is_whole
    if is_followed or not _ELEMENT.match(text):
        # The text may begin with a range, with the first field of a record, or with a line of a log.
        return _unknown("[")
    if inside[:1] == b"{":
        return _ARRAY if _OBJECT.match(inside) else _unknown("[")
    return _ARRAY_OF_ARRAYS if inside[:1] == b"[" else _ARRAY_OF_VALUES


def _first_lines(text: bytes, *, is_whole: bool) -> list[bytes]:
    """Return the first whole lines that are not blank, without blanks around them."""
    lines = text.split(b"\n") if is_whole else text.split(b"\n")[:-1]
    return list(islice(filter(None, map(bytes.strip, lines)), _LINES_LOOKED_AT))


def _find_rest(line: bytes) -> bytes | None:
    """Return what follows the object or array at the beginning of a line, without blanks around it.

    None if the object or array does not end in the line.
    """
    end = _native.find_json_end(line)
    return None if end is None else line[end:].strip()


def _name_statements(text: bytes) -> Content | None:
    """Return the content of a text that begins with markup or an SQL statement, or None for any other text."""
    if _MARKUP.match(text):
        return _HTML_PAGE if _HTML.search(text) else _XML
    if not (text.startswith((b"--", b"/*", b"\\")) or text[:1].isalpha()):
        return None
    comments = _COMMENTS.match(text)
    end = 0 if comments is None else comments.end()
    if _MYSQL_DUMP.search(text[: end + 1]):
        return _MYSQL
    if _PG_DUMP.search(text[:end]):
        return _DUMP
    return _SQL if _STATEMENT.match(text, end) else None
