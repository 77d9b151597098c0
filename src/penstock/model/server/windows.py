"""Maintenance and backup windows of RDS, and which of them come soon. Pure.

All times are UTC, as AWS gives them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Literal

from penstock.frozen import frozen
from penstock.units import format_duration

WindowKind = Literal["maintenance", "backup"]
WindowOwner = Literal["instance", "cluster"]

_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_DAY_MINUTES = 24 * 60
_WEEK_MINUTES = 7 * _DAY_MINUTES

_TIME = r"([01]\d|2[0-3]):([0-5]\d)"
_DAY = f"({'|'.join(_DAYS)})"
_WEEKLY = re.compile(f"{_DAY}:{_TIME}-{_DAY}:{_TIME}", re.IGNORECASE)
_DAILY = re.compile(f"{_TIME}-{_TIME}")

# A window that begins within this time is reported.
_NEAR = timedelta(hours=3)


@frozen
class Window:
    """A recurring time: each week for maintenance, each day for backups."""

    kind: WindowKind
    owner: WindowOwner
    # The instance or cluster to which the window belongs.
    identifier: str
    # Minutes after Monday 00:00 UTC (maintenance) or after midnight UTC (backup).
    start_minute: int
    length_minutes: int

    @property
    def period_minutes(self) -> int:
        """Return the minutes from one occurrence to the next."""
        return _WEEK_MINUTES if self.kind == "maintenance" else _DAY_MINUTES

    def __str__(self) -> str:
        ends = (_write_minute(self.start_minute + passed, self.kind) for passed in (0, self.length_minutes))
        return "-".join(ends)


def parse_window(text: str, *, kind: WindowKind, owner: WindowOwner, identifier: str) -> Window:
    """Return the window in AWS's notation "ddd:hh24:mi-ddd:hh24:mi" (maintenance) or "hh24:mi-hh24:mi" (backup).

    A window that ends before it begins wraps around the week or the day. Raises ValueError.
    Source: RDS API Reference, CreateDBInstance.

    >>> str(parse_window("sun:23:45-mon:00:15", kind="maintenance", owner="instance", identifier="orders"))
    'sun:23:45-mon:00:15'
    """
    match = (_WEEKLY if kind == "maintenance" else _DAILY).fullmatch(text.strip())
    if match is None:
        raise ValueError(f'"{text}" is no {kind} window')
    fields = match.groups()
    half = len(fields) // 2
    start, end = _read_minute(fields[:half]), _read_minute(fields[half:])
    period = _WEEK_MINUTES if kind == "maintenance" else _DAY_MINUTES
    return Window(
        kind=kind,
        owner=owner,
        identifier=identifier,
        start_minute=start,
        # If both ends are equal, the window is the whole period.
        length_minutes=(end - start) % period or period,
    )


def describe_near(windows: Sequence[Window], *, now: datetime) -> list[str]:
    """Return a sentence for each window that is running or begins within three hours, ordered by time.

    `now` must have a time zone.
    """
    found = []
    for window in windows:
        begins, ends = _next_coming(window, now.astimezone(UTC))
        name = f"the {window.kind} window of {window.owner} {window.identifier}"
        if begins <= now:
            found.append((begins, f"{name} is running until {ends:%a %H:%M} UTC, for another {_passed(now, ends)}"))
        elif begins <= now + _NEAR:
            found.append((begins, f"{name} begins at {begins:%a %H:%M} UTC, in {_passed(now, begins)}"))
    return [text for _, text in sorted(found)]


def _next_coming(window: Window, now: datetime) -> tuple[datetime, datetime]:
    """Return when the current or next occurrence of a window begins and ends."""
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    origin = midnight - timedelta(days=midnight.weekday()) if window.kind == "maintenance" else midnight
    period = timedelta(minutes=window.period_minutes)
    # Begin with the previous occurrence, which may still be running.
    begins = origin + timedelta(minutes=window.start_minute) - period
    while (ends := begins + timedelta(minutes=window.length_minutes)) <= now:
        begins += period
    return begins, ends


def _passed(start: datetime, end: datetime) -> str:
    return format_duration((end - start).total_seconds())


def _read_minute(fields: Sequence[str]) -> int:
    *day, hour, minute = fields
    days = _DAYS.index(day[0].lower()) if day else 0
    return days * _DAY_MINUTES + int(hour) * 60 + int(minute)


def _write_minute(minute: int, kind: WindowKind) -> str:
    day, of_day = divmod(minute, _DAY_MINUTES)
    time = f"{of_day // 60:02d}:{of_day % 60:02d}"
    return f"{_DAYS[day % 7]}:{time}" if kind == "maintenance" else time
