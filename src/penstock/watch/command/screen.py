"""The screen of `penstock watch`, its keys, and the thread that samples for it. It imports rich."""

from __future__ import annotations

import os
import select
import sys
import termios
import threading
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rich.console import Console
from rich.live import Live
from rich.text import Text

from penstock.cli.output import write_message
from penstock.watch.sampler import Sampler, sample_on_clock
from penstock.watch.view import View, draw_screen

if TYPE_CHECKING:
    from penstock.core.errors import PenstockError
    from penstock.watch.values import RecordingHeader, Sample

# The screen shows averages over this time, or over this many samples if they cover a longer time.
WINDOW_S = 10.0
_WINDOW_SAMPLES = 5
# After the end of a watch, the command waits this long for the last sample.
_LAST_SAMPLE_S = 5.0


@dataclass(slots=True)
class Watched:
    """The latest samples and the interval, shared by the thread that samples and the thread that draws."""

    interval_s: float
    stop: threading.Event = field(default_factory=threading.Event)
    news: threading.Event = field(default_factory=threading.Event)
    samples: tuple[Sample, ...] = ()
    count: int = 0
    failure: BaseException | None = None

    @property
    def window_s(self) -> float:
        """Return the time over which averages are taken, in seconds."""
        return max(WINDOW_S, self.interval_s * _WINDOW_SAMPLES)

    def add(self, sample: Sample) -> None:
        """Keep a sample, and drop the samples that are older than the window."""
        kept = (seen for seen in self.samples if sample.at_s - seen.at_s <= self.window_s)
        self.samples = (*kept, sample)
        self.count += 1
        self.news.set()

    def end(self) -> None:
        """End the watch, and wake the thread that waits for news."""
        self.stop.set()
        self.news.set()


def sample_while(
    show: Callable[[], object],
    sampler: Sampler,
    watched: Watched,
    *,
    keep: Callable[[Sample], None],
    for_s: float | None,
) -> None:
    """Sample in a separate thread and pass each sample to `keep`, while `show` runs.

    Sampling and `show` end at Ctrl-C, at SIGTERM, when `stop` is set, or after `for_s` seconds. A server that does not
    answer does not delay the end. Raises the errors of sampling and of `keep`.
    """
    # A daemon thread lets the process exit while the server does not answer.
    sampling = threading.Thread(target=_sample, args=(sampler, watched, keep, for_s), name="sampling", daemon=True)
    ending = threading.Timer(threading.TIMEOUT_MAX if for_s is None else min(for_s, threading.TIMEOUT_MAX), watched.end)
    ending.daemon = True
    sampling.start()
    ending.start()
    try:
        show()
    except KeyboardInterrupt:
        pass  # Ctrl-C is the usual end of a watch.
    finally:
        ending.cancel()
        watched.stop.set()
        sampling.join(_LAST_SAMPLE_S)
    if sampling.is_alive():
        write_message("the server does not answer: the last sample is missing")
    if watched.failure is not None:
        raise watched.failure


def _sample(sampler: Sampler, watched: Watched, keep: Callable[[Sample], None], for_s: float | None) -> None:
    """Sample until `stop` is set. An error is kept in `failure` for the thread that draws."""
    try:
        for sample in sample_on_clock(
            sampler, interval=lambda: watched.interval_s, stop=watched.stop, for_s=for_s, on_lost=report_lost
        ):
            keep(sample)
    except BaseException as error:  # noqa: BLE001 (raised again in sample_while)
        watched.failure = error
    finally:
        watched.end()


def report_unread(header: RecordingHeader) -> None:
    """Print which facts of a server could not be read."""
    for unread in header.unread:
        write_message(f"not read: {unread.what} ({unread.why})")


def report_lost(error: PenstockError) -> None:
    """Print that the connection was lost and is retried."""
    write_message(f"connection lost: {error.message}; reconnecting at each sample")


# The intervals that the keys + and - select.
_INTERVALS_S = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
_LOOK_FOR_KEYS_S = 0.1


@dataclass(slots=True)
class _Keys:
    is_paused: bool = False
    by_name: bool = False
    is_done: bool = False


def show_screen(header: RecordingHeader, watched: Watched) -> None:
    """Draw the latest samples until sampling ends or q is pressed."""
    console = Console(highlight=False, soft_wrap=False)
    keys = _Keys()
    shown: View | None = None
    with _reading_keys() as has_keys, Live(console=console, auto_refresh=False, screen=True) as live:
        while not watched.stop.is_set() and not keys.is_done:
            pressed = _read_keys(watched) if has_keys else _wait(watched)
            for key in pressed:
                _apply(key, keys, watched)
            if watched.news.is_set() and not keys.is_paused:
                watched.news.clear()
                shown = View.of(header, watched.samples) if watched.samples else None
            elif not pressed:
                continue
            if shown is not None:
                lines = draw_screen(
                    shown,
                    width=console.width,
                    height=console.height,
                    by_name=keys.by_name,
                    remark=_describe_keys(keys, watched, has_keys=has_keys),
                )
                text = Text("\n", no_wrap=True, overflow="ellipsis").join(Text.assemble(*line) for line in lines)
                live.update(text, refresh=True)


def _describe_keys(keys: _Keys, watched: Watched, *, has_keys: bool) -> str:
    every = f"a sample every {watched.interval_s:g} s"
    if not has_keys:
        return every
    order = "by activity" if keys.by_name else "by name"
    return f"{'PAUSED' if keys.is_paused else every}   p pause  s sort {order}  + - interval  q quit"


def _apply(pressed: str, keys: _Keys, watched: Watched) -> None:
    if pressed == "p":
        keys.is_paused = not keys.is_paused
    elif pressed == "s":
        keys.by_name = not keys.by_name
    elif pressed == "q":
        keys.is_done = True
    elif pressed == "+":
        watched.interval_s = min((step for step in _INTERVALS_S if step > watched.interval_s), default=60.0)
    elif pressed == "-":
        watched.interval_s = max((step for step in _INTERVALS_S if step < watched.interval_s), default=0.1)


@contextmanager
def _reading_keys() -> Iterator[bool]:
    """Read keys one by one without echo while the block runs. Provides False if standard input is not a terminal."""
    if sys.stdin is None or not sys.stdin.isatty():
        yield False
        return
    before = termios.tcgetattr(sys.stdin)
    try:
        tty.setcbreak(sys.stdin)
        yield True
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _read_keys(watched: Watched) -> str:
    """Return the pressed keys; "" if a sample has arrived, or if no key is pressed within a moment."""
    ready, _, _ = select.select([sys.stdin], [], [], 0.0 if watched.news.is_set() else _LOOK_FOR_KEYS_S)
    # sys.stdin is not used, because it would read all three bytes of an arrow key, and select would not report the
    # others.
    return os.read(sys.stdin.fileno(), 1024).decode("ascii", "replace") if ready else ""


def _wait(watched: Watched) -> str:
    watched.news.wait(_LOOK_FOR_KEYS_S)
    return ""
