"""Aligns plain text in columns. Pure."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

from penstock.cli.terminal.visible import visible


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
    """Return a text; if it is too wide, an ellipsis and the text's end, because the end of a path is the file's name.

    >>> shorten_left("data/2024/title.principals.tsv.gz", 20)
    '…e.principals.tsv.gz'
    """
    return shorten_right(text[::-1], width)[::-1]


def shorten_right(text: str, width: int) -> str:
    """Return a text; if it is too wide, its beginning and an ellipsis.

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
