"""What is being watched: the samples of late, and what is said of those that are missing."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.cli.terminal.output import write_message

if TYPE_CHECKING:
    from penstock.errors import PenstockError
    from penstock.model.recording import RecordingHeader, Sample

# What is shown is the average over this time, or over so many samples where that is longer.
WINDOW_S = 10.0
_WINDOW_SAMPLES = 5


@dataclass(slots=True)
class Watched:
    """What the sampling thread has seen of late, and how it is to go on; shared with who draws."""

    interval_s: float
    stop: threading.Event = field(default_factory=threading.Event)
    news: threading.Event = field(default_factory=threading.Event)
    samples: tuple[Sample, ...] = ()
    count: int = 0
    failure: BaseException | None = None

    @property
    def window_s(self) -> float:
        """Return the time over which is averaged."""
        return max(WINDOW_S, self.interval_s * _WINDOW_SAMPLES)

    def add(self, sample: Sample) -> None:
        """Keep a sample, and forget those that have become too old."""
        kept = (seen for seen in self.samples if sample.at_s - seen.at_s <= self.window_s)
        self.samples = (*kept, sample)
        self.count += 1
        self.news.set()


def report_unread(header: RecordingHeader) -> None:
    """Say what of a server could not be read."""
    for unread in header.unread:
        write_message(f"not read: {unread.what} ({unread.why})")


def report_lost(error: PenstockError) -> None:
    """Say that a connection was lost, and what comes of it."""
    write_message(f"connection lost: {error.message}; reconnecting at each sample")
