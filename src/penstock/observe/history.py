"""A history: a folder of hourly recordings, of which the oldest are removed, and the reading of a part of it."""

from __future__ import annotations

import errno
import time
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from itertools import chain
from typing import TYPE_CHECKING, Self

from penstock.errors import SourceError
from penstock.model.recording import Recording
from penstock.observe.kept import SUFFIX, list_recordings
from penstock.observe.recordings import Recorder, read_recording

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path
    from types import TracebackType

    from penstock.model.recording import RecordingHeader, Sample

_PIECE_S = 3600.0
_FULL = (errno.ENOSPC, errno.EDQUOT)


class History:
    """Writes samples to a folder, each hour to a new recording; use it as a context manager.

    Recordings that began more than `keep_s` seconds and an hour ago are removed, and the oldest one if the disk is
    full. The constructor and `write` raise SourceError.
    """

    def __init__(
        self,
        folder: Path,
        header: RecordingHeader,
        *,
        keep_s: float,
        piece_s: float = _PIECE_S,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._folder = folder
        self._header = header
        self._keep_s = keep_s
        self._piece_s = piece_s
        self._clock = clock
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as exc:
            raise SourceError(f'could not keep a history in "{folder}": {exc.strerror}') from exc
        self._first_s = 0.0
        self._began_s = clock()
        self._recorder = self._begin()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._recorder.__exit__(exc_type, exc, traceback)

    def write(self, sample: Sample) -> None:
        """Append a sample, to a new recording if the hour is over or the disk is full."""
        if self._clock() >= self._began_s + self._piece_s:
            self._renew(sample.at_s)
        try:
            self._recorder.write(replace(sample, at_s=sample.at_s - self._first_s))
        except SourceError as error:
            self._drop_oldest(error)
            self._renew(sample.at_s)
            self._recorder.write(replace(sample, at_s=0.0))

    def _renew(self, at_s: float) -> None:
        """End the present recording, and begin another one. If the disk is full, the former one has no end."""
        with suppress(SourceError):
            self._recorder.__exit__(None, None, None)
        self._first_s, self._began_s = at_s, self._clock()
        try:
            self._recorder = self._begin()
        except SourceError as error:
            self._drop_oldest(error)
            self._recorder = self._begin()

    def _begin(self) -> Recorder:
        """Remove what is too old, and open the recording that begins now."""
        for path in self._pieces():
            if _began_s(path) + self._piece_s < self._began_s - self._keep_s:
                path.unlink(missing_ok=True)
        began = datetime.fromtimestamp(self._began_s, UTC)
        header = replace(self._header, started_at=began.isoformat(timespec="milliseconds"))
        return Recorder(self._folder / f"{began:%Y%m%dT%H%M%S.%f}{SUFFIX}", header)

    def _drop_oldest(self, error: SourceError) -> None:
        """Remove the oldest recording of a full disk; raise the error if it is another one, or nothing is left."""
        others = self._pieces()[:-1]
        if not others or not isinstance(error.__cause__, OSError) or error.__cause__.errno not in _FULL:
            raise error
        others[0].unlink(missing_ok=True)

    def _pieces(self) -> list[Path]:
        return list_recordings(self._folder)


def read_history(paths: Sequence[Path], since_s: float, until_s: float) -> Recording:
    """Return the samples between two moments of recordings, oldest first, as one recording. Raises SourceError.

    The moments are seconds since 1970. The header is that of the first recording with such samples, and `at_s` counts
    from its start.
    """
    found: list[Recording] = [
        recording for path in paths for recording in [read_recording(path)] if _started_s(recording) <= until_s
    ]
    # A recording is over when the next one begins.
    ends_s = [*map(_started_s, found[1:]), until_s][: len(found)]
    kept = [each for each, end_s in zip(found, ends_s, strict=True) if end_s >= since_s]
    if not kept:
        raise SourceError(
            "no recording has samples of this time", hint="List the folder: the names begin with the time, in UTC."
        )
    first_s = _started_s(kept[0])
    result = Recording(header=kept[0].header, samples=())
    result.samples = chain.from_iterable(_cut(each, first_s, since_s, until_s, result) for each in kept)
    return result


def _cut(recording: Recording, first_s: float, since_s: float, until_s: float, whole: Recording) -> Iterator[Sample]:
    """Yield the samples of one recording that lie between two moments."""
    started_s = _started_s(recording)
    for sample in recording.samples:
        if since_s <= started_s + sample.at_s <= until_s:
            yield replace(sample, at_s=started_s + sample.at_s - first_s)
    whole.is_whole = recording.is_whole


def _started_s(recording: Recording) -> float:
    return datetime.fromisoformat(recording.header.started_at).timestamp()


def _began_s(path: Path) -> float:
    """Return when a recording began by its name, in seconds since 1970; infinity if the name has no time."""
    try:
        return (
            datetime.strptime(path.name.split("-")[0].removesuffix(SUFFIX), "%Y%m%dT%H%M%S.%f")
            .replace(tzinfo=UTC)
            .timestamp()
        )
    except ValueError:
        return float("inf")
