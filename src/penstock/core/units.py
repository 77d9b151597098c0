"""Formats bytes, rows, seconds and rates for people (MB = 10^6 bytes, MiB = 2^20)."""

from __future__ import annotations

KIB = 1024
MIB = 1024 * 1024
GIB = 1024 * 1024 * 1024
MB = 1_000_000
GB = 1_000_000_000


def format_bytes(length_bytes: float) -> str:
    """Return a size in decimal units with about three digits: 936 B, 93.4 MB, 1.20 GB."""
    for limit, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if length_bytes >= limit:
            value = length_bytes / limit
            return (
                f"{value:.2f} {unit}" if value < 10 else f"{value:.1f} {unit}" if value < 100 else f"{value:.0f} {unit}"
            )
    return f"{length_bytes:.0f} B"


def format_count(count: int) -> str:
    """Return a whole number with commas between its thousands: 10,000,000."""
    return f"{count:,}"


def count_nouns(count: int, one: str, many: str | None = None) -> str:
    """Return a count with its noun. `many` is the plural if it is not formed with s.

    >>> count_nouns(1, "row"), count_nouns(2_000, "row"), count_nouns(2, "process", "processes")
    ('1 row', '2,000 rows', '2 processes')
    """
    return f"{count:,} {one if count == 1 else many or f'{one}s'}"


def format_duration(seconds: float) -> str:
    """Return a duration as 0.42 s, 12.3 s, 3 min 05 s or 2 h 03 min."""
    if seconds < 10:
        return f"{seconds:.2f} s"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest_s = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest_s:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min"
