"""Byte ranges that are committed, and what is missing between them. Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from penstock.model.source.source import Range


class Edges:
    """Splits an object's pieces at the ends of committed ranges, and says which blocks are committed."""

    def __init__(self, ranges: Sequence[Range]) -> None:
        self._starts = [start for start, _ in ranges]
        self._ends = [end for _, end in ranges]
        # Cut one byte after each edge too: if a record ends with a lone carriage return, the next byte shows that.
        self._cuts = sorted({cut for edge in (*self._starts, *self._ends) for cut in (edge, edge + 1)})

    def split(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """Yield the same bytes in pieces that have no edge inside; the first piece must begin at the object's start."""
        offset = 0
        for piece in pieces:
            end = offset + len(piece)
            cuts = self._cuts[bisect_right(self._cuts, offset) : bisect_right(self._cuts, end - 1)]
            if cuts:
                bounds = [0, *(cut - offset for cut in cuts), len(piece)]
                for start, stop in pairwise(bounds):
                    yield piece[start:stop]
            else:
                yield piece
            offset = end

    def contain(self, start: int, end: int) -> bool:
        """Return whether a block is committed.

        >>> Edges([(10, 20)]).contain(12, 20), Edges([(10, 20)]).contain(20, 30)
        (True, False)
        """
        index = bisect_right(self._starts, start) - 1
        return index >= 0 and end <= self._ends[index]

    def lie_within(self, start: int, end: int) -> bool:
        """Return whether a committed range begins or ends inside a block; then the object has changed.

        >>> Edges([(10, 20)]).lie_within(12, 20), Edges([(10, 20)]).lie_within(15, 21)
        (False, True)
        """
        return any(bisect_right(edges, start) < bisect_left(edges, end) for edges in (self._starts, self._ends))
