"""Local objects: regular files, pipes and standard input, read in order with plain system calls.

A regular file is pinned to what was listed: a file that is replaced, written to, shrinks or grows under the
load is an error that says so. Pipes and standard input have no size and can be read once only.
"""

from __future__ import annotations

import os
import pathlib
import select
import stat
import threading
from typing import TYPE_CHECKING

from penstock.errors import SourceError
from penstock.model.source.source import SourceObject
from penstock.units import KIB

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

STDIN_LOCATION = "-"

# Large enough that system calls cost nothing beside igzip, small enough to stay in the second-level cache
READ_BYTES = 256 * KIB


class LocalObject:
    """One local file, pipe or standard input, opened; `pieces` gives its bytes in order, once.

    `is_for_others`: SourceError unless it is a regular file that everybody may read.
    A silent pipe may keep its reader waiting for ever; `interrupt`, from another thread, ends that.
    """

    def __init__(self, source: SourceObject, *, is_for_others: bool = False) -> None:
        self._source = source
        self._fd = _open(source)
        self._wake = os.pipe() if source.version is None else None
        # A descriptor that is closed may be another's at once: nobody may write to it then.
        self._wake_lock = threading.Lock()
        try:
            if is_for_others:
                _check_public(source, os.fstat(self._fd))
            self._check_unchanged()
        except SourceError:
            self.close()
            raise
        if source.version is not None and hasattr(os, "posix_fadvise"):
            os.posix_fadvise(self._fd, 0, 0, os.POSIX_FADV_SEQUENTIAL)

    def pieces(self) -> Iterator[bytes]:
        """Yield the stored bytes; raise SourceError where reading fails or the file has changed."""
        bytes_read = 0
        while piece := self._read():
            # Before any of it is loaded: what was written before it was read has moved the time of change
            self._check_unchanged()
            bytes_read += len(piece)
            yield piece
        self._check_unchanged()
        if self._source.size_bytes is not None and bytes_read != self._source.size_bytes:
            raise _changed(self._source, f"It had {self._source.size_bytes} bytes; {bytes_read} were read.")

    def interrupt(self) -> None:
        """Have whoever waits for a pipe's bytes, or will, meet a SourceError instead."""
        with self._wake_lock:
            if self._wake is not None:
                os.write(self._wake[1], b"\0")

    def close(self) -> None:
        """Close the file; standard input stays open, for it is not ours."""
        if self._fd > 0:
            os.close(self._fd)
        self._fd = -1
        with self._wake_lock:
            wake, self._wake = self._wake, None
            for end in wake or ():
                os.close(end)

    def _read(self) -> bytes:
        if self._wake is not None:
            self._await_bytes(self._wake[0])
        try:
            return os.read(self._fd, READ_BYTES)
        except OSError as exc:
            raise SourceError(f'could not read "{self._source.uri}": {exc.strerror}') from exc

    def _await_bytes(self, wake: int) -> None:
        waiting = select.poll()
        for fd in (self._fd, wake):
            waiting.register(fd, select.POLLIN)
        if any(fd == wake for fd, _ in waiting.poll()):
            raise SourceError(f'reading "{self._source.uri}" was stopped')

    def _check_unchanged(self) -> None:
        version = self._source.version
        if version is not None and file_version(os.fstat(self._fd)) != version:
            raise _changed(
                self._source, "Its identity, size, modification or change time differs from when it was listed."
            )


def file_version(status: os.stat_result) -> str:
    """Return what pins a regular file: device, inode, size, and the times of modification and of change.

    Whoever writes to a file can restore the first of the times; the second is the kernel's alone.
    """
    return f"{status.st_dev}:{status.st_ino}:{status.st_size}:{status.st_mtime_ns}:{status.st_ctime_ns}"


def stat_object(path: str, *, uri: str) -> SourceObject | None:
    """Return the object that a path names, or None if it is a directory.

    Raises SourceError if there is no such file or it is of a kind that cannot be read.
    """
    try:
        # Not pathlib: a path is bytes that may not be UTF-8, and nothing of it may be rewritten
        status = os.stat(path)  # noqa: PTH116
    except OSError as exc:
        raise SourceError(f'could not open "{uri}": {exc.strerror}') from exc
    except ValueError as exc:
        raise SourceError(f'could not open "{uri!r}": {exc}') from exc
    if stat.S_ISDIR(status.st_mode):
        return None
    if stat.S_ISSOCK(status.st_mode):
        raise SourceError(f'could not open "{uri}": it is a socket')
    if not stat.S_ISREG(status.st_mode):
        return SourceObject(uri=uri, location=path, size_bytes=None, version=None)
    return SourceObject(uri=uri, location=path, size_bytes=status.st_size, version=file_version(status))


def _open(source: SourceObject) -> int:
    if source.location == STDIN_LOCATION:
        return 0
    try:
        return os.open(source.location, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as exc:
        raise SourceError(f'could not open "{source.uri}": {exc.strerror}') from exc


def _check_public(source: SourceObject, opened: os.stat_result) -> None:
    """Raise SourceError unless everybody may read the file that was opened, by the path that it has."""
    path = pathlib.Path(os.path.realpath(source.location))
    try:
        may_read = (
            stat.S_ISREG(opened.st_mode)
            and opened.st_mode & stat.S_IROTH
            and os.path.samestat(path.stat(), opened)
            and all(folder.stat().st_mode & stat.S_IXOTH for folder in path.parents)
        )
    except OSError:
        may_read = False
    if not may_read:
        raise SourceError(
            f'"{source.uri}" is not read for another login\'s load: not every user may read it',
            hint="Run the load's own penstock load command, which names the file itself.",
        )


def refuse_remote(sources: Iterable[str]) -> None:
    """Raise SourceError for URLs: they would be read with the credentials of who runs this."""
    for source in sources:
        if "://" in source:
            raise SourceError(
                f'"{source}" is not read for another login\'s load',
                detail="It would be read with your credentials and from this host.",
                hint="Run the load's own penstock load command, which names the URL itself.",
            )


def _changed(source: SourceObject, detail: str) -> SourceError:
    return SourceError(
        f'"{source.uri}" changed while it was read',
        detail=detail,
        hint="Load it again when no process writes to it.",
    )
