"""Suggests the encoding of text that is not UTF-8, by what its words would be in it. Pure.

A suggestion always comes with how the text reads then: bytes alone do not prove an encoding.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import islice
from typing import Final

from penstock.files.encodings import guess_utf16
from penstock.frozen import frozen

_LATIN: Final = "\u00aa\u00b0\u00ba\u00c0-\u024f\u1e00-\u1eff"
_CYRILLIC: Final = "\u0400-\u04ff"
# The encodings that are tried, the most frequent first, with Python's codecs, and the letters that texts in them have
# besides those of ASCII
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
# Other characters that text of any script may have
_SIGNS: Final = (
    "\u00a0\u00a7\u00ab\u00b4\u00b7\u00bb\u2010-\u2044\u20ac\u2116\u2122\u3000-\u3003\u300c-\u3011\uff01-\uff0f"
)
# Letters that stand only at the end of a word, and the sigma that does not: other bytes would be there by chance.
_MISPLACED: Final = re.compile("[\u03c2\u05da\u05dd\u05df\u05e3\u05e5](?=\\w)|\\w\u03c3(?!\\w)")
_WORD: Final = re.compile(r"[\w'\u2019.-]*[^\x00-\x7f][\w'\u2019.-]*")
# A sign between letters, where no sign stands
_INSIDE: Final = re.compile(r"[^\W\d_][^\w\s'\u2019.-]+[^\W\d_]")
# Kana: Japanese text has them, and text in other encodings hardly ever by chance.
_KANA: Final = re.compile("[\u3041-\u30ff]")
_WORDS_COMPARED: Final = 1000
_MOST_SHOWN: Final = 3
_READING_CHARACTERS: Final = 30


@frozen
class Suggestion:
    """An encoding that a text may have, and how a part of the text reads in it."""

    encoding: str
    reading: str


def suggest_encodings(head: bytes, *, at: int) -> tuple[Suggestion, ...]:
    """Return the encodings in which a text that is not UTF-8 has plausible words, the most plausible first.

    The byte at `at` is the first one that is not valid UTF-8.
    """
    if wide := guess_utf16(head):
        codec = "utf-16-le" if wide == "UTF16LE" else "utf-16-be"
        return (Suggestion(encoding=wide, reading=_cut(head.decode(codec, "replace"), 0)),)
    # What the sample cuts off may be half of a character.
    whole = head[: head.rfind(b"\n", at) + 1] or head
    found: list[tuple[tuple[bool, bool, float], Suggestion]] = []
    for encoding, codec, letters in _CANDIDATES:
        try:
            text, before = whole.decode(codec), whole[:at].decode(codec)
        except UnicodeDecodeError:
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
    # Encodings in which the text reads alike are one suggestion.
    by_reading = {each.reading: each for _, each in reversed(found)}
    return tuple(each for _, each in found if by_reading[each.reading] is each)[:_MOST_SHOWN]


def _are_plausible(words: Sequence[str], letters: str) -> bool:
    """Return whether words have letters of one script only, and capitals as words have them.

    One word in ten may be otherwise.
    """
    allowed = re.compile(f"[\\x00-\\x7f{letters}{_SIGNS}]+")
    good = sum(allowed.fullmatch(word) is not None and _has_form(word, is_latin=letters == _LATIN) for word in words)
    return 10 * good >= 9 * len(words) > 0


def _has_form(word: str, *, is_latin: bool) -> bool:
    letters = list(filter(str.isalpha, word))
    own = sum(letter > "\x7f" for letter in letters)
    # Most letters of a language in Latin script are ASCII; words of other scripts have none of these.
    if own > len(letters) - own + 2 if is_latin else own < len(letters):
        return False
    if _MISPLACED.search(word) or _INSIDE.search(word):
        return False
    parts = re.findall(r"[^\W\d_]+", word)
    return all(part.isupper() or part[1:] == part[1:].lower() for part in parts)


def _share_of_capitals(words: Sequence[str]) -> float:
    letters = [letter for word in words for letter in word if letter.isalpha()]
    has_case = any(letter.islower() or letter.isupper() for letter in letters)
    # Scripts without capitals come last: by chance, words seldom have capitals where words have them.
    return sum(letter.isupper() for letter in letters) / len(letters) if has_case else 1.0


def _cut(text: str, at: int) -> str:
    """Return the part of a line around its character at `at`."""
    start = max(text.rfind("\n", 0, at) + 1, at - _READING_CHARACTERS // 2)
    shown = text[start : start + _READING_CHARACTERS].splitlines()
    return "".join(character for character in shown[0] if character.isprintable()) if shown else ""
