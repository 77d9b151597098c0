"""Whether the first record names columns, and whether the sample is in the encoding it is taken for."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Literal

from penstock.errors import DataError, FilePlace
from penstock.files.encodings import guess_utf16, show_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# What a column is hardly named: numbers, dates and times, nulls.
_VALUE: Final = re.compile(
    r"[-+]?[$€£]?(?:\d[\d,]*+(?:\.\d*+)?|\.\d++)(?:e[-+]?\d++)?%?"
    r"|\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}(?:[T ].*)?|\d{1,2}:\d\d(?::.*)?"
    r"|null|none|nan|\\N|n/a",
    re.IGNORECASE,
)
_BOOLEAN: Final = re.compile(r"t|f|true|false|y|n|yes|no", re.IGNORECASE)
_NULL: Final = re.compile(r"|null|none|nan|\\N|n/a", re.IGNORECASE)
# What columns mostly are named: one word, or several joined.
_WORD: Final = re.compile(r"[^\W\d][\w.-]*")

# Lines that are not UTF-8 where hardly all of the file is in another encoding.
_FEW_LINES: Final = 3

# "certain" is loaded as a header; "likely" is refused where it would name columns; "possible" is data, with a warning.
HeaderVerdict = Literal["certain", "likely", "possible", "none"]


def judge_header(
    fields: Sequence[str | None], rows: Sequence[Sequence[str | None]], table_columns: Sequence[str] | None
) -> HeaderVerdict:
    """Tell whether a first record is a header; `rows` are some of the records after it.

    It is a header if at least two of its fields, or half of them, are columns of the table. It is one if a single field
    is a column and all fields could be names: none is missing or looks like a number, a date or a null. It is one, too,
    if most fields could be names and the other records of some column are of another kind.
    It may be a header if one field is a column and another is a number. If all records consist of words, distinct names
    are a header for a table that is yet to be created, certainly if the other records of a column are spelled unlike
    its name; for a table that exists they may be one. R and pandas write an empty first name over row numbers.
    """
    known = 0 if table_columns is None else _count_known(fields, table_columns)
    if known > 1 or (known and 2 * known >= len(fields)):
        return "certain"
    names = [_folded(field or "") for field in fields]
    if len(names) > 1 and not names[0] and _are_row_numbers(rows):
        names[0] = "row number"
    # Names that repeat, or lack here and there, are a header all the same.
    if 2 * sum(map(bool, names)) <= len(names):
        return "none"
    if any(_VALUE.fullmatch(name) for name in names):
        if known:
            return "likely"
        return "possible" if all(names) and _is_number_over_text(names, rows) else "none"
    if _differs_in_kind(names, rows) or (known and all(names)):
        return "certain"
    return _judge_words(fields, names, rows, is_new=table_columns is None)


def _judge_words(
    fields: Sequence[str | None], names: Sequence[str], rows: Sequence[Sequence[str | None]], *, is_new: bool
) -> HeaderVerdict:
    """Tell whether words over words are a header."""
    if not all(names) or len(set(names)) < len(names):
        return "none"
    if is_new:
        return "certain" if _differs_in_spelling(fields, rows) else "likely"
    is_possible = all(_WORD.fullmatch(name) for name in names) and not _recurs(names, rows)
    return "possible" if is_possible else "none"


def _count_known(fields: Sequence[str | None], table_columns: Sequence[str]) -> int:
    return len({_folded(name) for name in table_columns} & {_folded(field) for field in fields if field is not None})


def _are_row_numbers(rows: Sequence[Sequence[str | None]]) -> bool:
    """Tell whether the first fields of all records count from 0 or 1."""
    numbers = [row[0] if row else None for row in rows]
    return bool(numbers) and any(numbers == [str(start + at) for at in range(len(numbers))] for start in (0, 1))


def are_row_names(rows: Sequence[Sequence[str | None]]) -> bool:
    """Tell whether the first fields of all records are there, and no two are the same: so R names rows."""
    names = [row[0] for row in rows if row]
    return all(names) and 1 < len(names) == len(set(names))


def _is_number_over_text(names: Sequence[str], rows: Sequence[Sequence[str | None]]) -> bool:
    """Tell whether some name is a number and no value below it is: years over words, say."""
    for index, name in enumerate(names):
        values = [_folded(row[index] or "") for row in rows if index < len(row)]
        if (
            values
            and _VALUE.fullmatch(name)
            and not any(_NULL.fullmatch(value) or _is_typed(value) for value in values)
        ):
            return True
    return False


def _differs_in_spelling(fields: Sequence[str | None], rows: Sequence[Sequence[str | None]]) -> bool:
    """Tell whether under some word all values, three or more, are spelled alike and otherwise: name over Alice, Bob."""
    for index, field in enumerate(fields):
        values = [row[index] or "" for row in rows if index < len(row)]
        spellings = {_spelling(value) for value in values}
        if len(values) > 2 and len(spellings) == 1 and _spelling(field or "") not in spellings:
            return True
    return False


def _spelling(value: str) -> str:
    """Return a text's kinds of characters.

    >>> _spelling("Alice 42")
    'Aa 0'
    """
    kinds = (("0", r"\d++"), ("a", r"[^\W\d_A-Z]++"), ("A", r"[A-Z]++"))
    for kind, pattern in kinds:
        value = re.sub(pattern, kind, value)
    return value


def _differs_in_kind(names: Sequence[str], rows: Sequence[Sequence[str | None]]) -> bool:
    """Tell whether under some name most records hold numbers, dates or booleans; nulls alone prove nothing."""
    for index, name in enumerate(names):
        values = [_folded(row[index] or "") for row in rows if index < len(row)]
        nulls = sum(_NULL.fullmatch(value) is not None for value in values)
        typed = sum(not _NULL.fullmatch(value) and _is_typed(value) for value in values)
        if name and typed and 2 * (typed + nulls) > len(values) and not _BOOLEAN.fullmatch(name):
            return True
    return False


def _is_typed(value: str) -> bool:
    return bool(_VALUE.fullmatch(value) or _BOOLEAN.fullmatch(value))


def _recurs(names: Sequence[str], rows: Sequence[Sequence[str | None]]) -> bool:
    """Tell whether some name is a value of its own column too: then the first record is data."""
    return any(_folded(field or "") == name for row in rows for name, field in zip(names, row, strict=False))


def _folded(name: str) -> str:
    return name.strip().casefold()


def check_is_utf8(
    head: bytes, *, is_whole: bool, rejects: bool, uri: str, locate: Callable[[int], tuple[int, int]]
) -> None:
    """Raise DataError where the sample is not UTF-8; a character cut by its end is no fault.

    With `rejects`, records that have invalid bytes are, where they are few. `locate` turns an offset into line and
    column.
    """
    try:
        head.decode()
    except UnicodeDecodeError as exc:
        if exc.end == len(head) and not is_whole and exc.reason == "unexpected end of data":
            return
        is_mostly_utf8 = _is_mostly_utf8(head)
        if rejects and (is_mostly_utf8 or _count_invalid_lines(head) <= _FEW_LINES):
            return
        line, column = locate(exc.start)
        hint = f"Give the file's encoding, perhaps --encoding={_guess_encoding(head)}."
        if rejects:
            hint = f"{hint[:-1]}, or --encoding=UTF8 to reject every such record."
        elif is_mostly_utf8:
            hint = (
                "The file is UTF8 elsewhere: correct it, or use --encoding=UTF8: then --check reports every such"
                " record, and --on-error reject rejects them."
            )
        raise DataError(
            f'invalid byte sequence for encoding "UTF8": {show_bytes(head[exc.start : exc.end])}',
            detail=f"{uri} line {line}, column {column}.",
            hint=hint,
            place=FilePlace(file=uri, line=line),
        ) from exc


def _is_mostly_utf8(head: bytes) -> bool:
    """Tell whether more characters beyond ASCII are UTF-8 than are not: any other encoding would spoil those."""
    beyond = re.sub(r"[\x00-\x7f]+", "", head.decode(errors="replace"))
    return 2 * beyond.count("\ufffd") < len(beyond)


def _count_invalid_lines(head: bytes) -> int:
    return sum("\ufffd" in line.decode(errors="replace") for line in head.split(b"\n"))


def _guess_encoding(head: bytes) -> str:
    """Return UTF-16 where zero bytes tell it, WIN1252 where LATIN1 has control characters, else LATIN1."""
    if wide := guess_utf16(head):
        return wide
    return "WIN1252" if re.search(rb"[\x80-\x9f]", head) else "LATIN1"
