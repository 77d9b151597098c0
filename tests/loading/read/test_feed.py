"""How many objects are read at once."""

from __future__ import annotations

import contextlib
import threading
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from penstock.core.units import KIB, MIB
from penstock.core.values.names import parse_table_name
from penstock.core.values.source import SourceObject
from penstock.loading.read.feed import Abandoned, BlockFeed, FeedPlan, NothingReady
from penstock.loading.values.objects import PlannedObject

if TYPE_CHECKING:
    from penstock.loading.values.plan import TargetPlan


@pytest.mark.parametrize(
    ("location", "size_bytes", "readers"),
    [
        ("s3://bucket/{}.csv", 10 * KIB, 8),
        ("https://host/{}.csv", MIB, 8),
        ("s3://bucket/{}.csv", 100 * MIB, 2),
        ("https://host/{}.csv", None, 2),
        ("/data/{}.csv", 10 * KIB, 2),
    ],
)
def test_small_remote_objects_are_waited_for_together(location: str, size_bytes: int | None, readers: int) -> None:
    """Their first byte takes longer than all others; large ones take memory, and local ones no time."""
    released = threading.Event()

    def open_blocks(_: PlannedObject) -> Any:
        released.wait()
        raise Abandoned

    sources = [
        SourceObject(uri=str(number), location=location.format(number), size_bytes=size_bytes, version="v")
        for number in range(20)
    ]
    work = [
        PlannedObject(target=cast("TargetPlan", None), source=source, number=number)
        for number, source in enumerate(sources)
    ]
    feed = BlockFeed(work, open_blocks, FeedPlan(reader_limit=2, sessions=1))
    for _ in work:
        with contextlib.suppress(NothingReady):
            feed.take(session=0, prefer=None, patience_s=0)
    assert len(feed._active) == readers
    released.set()
    feed.close()


def _open_feed(*sizes: int, least: int = 10) -> tuple[BlockFeed, list[float]]:
    """Return an open feed with objects of so many bytes, which nobody reads yet, and its clock."""
    now_s = [0.0]

    def open_blocks(_: PlannedObject) -> Any:
        raise Abandoned

    feed = BlockFeed(
        [_work(number, size) for number, size in enumerate(sizes)],
        open_blocks,
        FeedPlan(reader_limit=2, sessions=1, is_open=True, least_claim_bytes=least),
        clock=lambda: now_s[0],
    )
    return feed, now_s


def _work(number: int, size_bytes: int) -> PlannedObject:
    source = SourceObject(uri=str(number), location=f"/data/{number}", size_bytes=size_bytes, version="v")
    return PlannedObject(target=cast("TargetPlan", None), source=source, number=number)


def test_open_feed_wants_objects_only_if_little_is_left() -> None:
    """Of several hosts each would otherwise claim all that there is."""
    empty, _ = _open_feed()
    full, _ = _open_feed(10**9)
    assert (empty.wanted_bytes(), full.wanted_bytes()) == (10, 0)
    assert (empty.unsent, full.unsent) == (0, 1)
    empty.add([_work(7, 100)])
    assert (empty.wanted_bytes(), empty.unsent) == (0, 1)


def test_open_feed_ends_when_it_is_told_so() -> None:
    """Until then, sessions wait for what may be added; one that another host needs ends at once."""
    feed, _ = _open_feed()
    with pytest.raises(NothingReady):
        feed.take(session=0, prefer=None, patience_s=0)
    assert feed.take(session=1, prefer=None, patience_s=0) is None
    feed.end()
    assert feed.wanted_bytes() == 0
    assert feed.take(session=0, prefer=None, patience_s=0) is None


def test_open_feed_whose_sessions_starve_wants_another_object_after_a_while() -> None:
    """One object that is slow to decompress keeps no sessions busy; hosts that begin together share nevertheless."""
    feed, now_s = _open_feed(10**9)
    feed._next_object()
    with pytest.raises(NothingReady):
        feed.take(session=0, prefer=None, patience_s=0)
    assert feed.wanted_bytes() == 0
    now_s[0] = 1.0
    assert feed.wanted_bytes() == 10


def test_one_session_gets_all_objects_of_a_table() -> None:
    """And another table only when these are sent; a session without a table left ends at once."""
    feed = BlockFeed(
        [_work_of(0, "t"), _work_of(1, "t"), _work_of(2, "u")],
        lambda _: _wait_for_ever(),
        FeedPlan(reader_limit=1, sessions=3, is_by_table=True),
    )
    for session in (0, 1):
        with pytest.raises(NothingReady):
            feed.take(session=session, prefer=None, patience_s=0)
    assert [str(opened.target.table) for opened in feed._active] == ["t", "u"]
    assert feed.take(session=2, prefer=None, patience_s=0) is None
    feed.abandon(Abandoned())


def _work_of(number: int, table: str) -> PlannedObject:
    target: Any = SimpleNamespace(table=parse_table_name(table))
    return replace(_work(number, 100), target=target)


def _wait_for_ever() -> Any:
    threading.Event().wait()


def test_session_that_sends_a_table_sends_all_of_it() -> None:
    """Also if another one cannot connect, and only the sessions before that are to go on."""
    feed = BlockFeed(
        [_work_of(0, "t")], lambda _: _wait_for_ever(), FeedPlan(reader_limit=1, sessions=3, is_by_table=True)
    )
    with pytest.raises(NothingReady):
        feed.take(session=2, prefer=None, patience_s=0)
    feed.set_sessions(1)
    block: Any = SimpleNamespace(size_bytes=1)
    reading: Any = SimpleNamespace(encoder=SimpleNamespace(spec=None), encoded=None)
    feed._active[0].reading = reading
    feed._active[0].queue.append(block)
    assert feed.take(session=0, prefer=None, patience_s=0) is None
    assert feed.take(session=2, prefer=None, patience_s=0) == (feed._active[0], block)
    feed.abandon(Abandoned())
