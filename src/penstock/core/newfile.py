"""Writes files at paths that the user names, and opens folders of penstock's own.

Either the whole file appears, or the path stays unchanged. A new file is created or a regular file replaced, but never
a device, pipe, folder, symbolic link or source of the load.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Self

from penstock.core.errors import SourceError

_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFLNK: "a symbolic link",
}


def check_writable(path: Path, *, sources: Iterable[str | int] = ()) -> None:
    """Raise SourceError if no file can be written at `path`.

    That is so if `path` exists and is not a regular file, if it is one of the sources (paths and descriptors), or if
    its folder is not writable. The folder must be writable because the file is first written under another name beside
    `path`.
    """
    found = None
    try:
        with suppress(FileNotFoundError):
            found = path.lstat()
        path.parent.stat()
    except OSError as exc:
        raise could_not_write(path, exc) from exc
    if found is not None and not stat.S_ISREG(found.st_mode):
        kind = _KINDS.get(stat.S_IFMT(found.st_mode), "not a regular file")
        raise SourceError(f'will not replace "{path}": it is {kind}', hint="Name a new file, or a regular one.")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise could_not_write(path, PermissionError(errno.EACCES, os.strerror(errno.EACCES)))
    if found is None:
        return
    for source in sources:
        with suppress(OSError, ValueError):
            # pathlib is not used: a source's path may have bytes that are not UTF-8.
            if os.path.samestat(os.stat(source), found):  # noqa: PTH116
                raise SourceError(f'will not replace "{path}": it is a source of the load', hint="Name a new file.")


def check_new(path: Path) -> None:
    """Raise SourceError if `path` exists, or if its folder is not writable."""
    check_writable(path)
    if path.exists():
        raise SourceError(f'"{path}" already exists', hint="Name a new file.")


def could_not_write(path: Path, error: OSError) -> SourceError:
    """Return the error for a file that cannot be written."""
    return SourceError(f'could not write "{path}": {error.strerror}')


def write_file(path: Path, content: bytes, *, mode: int = 0o600) -> None:
    """Write a file, completely or not at all. `mode` has the permissions of the file. Raises SourceError."""
    try:
        with NewFile(path, mode=mode) as file:
            file.write(content)
            file.finish()
    except OSError as exc:
        raise could_not_write(path, exc) from exc


class NewFile:
    """A file that is written under a temporary name in the folder of `path`; `finish` renames it to `path`.

    If `finish` was not called, the temporary file is deleted when the block ends. By default only its owner may read
    the file, because rejected records may be as private as their sources. The constructor raises SourceError as
    `check_writable` does. Raises OSError if a write fails.
    """

    def __init__(self, path: Path, *, sources: Iterable[str | int] = (), mode: int = 0o600) -> None:
        self.path = path
        check_writable(path, sources=sources)
        self._unfinished = path.with_name(f".penstock-{secrets.token_hex(8)}.unfinished")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self._file = os.fdopen(os.open(self._unfinished, flags, mode), "wb")
        self.write = self._file.write
        self.tell = self._file.tell

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._file.close()
        with suppress(OSError):
            self._unfinished.unlink(missing_ok=True)

    def finish(self) -> None:
        """Write the file to disk (fsync) and rename it to its path."""
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        check_writable(self.path)
        self._unfinished.replace(self.path)


def open_own_folder(folder: Path) -> int:
    """Open a folder and return its descriptor. The folder must belong to this user and not be a symbolic link.

    So no other user has chosen the folder. Raises OSError. The caller uses the descriptor instead of the path, because
    the path may name another folder later.
    """
    try:
        opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as exc:
        if exc.errno not in (errno.ELOOP, errno.ENOTDIR):
            raise
        raise PermissionError(errno.EPERM, "it is a symbolic link or a file", str(folder)) from exc
    if os.fstat(opened).st_uid != os.geteuid():
        os.close(opened)
        raise PermissionError(errno.EPERM, "it belongs to another user", str(folder))
    return opened
