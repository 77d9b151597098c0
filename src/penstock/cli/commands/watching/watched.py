"""What is being watched: the samples of late, and what is said of those that are missing."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.cli.commands.load import interrupting_signals
from penstock.cli.terminal.output import write_message
from penstock.observe import sample_on_clock

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.errors import PenstockError
    from penstock.model.recording import RecordingHeader, Sample
    from penstock.observe import Sampler

# What is shown is the average over this time, or over so many samples where that is longer.
WINDOW_S = 10.0
_WINDOW_SAMPLES = 5
# How long is waited for the last sample.
_LAST_SAMPLE_S = 5.0


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

    def end(self) -> None:
        """Have it end, and who waits for news know."""
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
    """Sample in a thread of its own, and `keep` each, while `show` runs: until Ctrl-C, SIGTERM, `stop`, or `for_s`.

    Neither end waits for a server that does not answer. Raises what sampling and keeping raise.
    """
    # A daemon: such a server must not keep the process.
    sampling = threading.Thread(target=_sample, args=(sampler, watched, keep, for_s), name="sampling", daemon=True)
    ending = threading.Timer(threading.TIMEOUT_MAX if for_s is None else min(for_s, threading.TIMEOUT_MAX), watched.end)
    ending.daemon = True
    sampling.start()
    ending.start()
    with interrupting_signals():
        try:
            show()
        except KeyboardInterrupt:
            pass  # How a watch ends: with what was seen
        finally:
            ending.cancel()
            watched.stop.set()
            sampling.join(_LAST_SAMPLE_S)
    if sampling.is_alive():
        write_message("the server does not answer: the last sample is missing")
    if watched.failure is not None:
        raise watched.failure


def _sample(sampler: Sampler, watched: Watched, keep: Callable[[Sample], None], for_s: float | None) -> None:
    """Sample until told to stop; what goes wrong is left for the thread that shows."""
    try:
        for sample in sample_on_clock(
            sampler, interval=lambda: watched.interval_s, stop=watched.stop, for_s=for_s, on_lost=report_lost
        ):
            keep(sample)
    except BaseException as error:  # noqa: BLE001 (raised again where it is shown)
        watched.failure = error
    finally:
        watched.end()


def report_unread(header: RecordingHeader) -> None:
    """Say what of a server could not be read."""
    for unread in header.unread:
        write_message(f"not read: {unread.what} ({unread.why})")


def report_lost(error: PenstockError) -> None:
    """Say that a connection was lost, and what comes of it."""
    write_message(f"connection lost: {error.message}; reconnecting at each sample")
