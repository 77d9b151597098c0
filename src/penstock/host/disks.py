"""Measures file systems of this machine: the device, size and free space of the file system that has a path."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from penstock.host.devices import find_mount

_MOUNTS = Path("/proc/self/mountinfo")


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    """A file system. `device` is the mounted device; `free_bytes` is the space that an unprivileged process may use."""

    path: str
    device: str
    size_bytes: int
    free_bytes: int


def measure_disk(path: Path) -> Disk | None:
    """Return the file system that a path is on, following symbolic links, or None if the path cannot be reached."""
    try:
        resolved = path.resolve(strict=True)
        counts = os.statvfs(resolved)
    except OSError:
        return None
    mounts = _MOUNTS.read_text(encoding="utf-8", errors="surrogateescape") if _MOUNTS.exists() else ""
    return Disk(
        path=str(resolved),
        device=find_mount(mounts, str(resolved))[0] or "unknown device",
        size_bytes=counts.f_frsize * counts.f_blocks,
        free_bytes=counts.f_frsize * counts.f_bavail,
    )


def measure_files(folder: Path) -> int | None:
    """Return the total bytes of the files in a folder, without its subfolders, or None if it cannot be read."""
    total = 0
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_file(follow_symlinks=False):
                    total += entry.stat(follow_symlinks=False).st_size
    except OSError:
        return None
    return total
