"""Samples a server while a load runs in this process, and keeps the recording. The load never depends on it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.errors import PenstockError, SourceError
from penstock.observe.kept import make_room

if TYPE_CHECKING:
    from penstock.model.load.accounts import LoadCounts
    from penstock.model.recording import RecordingHeader, Sample
    from penstock.observe.recordings import Recorder
    from penstock.observe.sampler import Sampler

_log = logging.getLogger(__name__)

# A load that ends sooner is not sampled. Opening the sampler takes 40 ms of processor time here and on the server,
# which is 1 % of what two sessions use in this time.
_AFTER_S = 2.0

# There are five samples a second for the first 20 s, then fewer, and one a second from 100 s on. More would cost a
# short load more than 1 % of its processor time (benchmarks/recording_cost.py).
SHORTEST_S, _LONGEST_S, _SAMPLES_BEFORE_THINNING = 0.2, 1.0, 100

# How long the end of a load waits for the last sample, for example if the server no longer answers.
_PATIENCE_S = 2.0


class Beside:
    """A thread that samples a server, writes the samples to a new file, and passes them on.

    No error reaches the load.

    Needs a free connection, and pg_read_all_stats to see other roles' sessions.
    """

    def __init__(
        self,
        open_sampler: Callable[[], Sampler],
        *,
        # The file of the recording, None for a new one in the folder. If a path is given, `on_notice` also gets the
        # reason why the server cannot be sampled.
        path: Path | None,
        folder: Path,
        # Called in the thread with the header and each sample.
        see: Callable[[RecordingHeader, Sample], None],
        # Gets the reason why the file cannot be written. Sampling goes on without it.
        on_notice: Callable[[str], None],
    ) -> None:
        self._open_sampler = open_sampler
        self._path = path
        self._folder = folder
        self._see = see
        self._notice = on_notice
        # If the caller asks for a recording, short loads are recorded too.
        self._after_s = _AFTER_S if path is None else 0.0
        self._count: Callable[[], LoadCounts | None] = lambda: None
        self._stop = threading.Event()
        # A daemon thread lets the process exit while the server does not answer.
        self._thread = threading.Thread(target=self._run, name="recording", daemon=True)
        self._thread.start()

    def stop(self, count: Callable[[], LoadCounts | None] = lambda: None) -> bool:
        """End the sampling. If there is a recording, add what the loader counted, which `count` returns.

        Returns false if the sampling has not ended, because the server does not answer.
        """
        self._count = count
        self._stop.set()
        self._thread.join(_PATIENCE_S)
        return not self._thread.is_alive()

    def _run(self) -> None:
        if self._stop.wait(self._after_s):
            return
        try:
            self._sample()
        except PenstockError as error:
            if self._path is None:
                _log.info("the load is not sampled: %s", error)
            else:
                self._notice(f"{error.message}: the load goes on without a recording")

    def _sample(self) -> None:
        from penstock.observe.sampler import sample_on_clock  # noqa: PLC0415 (in this thread, not at a load's start)

        with closing(self._open_sampler()) as sampler, self._recording(sampler.header) as write:
            began_s = time.monotonic()

            def interval() -> float:
                return thin(time.monotonic() - began_s)

            for sample in sample_on_clock(sampler, interval=interval, stop=self._stop):
                self._see(sampler.header, sample)
                write(sample)

    @contextmanager
    def _recording(self, header: RecordingHeader) -> Iterator[Callable[[Sample], None]]:
        """Provide a function that writes samples to the file. After an error of the file the function does nothing."""
        from penstock.observe.recordings import Recorder  # noqa: PLC0415 (in this thread, not at a load's start)

        recorder: Recorder | None = None

        def attempt(act: Callable[[], Recorder | None]) -> None:
            nonlocal recorder
            try:
                recorder = act()
            except SourceError as error:
                recorder = None
                self._notice(f"{error.message}: the load goes on without a recording")

        def open_file() -> Recorder:
            return Recorder(self._path or make_room(self._folder, datetime.now(UTC)), header)

        def write(sample: Sample) -> Recorder | None:
            if recorder is not None:
                recorder.write(sample)
            return recorder

        def close() -> None:
            if recorder is not None:
                if (counts := self._count()) is not None:
                    recorder.write_load(counts)
                recorder.__exit__(None, None, None)

        attempt(open_file)
        yield lambda sample: attempt(lambda: write(sample))
        attempt(close)


def thin(elapsed_s: float) -> float:
    """Return the seconds until the next sample.

    >>> thin(3), thin(50), thin(3600)
    (0.2, 0.5, 1.0)
    """
    return min(_LONGEST_S, max(SHORTEST_S, elapsed_s / _SAMPLES_BEFORE_THINNING))
