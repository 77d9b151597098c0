"""Draws a load's progress as bars on a terminal.

This module imports rich, so import it only if standard error is a terminal.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Column, Table
from rich.text import Text

from penstock.core.slotted import slotted
from penstock.core.units import MB, format_count, format_duration
from penstock.core.words import shorten_left, visible
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
    from penstock.loading.values.outcome import LoadProgress

_REFRESH_INTERVAL_S = 0.095

_BAR_CELLS = 40

# How many open files get a bar of their own. More bars would scroll other output off the screen.
_FILES_SHOWN = 4


@slotted
class Bar:
    """One line of the display: a name, a progress bar and the text after it."""

    name: str
    # The part that is done, 0 to 1, None if it is not known.
    fraction: float | None
    words: str


def list_bars(progress: LoadProgress, reading: LoadRates) -> Iterator[Bar]:
    """Yield a bar for the whole load, for up to four open files, and for each running step after the last row."""
    is_over = is_all_sent(progress)
    words = [
        format_rows(progress.rows, progress),
        "" if is_over else f"{reading.read_rate / MB:.1f} MB/s",
        "" if is_over else format_left(reading.left_s),
    ]
    name = progress.files[0].uri if progress.file_count == 1 and progress.files else "in all"
    yield Bar(name=name, fraction=reading.fraction, words="  ".join(word for word in words if word))
    is_open = [] if progress.file_count == 1 else [file for file in progress.files if not file.is_done]
    for file in is_open[:_FILES_SHOWN]:
        fraction = min(1.0, file.bytes_read / file.size_bytes) if file.size_bytes else None
        yield Bar(name=file.uri, fraction=fraction, words=format_rows(file.rows, progress))
    for step in progress.steps:
        yield Bar(name=step.name, fraction=step.fraction, words=step.phase)


def describe_status(progress: LoadProgress, reading: LoadRates) -> str:
    """Return the status line below the bars.

    While rows are sent, it has the elapsed time, the number of sessions, the rate of sending and the number of finished
    files. After the last row, it has what the load does and the elapsed time.
    """
    passed = format_duration(progress.elapsed_s)
    if is_all_sent(progress):
        return f"{visible(progress.activity) or 'committing'}, {passed}"
    if progress.activity:
        return f"{passed}, {visible(progress.activity)}"
    status = f"{passed}, {format_sessions(progress)}, {reading.sent_rate / MB:.0f} MB/s sent"
    if progress.file_count > 1:
        done = sum(file.is_done for file in progress.files)
        status += f", {format_count(done)} of {format_count(progress.file_count)} files done"
    return ", ".join(words for words in (status, format_rebuilds(progress)) if words)


class Bars:
    """A context manager that shows bars on standard error while its block runs, and removes them at the end."""

    def __init__(self, console: Console | None = None) -> None:
        # The bars are drawn when progress is reported. A thread that refreshes them would cost CPU and show nothing
        # newer. Messages on standard error appear above the bars, and so do results if standard output is a terminal.
        self._live = Live(
            console=console or Console(file=sys.stderr),
            auto_refresh=False,
            transient=True,
            redirect_stderr=True,
            redirect_stdout=sys.stdout.isatty(),
        )
        self._meter = Meter()
        self._drawn_s = -1.0

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def show(self, progress: LoadProgress) -> None:
        """Draw a load's progress, at most about ten times a second."""
        if progress.elapsed_s - self._drawn_s < _REFRESH_INTERVAL_S and not is_all_sent(progress):
            return
        self._drawn_s = progress.elapsed_s
        reading = self._meter.read(progress)
        width = self._live.console.width
        table = Table.grid(
            Column(no_wrap=True, overflow="ellipsis"),
            Column(width=min(_BAR_CELLS, width // 4)),
            Column(no_wrap=True, justify="right"),
            Column(no_wrap=True, overflow="ellipsis"),
            padding=(0, 2, 0, 0),
        )
        for bar in list_bars(progress, reading):
            drawn = ProgressBar(
                total=1.0,
                completed=bar.fraction or 0.0,
                pulse=bar.fraction is None,
                animation_time=progress.elapsed_s,
            )
            name = shorten_left(visible(bar.name), width // 3)
            table.add_row(Text(name), drawn, Text(format_percent(bar.fraction)), Text(visible(bar.words)))
        status = Text(describe_status(progress, reading), style="dim", no_wrap=True, overflow="ellipsis")
        self._live.update(Group(table, status), refresh=True)
