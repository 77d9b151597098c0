"""Shows a load's progress as bars on a terminal, otherwise as a line every ten seconds. With --quiet it shows none."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from penstock.core.units import MB
from penstock.loading.command.meter import (
    LoadRates,
    Meter,
    format_left,
    format_percent,
    format_rebuilds,
    format_rows,
    format_sessions,
    is_all_sent,
)

if TYPE_CHECKING:
    from penstock.cli.output import Messages
    from penstock.loading.values.outcome import LoadProgress

# An activity is not reported before this time, because a load that ends sooner needs no line.
_SHORT_S = 1.0

# How often a line is printed: so rarely that a load that takes hours does not fill a log.
_LINE_INTERVAL_S = 10.0


@contextmanager
def showing_progress(messages: Messages) -> Iterator[Callable[[LoadProgress], None] | None]:
    """Provide the function that shows progress while the block runs, or None if the command is quiet.

    On a terminal it draws bars, otherwise it prints lines.
    """
    if messages.is_quiet:
        yield None
    elif sys.stderr.isatty():
        from penstock.loading.command.bars import Bars

        with Bars() as bars:
            yield bars.show
    else:
        yield PlainProgress(messages).show


class PlainProgress:
    """Prints a line of progress every ten seconds, and a line when the load begins another activity after the last row.

    The first line is printed after ten seconds. An activity in the first second of the load gets no line, unless
    indexes are rebuilt.
    """

    def __init__(self, messages: Messages) -> None:
        self._messages = messages
        self._meter = Meter()
        self._next_s = _LINE_INTERVAL_S
        self._activity = ""

    def show(self, progress: LoadProgress) -> None:
        """Print the progress if a line is due."""
        if progress.activity:
            is_long = progress.to_rebuild > 0 or progress.elapsed_s >= _SHORT_S
            # What holds a load back before its last row changes each second: it is further behind.
            is_new = is_all_sent(progress) and progress.activity != self._activity
            if (is_long and is_new) or progress.elapsed_s >= self._next_s:
                self._activity = progress.activity
                self._next_s = progress.elapsed_s + _LINE_INTERVAL_S
                self._messages.note(f"progress: {describe_activity(progress)}")
            return
        reading = self._meter.read(progress)
        if progress.elapsed_s >= self._next_s:
            self._next_s = progress.elapsed_s + _LINE_INTERVAL_S
            self._messages.note(describe_progress(progress, reading))


def describe_activity(progress: LoadProgress) -> str:
    """Return in one line what the load does after the last row, and how much of it is done."""
    steps = [
        " ".join(word for word in (step.name, step.phase, format_percent(step.fraction)) if word)
        for step in progress.steps
    ]
    return f"{progress.activity}{': ' if steps else ''}{', '.join(steps)}"


def describe_progress(progress: LoadProgress, reading: LoadRates) -> str:
    """Return a load's progress in one line."""
    words = [
        format_rows(progress.rows, progress),
        f"{reading.read_rate / MB:.1f} MB/s read",
        f"{reading.sent_rate / MB:.1f} MB/s sent",
        format_percent(reading.fraction),
        format_left(reading.left_s),
        format_sessions(progress),
        format_rebuilds(progress),
    ]
    return "progress: " + ", ".join(word for word in words if word)
