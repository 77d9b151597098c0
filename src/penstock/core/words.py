"""Text for people: hides secrets, escapes control characters, lines up columns, finds the most similar word. Pure.

Messages that repeat what a user typed pass through `hide_secrets`, because the user may have typed a secret in the
wrong place. A value that is known to be secret is never put into a message.
"""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice
from textwrap import wrap
from typing import Final

# Matches the user and password of a URL. In a PostgreSQL URI they may contain slashes, because people forget to encode
# these. In any other URL they end at a slash, because the path after it may contain @. Both alternatives match even if
# a slash of :// is missing.
_USERINFO = re.compile(r"""(\bpostgres(?:ql)?:/*)[^\s"']*@|(\b[a-z][a-z0-9+.-]*:/+)[^\s"'/]*@""", re.IGNORECASE)

# Matches a secret together with its name: password='two words' of a connection string, which may have blanks around the
# equals sign; X-Amz-Signature=... of a URL signed by AWS; sig=... by Azure, temp_url_sig=... by Swift; api_key=....
_NAMED = re.compile(
    r"""\b((?:[\w.-]*(?:password|passwd|signature|token|secret|credential|api[_-]?key)|(?:[\w.-]*_)?sig)\s*=\s*)"""
    r"""(?:'(?:[^'\\]|\\.)*'|[^\s&"']+)""",
    re.IGNORECASE,
)

# The width of text for people. On a terminal it is the maximum width, because longer lines are hard to read.
WIDTH = 110


def hide_secrets(text: str) -> str:
    """Return a text in which everything that looks like a secret is replaced by three asterisks.

    >>> hide_secrets('no command "postgresql://ann:p/w@db1/shop?sslpassword=x"')
    'no command "postgresql://***@db1/shop?sslpassword=***"'
    >>> hide_secrets("s3://bucket/a@b.csv, https://host/a?X-Amz-Signature=0f&x=1")
    's3://bucket/a@b.csv, https://host/a?X-Amz-Signature=***&x=1'
    """
    text = _USERINFO.sub(lambda match: f"{match[1] or match[2]}***@", text)
    return _NAMED.sub(r"\1***", text)


# The names that other loaders and PostgreSQL's own tools have for each of penstock's options.
_FOREIGN: Final[Mapping[str, str]] = {
    "into": "name table tables table_name tablename target relation dest destination t",
    "to": "database db dbname dsn con conn engine connection connection_string conninfo uri url host hostname port "
    "user username password pg postgres server d u p",
    "role": "owner",
    "delimiter": "delim sep separator fs field_terminator fields_terminated_by field_separator",
    "quote": "quotechar quote_char enclosed_by",
    "escape": "escapechar escape_char",
    "null": "na nulls null_as nullstr null_string null_if na_values null_value",
    "skip_lines": "skiprows skip_rows skip_leading_rows",
    "columns": "fields column_names cols",
    "set": "default defaults constant",
    "date_order": "dayfirst day_first",
    "rename": "map mapping alias",
    "mode": "overwrite append truncate replace upsert on_conflict if_exists if_table_exists write_mode conflict",
    "key": "keys primary_key pk unique_key conflict_columns on",
    "sessions": "jobs workers threads parallel parallelism concurrency processes connections j",
    "format": "file_format filetype file_type f",
    "encoding": "charset file_encoding client_encoding",
    "create": "create_table",
    "types": "infer infer_types schema dtypes",
    "add_columns": "evolve merge_schema schema_evolution",
    "on_error": "ignore_errors skip_errors max_errors errors on_bad_lines store_rejects",
    "max_rejects": "reject_limit maxerrors max_bad_records error_limit",
    "reject_file": "rejects bad_file badfile reject_path errors_file log_errors",
    "transform": "sql query",
    "plan": "dry_run dryrun explain n",
    "again": "force reload",
    "quiet": "q silent",
    "retry_for": "retries retry timeout",
}
_MEANT = {foreign: ours for ours, names in _FOREIGN.items() for foreign in names.split()}

# How many names a message lists.
_NAMES_SHOWN = 5

# How similar a mistyped name must be to one of penstock's names, and to a name of another tool. The first limit is just
# above the likeness of --table and --role, which agree in two thirds of their letters and dashes.
_LEAST_LIKENESS = 0.7
_LEAST_FOREIGN_LIKENESS = 0.8


def suggest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that the user probably meant by `name`, None if no known name is similar.

    >>> suggest("--table", ["--into", "--role"]), suggest("dry-run", ["plan"]), suggest("colums", ["columns"])
    ('--into', 'plan', 'columns')
    >>> suggest("--table", ["--role"]), suggest("--where", ["--to", "--header"])
    (None, None)
    """
    names = {_plain(each): each for each in known}
    foreign = {theirs: names[ours] for theirs, ours in _MEANT.items() if ours in names}
    asked = _plain(name)
    if asked in names or asked in foreign:
        return names.get(asked) or foreign[asked]
    return _nearest(asked, names, _LEAST_LIKENESS) or _nearest(asked, foreign, _LEAST_FOREIGN_LIKENESS)


def _nearest(asked: str, names: Mapping[str, str], likeness: float) -> str | None:
    # Names of one or two letters are skipped, because they are similar to too many others.
    near = difflib.get_close_matches(asked, [each for each in names if len(each) > 2], 1, likeness)
    return names[near[0]] if near else None


def _plain(name: str) -> str:
    return name.lstrip("-").replace("-", "_").casefold()


# The control characters (C0 except tab, DEL, C1). The characters that change the direction of text and so its order
# (Unicode's property Bidi_Control). Those that end a line or a paragraph.
_CONTROLS = [*range(0x20), *range(0x7F, 0xA0)]
_TURNS = [0x061C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A)]
_ON_ONE_LINE = {code: f"\\x{code:02x}" for code in _CONTROLS} | {code: f"\\u{code:04x}" for code in _TURNS}
_ON_ONE_LINE |= {ord("\n"): "\\n", ord("\r"): "\\r"}
del _ON_ONE_LINE[ord("\t")]
_ON_LINES = {code: text for code, text in _ON_ONE_LINE.items() if code != ord("\n")}


def visible(text: str) -> str:
    r"""Return a text on one line, with escapes for characters that control a terminal.

    >>> print(visible("a\x1b[31m b\nc\x9b\u202e"))
    a\x1b[31m b\nc\x9b\u202e
    """
    return text if text.isprintable() else text.translate(_ON_ONE_LINE)


def visible_lines(text: str) -> str:
    r"""Return a text of several lines, with escapes for characters that control a terminal.

    Lines after the first are indented, so that none looks like penstock's own.

    >>> print(visible_lines("could not connect\nerror: connection refused\x07"))
    could not connect
        error: connection refused\x07
    """
    return text if text.isprintable() else text.translate(_ON_LINES).replace("\n", "\n    ")


def visible_page(text: str) -> str:
    r"""Return a text of several lines, with escapes for characters that control a terminal. No line is indented.

    >>> print(visible_page("<p>a\x1b[31m\n</p>"))
    <p>a\x1b[31m
    </p>
    """
    return text.translate(_ON_LINES)


def list_names(names: Collection[object], *, quote: str = '"') -> str:
    """Return the first five of some names, and how many more there are.

    >>> list_names(["a", "b"]), list_names(range(297), quote="")
    ('"a", "b"', '0, 1, 2, 3, 4 and 292 more')
    """
    shown = ", ".join(f"{quote}{name}{quote}" for name in islice(names, _NAMES_SHOWN))
    more = len(names) - _NAMES_SHOWN
    return f"{shown} and {more:,} more" if more > 0 else shown


def width_of(text: str) -> int:
    """Return how many cells of a terminal a text takes. A wide character takes two cells, a combining one none."""
    if text.isascii():
        return len(text)
    return sum(_cells(character) for character in text)


def _cells(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def pad(text: str, width: int, align: str = "<") -> str:
    """Return a text filled with blanks to a width in cells. A longer text is returned unchanged.

    `align` is "<" for the left and ">" for the right.
    """
    fill = " " * max(0, width - width_of(text))
    return text + fill if align == "<" else fill + text


def shorten_left(text: str, width: int) -> str:
    """Return a text, cut at the left if it is wider than `width` cells, because a path ends with the file's name.

    >>> shorten_left("data/2024/title.principals.tsv.gz", 20)
    '…e.principals.tsv.gz'
    """
    return shorten_right(text[::-1], width)[::-1]


def shorten_right(text: str, width: int) -> str:
    """Return a text, cut at the right if it is wider than `width` cells.

    >>> shorten_right("SELECT a, b FROM t", 10)
    'SELECT a,…'
    """
    if width_of(text) <= width:
        return text
    kept = ""
    for character in text:
        if width_of(kept) + _cells(character) > width - 1:
            break
        kept += character
    return f"{kept}…" if width > 0 else ""


def line_up(rows: Sequence[Sequence[str]], *, align: Sequence[str], indent: str = "") -> list[str]:
    """Return one line for each row, with two blanks between cells and each column as wide as its widest cell.

    >>> line_up([("a", "1"), ("bc", "10")], align="<>")
    ['a    1', 'bc  10']
    """
    rows = [[visible(cell) for cell in row] for row in rows]
    widths = [max(map(width_of, column)) for column in zip(*rows, strict=True)]
    return [indent + "  ".join(map(pad, row, widths, align)).rstrip() for row in rows]


def hang(head: str, text: str, width: int = WIDTH) -> list[str]:
    """Return `head` and a text as lines of `width` cells. Further lines begin where the text begins in the first.

    >>> hang("do  ", "VACUUM orders at night.", 20)
    ['do  VACUUM orders at', '    night.']
    """
    indent = " " * len(head)
    lines = [
        line for part in text.splitlines() for line in wrap(part, max(width - len(head), 20), break_on_hyphens=False)
    ]
    return [f"{indent if number else head}{line}" for number, line in enumerate(lines or [""])]
