"""Windows as AWS writes them, what meets them, and the command that moves them."""

from __future__ import annotations

import doctest
import shlex
from datetime import UTC, datetime, timedelta

import pytest

from penstock.model import windows
from penstock.model.windows import (
    Window,
    choose_other_time,
    compose_move_command,
    find_overlaps,
    parse_window,
    propose_move,
)

# A Sunday, half an hour before midnight.
LATE_SUNDAY = datetime(2026, 11, 22, 23, 30, tzinfo=UTC)
HOUR = timedelta(hours=1)


def weekly(text: str) -> Window:
    return parse_window(text, kind="maintenance", owner="instance", identifier="orders")


def daily(text: str) -> Window:
    return parse_window(text, kind="backup", owner="instance", identifier="orders")


def test_window_wraps_from_sunday_to_monday() -> None:
    """A load that starts on Monday meets what began on Sunday."""
    window = weekly("sun:23:45-mon:00:15")
    assert window.length_minutes == 30
    (met,) = find_overlaps([window], start=LATE_SUNDAY + HOUR / 2, duration=HOUR)
    assert str(met) == "maintenance window of instance orders: Sun 2026-11-22 23:45 to Mon 2026-11-23 00:15 UTC"


def test_backup_wraps_over_midnight() -> None:
    """Each day."""
    (met,) = find_overlaps([daily("23:50-00:20")], start=LATE_SUNDAY, duration=HOUR)
    assert (met.starts_at, met.ends_at) == (LATE_SUNDAY + HOUR / 3, LATE_SUNDAY + HOUR * 5 / 6)


def test_ends_that_touch_do_not_meet() -> None:
    """Both are half-open."""
    assert find_overlaps([weekly("sun:22:30-sun:23:30")], start=LATE_SUNDAY, duration=HOUR) == ()
    assert find_overlaps([weekly("mon:00:30-mon:01:00")], start=LATE_SUNDAY, duration=HOUR) == ()


def test_overlaps_come_in_the_order_of_time() -> None:
    """Of a long load each window's first coming counts."""
    met = find_overlaps([weekly("wed:04:00-wed:04:30"), daily("03:00-03:30")], start=LATE_SUNDAY, duration=HOUR * 96)
    assert [f"{overlap.starts_at:%a %H:%M}" for overlap in met] == ["Mon 03:00", "Wed 04:00"]
    assert str(met[0]).endswith("Mon 2026-11-23 03:00 to 03:30 UTC")


def test_a_week_meets_every_window() -> None:
    """However it lies."""
    week = timedelta(days=7)
    assert len(find_overlaps([weekly("sun:22:30-sun:23:30")], start=LATE_SUNDAY, duration=week)) == 1


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


def test_maintenance_moves_to_another_day_at_the_same_time() -> None:
    """Somebody chose the time of day; the next day on which the job has ended is taken."""
    moved = choose_other_time(weekly("mon:03:00-mon:03:30"), [], start=LATE_SUNDAY, duration=HOUR * 30)
    assert str(moved) == "wed:03:00-wed:03:30"


def test_moved_maintenance_keeps_clear_of_backups() -> None:
    """AWS refuses both at the same time; where the time of day is taken, it comes after the job."""
    moved = choose_other_time(
        weekly("mon:03:00-mon:03:30"), [daily("02:45-03:15")], start=LATE_SUNDAY, duration=HOUR * 5.25
    )
    assert str(moved) == "mon:05:00-mon:05:30"


def test_backup_moves_behind_the_job() -> None:
    """And behind the maintenance window, on whatever day that is."""
    moved = choose_other_time(daily("00:00-00:30"), [weekly("thu:01:00-thu:02:00")], start=LATE_SUNDAY, duration=HOUR)
    assert str(moved) == "02:00-02:30"


def test_job_that_fills_the_day_leaves_no_time_for_backups() -> None:
    """Then there is nothing to propose."""
    assert choose_other_time(daily("00:00-00:30"), [], start=LATE_SUNDAY, duration=HOUR * 24) is None


def test_command_moves_an_instances_window() -> None:
    """As AWS's command line has it."""
    assert compose_move_command(weekly("sun:23:45-mon:00:15"), region="eu-west-1") == (
        "aws rds modify-db-instance --db-instance-identifier orders "
        "--preferred-maintenance-window sun:23:45-mon:00:15 --region eu-west-1"
    )


def test_command_moves_a_clusters_window_and_quotes_for_the_shell() -> None:
    """An identifier cannot hold such characters, a profile's name can."""
    window = parse_window("02:00-02:30", kind="backup", owner="cluster", identifier="shop")
    command = compose_move_command(window, region="eu-west-1", profile="my work; rm -rf ~")
    assert shlex.split(command) == [
        *("aws", "rds", "modify-db-cluster", "--db-cluster-identifier", "shop"),
        *("--preferred-backup-window", "02:00-02:30", "--region", "eu-west-1", "--profile", "my work; rm -rf ~"),
    ]


def test_proposal_moves_one_window_out_of_the_way_of_job_and_others() -> None:
    """What a load that is refused tells the user to run."""
    found = [weekly("mon:00:00-mon:00:30"), daily("01:00-01:30")]
    (met,) = find_overlaps(found, start=LATE_SUNDAY, duration=HOUR)
    command = propose_move(met.window, found, start=LATE_SUNDAY, duration=HOUR, region="eu-west-1")
    assert command is not None
    assert "--preferred-maintenance-window tue:00:00-tue:00:30" in command
    whole_week = HOUR * 24 * 7
    assert propose_move(met.window, found, start=LATE_SUNDAY, duration=whole_week, region="eu-west-1") is None


def test_examples_of_windows_hold() -> None:
    """What a docstring shows is what happens."""
    assert doctest.testmod(windows).failed == 0
