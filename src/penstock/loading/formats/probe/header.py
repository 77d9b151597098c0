"""Judges whether a sample's first record is a header, and whether the sample is text in UTF-8. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Final, Literal

from penstock.core.errors import DataError, FileLocation
from penstock.core.slotted import slotted
from penstock.loading.files.encodings import guess_utf16, show_bytes

_LATIN: Final = "\u00aa\u00b0\u00ba\u00c0-\u024f\u1e00-\u1eff"
_CYRILLIC: Final = "\u0400-\u04ff"
# The encodings that are tried, the most frequent first. Each has Python's codec and the letters beyond ASCII that texts
# in it have.
_CANDIDATES: Final = (
    ("LATIN1", "latin-1", _LATIN),
    ("WIN1252", "cp1252", _LATIN),
    ("WIN1250", "cp1250", _LATIN),
    ("LATIN2", "iso8859-2", _LATIN),
    ("WIN1254", "cp1254", _LATIN),
    ("WIN1257", "cp1257", _LATIN),
    ("WIN1251", "cp1251", _CYRILLIC),
    ("KOI8R", "koi8-r", _CYRILLIC),
    ("WIN866", "cp866", _CYRILLIC),
    ("WIN1253", "cp1253", "\u0370-\u03ff"),
    ("WIN1255", "cp1255", "\u0590-\u05ff"),
    ("WIN1256", "cp1256", "\u0600-\u06ff"),
    ("EUC_KR", "euc-kr", "\uac00-\ud7a3"),
    ("GB18030", "gb18030", "\u4e00-\u9fff"),
    ("EUC_JP", "euc-jp", "\u3005-\u30ff\u4e00-\u9fff\uff10-\uff9f"),
)
# Characters beyond ASCII, other than letters, that text of any script may have.
_SIGNS: Final = (
    "\u00a0\u00a7\u00ab\u00b4\u00b7\u00bb\u2010-\u2044\u20ac\u2116\u2122\u3000-\u3003\u300c-\u3011\uff01-\uff0f"
)
# Matches letters at a place in a word where they cannot be: final letters before another letter, and a normal sigma at
# the end. If such a letter is found, the encoding is wrong.
_MISPLACED: Final = re.compile("[\u03c2\u05da\u05dd\u05df\u05e3\u05e5](?=\\w)|\\w\u03c3(?!\\w)")
# Matches the control characters that encodings of ISO 8859 have at the bytes 0x80 to 0x9F.
_CONTROLS: Final = re.compile("[\x80-\x9f]")
_WORD: Final = re.compile(r"[\w'\u2019.-]*[^\x00-\x7f][\w'\u2019.-]*")
# Matches a sign between letters, where text has no sign.
_INSIDE: Final = re.compile(r"[^\W\d_][^\w\s'\u2019.-]+[^\W\d_]")
# Matches kana. Japanese text has them. Other text hardly ever has them if it is decoded with a wrong encoding.
_KANA: Final = re.compile("[\u3041-\u30ff]")
_WORDS_COMPARED: Final = 1000
_MOST_SHOWN: Final = 3
_READING_CHARACTERS: Final = 30


@slotted
class Suggestion:
    """An encoding that a text may have, and a part of the text as it reads in that encoding."""

    encoding: str
    reading: str


def suggest_encodings(head: bytes, *, at: int) -> tuple[Suggestion, ...]:
    """Return the encodings in which a text that is not UTF-8 has plausible words, the most plausible first.

    There are at most three. `at` is the offset of the first byte that is not valid UTF-8.
    """
    if wide := guess_utf16(head):
        codec = "utf-16-le" if wide == "UTF16LE" else "utf-16-be"
        return (Suggestion(encoding=wide, reading=_cut(head.decode(codec, "replace"), 0)),)
    # Use whole lines only, because the sample may end within a character.
    whole = head[: head.rfind(b"\n", at) + 1] or head
    found: list[tuple[tuple[bool, bool, float], Suggestion]] = []
    for encoding, codec, letters in _CANDIDATES:
        try:
            text, before = whole.decode(codec), whole[:at].decode(codec)
        except UnicodeDecodeError:
            continue
        if _CONTROLS.search(text):
            # A code page of Windows has letters and signs there.
            continue
        words = list(islice((match[0] for match in _WORD.finditer(text)), _WORDS_COMPARED))
        if _are_plausible(words, letters):
            rank = (
                letters != _LATIN,
                _KANA.search(text) is None,
                0.0 if letters == _LATIN else _share_of_capitals(words),
            )
            found.append((rank, Suggestion(encoding=encoding, reading=_cut(text, len(before)))))
    found.sort(key=lambda each: each[0])
    # If the text reads the same in several encodings, suggest only the first of them.
    by_reading = {each.reading: each for _, each in reversed(found)}
    return tuple(each for _, each in found if by_reading[each.reading] is each)[:_MOST_SHOWN]


def _are_plausible(words: Sequence[str], letters: str) -> bool:
    """Return whether words have letters of one script only, and capitals only at their usual places.

    One word in ten may be an exception.
    """
    allowed = re.compile(f"[\\x00-\\x7f{letters}{_SIGNS}]+")
    good = sum(allowed.fullmatch(word) is not None and _has_form(word, is_latin=letters == _LATIN) for word in words)
    return 10 * good >= 9 * len(words) > 0


def _has_form(word: str, *, is_latin: bool) -> bool:
    letters = list(filter(str.isalpha, word))
    own = sum(letter > "\x7f" for letter in letters)
    # In Latin script, most letters of a word are ASCII, so refuse a word with too many others. In other scripts, no
    # letter is ASCII.
    if own > len(letters) - own + 2 if is_latin else own < len(letters):
        return False
    if _MISPLACED.search(word) or _INSIDE.search(word):
        return False
    parts = re.findall(r"[^\W\d_]+", word)
    return all(part.isupper() or part[1:] == part[1:].lower() for part in parts)


def _share_of_capitals(words: Sequence[str]) -> float:
    letters = [letter for word in words for letter in word if letter.isalpha()]
    has_case = any(letter.islower() or letter.isupper() for letter in letters)
    # Encodings are sorted by this share, so those of a script without capitals come last. A text that is read in a
    # wrong encoding rarely has its capitals only at their usual places.
    return sum(letter.isupper() for letter in letters) / len(letters) if has_case else 1.0


def _cut(text: str, at: int) -> str:
    """Return the part of a line around its character at `at`."""
    start = max(text.rfind("\n", 0, at) + 1, at - _READING_CHARACTERS // 2)
    shown = text[start : start + _READING_CHARACTERS].splitlines()
    return "".join(character for character in shown[0] if character.isprintable()) if shown else ""


# Matches texts that are probably values, not column names: numbers, dates, times, nulls.
_VALUE: Final = re.compile(
    r"[-+]?[$€£]?(?:\d[\d,]*+(?:\.\d*+)?|\.\d++)(?:e[-+]?\d++)?%?"
    r"|[-+]?\d{1,3}(?:[. '\u00a0\u202f\u2019]\d{3})++(?:,\d++)?"
    r"|\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}(?:[T ].*)?|\d{1,2}:\d\d(?::.*)?"
    r"|null|none|nan|\\N|n/a",
    re.IGNORECASE,
)
_BOOLEAN: Final = re.compile(r"t|f|true|false|y|n|yes|no", re.IGNORECASE)
_NULL: Final = re.compile(r"|null|none|nan|\\N|n/a", re.IGNORECASE)
# Matches a text like most column names: one word, or several words joined by _, . or -.
_HEADER_WORD: Final = re.compile(r"[^\W\d][\w.-]*")

# If at most this many lines of a sample are invalid UTF-8, the file is probably UTF-8 with a few bad records.
_FEW_LINES: Final = 3

# "certain": the record is a header. "likely": it is treated as a header, but the load is refused if the columns' names
# would come from it. "possible": it is loaded as data, with a warning. "none": it is data.
HeaderVerdict = Literal["certain", "likely", "possible", "none"]


def judge_header(
    fields: Sequence[str | None],
    rows: Sequence[Sequence[str | None]],
    table_columns: Sequence[str] | None,
    *,
    spelled: Sequence[str | None],
) -> HeaderVerdict:
    """Return whether a file's first record is a header (see HeaderVerdict).

    `fields` are the fields of that record, and `rows` those of up to 100 later records. `spelled` are the fields as
    --names spells names of columns. `table_columns` are the columns of the table, None if it is to be created.

    A field looks like a value if it is a number, a date, a time or a null. The verdict is

    - certain, if at least two fields, or at least half of them, are names of the table's columns;
    - if at least half of the fields are empty: likely, if the table is to be created, two fields or more are filled,
      none of these looks like a value, and most values below one of them do; otherwise none;
    - if a field looks like a value: likely, if a field is a column of the table; possible, if no field is empty
      and a number is above a column of text; otherwise none;
    - certain, if most values of some column are numbers, dates, booleans or nulls, but its first field is not;
    - certain, if one field is a column of the table and no field is empty.

    Otherwise all records consist of words, and `_judge_words` decides. An empty first field above row numbers, as R and
    pandas write it, counts as a name.
    """
    known = 0 if table_columns is None else _count_known((*fields, *spelled), table_columns)
    if known > 1 or (known and 2 * known >= len(fields)):
        return "certain"
    names = [_folded(field or "") for field in fields]
    if len(names) > 1 and not names[0] and _are_row_numbers(rows):
        names[0] = "row number"
    # More than half of the fields must have a name. Some names in a header may be empty, or occur twice.
    named, has_value = sum(map(bool, names)), any(_VALUE.fullmatch(name) for name in names)
    if 2 * named <= len(names):
        # Spreadsheets write name,age,, above records whose last fields are empty, too.
        is_asked = table_columns is None and named > 1 and not has_value and _differs_in_kind(names, rows)
        return "likely" if is_asked else "none"
    if has_value:
        if known:
            return "likely"
        return "possible" if all(names) and _is_number_over_text(names, rows) else "none"
    if _differs_in_kind(names, rows) or (known and all(names)):
        return "certain"
    return _judge_words(fields, names, rows, is_new=table_columns is None)


def _judge_words(
    fields: Sequence[str | None], names: Sequence[str], rows: Sequence[Sequence[str | None]], *, is_new: bool
) -> HeaderVerdict:
    """Return whether a first record of words is a header if the records after it consist of words too.

    `is_new` is true if the table is yet to be created, so that its column names are not known.
    """
    if not all(names) or len(set(names)) < len(names):
        return "none"
    if is_new:
        return "certain" if _differs_in_spelling(fields, rows) else "likely"
    is_possible = all(_HEADER_WORD.fullmatch(name) for name in names) and not _recurs(names, rows)
    return "possible" if is_possible else "none"


def _count_known(fields: Sequence[str | None], table_columns: Sequence[str]) -> int:
    return len({_folded(name) for name in table_columns} & {_folded(field) for field in fields if field is not None})


def _are_row_numbers(rows: Sequence[Sequence[str | None]]) -> bool:
    """Return whether the first fields of the records are 0, 1, 2, ... or 1, 2, 3, ..."""
    numbers = [row[0] if row else None for row in rows]
    return bool(numbers) and any(numbers == [str(start + at) for at in range(len(numbers))] for start in (0, 1))


def are_row_names(rows: Sequence[Sequence[str | None]]) -> bool:
    """Return whether the first field of each record could be a row name that R wrote: none is empty, and all differ."""
    names = [row[0] for row in rows if row]
    return all(names) and 1 < len(names) == len(set(names))


def _is_number_over_text(names: Sequence[str], rows: Sequence[Sequence[str | None]]) -> bool:
    """Return whether some column has a number as its name and only text as its values, such as a year above words."""
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
    """Return whether all values of some column are spelled alike, but not like the column's first field.

    For example, the field is "name", and the values are Alice, Bob and Carol. At least three values are needed.
    """
    for index, field in enumerate(fields):
        values = [row[index] or "" for row in rows if index < len(row)]
        spellings = {_spelling(value) for value in values}
        if len(values) > 2 and len(spellings) == 1 and _spelling(field or "") not in spellings:
            return True
    return False


def _spelling(value: str) -> str:
    """Return a text with each run of digits, capital letters or other letters shortened to 0, A or a.

    >>> _spelling("Alice 42")
    'Aa 0'
    """
    kinds = (("0", r"\d++"), ("a", r"[^\W\d_A-Z]++"), ("A", r"[A-Z]++"))
    for kind, pattern in kinds:
        value = re.sub(pattern, kind, value)
    return value


def _differs_in_kind(names: Sequence[str], rows: Sequence[Sequence[str | None]]) -> bool:
    """Return whether some column's values are mostly numbers, dates, booleans or nulls, but not all of them nulls."""
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
    """Return whether some name is also a value of the same column. If so, the first record is data."""
    return any(_folded(field or "") == name for row in rows for name, field in zip(names, row, strict=False))


def _folded(name: str) -> str:
    return name.strip().casefold()


def check_is_utf8(
    head: bytes,
    *,
    is_whole: bool,
    rejects: bool,
    uri: str,
    locate: Callable[[int], tuple[int, int]],
    convert: Callable[[str], str] | None = None,
) -> None:
    """Raise DataError if a sample is not valid UTF-8. An incomplete character at the end of the sample is no error.

    If `rejects` is true, the load rejects bad records. Then it is also no error if only a few lines are invalid or most
    characters are valid. `locate` returns the line and the column of an offset. `convert` returns the command that
    converts the file from an encoding, for the hint. Without `convert`, the hint names --encoding.
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
        if is_mostly_utf8 and not rejects:
            hint = (
                "The file is UTF8 elsewhere: correct it, or use --encoding=UTF8: then --check reports every such"
                " record, and --on-error reject rejects them."
            )
        else:
            hint = _advise_encoding(suggest_encodings(head, at=exc.start), convert)
            hint = f"{hint[:-1]}, or --encoding=UTF8 to reject every such record." if rejects else hint
        raise DataError(
            f'invalid byte sequence for encoding "UTF8": {show_bytes(head[exc.start : exc.end])}',
            detail=f"{uri} line {line}, column {column}.",
            hint=hint,
            location=FileLocation(file=uri, line=line),
        ) from exc


def _advise_encoding(found: Sequence[Suggestion], convert: Callable[[str], str] | None) -> str:
    """Return a hint to give the encoding, which shows how the file reads in each encoding that it may have."""
    readings = [f'{each.encoding} ("{each.reading}")' for each in found]
    if not readings:
        return "Give the file's encoding with --encoding." if convert is None else "Convert the file to UTF8."
    if convert is not None:
        return f"The file may be {' or '.join(readings)}. {convert(found[0].encoding)}."
    return f"Give the file's encoding, perhaps --encoding={' or --encoding='.join(readings)}."


def _is_mostly_utf8(head: bytes) -> bool:
    """Return whether most characters beyond ASCII are valid UTF-8. Any other encoding would decode these wrongly."""
    beyond = re.sub(r"[\x00-\x7f]+", "", head.decode(errors="replace"))
    return 2 * beyond.count("\ufffd") < len(beyond)


def _count_invalid_lines(head: bytes) -> int:
    return sum("\ufffd" in line.decode(errors="replace") for line in head.split(b"\n"))
