"""The screen of `penstock watch` and its keys. This module imports rich, so it is imported only for a terminal."""

from __future__ import annotations

import os
import select
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Console
from rich.live import Live
from rich.text import Text

from penstock.watch.view import View, draw_screen

if TYPE_CHECKING:
    from penstock.watch.command.watched import Watched
    from penstock.watch.values import RecordingHeader


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
                shown = View.of(header, watched.samples, watched.risks) if watched.samples else None
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
    """Return the pressed keys. Empty if a sample has arrived, or if no key is pressed within a tenth of a second."""
    ready, _, _ = select.select([sys.stdin], [], [], 0.0 if watched.news.is_set() else _LOOK_FOR_KEYS_S)
    # Read the descriptor and not sys.stdin. sys.stdin would read all three bytes of an arrow key into its buffer, and
    # select would not report those that are left there.
    return os.read(sys.stdin.fileno(), 1024).decode("ascii", "replace") if ready else ""


def _wait(watched: Watched) -> str:
    watched.news.wait(_LOOK_FOR_KEYS_S)
    return ""
