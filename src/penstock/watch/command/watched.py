"""Samples a server in a thread, keeps the latest samples for the screen, and reports samples that are lost."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.cli.output import write_message
from penstock.watch.sampler import Sampler, sample_on_clock

if TYPE_CHECKING:
    from penstock.core.errors import PenstockError
    from penstock.core.values.diagnosis import Diagnosis
    from penstock.watch.values import RecordingHeader, Sample


# The screen shows averages over this time, or over _WINDOW_SAMPLES samples if they cover a longer time.
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
    risks: tuple[Diagnosis, ...] = ()

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
