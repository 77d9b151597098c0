"""The screen of `penstock watch` and its keys. This module imports rich, so it is imported only for a terminal."""

from __future__ import annotations

import os
import sys
import termios
import threading
import tty
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Console
from rich.live import Live
from rich.segment import Segment, Segments

from penstock.watch.view import View, draw_screen

if TYPE_CHECKING:
    from penstock.watch.command.watched import Watched
    from penstock.watch.values import RecordingHeader


# The intervals that the keys + and - select.
_INTERVALS_S = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)


@dataclass(slots=True)
class _Keys:
    is_paused: bool = False
    by_name: bool = False
    is_done: bool = False


def show_screen(header: RecordingHeader, watched: Watched) -> None:
    """Draw the latest samples until sampling ends or q is pressed."""
    console = Console(highlight=False, soft_wrap=False)
    keys = _Keys()
    pressed: deque[str] = deque()
    shown: View | None = None
    drawn = 0
    with (
        _reading_keys(pressed, watched.news) as has_keys,
        Live(console=console, auto_refresh=False, screen=True) as live,
    ):
        while not watched.stop.is_set() and not keys.is_done:
            watched.news.wait()
            watched.news.clear()
            is_asked = bool(pressed)
            while pressed:
                _apply(pressed.popleft(), keys, watched)
            if watched.count > drawn and not keys.is_paused:
                drawn = watched.count
                shown = View.of(header, watched.samples, watched.risks)
            elif not is_asked:
                continue
            if shown is not None:
                lines = draw_screen(
                    shown,
                    width=console.width,
                    height=console.height,
                    by_name=keys.by_name,
                    remark=_describe_keys(keys, watched, has_keys=has_keys),
                )
                # Text would have each line wrapped, which takes twice as long.
                spans = ([*line, ("\n", "")] for line in lines)
                segments = [Segment(text, console.get_style(style)) for line in spans for text, style in line]
                live.update(Segments(segments), refresh=True)


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
def _reading_keys(pressed: deque[str], news: threading.Event) -> Iterator[bool]:
    """Add the keys that are pressed to `pressed`, without echo, while the block runs, and set `news` at each.

    Provides False if standard input is not a terminal.
    """
    if sys.stdin is None or not sys.stdin.isatty():
        yield False
        return
    before = termios.tcgetattr(sys.stdin)
    try:
        tty.setcbreak(sys.stdin)
        threading.Thread(target=_read_keys, args=(pressed, news), name="keys", daemon=True).start()
        yield True
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _read_keys(pressed: deque[str], news: threading.Event) -> None:
    """Read keys until the terminal is closed."""
    # Read the descriptor and not sys.stdin. sys.stdin would wait until it has as many characters as were asked for.
    terminal = sys.stdin.fileno()
    with suppress(OSError):
        while keys := os.read(terminal, 1024):
            pressed.extend(keys.decode("ascii", "replace"))
            news.set()
