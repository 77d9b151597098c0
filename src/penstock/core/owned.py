"""Opens folders of penstock's own in a place that other users may share, such as PENSTOCK_HOME."""

from __future__ import annotations

import errno
import os
from pathlib import Path


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
