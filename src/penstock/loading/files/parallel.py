"""Uses several threads to run work that mostly waits for servers. The results come in the order of the items."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from typing import TypeVar

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

# How long one wait for a result lasts. CPython misses a signal that arrives between its check for signals and the wait
# for a lock (3 of 600 on two busy cores). An endless wait would then ignore Ctrl-C.
_SIGNAL_CHECK_S = 0.2


def map_at_once(work: Callable[[_Item], _Result], items: Sequence[_Item], *, threads: int) -> Iterator[_Result]:
    """Call `work` for each item, in up to `threads` threads, and yield the results in the order of the items.

    If `work` raises an error for an item, that error is raised in place of the item's result.
    """
    results: list[Future[_Result]] = [Future() for _ in items]
    waiting = deque(zip(items, results, strict=True))

    def work_off() -> None:
        with suppress(IndexError):
            while True:
                item, result = waiting.popleft()
                try:
                    result.set_result(work(item))
                except BaseException as exc:  # noqa: BLE001 (raised where the result is awaited)
                    result.set_exception(exc)

    for _ in range(min(threads, len(items))):
        # Daemon threads, so that the process can exit while a server does not answer.
        threading.Thread(target=work_off, name="penstock-sources", daemon=True).start()
    try:
        while results:
            while wait(results[:1], timeout=_SIGNAL_CHECK_S).not_done:
                pass
            yield results.pop(0).result()
    finally:
        waiting.clear()
