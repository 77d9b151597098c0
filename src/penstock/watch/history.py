"""A history: a folder with a recording for each hour. Old recordings are removed. Parts of a history can be read."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Self

from penstock.core.errors import SourceError
from penstock.watch.kept import SUFFIX, list_recordings
from penstock.watch.recordings import Recorder, read_recording
from penstock.watch.values import Recording, RecordingHeader, Sample

if TYPE_CHECKING:
    from penstock.core.values.device import CounterRow

_PIECE_S = 3600.0
# Two recordings are removed from a full disk at least so long after each other.
_LEAST_GAP_S = 600.0
_FULL = (errno.ENOSPC, errno.EDQUOT)

# In a sample, these views have only the rows that have changed. The columns identify a row.
_OF_CHANGES = {
    "pg_stat_statements": ("userid", "dbid", "queryid", "toplevel"),
    "pg_statio_user_indexes": ("schemaname", "indexrelname"),
}


class History:
    """Writes samples to a folder, each hour to a new recording. Use it as a context manager.

    If the disk is full, the oldest recording is removed. The constructor and `write` raise SourceError.
    """

    def __init__(
        self,
        folder: Path,
        # Returns the header of a recording that begins now. The server's settings may change meanwhile.
        describe: Callable[[], RecordingHeader],
        *,
        # Recordings that began more than this time and an hour ago are removed.
        keep_s: float,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._folder = folder
        self._describe = describe
        self._keep_s = keep_s
        self._clock = clock
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as exc:
            raise SourceError(f'could not keep a history in "{folder}": {exc.strerror}') from exc
        self._lock = _lock_folder(folder)
        self._dropped_s = 0.0
        self._first_s = 0.0
        self._known = _Known()
        self._is_new = False
        self._began_s = clock()
        self._recorder = self._begin()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, exc_type: type[BaseException] | None, *_: object) -> None:
        try:
            self._recorder.__exit__(exc_type)
        finally:
            os.close(self._lock)

    def write(self, sample: Sample) -> None:
        """Append a sample. Begin a new recording if the hour is over or the disk is full."""
        if self._clock() >= self._began_s + _PIECE_S:
            self._renew(sample.at_s)
        self._known.see(sample)
        try:
            self._append(sample)
        except SourceError as error:
            self._drop_oldest(error)
            self._renew(sample.at_s)
            self._append(sample)

    def _append(self, sample: Sample) -> None:
        whole = self._known.complete(sample) if self._is_new else sample
        self._recorder.write(replace(whole, at_s=sample.at_s - self._first_s))
        self._is_new = False

    def _renew(self, at_s: float) -> None:
        """End the present recording, and begin another one.

        If the disk is full, the present recording has no end mark.
        """
        with suppress(SourceError):
            self._recorder.__exit__(None, None, None)
        self._first_s, self._began_s, self._is_new = at_s, self._clock(), True
        try:
            self._recorder = self._begin()
        except SourceError as error:
            self._drop_oldest(error)
            self._recorder = self._begin()

    def _begin(self) -> Recorder:
        """Remove the recordings that are too old, and open the recording that begins now."""
        for path in self._pieces():
            if (_began_s(path) or 0.0) + _PIECE_S < self._began_s - self._keep_s:
                path.unlink(missing_ok=True)
        began = datetime.fromtimestamp(self._began_s, UTC)
        header = replace(self._describe(), started_at=began.isoformat(timespec="milliseconds"))
        return Recorder(self._folder / f"{began:%Y%m%dT%H%M%S.%f}{SUFFIX}", header)

    def _drop_oldest(self, error: SourceError) -> None:
        """If the disk is full, remove the oldest recording.

        Raise `error` if it is not about a full disk, if one was removed in the last ten minutes, or if none is left.
        """
        others = self._pieces()[:-1]
        now_s = self._clock()
        # If others fill the disk, the space of one recording does not last, and all would go.
        if now_s < self._dropped_s + _LEAST_GAP_S:
            raise error
        if not others or not isinstance(error.__cause__, OSError) or error.__cause__.errno not in _FULL:
            raise error
        self._dropped_s = now_s
        others[0].unlink(missing_ok=True)

    def _pieces(self) -> list[Path]:
        """Return the recordings of histories, oldest first.

        Recordings that are not of a history are not listed, so they are not removed.
        """
        return [path for path in list_recordings(self._folder) if _began_s(path) is not None]


def _lock_folder(folder: Path) -> int:
    """Return a file descriptor that keeps others from writing a history to the folder. Raises SourceError."""
    try:
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as exc:
        raise SourceError(f'could not keep a history in "{folder}": {exc.strerror}') from exc
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as exc:
        os.close(lock)
        raise SourceError(
            f'another penstock watch keeps a history in "{folder}"', hint="Name another folder, or end it."
        ) from exc
    return lock


class _Known:
    """The newest rows of the views whose samples have only changed rows. A missing row would count from 0."""

    def __init__(self) -> None:
        self._rows: dict[str, dict[tuple[object, ...], CounterRow]] = {}

    def see(self, sample: Sample) -> None:
        """Keep the rows of a sample."""
        for view, columns in _OF_CHANGES.items():
            if view in sample.counters:
                rows = self._rows.setdefault(view, {})
                rows.update((tuple(map(row.get, columns)), row) for row in sample.counters[view])

    def complete(self, sample: Sample) -> Sample:
        """Return a sample with all rows of these views, because the first sample of a recording must have all rows."""
        known = {view: tuple(rows.values()) for view, rows in self._rows.items()}
        return replace(sample, counters={**sample.counters, **known})


def read_history(paths: Sequence[Path], since_s: float, until_s: float) -> Recording:
    """Return the samples between two moments of several recordings, oldest first, as one recording.

    The moments are seconds since 1970. The header is that of the first recording with such samples, with the settings
    of the last. If the first moment is later than the first recording's start, it becomes the start, and `at_s` counts
    from there. Raises SourceError.
    """
    # A file is empty if the writer was killed before it wrote anything, or if the power failed.
    written = [path for path in paths if not path.is_file() or path.stat().st_size]
    found: list[Recording] = [
        recording for path in written for recording in [read_recording(path)] if _started_s(recording) <= until_s
    ]
    # A recording has no samples after the start of the next one.
    ends_s = [*map(_started_s, found[1:]), until_s][: len(found)]
    kept = [each for each, end_s in zip(found, ends_s, strict=True) if end_s >= since_s]
    if not kept:
        raise SourceError(
            "no recording has samples of this time", hint="List the folder: the names begin with the time, in UTC."
        )
    header = replace(kept[0].header, settings=kept[-1].header.settings)
    if any((each.header.server, each.header.database) != (header.server, header.database) for each in kept):
        raise SourceError(
            "the recordings of this time are of several servers or databases",
            hint="Keep the history of each server in a folder of its own.",
        )
    first_s = max(_started_s(kept[0]), since_s)
    began = datetime.fromtimestamp(first_s, UTC).isoformat(timespec="milliseconds")
    result = Recording(header=replace(header, started_at=began), samples=())
    result.samples = chain.from_iterable(_cut(each, first_s, since_s, until_s, result) for each in kept)
    return result


def _cut(recording: Recording, first_s: float, since_s: float, until_s: float, whole: Recording) -> Iterator[Sample]:
    """Yield the samples of one recording that lie between two moments."""
    started_s, known, is_first = _started_s(recording), _Known(), True
    for sample in recording.samples:
        if is_first:
            known.see(sample)
        if since_s <= started_s + sample.at_s <= until_s:
            whole_sample = known.complete(sample) if is_first else sample
            is_first = False
            yield replace(whole_sample, at_s=started_s + sample.at_s - first_s)
    whole.is_whole = recording.is_whole


def _started_s(recording: Recording) -> float:
    return datetime.fromisoformat(recording.header.started_at).timestamp()


def _began_s(path: Path) -> float | None:
    """Return when a history's recording began, from its name, in seconds since 1970.

    Returns None for other names, for example that of a load's recording.
    """
    try:
        return datetime.strptime(path.name, f"%Y%m%dT%H%M%S.%f{SUFFIX}").replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None
