"""Adds up a counter of a statistics view that may be reset in between."""

from __future__ import annotations


class Increase:
    """The increase of a counter since its first reading. After a reset, the counter counts from 0 again."""

    def __init__(self) -> None:
        self.total = 0
        self._before: int | None = None

    def see(self, value: object) -> None:
        """Take a reading; anything but an integer is ignored."""
        if isinstance(value, int):
            if self._before is not None:
                self.total += value - self._before if value >= self._before else value
            self._before = value
