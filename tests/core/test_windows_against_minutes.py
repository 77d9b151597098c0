"""Windows against a model that counts minutes: a week is 10,080 of them, and each is in a window or not."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

from hypothesis import given
from hypothesis import strategies as st

from penstock.rds.values import Window, describe_near, parse_window

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
# To the second, so that loads begin within minutes too.
starts = st.integers(0, 2 * WEEK * 60).map(lambda seconds: ORIGIN + timedelta(seconds=seconds))


@st.composite
def edges(draw: st.DrawFn) -> tuple[Window, datetime]:
    """Return a window and a time within two seconds of where it begins or ends, or of three hours before."""
    window = draw(any_window)
    minute = window.start_minute + draw(st.sampled_from([0, window.length_minutes, -180]))
    return window, ORIGIN + timedelta(days=1, minutes=minute, seconds=draw(st.integers(-2, 2)))


moments = st.one_of(edges(), st.tuples(any_window, starts))


def covers(window: Window, minute: int) -> bool:
    """Whether a minute after ORIGIN is in a window."""
    return (minute - window.start_minute) % window.period_minutes < window.length_minutes


@given(moments, st.integers(-23, 23))
def test_near_windows_are_those_of_the_minutes(moment: tuple[Window, datetime], offset_h: int) -> None:
    """A window is reported exactly if it is running or one of its minutes begins within three hours, in any zone."""
    window, now = moment
    first = (now - ORIGIN) // MINUTE
    is_running = covers(window, first)
    last = (now + timedelta(hours=3) - ORIGIN) // MINUTE
    is_near = is_running or any(covers(window, minute) for minute in range(first + 1, last + 1))
    found = describe_near([window], now=now.astimezone(timezone(timedelta(hours=offset_h))))
    assert len(found) == is_near
    assert all(("is running" in text) is is_running for text in found)


@given(any_window)
def test_what_is_written_is_read_again(window: Window) -> None:
    """The text that AWS takes means the same window, wherever it wraps."""
    again = parse_window(str(window), kind=window.kind, owner=window.owner, identifier=window.identifier)
    assert again == window
