"""Examines and creates directories for temporary work, if the server runs on this machine."""

from __future__ import annotations

import os
import stat
from contextlib import ExitStack, suppress
from pathlib import Path

from penstock.core.host.disks import find_device, measure_disk
from penstock.core.slotted import slotted

_NO_LINKS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@slotted
class PartFacts:
    """The owner and mode of a directory on the path to another one. Those of a symbolic link are the link's own."""

    path: str
    is_link: bool
    owner_uid: int
    mode: int


@slotted
class DirectoryFacts:
    """The facts that decide whether a directory can hold a tablespace. A fact that this process may not see is None."""

    is_directory: bool
    # The user id of the data directory's owner.
    server_uid: int
    owner_uid: int | None = None
    mode: int = 0
    is_empty: bool | None = None
    is_inside_data: bool = False
    # The disks that have both this directory and the data directory.
    shared: tuple[str, ...] = ()
    free_bytes: int | None = None
    # The directories above this one, the root first, and this one.
    parts: tuple[PartFacts, ...] = ()


def look_at(directory: Path, data_directory: Path) -> DirectoryFacts | None:
    """Return the facts of a directory, as far as this process can see them.

    Return None if it cannot see the data directory, for example because the server runs on another machine.
    """
    try:
        server_uid = data_directory.stat().st_uid
        data = data_directory.resolve(strict=True)
    except OSError:
        return None
    try:
        resolved = directory.resolve(strict=True)
        found = resolved.stat()
    except OSError:
        return DirectoryFacts(is_directory=False, server_uid=server_uid)
    disk = measure_disk(resolved)
    return DirectoryFacts(
        is_directory=stat.S_ISDIR(found.st_mode),
        server_uid=server_uid,
        owner_uid=found.st_uid,
        mode=stat.S_IMODE(found.st_mode),
        is_empty=_is_empty(resolved),
        is_inside_data=resolved.is_relative_to(data),
        shared=_find_shared(resolved, data),
        free_bytes=None if disk is None else disk.free_bytes,
        parts=look_at_parts(directory),
    )


def look_at_parts(directory: Path) -> tuple[PartFacts, ...]:
    """Return the facts of each directory from the root to this one, up to the first that is missing or cannot be seen.

    Symbolic links are not followed.
    """
    parts: list[PartFacts] = []
    with suppress(OSError):
        for path in (*reversed(directory.parents), directory):
            found = path.lstat()
            mode = stat.S_IMODE(found.st_mode)
            is_link = stat.S_ISLNK(found.st_mode)
            parts.append(PartFacts(path=str(path), is_link=is_link, owner_uid=found.st_uid, mode=mode))
    return tuple(parts)


def create_folders(location: Path, version_folder: str, *, uid: int, gid: int) -> None:
    """Create a tablespace's directory, and in it the one that PostgreSQL names after its version, if they do not exist.

    Directories that this call creates are given to the owner `uid` and the group `gid`. Symbolic links are not
    followed. Raises OSError, also if the parent of the tablespace's directory does not exist.
    """
    with ExitStack() as stack:
        opened = os.open("/", _NO_LINKS)
        stack.callback(os.close, opened)
        names = (*location.parts[1:], version_folder)
        for number, name in enumerate(names):
            is_new = False
            if number >= len(names) - 2:
                with suppress(FileExistsError):
                    os.mkdir(name, 0o700, dir_fd=opened)
                    is_new = True
            opened = os.open(name, _NO_LINKS, dir_fd=opened)
            stack.callback(os.close, opened)
            if is_new and os.fstat(opened).st_uid == os.geteuid():
                os.fchown(opened, uid, gid)


def _find_shared(one: Path, other: Path) -> tuple[str, ...]:
    """Return the disks that both paths are on.

    If both are on one file system without a disk, such as a file system in memory, return the name of its device.
    """
    here, there = find_device(one), find_device(other)
    if here is None or there is None:
        return ()
    if one.stat().st_dev == other.stat().st_dev:
        return here.disks or (here.name,)
    return tuple(sorted({*here.disks} & {*there.disks}))


def _is_empty(directory: Path) -> bool | None:
    try:
        with os.scandir(directory) as entries:
            return next(entries, None) is None
    except OSError:
        return None
