"""Seeded randomness at tens of nanoseconds a draw: many numbers at once, and pools that carry the weights."""

from __future__ import annotations

import random
import sys
from array import array
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

T = TypeVar("T")

# A pool is indexed by a 16-bit draw without further arithmetic.
POOL_SIZE: Final = 1 << 16
# Titles per batch: about 1 MB of principals, so that joins and writes are long and memory stays small.
BATCH_TITLES: Final = 2048


class Draws:
    """One table's random numbers; the same `seed` and `name` give the same numbers whatever else is drawn."""

    def __init__(self, seed: int, name: str) -> None:
        self.random = random.Random(f"{seed}/{name}")

    def picks(self, count: int) -> array[int]:
        """Return `count` even draws below POOL_SIZE."""
        return self._words("H", count)

    def floats(self, count: int) -> list[float]:
        """Return `count` even draws from 0 up to, and not including, 1."""
        return [word / 2**32 for word in self._words("I", count)]

    def skewed(self, count: int, limit: int) -> list[int]:
        """Return `count` draws of 1 to `limit` of which n weighs about n ** (-2 / 3)."""
        return [1 + (word * word * word * limit >> 96) for word in self._words("I", count)]

    def pool(self, weights: Mapping[T, float]) -> list[T]:
        """Return a pool in which each value has its weight's share."""
        return self.random.choices(list(weights), list(weights.values()), k=POOL_SIZE)

    def _words(self, typecode: str, count: int) -> array[int]:
        words = array(typecode)
        words.frombytes(self.random.randbytes(count * words.itemsize))
        if sys.byteorder == "big":
            words.byteswap()
        return words


def batched_groups(sizes: Sequence[int], *, titles: int, rows: int) -> Iterator[tuple[int, list[int]]]:
    """Yield (first title, rows of each title from there on), repeating `sizes`, until `rows` are given out.

    Titles past that point have none; should the titles end first, the last one takes what is left.
    """
    left = rows
    for first in range(0, titles, BATCH_TITLES):
        until = min(first + BATCH_TITLES, titles)
        batch = [sizes[title % len(sizes)] for title in range(first, until)]
        if sum(batch) >= left or until == titles:
            yield first + 1, _fit(batch, left)
            return
        left -= sum(batch)
        yield first + 1, batch


def _fit(sizes: list[int], total: int) -> list[int]:
    """Return the sizes cut, or the last one stretched, so that they sum to `total`."""
    fitted = []
    left = total
    for size in sizes:
        fitted.append(min(size, left))
        left -= fitted[-1]
    fitted[-1] += left
    return fitted
