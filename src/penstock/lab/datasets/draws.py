"""Draws seeded random numbers in bulk, in tens of nanoseconds each. Values are drawn by weight from pools."""

from __future__ import annotations

import random
import sys
from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeVar

T = TypeVar("T")

# The number of values of a 16-bit draw, so that a draw is the index into a pool without further arithmetic.
POOL_SIZE: Final = 1 << 16
# The titles in a batch. They make about 1 MB of principals, so joins and writes are long and memory stays small.
BATCH_TITLES: Final = 2048


class Draws:
    """One table's random numbers. The same `seed` and `name` give the same numbers, whatever else is drawn."""

    def __init__(self, seed: int, name: str) -> None:
        self.random = random.Random(f"{seed}/{name}")

    def picks(self, count: int) -> array[int]:
        """Return `count` uniform draws from 0 to POOL_SIZE - 1."""
        return self._words("H", count)

    def floats(self, count: int) -> list[float]:
        """Return `count` uniform draws from 0 up to, but not including, 1."""
        return [word / 2**32 for word in self._words("I", count)]

    def skewed(self, count: int, limit: int) -> list[int]:
        """Return `count` draws from 1 to `limit`. The weight of n is about n ** (-2 / 3)."""
        return [1 + (word * word * word * limit >> 96) for word in self._words("I", count)]

    def pool(self, weights: Mapping[T, float]) -> list[T]:
        """Return a pool in which each value occurs in proportion to its weight."""
        return self.random.choices(list(weights), list(weights.values()), k=POOL_SIZE)

    def _words(self, typecode: str, count: int) -> array[int]:
        words = array(typecode)
        words.frombytes(self.random.randbytes(count * words.itemsize))
        if sys.byteorder == "big":
            words.byteswap()
        return words


def batched_groups(sizes: Sequence[int], *, titles: int, rows: int) -> Iterator[tuple[int, list[int]]]:
    """Yield groups of titles, as the first title and the row count of each title, until the counts sum to `rows`.

    The counts repeat `sizes`. Later titles have no rows. If the titles end first, the last title gets the remaining
    rows.
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
    """Return `sizes` cut off, or with a larger last one, so that they sum to `total`."""
    fitted = []
    left = total
    for size in sizes:
        fitted.append(min(size, left))
        left -= fitted[-1]
    fitted[-1] += left
    return fitted
