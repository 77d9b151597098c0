"""What can be seen of a directory beside the server's data directory, where that machine is this one."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.host import find_device, measure_disk

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryFacts:
    """What is there; None for what this process may not see. `shared` are the disks that the data lies on too.

    `owner_uid` and `server_uid` are user ids, the latter the data directory's owner.
    """

    is_directory: bool
    server_uid: int
    owner_uid: int | None = None
    mode: int = 0
    is_empty: bool | None = None
    is_inside_data: bool = False
    shared: tuple[str, ...] = ()
    free_bytes: int | None = None


def look_at(directory: Path, data_directory: Path) -> DirectoryFacts | None:
    """Return what there is to see; None where the data directory is not on this machine or out of sight."""
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
    )


def _find_shared(one: Path, other: Path) -> tuple[str, ...]:
    """Return the disks that both lie on, or the device where it has none, as a memory file system."""
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
