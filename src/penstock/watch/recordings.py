"""Writes and reads recordings: files of JSON lines, compressed with zstd.

A recording has a line for the header, a line for each sample, and a line that marks the end. The file is flushed to the
operating system each second. So if the writer was killed, the recording can be read up to its last whole line. A reader
ignores fields that it does not know, and refuses a format with a newer major version. A field that is missing has its
default. Recordings of every released version can be read for ever. tests/recordings has some of each format.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, fields
from datetime import datetime
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Self, TypeVar, get_args, get_origin, get_type_hints

from penstock import __version__
from penstock.core.errors import SourceError
from penstock.core.values.accounts import (
    BackendIo,
    FileOutcome,
    LoadAccounts,
    LoadConditions,
    LoadCounts,
    LoadDetails,
    ReaderSeconds,
    SessionSeconds,
)
from penstock.core.values.device import VolumeLimits
from penstock.core.values.server import Unread
from penstock.core.zstd import zstd
from penstock.watch.values import FORMAT, Progress, Recording, RecordingHeader, Sample, SessionSample

_MARK = "penstock_recording"
# The key in the header line for the version of penstock that wrote the recording.
_WRITER = "penstock"
_FLUSH_EVERY_S = 1.0
_READ_BYTES = 1024 * 1024
# The largest window that the decompressor accepts, 128 MiB (2^27 bytes). penstock's recordings need 8 MiB. Without a
# limit, another file could require far more memory.
_OPTIONS: dict[int, int] = {zstd.DecompressionParameter.window_log_max: 27}
# The longest line that is read. For comparison, a sample with 5,000 statements of 2 kB each has 15 MB.
_MAX_LINE_BYTES = 256 * 1024 * 1024
# This number is larger than any counter of a server, which is a bigint, and than any time in seconds.
_MAX_NUMBER = 2**64
_NUMBERS = frozenset((int, float))
_LEAST = {"at_s": 0, "interval_s": 0, "cpu_count": 1}

# The errors that reading raises if the JSON is not that of a recording.
_MISREAD = (ValueError, TypeError, KeyError, AttributeError, RecursionError)

_Fields = TypeVar("_Fields")

# Keeps the results of _types_of. A load never fills it, because a load only writes recordings.
_TYPES: dict[type, Mapping[str, frozenset[type]]] = {}


class Recorder:
    """Writes a recording to a new file that only the owner may read. The constructor and methods raise SourceError.

    If `folder` is given, it is a descriptor of the path's folder, and the path is only shown.
    Use it as a context manager. If the block ends without an error, or by Ctrl-C, the recording is marked as complete.
    """

    def __init__(
        self,
        path: Path,
        header: RecordingHeader,
        *,
        folder: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path = path
        self._clock = clock
        self._flushed_s = clock()
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        file = path if folder is None else path.name
        try:
            self._file = os.fdopen(os.open(file, flags, 0o600, dir_fd=folder), "wb")
        except FileExistsError as exc:
            raise SourceError(f'"{path}" already exists', hint="Name a new file for the recording.") from exc
        except OSError as exc:
            raise self._failure(exc) from exc
        self._compressor = zstd.ZstdCompressor()
        try:
            self._write({_MARK: FORMAT, _WRITER: __version__, **asdict(header)})
            self._flush()
        except SourceError:
            with suppress(OSError):
                self._file.close()
            os.unlink(file, dir_fd=folder)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, exc_type: type[BaseException] | None, *_: object) -> None:
        if self._file.closed:
            return
        try:
            if exc_type is None or exc_type is KeyboardInterrupt:
                self._write({"end": True})
            self._file.write(self._compressor.flush(zstd.ZstdCompressor.FLUSH_FRAME))
            self._file.flush()
        except OSError as error:
            raise self._failure(error) from error
        finally:
            with suppress(OSError):
                self._file.close()

    def write(self, sample: Sample) -> None:
        """Append a sample."""
        self._write({"sample": sample})
        if self._clock() - self._flushed_s >= _FLUSH_EVERY_S:
            self._flush()

    def write_load(self, counts: LoadCounts) -> None:
        """Append what the loader counted. Call this once, after the last sample."""
        self._write({"load": asdict(counts)})

    def _write(self, line: Mapping[str, object]) -> None:
        try:
            self._file.write(
                self._compressor.compress(json.dumps(line, separators=(",", ":"), default=_to_fields).encode() + b"\n")
            )
        except OSError as exc:
            raise self._failure(exc) from exc

    def _flush(self) -> None:
        try:
            self._file.write(self._compressor.flush(zstd.ZstdCompressor.FLUSH_BLOCK))
            self._file.flush()
        except OSError as exc:
            raise self._failure(exc) from exc
        self._flushed_s = self._clock()

    def _failure(self, error: OSError) -> SourceError:
        return SourceError(f'could not write the recording "{self._path}": {error.strerror}')


def _to_fields(entry: Any) -> dict[str, object]:
    """Return the fields of a dataclass.

    asdict would copy all rows of counters, which takes as long as taking a sample.
    """
    return {each.name: getattr(entry, each.name) for each in fields(entry)}


def read_recording(path: Path) -> Recording:
    """Return a recording. Its samples are read from the file one by one, up to the last whole line.

    Raises SourceError if the file is not a recording or has a newer format. Iterating over the samples raises
    SourceError if the file is damaged.
    """
    lines = _read_lines(path)
    header = _read_header(path, next(lines, b""))
    recording = Recording(header=header, samples=())
    recording.samples = _read_samples(path, lines, recording)
    return recording


def _read_samples(path: Path, lines: Iterator[bytes], recording: Recording) -> Iterator[Sample]:
    """Yield the samples, and set `is_whole` at the line that marks the end."""
    count = 0
    for line in lines:
        try:
            entry = json.loads(line, parse_constant=_refuse_constant)
            sample = _to_sample(entry["sample"]) if "sample" in entry else None
            if "load" in entry:
                recording.load = _to_counts(entry["load"])
            recording.is_whole = recording.is_whole or bool(entry.get("end"))
        except _MISREAD as exc:
            raise SourceError(f'recording "{path}" is damaged', detail=f"After {count} samples: {exc}.") from exc
        if sample is not None:
            count += 1
            yield sample


def _read_lines(path: Path) -> Iterator[bytes]:
    """Yield the whole lines of a recording, without line ends. An incomplete last line is ignored."""
    decompressor = zstd.ZstdDecompressor(options=_OPTIONS)
    rest = bytearray()
    try:
        with path.open("rb") as file:
            while not decompressor.eof:
                stored = file.read(_READ_BYTES) if decompressor.needs_input else b""
                if decompressor.needs_input and not stored:
                    return
                block = decompressor.decompress(stored, _READ_BYTES)
                *lines, last = block.split(b"\n")
                for line in lines:
                    yield bytes(rest + line)
                    rest.clear()
                rest += last
                if len(rest) > _MAX_LINE_BYTES:
                    raise SourceError(
                        f'"{path}" is not a recording, or is damaged', detail=f"A line is over {_MAX_LINE_BYTES} bytes."
                    )
    except OSError as exc:
        raise SourceError(f'could not read "{path}": {exc.strerror}') from exc
    except zstd.ZstdError as exc:
        raise SourceError(
            f'"{path}" is not a recording, or is damaged',
            detail=f"{exc}.",
            hint="penstock watch --record creates recordings.",
        ) from exc


def _read_header(path: Path, line: bytes) -> RecordingHeader:
    try:
        entry = json.loads(line, parse_constant=_refuse_constant)
        major, _, _ = str(entry[_MARK]).partition(".")
        own_major, _, _ = FORMAT.partition(".")
        if int(major) > int(own_major):
            writer = f"penstock {entry[_WRITER]}" if _WRITER in entry else "a newer penstock"
            raise SourceError(
                f'recording "{path}" has format {entry[_MARK]}, which {writer} wrote',
                detail=f"This is penstock {__version__}, which reads formats up to {own_major}.",
                hint=f"Install {writer}{', or a later one' if _WRITER in entry else ''}.",
            )
        entry["unread"] = tuple(_known(Unread, found) for found in entry["unread"])
        if entry.get("volume") is not None:
            entry["volume"] = _known(VolumeLimits, entry["volume"])
        if datetime.fromisoformat(entry["started_at"]).tzinfo is None:
            raise ValueError("started_at has no time zone")
        return _known(RecordingHeader, entry)
    except _MISREAD as exc:
        raise SourceError(f'"{path}" is not a recording', hint="penstock watch --record creates recordings.") from exc


def _to_sample(entry: dict[str, Any]) -> Sample:
    entry["sessions"] = tuple(
        _known(SessionSample, {**session, "blocked_by": tuple(session["blocked_by"])}) for session in entry["sessions"]
    )
    entry["progress"] = _known(Progress, entry["progress"])
    entry["counters"] = {name: tuple(map(_check_row, rows)) for name, rows in entry["counters"].items()}
    return _known(Sample, entry)


def _to_counts(entry: dict[str, Any]) -> LoadCounts:
    accounts, setting = entry["accounts"], entry["setting"]
    for name, kind in (("sessions", SessionSeconds), ("readers", ReaderSeconds)):
        accounts[name] = _known(kind, accounts[name])
    if accounts.get("io") is not None:
        accounts["io"] = _known(BackendIo, accounts["io"])
    setting = {name: tuple(value) if isinstance(value, list) else value for name, value in setting.items()}
    return LoadCounts(
        accounts=_known(LoadAccounts, accounts),
        setting=_known(LoadConditions, setting),
        details=_to_details(entry["details"]) if entry.get("details") else None,
    )


def _to_details(entry: dict[str, Any]) -> LoadDetails:
    plan, done = (tuple(tuple(map(str, row)) for row in entry[name]) for name in ("plan", "done"))
    return LoadDetails(files=tuple(_known(FileOutcome, each) for each in entry["files"]), plan=plan, done=done)


def _check_row(row: Mapping[str, object]) -> Mapping[str, object]:
    """Return a row of a statistics view. Raises TypeError, ValueError if a server cannot have such a row."""
    if not isinstance(row, dict):
        raise TypeError("a row is not an object")
    if not isinstance(row.get("datname"), str | NoneType):
        raise TypeError(f"datname is {type(row['datname']).__name__}")
    for name, value in row.items():
        if type(value) in _NUMBERS and not -_MAX_NUMBER < value < _MAX_NUMBER:
            raise ValueError(f"{name} is out of range")
    return row


def _known(kind: type[_Fields], entry: Mapping[str, Any]) -> _Fields:
    """Return an instance of a class from its fields in `entry`. Other entries are ignored.

    Raises TypeError, ValueError if a field has another type or is out of range.
    """
    if kind not in _TYPES:
        _TYPES[kind] = _types_of(kind)
    found = {}
    for name, types in _TYPES[kind].items():
        if name in entry:
            value = found[name] = entry[name]
            kind_of_value = type(value)
            # Comparing exact types is faster than isinstance, and does not accept a bool as an int.
            if kind_of_value not in types:
                raise TypeError(f"{name} is {kind_of_value.__name__}")
            if kind_of_value in _NUMBERS and not _LEAST.get(name, -_MAX_NUMBER) <= value < _MAX_NUMBER:
                raise ValueError(f"{name} is out of range")
    return kind(**found)


def _types_of(kind: type) -> Mapping[str, frozenset[type]]:
    """Return the types that each field of a class may have, without the types of a container's elements."""
    found = {}
    for name, hint in get_type_hints(kind, localns={"Unread": Unread, "VolumeLimits": VolumeLimits}).items():
        kinds = {get_origin(part) or part for part in (get_args(hint) if isinstance(hint, UnionType) else [hint])}
        kinds |= {int} if float in kinds else set()
        # A JSON object is read as a dict.
        found[name] = frozenset(dict if each is Mapping else each for each in kinds)
    return found


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a number")
