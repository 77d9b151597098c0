"""Maintenance and backup windows of RDS: when they come next, what meets them, how they are moved. Pure.

All times are UTC, as AWS has them.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Sequence

WindowKind = Literal["maintenance", "backup"]
WindowOwner = Literal["instance", "cluster"]

_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_DAY_MINUTES = 24 * 60
_WEEK_MINUTES = 7 * _DAY_MINUTES

_TIME = r"([01]\d|2[0-3]):([0-5]\d)"
_DAY = f"({'|'.join(_DAYS)})"
_WEEKLY = re.compile(f"{_DAY}:{_TIME}-{_DAY}:{_TIME}", re.IGNORECASE)
_DAILY = re.compile(f"{_TIME}-{_TIME}")

# A window that is moved begins at a full half hour, so that people can read it.
_STEP_MINUTES = 30

_OPTIONS: dict[WindowKind, str] = {
    "maintenance": "--preferred-maintenance-window",
    "backup": "--preferred-backup-window",
}
_COMMANDS: dict[WindowOwner, tuple[str, str]] = {
    "instance": ("modify-db-instance", "--db-instance-identifier"),
    "cluster": ("modify-db-cluster", "--db-cluster-identifier"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A time that comes again: each week for maintenance, each day for backups.

    It begins `start_minute` minutes after Monday 00:00 UTC (maintenance) or after midnight UTC (backup). `identifier`
    names the instance or the cluster that it belongs to.
    """

    kind: WindowKind
    owner: WindowOwner
    identifier: str
    start_minute: int
    length_minutes: int

    @property
    def period_minutes(self) -> int:
        """Return after how many minutes it comes again."""
        return _WEEK_MINUTES if self.kind == "maintenance" else _DAY_MINUTES

    def __str__(self) -> str:
        ends = (_write_minute(self.start_minute + passed, self.kind) for passed in (0, self.length_minutes))
        return "-".join(ends)


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """The first coming of a window that what was asked about meets, in UTC."""

    window: Window
    starts_at: datetime
    ends_at: datetime

    def __str__(self) -> str:
        start, end = f"{self.starts_at:%a %Y-%m-%d %H:%M}", f"{self.ends_at:%a %Y-%m-%d %H:%M}"
        if self.starts_at.date() == self.ends_at.date():
            end = f"{self.ends_at:%H:%M}"
        return f"{self.window.kind} window of {self.window.owner} {self.window.identifier}: {start} to {end} UTC"


def parse_window(text: str, *, kind: WindowKind, owner: WindowOwner, identifier: str) -> Window:
    """Return the window that AWS writes "ddd:hh24:mi-ddd:hh24:mi" (maintenance) or "hh24:mi-hh24:mi" (backup).

    One that ends before it begins wraps around the week or the day. Raises ValueError.
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
        # From a minute to itself is the whole period.
        length_minutes=(end - start) % period or period,
    )


def find_overlaps(windows: Sequence[Window], *, start: datetime, duration: timedelta) -> tuple[Overlap, ...]:
    """Return, in the order of time, the windows that something lasting from `start` for `duration` would meet.

    Both are half-open: what ends when a window begins does not meet it. `start` carries its time zone. Of each window
    the first coming that is met counts.
    """
    assert start.tzinfo is not None
    end = start + duration
    coming = [_next_coming(window, start.astimezone(UTC)) for window in windows]
    met = [overlap for overlap in coming if overlap.starts_at < end and start < end]
    return tuple(sorted(met, key=lambda overlap: overlap.starts_at))


def _next_coming(window: Window, start: datetime) -> Overlap:
    """Return the first coming of a window that has not ended at `start`."""
    midnight = start.replace(hour=0, minute=0, second=0, microsecond=0)
    origin = midnight - timedelta(days=midnight.weekday()) if window.kind == "maintenance" else midnight
    # The one that began a period ago may last.
    for periods in (-1, 0, 1):
        begins = origin + timedelta(minutes=window.start_minute + periods * window.period_minutes)
        ends = begins + timedelta(minutes=window.length_minutes)
        if ends > start:
            break
    return Overlap(window=window, starts_at=begins, ends_at=ends)


def choose_other_time(
    window: Window, others: Sequence[Window], *, start: datetime, duration: timedelta
) -> Window | None:
    """Return where a window could be moved so that it meets neither a job nor other windows; None if nowhere.

    Maintenance keeps its time of day, which somebody chose, if on another day of the week; failing that, and for
    backups, the first half hour after the job that is free. `others` are the other windows of its owner: AWS refuses
    maintenance and backup at the same time. A window that includes the present could start pending maintenance at
    once; the job begins now, so none that is returned does.
    """
    for minute in _other_minutes(window, end=start.astimezone(UTC) + duration):
        moved = Window(
            kind=window.kind,
            owner=window.owner,
            identifier=window.identifier,
            start_minute=minute % window.period_minutes,
            length_minutes=window.length_minutes,
        )
        if not find_overlaps([moved], start=start, duration=duration) and not any(
            _conflict(moved, other) for other in others
        ):
            return moved
    return None


def _other_minutes(window: Window, *, end: datetime) -> list[int]:
    """Return where to try a window, the best first, in minutes of its period (to be taken modulo)."""
    days = [window.start_minute + day * _DAY_MINUTES for day in range(1, 7)] if window.kind == "maintenance" else []
    weekday = end.weekday() if window.kind == "maintenance" else 0
    after = weekday * _DAY_MINUTES + end.hour * 60 + end.minute
    first = -(-(after + 1) // _STEP_MINUTES) * _STEP_MINUTES
    return days + [first + passed for passed in range(0, window.period_minutes, _STEP_MINUTES)]


def _conflict(one: Window, other: Window) -> bool:
    """Whether two windows ever meet."""
    # A daily window meets a weekly one if it does on some day.
    step = min(one.period_minutes, other.period_minutes)
    distance = (other.start_minute - one.start_minute) % step
    return distance < one.length_minutes or (step - distance) % step < other.length_minutes


def propose_move(
    window: Window,
    windows: Sequence[Window],
    *,
    start: datetime,
    duration: timedelta,
    region: str,
    profile: str | None = None,
) -> str | None:
    """Return the AWS command that moves a window out of a job's way; None where there is no such time.

    `windows` are all that the server has; times are chosen as by `choose_other_time`.
    """
    moved = choose_other_time(window, [one for one in windows if one != window], start=start, duration=duration)
    return None if moved is None else compose_move_command(moved, region=region, profile=profile)


def compose_move_command(window: Window, *, region: str, profile: str | None = None) -> str:
    """Return the AWS command, quoted for a shell, that gives its owner this window in place of the one of its kind."""
    command, option = _COMMANDS[window.owner]
    words = ["aws", "rds", command, option, window.identifier, _OPTIONS[window.kind], str(window), "--region", region]
    return shlex.join(words + (["--profile", profile] if profile else []))


def _read_minute(fields: Sequence[str]) -> int:
    *day, hour, minute = fields
    days = _DAYS.index(day[0].lower()) if day else 0
    return days * _DAY_MINUTES + int(hour) * 60 + int(minute)


def _write_minute(minute: int, kind: WindowKind) -> str:
    day, of_day = divmod(minute, _DAY_MINUTES)
    time = f"{of_day // 60:02d}:{of_day % 60:02d}"
    return f"{_DAYS[day % 7]}:{time}" if kind == "maintenance" else time
