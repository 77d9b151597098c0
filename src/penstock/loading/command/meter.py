"""Computes a load's rates and the time left from its progress. Pure: the progress includes the time.

The time left is computed from the stored bytes of the sources, because the number of rows is not known in advance.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from penstock.core.slotted import slotted
from penstock.core.units import count_nouns, format_count, format_duration

if TYPE_CHECKING:
    from penstock.loading.values.outcome import LoadProgress

# Rates are averages over this time. It is long enough to smooth a checkpoint, and short enough to follow a change of
# pace.
_WINDOW_S = 20.0


@slotted
class LoadRates:
    """A load's rates in bytes per second over the last 20 seconds, and how far the load is."""

    read_rate: float
    sent_rate: float
    # The part of the sources that has been read, from 0 to 1, None if their size is not known.
    fraction: float | None
    # The time left, None if it is not known.
    left_s: float | None


class Meter:
    """Computes a load's rates from its progress in the last 20 seconds, and the time left from the rate of reading."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, int, int]] = deque([(0.0, 0, 0)])

    def read(self, progress: LoadProgress) -> LoadRates:
        """Note a load's present progress, and return the rates. Time before the first byte is read does not count."""
        if not progress.bytes_read:
            self._samples.clear()
        self._samples.append((progress.elapsed_s, progress.bytes_read, progress.bytes_copied))
        while len(self._samples) > 2 and self._samples[0][0] < progress.elapsed_s - _WINDOW_S:
            self._samples.popleft()
        began_s, read_before, sent_before = self._samples[0]
        passed_s = progress.elapsed_s - began_s
        read_rate = (progress.bytes_read - read_before) / passed_s if passed_s > 0 else 0.0
        sent_rate = (progress.bytes_copied - sent_before) / passed_s if passed_s > 0 else 0.0
        return LoadRates(
            read_rate=read_rate,
            sent_rate=sent_rate,
            fraction=_fraction(progress.bytes_read, progress.size_bytes),
            left_s=_left_s(progress.bytes_read, progress.size_bytes, rate=read_rate),
        )


def is_all_sent(progress: LoadProgress) -> bool:
    """Return whether all rows are sent, so that only commits and steps after the last row remain."""
    return len(progress.files) == progress.file_count and all(file.is_done for file in progress.files)


def format_rows(count: int, progress: LoadProgress) -> str:
    """Return a number of rows in words: "N rows", or "N records staged" if no rows were made of them yet."""
    return f"{format_count(count)} {'records staged' if progress.is_staged else 'rows'}"


def format_left(left_s: float | None) -> str:
    """Return the time left in whole seconds, or an empty text if it is not known.

    >>> format_left(7.6), format_left(125), format_left(None)
    ('8 s left', '2 min 05 s left', '')
    """
    if left_s is None:
        return ""
    return f"{left_s:.0f} s left" if left_s < 60 else f"{format_duration(left_s)} left"


def format_rebuilds(progress: LoadProgress) -> str:
    """Return in words how many indexes and keys are rebuilt after the last row; an empty text if none are.

    The time left does not include rebuilds, because their time is not known.
    """
    return f"then {count_nouns(progress.to_rebuild, 'rebuild')}" if progress.to_rebuild else ""


def format_sessions(progress: LoadProgress) -> str:
    """Return the number of sessions that send rows, with its noun, such as "4 sessions"."""
    return count_nouns(progress.sessions, "session")


def format_percent(fraction: float | None) -> str:
    """Return a fraction from 0 to 1 in whole per cent, rounded down, or an empty text for None.

    >>> format_percent(0.999)
    '99 %'
    """
    return "" if fraction is None else f"{int(fraction * 100)} %"


def _fraction(done_bytes: int, size_bytes: int | None) -> float | None:
    if size_bytes is None:
        return None
    return min(1.0, done_bytes / size_bytes) if size_bytes else 1.0


def _left_s(done_bytes: int, size_bytes: int | None, *, rate: float) -> float | None:
    if size_bytes is None or rate <= 0:
        return None
    return max(0, size_bytes - done_bytes) / rate
