"""Holds back the interrupts of this process (Ctrl-C, SIGTERM) until the main thread can handle them.

Python raises KeyboardInterrupt between any two instructions of the main thread. If that happens within
Condition.__enter__ or concurrent.futures.wait, a lock that was taken there is never released, and threads that wait for
it never end (https://github.com/python/cpython/issues/74174).
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """The interrupts that arrived while they were held back.

    At most `limit` interrupts are held back. One more is raised at once.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held: list[Callable[[], object]] = []

    def hold(self, deliver: Callable[[], object]) -> None:
        """Keep an interrupt.

        Deliver it if there are as many as the limit, because the main thread does not handle them.
        """
        if len(self._held) >= self._limit:
            deliver()
        else:
            self._held.append(deliver)

    def deliver(self) -> None:
        """Raise KeyboardInterrupt if an interrupt arrived. Several that arrived together count as one."""
        if self._held:
            deliver = self._held[0]
            self._held.clear()
            deliver()

    def end(self) -> None:
        """Hold back nothing from now on.

        An interrupt is delivered even if the handler of its signal is not restored yet.
        """
        self._limit = 0

    def drop(self) -> None:
        """Forget the interrupts that arrived."""
        self._held.clear()


@contextmanager
def holding_interrupts(*, limit: int = 2) -> Iterator[Interrupts]:
    """Hold back interrupts within the context, except where it calls `deliver`. Raise the remaining ones at its end.

    Only signals with a handler in Python are held back, and only in the main thread, because no other thread gets
    signals. Contexts may be nested: the inner one delivers to the outer one.
    """
    interrupts = Interrupts(limit)
    if threading.current_thread() is not threading.main_thread():
        yield interrupts
        return
    handlers = {number: handler for number in _SIGNALS if callable(handler := signal.getsignal(number))}

    def hold(number: int, frame: FrameType | None) -> None:
        interrupts.hold(lambda: handlers[signal.Signals(number)](number, frame))

    try:
        for number in handlers:
            signal.signal(number, hold)
        yield interrupts
    finally:
        interrupts.end()
        for number, handler in handlers.items():
            signal.signal(number, handler)
        interrupts.deliver()
