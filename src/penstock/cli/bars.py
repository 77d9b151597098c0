"""Keeps a load's progress on a terminal, by rich. What it looks like is drawing.py's.

rich is imported with this module: import it only where there is a terminal.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Self

from rich.console import Console
from rich.live import Live
from rich.text import Text

from penstock.cli.drawing import ASCII, UNICODE, draw
from penstock.cli.meter import Meter, is_all_sent

if TYPE_CHECKING:
    from types import TracebackType

    from penstock.model.outcome import LoadProgress

_REFRESH_INTERVAL_S = 0.095


class Bars:
    """Bars on standard error while it is entered as a context manager; they are wiped at the end."""

    def __init__(self) -> None:
        self._console = Console(file=sys.stderr, highlight=False, soft_wrap=False)
        # Drawn when progress comes: a thread of its own would cost CPU and show nothing newer. Messages that go to
        # standard error meanwhile appear above the bars; results on standard output do where that is a terminal too.
        self._live = Live(
            console=self._console,
            auto_refresh=False,
            transient=True,
            redirect_stderr=True,
            redirect_stdout=sys.stdout.isatty(),
        )
        self._meter = Meter()
        self._style = UNICODE if self._console.encoding.startswith("utf") else ASCII
        self._drawn_s = -1.0

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._live.stop()

    def show(self, progress: LoadProgress) -> None:
        """Draw a load's progress, at most about ten times a second."""
        if progress.elapsed_s - self._drawn_s < _REFRESH_INTERVAL_S and not is_all_sent(progress):
            return
        self._drawn_s = progress.elapsed_s
        lines = draw(progress, self._meter.read(progress), width=self._console.width - 1, style=self._style)
        text = Text("\n").join(Text.assemble(*line, no_wrap=True) for line in lines)
        self._live.update(text, refresh=True)
