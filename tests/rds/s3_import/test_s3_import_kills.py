"""kill -9 between any two calls of AWS loses nothing: the next run does the rest, and --undo removes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.moto_rds import Events

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rds.s3_import.conftest import Place

pytestmark = pytest.mark.part("rest")

# Calls in the first part of the tests, of about 30; all in the second.
_FEW = 2


@pytest.mark.parametrize("kind", ["instance", "cluster"])
def test_killed_run_is_completed_and_undone(
    make_place: Callable[..., Place], kind: str, some: Callable[[Sequence[int], int], list[int]]
) -> None:
    """Completed by the same command, and undone; or undone at once."""
    place = make_place(kind)
    before = place.state()
    with Events().watching() as events:
        assert place.run() == 0
    prepared = place.state()
    assert place.run("--undo") == 0
    for number in some(_find_moments(events), _FEW):
        place.kill(number)
        assert place.run() == 0
        assert place.state() == prepared
        assert place.run("--undo") == 0
        assert place.state() == before
        place.kill(number)
        assert place.run("--undo") == 0
        assert place.state() == before


def test_killed_undo_is_completed(place: Place, some: Callable[[Sequence[int], int], list[int]]) -> None:
    """By another --undo; or what it removed is made again."""
    before = place.state()
    assert place.run() == 0
    prepared = place.state()
    with Events().watching() as events:
        assert place.run("--undo") == 0
    for number in some(_find_moments(events), _FEW):
        assert place.run() == 0
        place.kill(number, "--undo")
        assert place.run("--undo") == 0
        assert place.state() == before
        assert place.run() == 0
        place.kill(number, "--undo")
        assert place.run() == 0
        assert place.state() == prepared
        assert place.run("--undo") == 0
        assert place.state() == before


def _find_moments(events: Events) -> list[int]:
    """Return the calls before which something differs from before the last: those at and after the first write."""
    writes = [number for number, name in enumerate(events.asked) if name in events.writes]
    return list(range(writes[0], len(events.asked)))
