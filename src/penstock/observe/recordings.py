"""Recordings on disk: zstd-compressed lines of JSON, a header first, then one sample a line, then that it ended.

What is written reaches the disk's cache each second, so a recording whose writer was killed reads up to its last whole
line. Fields that a reader does not know are left alone; a format of a newer major version is refused.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any, Self, TypeVar

import zstandard

from penstock.errors import SourceError
from penstock.model.inspection import Unread
from penstock.model.recording import FORMAT, Progress, Recording, RecordingHeader, Sample, SessionSample

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path
    from types import TracebackType

_MARK = "penstock_recording"
_FLUSH_EVERY_S = 1.0
_READ_BYTES = 1024 * 1024
# Ours need 8 MiB at most: no file may ask for more memory than this.
_MAX_WINDOW_BYTES = 128 * 1024 * 1024

_Fields = TypeVar("_Fields", RecordingHeader, Sample, SessionSample, Progress, Unread)


class Recorder:
    """Writes a recording to a new file, which only its owner may read. Raises SourceError, as do its methods.

    Leave it by `with`: without an error, and by Ctrl-C, the recording is marked as whole.
    """

    def __init__(self, path: Path, header: RecordingHeader, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._clock = clock
        self._flushed_s = clock()
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            self._file = os.fdopen(os.open(path, flags, 0o600), "wb")
        except FileExistsError as exc:
            raise SourceError(f'"{path}" already exists', hint="Name a new file for the recording.") from exc
        except OSError as exc:
            raise self._failure(exc) from exc
        self._stream = zstandard.ZstdCompressor().stream_writer(self._file, closefd=False)
        self._write({_MARK: FORMAT, **asdict(header)})
        self._flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if exc_type is None or exc_type is KeyboardInterrupt:
                self._write({"end": True})
            self._stream.flush(zstandard.FLUSH_FRAME)
            self._file.flush()
        except OSError as error:
            raise self._failure(error) from error
        finally:
            with suppress(OSError):
                self._file.close()

    def write(self, sample: Sample) -> None:
        """Append a sample."""
        self._write({"sample": asdict(sample)})
        if self._clock() - self._flushed_s >= _FLUSH_EVERY_S:
            self._flush()

    def _write(self, line: Mapping[str, object]) -> None:
        try:
            self._stream.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")
        except OSError as exc:
            raise self._failure(exc) from exc

    def _flush(self) -> None:
        try:
            self._stream.flush(zstandard.FLUSH_BLOCK)
            self._file.flush()
        except OSError as exc:
            raise self._failure(exc) from exc
        self._flushed_s = self._clock()

    def _failure(self, error: OSError) -> SourceError:
        return SourceError(f'could not write the recording "{self._path}": {error.strerror}')


def read_recording(path: Path) -> Recording:
    """Return a recording, as far as it was written. Raises SourceError for what is none, or of a newer format."""
    lines = _read_lines(path)
    header = _read_header(path, next(lines, b""))
    samples = []
    is_whole = False
    for line in lines:
        try:
            entry = json.loads(line)
            if "sample" in entry:
                samples.append(_to_sample(entry["sample"]))
        except (ValueError, TypeError, KeyError) as exc:
            raise SourceError(
                f'recording "{path}" is damaged', detail=f"Behind {len(samples)} samples: {exc}."
            ) from exc
        is_whole = is_whole or bool(entry.get("end"))
    return Recording(header=header, samples=tuple(samples), is_whole=is_whole)


def _read_lines(path: Path) -> Iterator[bytes]:
    """Yield the whole lines of a recording, without their ends: what follows the last one was cut off."""
    decompressor = zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW_BYTES).decompressobj()
    rest = b""
    try:
        with path.open("rb") as file:
            while not decompressor.eof and (block := file.read(_READ_BYTES)):
                *lines, rest = (rest + decompressor.decompress(block)).split(b"\n")
                yield from lines
    except OSError as exc:
        raise SourceError(f'could not read "{path}": {exc.strerror}') from exc
    except zstandard.ZstdError as exc:
        raise SourceError(
            f'"{path}" is no recording, or is damaged',
            detail=f"{exc}.",
            hint="penstock watch --record makes recordings.",
        ) from exc


def _read_header(path: Path, line: bytes) -> RecordingHeader:
    try:
        entry = json.loads(line)
        major, _, _ = str(entry[_MARK]).partition(".")
        own_major, _, _ = FORMAT.partition(".")
        if int(major) > int(own_major):
            raise SourceError(
                f'recording "{path}" has format {entry[_MARK]}, which a newer penstock wrote',
                detail=f"This one reads formats up to {own_major}.",
                hint="Update penstock.",
            )
        entry["unread"] = tuple(_known(Unread, found) for found in entry["unread"])
        return _known(RecordingHeader, entry)
    except (ValueError, TypeError, KeyError) as exc:
        raise SourceError(f'"{path}" is no recording', hint="penstock watch --record makes recordings.") from exc


def _to_sample(entry: dict[str, Any]) -> Sample:
    entry["sessions"] = tuple(
        _known(SessionSample, {**session, "blocked_by": tuple(session["blocked_by"])}) for session in entry["sessions"]
    )
    entry["progress"] = _known(Progress, entry["progress"])
    entry["counters"] = {name: tuple(rows) for name, rows in entry["counters"].items()}
    return _known(Sample, entry)


def _known(kind: type[_Fields], entry: Mapping[str, Any]) -> _Fields:
    """Return a value of a class from the fields that it has."""
    return kind(**{field.name: entry[field.name] for field in fields(kind) if field.name in entry})
