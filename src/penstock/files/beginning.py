"""Removes the lines before a file's header or first record: lines to skip, and a line such as sep=; for Excel."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain, islice
from typing import Final

from penstock.errors import SourceError
from penstock.model.source.dialect import DialectOptions
from penstock.units import MIB

# The lines to skip are held in memory until the last of them is found, so their size is limited.
_SKIPPED_BYTES: Final = 16 * MIB
_SEPARATOR: Final = re.compile(rb"sep=([,;|\t:])(?:\r\n|\n|\r)", re.IGNORECASE)
_SEPARATOR_BYTES: Final = len(b"sep=;\r\n")


def skip_beginning(
    text: Iterator[bytes], options: DialectOptions, *, uri: str
) -> tuple[Iterator[bytes], str | None, int]:
    """Remove the lines to skip, and a following line such as sep=; if the options allow one.

    Return the remaining text, the separator that the sep= line names (None without such a line), and the number of
    lines removed.
    """
    if lines := options.skip_lines:
        text = _skip_lines(text, lines, uri=uri)
    if not options.may_name_separator:
        return text, None, lines
    head = take(text, _SEPARATOR_BYTES)
    if (named := _SEPARATOR.match(head)) is None:
        return chain((head,), text) if head else text, None, lines
    rest = head[named.end() :]
    return chain((rest,), text) if rest else text, named[1].decode(), lines + 1


def _skip_lines(text: Iterator[bytes], lines: int, *, uri: str) -> Iterator[bytes]:
    taken = bytearray()
    for piece in text:
        taken += piece
        # A carriage return at the end may be the first half of a CRLF line end.
        ends = list(islice(re.finditer(rb"\r\n|\n|\r(?!\Z)", taken), lines))
        if len(ends) == lines:
            return chain((bytes(taken[ends[-1].end() :]),), text)
        if len(taken) > _SKIPPED_BYTES:
            raise SourceError(
                "the lines to skip do not end", detail=f"{uri}: {lines} lines.", hint="Check --skip-lines."
            )
    # The last line of the file may have no line end.
    if taken and (found := len(taken.splitlines())) < lines:
        raise SourceError(
            "file has fewer lines than are to be skipped",
            detail=f"{uri}: {found} of {lines} lines.",
            hint="Check --skip-lines.",
        )
    return iter(())


def take(pieces: Iterator[bytes], least_bytes: int) -> bytes:
    """Take the first pieces, until they have `least_bytes` or there are no more, and return them as one."""
    head = b""
    while len(head) < least_bytes and (piece := next(pieces, None)) is not None:
        head += piece
    return head
