"""Ends a command at SIGTERM and SIGHUP as at Ctrl-C, so that it restores what it has changed and reports the result."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def interrupting_signals() -> Iterator[None]:
    """Raise KeyboardInterrupt at SIGTERM and SIGHUP.

    Outside the main thread nothing is set, because only it can do this.
    """

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    # Ignored signals stay ignored, such as SIGHUP with nohup.
    is_main = threading.current_thread() is threading.main_thread()
    numbers = (signal.SIGTERM, signal.SIGHUP) if is_main else ()
    taken = [number for number in numbers if signal.getsignal(number) == signal.SIG_DFL]
    for number in taken:
        signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)
