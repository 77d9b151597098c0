"""Windows against a model that counts minutes: a week is 10,080 of them, and each is in a window or not."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

from hypothesis import given
from hypothesis import strategies as st

from penstock.model.windows import Window, choose_other_time, find_overlaps, parse_window

DAY = 24 * 60
WEEK = 7 * DAY
# A Monday.
ORIGIN = datetime(2026, 11, 16, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def windows(kind: str) -> st.SearchStrategy[Window]:
    """Return windows of at least half an hour, as AWS has them; many wrap."""
    period = WEEK if kind == "maintenance" else DAY
    return st.builds(
        Window,
        kind=st.just(kind),
        owner=st.just("instance"),
        identifier=st.just("orders"),
        start_minute=st.integers(0, period - 1),
        length_minutes=st.one_of(st.integers(30, 120), st.integers(30, period)),
    )


any_window = st.one_of(windows("maintenance"), windows("backup"))
# To the second, so that jobs begin and end within minutes too; up to nine days.
starts = st.integers(0, 2 * WEEK * 60).map(lambda seconds: ORIGIN + timedelta(seconds=seconds))
durations = st.one_of(st.integers(0, 6 * 3600), st.integers(0, 9 * DAY * 60)).map(lambda s: timedelta(seconds=s))


@st.composite
def jobs_at_edges(draw: st.DrawFn) -> tuple[Window, datetime, timedelta]:
    """Return a window and what begins or ends within two seconds of where it does."""
    window = draw(any_window)
    minute = window.start_minute + draw(st.sampled_from([0, window.length_minutes]))
    edge = ORIGIN + timedelta(minutes=minute, seconds=draw(st.integers(-2, 2)))
    duration = draw(durations)
    return window, draw(st.sampled_from([edge, edge - duration])), duration


jobs = st.one_of(jobs_at_edges(), st.tuples(any_window, starts, durations))


def covers(window: Window, minute: int) -> bool:
    """Whether a minute after ORIGIN is in a window."""
    return (minute - window.start_minute) % window.period_minutes < window.length_minutes


def first_minute_met(window: Window, start: datetime, duration: timedelta) -> int | None:
    """Return the first minute of a window that something meets, by looking at all of them."""
    if not duration:
        return None
    first = (start - ORIGIN) // MINUTE
    end = -(-(start + duration - ORIGIN) // MINUTE)
    return next((minute for minute in range(first, min(end, first + WEEK)) if covers(window, minute)), None)


@given(jobs)
def test_overlaps_are_those_of_the_minutes(job: tuple[Window, datetime, timedelta]) -> None:
    """The first coming that is met holds the first minute that is met, and is one coming of the window."""
    window, start, duration = job
    met = first_minute_met(window, start, duration)
    found = find_overlaps([window], start=start, duration=duration)
    assert len(found) == (0 if met is None else 1)
    for overlap in found:
        assert met is not None
        assert overlap.starts_at <= ORIGIN + met * MINUTE < overlap.ends_at
        assert overlap.ends_at - overlap.starts_at == window.length_minutes * MINUTE
        assert ((overlap.starts_at - ORIGIN) // MINUTE - window.start_minute) % window.period_minutes == 0


@given(any_window, starts, durations, st.integers(-23, 23))
def test_time_zone_of_the_clock_makes_no_difference(
    window: Window, start: datetime, duration: timedelta, offset_h: int
) -> None:
    """A clock may be anywhere."""
    elsewhere = start.astimezone(timezone(timedelta(hours=offset_h)))
    assert find_overlaps([window], start=elsewhere, duration=duration) == find_overlaps(
        [window], start=start, duration=duration
    )


@given(any_window)
def test_what_is_written_is_read_again(window: Window) -> None:
    """The text that AWS takes means the same window, wherever it wraps."""
    again = parse_window(str(window), kind=window.kind, owner=window.owner, identifier=window.identifier)
    assert again == window


@given(any_window, st.lists(any_window, max_size=2), starts, durations)
def test_other_time_meets_neither_job_nor_windows(
    window: Window, others: list[Window], start: datetime, duration: timedelta
) -> None:
    """It is as long as before, and free in every minute of a week."""
    moved = choose_other_time(window, others, start=start, duration=duration)
    if moved is None:
        return
    assert moved.length_minutes == window.length_minutes
    assert find_overlaps([moved], start=start, duration=duration) == ()
    assert not any(covers(moved, minute) and covers(other, minute) for other in others for minute in range(WEEK))


@given(st.integers(0, WEEK - 1), starts, st.integers(1, 12 * 3600))
def test_short_jobs_always_leave_another_time(start_minute: int, start: datetime, duration_s: int) -> None:
    """Half an hour on another day, at the same time of day, where a backup does not stand in the way."""
    window = Window(
        kind="maintenance", owner="instance", identifier="orders", start_minute=start_minute, length_minutes=30
    )
    moved = choose_other_time(window, [], start=start, duration=timedelta(seconds=duration_s))
    assert moved is not None
    assert moved.start_minute % DAY == start_minute % DAY
