"""Windows as AWS writes them, and which are near."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from penstock.rds.values import Window, describe_near, parse_window

# A Sunday, half an hour before midnight.
LATE_SUNDAY = datetime(2026, 11, 22, 23, 30, tzinfo=UTC)


def weekly(text: str) -> Window:
    return parse_window(text, kind="maintenance", owner="instance", identifier="orders")


def daily(text: str) -> Window:
    return parse_window(text, kind="backup", owner="instance", identifier="orders")


def test_windows_that_begin_within_three_hours_are_told_in_the_order_of_time() -> None:
    """With their time and how long until it; later ones are not."""
    found = [weekly("mon:02:30-mon:03:00"), daily("00:45-01:15"), weekly("mon:02:31-mon:03:00")]
    assert describe_near(found, now=LATE_SUNDAY) == [
        "the backup window of instance orders begins at Mon 00:45 UTC, in 1 h 15 min",
        "the maintenance window of instance orders begins at Mon 02:30 UTC, in 3 h 00 min",
    ]


def test_window_that_is_running_tells_its_end() -> None:
    """Also where it wraps from Sunday to Monday; one that just ended does not count."""
    assert describe_near([weekly("sun:23:20-mon:00:15"), weekly("sun:22:30-sun:23:30")], now=LATE_SUNDAY) == [
        "the maintenance window of instance orders is running until Mon 00:15 UTC, for another 45 min 00 s"
    ]


@pytest.mark.parametrize("text", ["", "sun:02:00", "sun:24:00-mon:00:30", "so:02:00-so:03:00", "02:00-02:30"])
def test_other_text_is_no_maintenance_window(text: str) -> None:
    """Nothing is guessed."""
    with pytest.raises(ValueError, match="is no maintenance window"):
        weekly(text)


@pytest.mark.parametrize("text", ["", "2:00-2:30", "02:00-02:60", "sun:02:00-sun:02:30", "02:00-24:00"])
def test_other_text_is_no_backup_window(text: str) -> None:
    """Nothing is guessed."""
    with pytest.raises(ValueError, match="is no backup window"):
        daily(text)
