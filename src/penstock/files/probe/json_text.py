"""Recognizes JSON by its first records, and refuses documents: they could be read as delimited text, but are not."""

from __future__ import annotations

import json
from contextlib import suppress
from itertools import islice
from typing import Final

from penstock.errors import SourceError

_LINES_LOOKED_AT: Final = 5


def check_is_not_json(head: bytes, *, is_whole: bool, uri: str) -> None:
    """Raise SourceError if a sample begins a JSON document; `is_whole`: it is the whole file."""
    kind = name_json(head, is_whole=is_whole)
    if kind is not None:
        convert = "jq -c ." if kind == "a JSON object" else "jq -c '.[]'"
        raise SourceError(
            f'"{uri}" is {kind}, not delimited text',
            hint=f"Convert it to JSON Lines, one record on each line: {convert} FILE > FILE.jsonl",
        )


def name_json(head: bytes, *, is_whole: bool) -> str | None:
    """Return what a sample is if it begins a JSON document or JSON Lines, else None.

    An array of numbers is accepted as a range or vector of PostgreSQL, and {} as an empty array.
    """
    text = head.lstrip()
    if text[:1] not in (b"{", b"["):
        return None
    return _name_lines(text, is_whole=is_whole) or _name_document(text.decode(errors="replace"), is_whole=is_whole)


def _name_lines(text: bytes, *, is_whole: bool) -> str | None:
    """Return "JSON Lines" if half of the first lines, or more, are JSON objects, else None; the others may be bad."""
    lines = text.splitlines() if is_whole else text.splitlines()[:-1]
    first = list(islice((line for line in lines if line.strip()), _LINES_LOOKED_AT))
    objects = []
    for line in first:
        with suppress(ValueError):
            value = json.loads(line)
            objects += [value] if isinstance(value, dict) else []
    return "JSON Lines" if any(objects) and 2 * len(objects) >= len(first) else None


def _name_document(text: str, *, is_whole: bool) -> str | None:
    """Return the kind of a JSON document over several lines, or None if it is not one."""
    if is_whole:
        try:
            value = json.loads(text)
        except ValueError:
            return None
        name = "a JSON object" if isinstance(value, dict) else "a JSON array"
        return name if value and (isinstance(value, dict) or not isinstance(value[0], int | float)) else None
    return "a JSON array" if text[0] == "[" and _is_array_cut_short(text) else None


def _is_array_cut_short(text: str) -> bool:
    """Return whether an array continues to the end of the sample. An array that ends earlier is a field of a record."""
    decode, at = json.JSONDecoder().raw_decode, 0
    first: object = None
    while at < len(text):
        # `at` is the position of a bracket or a comma.
        try:
            value, end = decode(text, _skip_blanks(text, at + 1))
        except ValueError:
            break
        first = value if at == 0 else first
        at = _skip_blanks(text, end)
        if text[at : at + 1] not in (",", ""):
            return False
    return isinstance(first, dict | list | str)


def _skip_blanks(text: str, at: int) -> int:
    while text[at : at + 1].isspace():
        at += 1
    return at
