"""How many objects are read at once."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any, cast

import pytest

from penstock.loading.plan.work import ObjectWork
from penstock.loading.reading.feed import Abandoned, BlockFeed, NothingReady
from penstock.model.source.source import SourceObject
from penstock.units import KIB, MIB

if TYPE_CHECKING:
    from penstock.model.load.plan import TargetPlan


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

    def open_blocks(_: ObjectWork) -> Any:
        released.wait()
        raise Abandoned

    sources = [
        SourceObject(uri=str(number), location=location.format(number), size_bytes=size_bytes, version="v")
        for number in range(20)
    ]
    work = [
        ObjectWork(target=cast("TargetPlan", None), source=source, number=number)
        for number, source in enumerate(sources)
    ]
    feed = BlockFeed(work, open_blocks, reader_limit=2, sessions=1)
    for _ in work:
        with contextlib.suppress(NothingReady):
            feed.take(session=0, prefer=None, patience_s=0)
    assert len(feed._active) == readers
    released.set()
    feed.close()
