"""Parses the CONTEXT of a COPY error, which shows the line and column of the input at which COPY failed.

The server reports line, column and value only there, and in the language of lc_messages, which only a superuser may
change. So only the order of the parts is used, never the words: `COPY t, line 5, column age: "abc"`, `COPY t, Zeile 5,
Spalte age: »abc«`, `tのCOPY、行 5、列 age: "abc"`. Source: CopyFromErrorCallback in src/backend/commands/copyfrom.c and
src/backend/po.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache

from penstock.frozen import frozen

# "COPY t, line 5" in most languages, "tのCOPY、行 5" in Japanese, "t 복사, 5번째 줄" in Korean. It may be on any line
# of the context, because triggers and functions come first.
_HEAD = r"^(?:COPY )?{table}(?:のCOPY| 복사)?[,、]\s?[^\d,:\"]{{0,30}}?(?P<line>\d+)(?P<rest>.*)"
# The text after the line number: a counter word (Korean), the column, then a colon and the value.
_REST = re.compile(r"(?P<counter>[^,、:]*?)(?:[,、]\s?(?P<place>.*?))?(?:\s?:\s(?P<value>.*))?", re.DOTALL)
# "age 열" in Korean, "column age" elsewhere.
_COLUMNS = (
    r"(?P<column>{name})\s열(?:\s?:\s(?P<value>.*))?",
    r"(?:[^\s:]+\s)?(?P<column>{name})(?:\s?:\s(?P<value>.*))?",
)
_QUOTED = re.compile(r"\"(.*)\"|»(.*)«|«\s?(.*?)\s?»|„(.*)[“”]|“(.*)”|「(.*)」", re.DOTALL)


@frozen
class CopyContext:
    """A position in COPY's input. A part is None if the server did not report it."""

    # Counted from 1 within this COPY command.
    line: int | None = None
    column: str | None = None
    # The text of the column, or of the whole record if no column is reported. The server may have shortened it. None
    # also if the column is null.
    value: str | None = None


def parse_copy_context(context: str | None, *, table: str | None = None, columns: Iterable[str] = ()) -> CopyContext:
    """Return the position that an error's CONTEXT reports.

    `table` is the bare name of COPY's target and `columns` are its columns. Without them, names that contain commas,
    colons or digits can be misread.

    >>> parse_copy_context('COPY t, line 5, column age: "abc"')
    CopyContext(line=5, column='age', value='abc')
    """
    head = _head_pattern(table).search(context or "")
    if head is None:
        return CopyContext()
    line = int(head["line"])
    rest = _REST.fullmatch(head["rest"])
    if rest is None:
        return CopyContext(line=line)
    if rest["place"] is None:
        return CopyContext(line=line, value=_unquote(rest["value"]))
    column, value = _split_column(head["rest"][rest.start("place") :], columns)
    return CopyContext(line=line, column=column, value=_unquote(value))


@cache
def _head_pattern(table: str | None) -> re.Pattern[str]:
    name = r".+?" if table is None else re.escape(table)
    return re.compile(_HEAD.format(table=name), re.MULTILINE | re.DOTALL)


def _split_column(text: str, columns: Iterable[str]) -> tuple[str | None, str | None]:
    """Return column and quoted value of `column age: "abc"`. The longest known column takes precedence over a guess."""
    known = [re.escape(column) for column in sorted(columns, key=len, reverse=True)]
    for name in [*known, r".+?"]:
        for form in _COLUMNS:
            if match := re.fullmatch(form.format(name=name), text, re.DOTALL):
                return match["column"], match["value"]
    return None, None


def _unquote(text: str | None) -> str | None:
    """Return the text between quotation marks of any language, or None if there are none, as for a null."""
    match = _QUOTED.fullmatch(text) if text is not None else None
    return next((group for group in match.groups() if group is not None), None) if match else None
