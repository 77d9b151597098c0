"""Attaches and detaches loop devices by ioctl, because losetup has no option for how the backing file is read."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

# The numbers are from linux/loop.h.
_SET_FD = 0x4C00
_CLEAR_FD = 0x4C01
_GET_FREE = 0x4C82


def attach_loop(path: Path) -> Path:
    """Return a new loop device on a file, without direct I/O. Raises OSError.

    Read-ahead of the backing file is off, because it would take a quarter of a throttled volume's throughput.
    """
    file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_RANDOM)
        while True:
            with open("/dev/loop-control", "rb") as control:  # noqa: PTH123 (a device)
                device = Path(f"/dev/loop{fcntl.ioctl(control, _GET_FREE)}")
            with device.open("rb+", buffering=0) as loop:
                try:
                    fcntl.ioctl(loop, _SET_FD, file)
                except OSError as error:
                    # Another process attached a file to this device in the meantime.
                    if error.errno != errno.EBUSY:
                        raise
                    continue
            return device
    finally:
        os.close(file)


def detach_loop(device: Path) -> None:
    """Detach a device. If it is in use, the kernel detaches it after its last user. Raises OSError."""
    with device.open("rb", buffering=0) as loop:
        try:
            fcntl.ioctl(loop, _CLEAR_FD)
        except OSError as error:
            # The device has no file, because its last user has just closed it.
            if error.errno != errno.ENXIO:
                raise


def loops_below(folder: Path) -> list[Path]:
    """Return the loop devices whose file is below a folder."""
    top, found = folder.resolve(), []
    for backing in Path("/sys/block").glob("loop*/loop/backing_file"):
        try:
            path = Path(backing.read_text(encoding="utf-8", errors="surrogateescape").strip())
        except OSError:
            # The device was detached in the meantime.
            continue
        if path.is_relative_to(top):
            found.append(Path("/dev") / backing.parts[3])
    return found
