"""Files that are written for a user, at a path that the user names: whole or not at all, and never over something else.

Only a new file is made or a regular file replaced: no device, pipe, folder or symbolic link, and nothing that is read.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from contextlib import suppress
from typing import TYPE_CHECKING, Self

from penstock.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path
    from types import TracebackType

_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFLNK: "a symbolic link",
}


def check_writable(path: Path, *, sources: Iterable[str | int] = ()) -> None:
    """Raise SourceError if `path` is no regular file, or one of the sources (paths, descriptors) by any name.

    And if it cannot be written: a file beside it comes first.
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
            # Not pathlib: a source's path is bytes that may not be UTF-8
            if os.path.samestat(os.stat(source), found):  # noqa: PTH116
                raise SourceError(f'will not replace "{path}": it is a source of the load', hint="Name a new file.")


def could_not_write(path: Path, error: OSError) -> SourceError:
    """Return the error for a file that cannot be written."""
    return SourceError(f'could not write "{path}": {error.strerror}')


class NewFile:
    """A file under another name beside its own, which it gets by `finish`; without that it is gone at the end.

    By default only its owner may read it: rejects are as private as the files they come from. Raises SourceError from
    the start where the path will not do, and OSError while it is written.
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

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with suppress(OSError):
            self._file.close()
        with suppress(OSError):
            self._unfinished.unlink(missing_ok=True)

    def finish(self) -> None:
        """Make what was written durable and give it its name."""
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        check_writable(self.path)
        self._unfinished.replace(self.path)
