"""Reads local objects in order with plain system calls, and copies pipes to temporary files.

A regular file must stay as it was listed: if it is replaced, written to, truncated or extended during the load,
SourceError says so. Pipes and standard input have no size and can be read only once.
"""

from __future__ import annotations

import fcntl
import os
import pathlib
import select
import shutil
import stat
import tempfile
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from penstock.core.errors import SourceError
from penstock.core.units import KIB
from penstock.core.values.source import SourceObject

STDIN_LOCATION = "-"

_READING = os.O_RDONLY | os.O_CLOEXEC
# Linux opens a folder by O_PATH without the right to list it.
_FOLDER = _READING | os.O_DIRECTORY | getattr(os, "O_PATH", 0)

# How many bytes are read at a time. With this many, system calls take little time compared with igzip. With more, the
# bytes would not stay in the second-level cache.
READ_BYTES = 256 * KIB


class LocalObject:
    """An opened local file, pipe or standard input. `pieces` yields its bytes in order, once.

    If `is_for_others` is true, another user chose the source. SourceError is then raised unless the source is a regular
    file that every user may read. A read may wait for a pipe for ever; another thread can call `interrupt` to end that
    wait.
    """

    def __init__(self, source: SourceObject, *, is_for_others: bool = False, follows_links: bool = True) -> None:
        self._source = source
        self._fd = _open(source, follows_links=follows_links)
        self._wake = os.pipe() if source.version is None else None
        # This lock keeps `interrupt` from writing to the pipe after it was closed: the descriptor's number may be
        # reused.
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
        """Yield the bytes of the file, not decompressed.

        Raises SourceError if reading fails or the file has changed.
        """
        bytes_read = 0
        while piece := self._read():
            # Check the version after the read and before the piece is loaded. A write that the read has seen has
            # already changed the version.
            self._check_unchanged()
            bytes_read += len(piece)
            yield piece
        self._check_unchanged()
        if self._source.size_bytes is not None and bytes_read != self._source.size_bytes:
            raise _changed(self._source, f"It had {self._source.size_bytes} bytes; {bytes_read} were read.")

    def read_at(self, start: int, length_bytes: int) -> bytes:
        """Return `length_bytes` bytes of a regular file from offset `start`.

        Raises SourceError if reading fails or the file has changed.
        """
        parts: list[bytes] = []
        while length_bytes:
            try:
                part = os.pread(self._fd, length_bytes, start)
            except OSError as exc:
                raise SourceError(f'could not read "{self._source.uri}": {exc.strerror}') from exc
            self._check_unchanged()
            if not part:
                raise _changed(self._source, f"It ends before byte {start + length_bytes}.")
            parts.append(part)
            start, length_bytes = start + len(part), length_bytes - len(part)
        self._check_unchanged()
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def interrupt(self) -> None:
        """Make present and later reads of a pipe raise SourceError."""
        with self._wake_lock:
            if self._wake is not None:
                os.write(self._wake[1], b"\0")

    def close(self) -> None:
        """Close the file; standard input stays open, because this object did not open it."""
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
    """Return the version of a regular file: device, inode, size, and the times of modification and of change.

    A process that writes to the file can restore the time of modification; only the kernel sets the time of change.
    """
    return f"{status.st_dev}:{status.st_ino}:{status.st_size}:{status.st_mtime_ns}:{status.st_ctime_ns}"


def stat_object(path: str, *, uri: str) -> SourceObject | None:
    """Return the file or pipe that a path names, with its size and version. Return None if the path is a directory.

    Raises SourceError if the file does not exist or is a socket.
    """
    try:
        # pathlib is not used: a path may have bytes that are not UTF-8, and must not be rewritten.
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


def _open(source: SourceObject, *, follows_links: bool) -> int:
    if source.location == STDIN_LOCATION:
        return 0
    try:
        return os.open(source.location, _READING) if follows_links else open_without_links(source.location)
    except OSError as exc:
        raise SourceError(f'could not open "{source.uri}": {exc.strerror}') from exc


def open_without_links(path: str, *, flags: int = _READING | os.O_NONBLOCK) -> int:
    """Open a file by an absolute path of which no part is a symbolic link, and return the descriptor. Raises OSError.

    The folders are opened one after the other, so that no other process can replace one by a link meanwhile.
    """
    *folders, name = path.strip("/").split("/")
    opened = os.open("/", _FOLDER)
    try:
        for folder in folders:
            outer, opened = opened, os.open(folder, _FOLDER | os.O_NOFOLLOW, dir_fd=opened)
            os.close(outer)
        return os.open(name, flags | os.O_NOFOLLOW, dir_fd=opened)
    finally:
        os.close(opened)


def _check_public(source: SourceObject, opened: os.stat_result) -> None:
    """Raise SourceError unless every user may read the opened file by its path."""
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
    """Raise SourceError if a source is a URL, because it would be read with the credentials of this user."""
    for source in sources:
        if "://" in source:
            raise SourceError(
                f'"{source}" is not read for another login\'s load',
                detail="It would be read with your credentials and from this host.",
                hint="Log in as the user that began it, or run its own penstock load command with the URL.",
            )


def _changed(source: SourceObject, detail: str) -> SourceError:
    return SourceError(
        f'"{source.uri}" changed while it was read',
        detail=detail,
        hint="Load it again when no process writes to it.",
    )


_SPOOL_PREFIX = "penstock-spool-"


class SpoolFolder:
    """A temporary folder in TMPDIR that only its owner can read. A lock on it shows that its process runs.

    First the folders of this user's killed processes are removed. Raises OSError.
    """

    def __init__(self) -> None:
        _remove_left_spools(tempfile.gettempdir())
        self.path, self._lock = "", -1
        while not self.path:
            # This raises FileNotFoundError if TMPDIR, /tmp and the other temporary folders are all full.
            path = tempfile.mkdtemp(prefix=_SPOOL_PREFIX)
            try:
                lock = _lock_folder(path)
            except OSError:
                # The file system has no such locks, so no other process removes the folder either.
                self.path = path
                return
            # None if another process has removed the folder before it was locked.
            if lock is not None:
                self.path, self._lock = path, lock

    def close(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock >= 0:
            os.close(self._lock)


def _remove_left_spools(parent: str) -> None:
    with suppress(OSError), os.scandir(parent) as entries:
        names = [each.path for each in entries if each.name.startswith(_SPOOL_PREFIX)]
        for path in names:
            if (lock := _lock_folder(path)) is not None:
                shutil.rmtree(path, ignore_errors=True)
                os.close(lock)


def _lock_folder(path: str) -> int | None:
    """Return a descriptor with a lock on this user's folder, or None if the folder is gone or its process runs.

    Raises OSError if the file system has no such locks.
    """
    try:
        opened = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        is_own = os.fstat(opened).st_uid == os.geteuid()
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # The path may name another folder by now.
        if is_own and os.path.samestat(os.fstat(opened), Path(path).lstat()):
            return opened
    except (BlockingIOError, FileNotFoundError):
        pass
    except OSError:
        os.close(opened)
        raise
    os.close(opened)
    return None


class Spool:
    """Copies of pipes in a temporary folder. `close` removes the folder."""

    def __init__(self) -> None:
        self._folder: SpoolFolder | None = None
        # The copies so far, by location. A load may be planned again, but a pipe can be read only once.
        self._copied: dict[str, SourceObject] = {}

    def copy(self, source: SourceObject) -> SourceObject:
        """Copy the whole content of a pipe to a file, and return that file under the pipe's URI. Raises SourceError."""
        if (before := self._copied.get(source.location)) is not None:
            return before
        stored = LocalObject(source)
        path = None
        try:
            if self._folder is None:
                self._folder = SpoolFolder()
            path = Path(self._folder.path) / str(len(self._copied))
            with path.open("xb") as file:
                for piece in stored.pieces():
                    file.write(piece)
        except OSError as exc:
            raise SourceError(
                f'could not copy "{source.uri}" to a temporary file: {exc.strerror}',
                detail=None if path is None else f'The file is "{path}".',
                hint="Set TMPDIR to a folder with enough space, or do not use --spool.",
            ) from exc
        finally:
            stored.close()
        copied = stat_object(str(path), uri=source.uri)
        assert copied is not None
        spooled = self._copied[source.location] = replace(copied, uri=source.uri, is_spooled=True)
        return spooled

    def close(self) -> None:
        """Remove the temporary folder with the copies."""
        folder, self._folder = self._folder, None
        if folder is not None:
            folder.close()
