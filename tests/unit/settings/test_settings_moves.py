"""What happens to each leased setting, decided from leases and the lines of postgresql.auto.conf."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from penstock.changes.settings.moves import settle
from penstock.model.server.settings import Lease, PriorSetting, ServerIdentity

NOW = datetime(2026, 11, 21, tzinfo=UTC)
SERVER = ServerIdentity(system_identifier=1, timeline=1, address="10.0.0.1", port=5432)


def lease(value: float, *, until: datetime | None = None, holder_pid: int | None = 1) -> Lease:
    """Return a lease on max_wal_size."""
    return Lease(
        lease_id="0",
        owner="a",
        client="b",
        reason="c",
        profile="d",
        began_at=NOW,
        until=until,
        server=SERVER,
        wanted={"max_wal_size": value},
        holder_pid=holder_pid,
    )


def prior(auto_text: str | None, *ours: str) -> PriorSetting:
    """Return what max_wal_size was."""
    return PriorSetting(
        name="max_wal_size",
        value="1024",
        unit="MB",
        source="default",
        source_file=None,
        auto_text=auto_text,
        auto_line=None,
        ours=ours,
    )


@pytest.mark.parametrize("before", [None, "2GB"])
@pytest.mark.parametrize(
    ("wishes", "line", "text", "is_kept"),
    [
        ([4096], "before", "4096MB", False),
        ([4096, 8192], "4096MB", "8192MB", False),
        ([4096], "8192MB", "4096MB", False),
        ([], "8192MB", "before", False),
        ([], "before", "before", True),
        ([], "3GB", "3GB", True),
        ([4096], "3GB", "3GB", True),
        ([4096], "4096MB", "4096MB", True),
    ],
)
def test_largest_wish_is_in_force_and_foreign_lines_stay(
    before: str | None, wishes: list[float], line: str, text: str, is_kept: bool
) -> None:
    """The last one goes back to what was before."""
    found = {"before": before}
    (move,) = settle(
        [prior(before, "4096MB", "8192MB")], [lease(wish) for wish in wishes], {"max_wal_size": found.get(line, line)}
    )
    assert move.text == found.get(text, text)
    assert (move.kept is not None) is is_kept
    assert move.is_last is (not wishes)


def test_lines_come_back_in_their_order() -> None:
    """The second is as it was, and is written again behind the first, which goes back."""
    first = replace(prior("2GB", "4096MB"), auto_line=3)
    second = replace(prior("6min", "1800s"), name="checkpoint_timeout", auto_line=4)
    third = replace(prior(None, "0.9"), name="checkpoint_completion_target")
    lines = {"max_wal_size": "4096MB", "checkpoint_timeout": "6min"}
    moves = settle([third, second, first], [], lines)
    assert [(move.name, move.text, move.kept is None) for move in moves] == [
        ("max_wal_size", "2GB", True),
        ("checkpoint_timeout", "6min", True),
        ("checkpoint_completion_target", None, False),
    ]
    untouched = settle([second, first], [], {"max_wal_size": "2GB", "checkpoint_timeout": "6min"})
    assert all(move.kept for move in untouched)


def test_taken_out_by_hand_stays_out() -> None:
    """Somebody has put it right already."""
    (move,) = settle([prior("2GB", "4096MB")], [], {})
    assert move.kept is not None
    assert "was removed" in move.kept


@pytest.mark.parametrize("text", ["/bin/sh", "4GB'; DROP", "5min"])
def test_planted_text_is_not_put_back(text: str) -> None:
    """Whoever can write to the leases' table can make nobody set more than a number."""
    (move,) = settle([prior(text, "4096MB")], [], {"max_wal_size": "4096MB"})
    assert move.kept is not None


def test_lease_is_over_when_nobody_holds_it() -> None:
    """And, where it stands for a time, when that is up."""
    hour = timedelta(hours=1)
    assert not lease(1).is_over(NOW)
    assert lease(1, holder_pid=None).is_over(NOW)
    assert not lease(1, holder_pid=None, until=NOW + hour).is_over(NOW)
    assert lease(1, holder_pid=None, until=NOW - hour).is_over(NOW)


def test_timeline_tells_servers_apart_and_an_address_does_not() -> None:
    """One server has several addresses."""
    other = ServerIdentity(system_identifier=1, timeline=1, address=None, port=None)
    promoted = ServerIdentity(system_identifier=1, timeline=2, address="10.0.0.1", port=5432)
    assert SERVER.is_same(other)
    assert not SERVER.is_same(promoted)
