"""Finds what is mounted below a lab's folder, and which programs and devices this machine lacks."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable
from pathlib import Path

from penstock.errors import LabError
from penstock.lab.users import is_root

# Each program, with the Debian package that contains it.
PACKAGES = {
    "qemu-storage-daemon": "qemu-system-common",
    "mkfs.ext4": "e2fsprogs",
    "mount": "mount",
    "umount": "mount",
    "setpriv": "util-linux",
}
_DEVICES = {"qemu-storage-daemon": "/dev/fuse", "mount": "/dev/loop-control"}


def find_program(name: str) -> str:
    """Return the path of a program in PACKAGES. Raises LabError if it is not installed."""
    # An ordinary user's PATH lacks the sbin folders.
    if (found := shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")) is None:
        raise LabError(f"{name} is not installed", hint=f"Install it; Debian's package is {PACKAGES[name]}.")
    return found


def check_machine(options: str, programs: Iterable[str]) -> None:
    """Raise LabError if this machine or this account cannot provide what `options` request."""
    if not Path("/proc/mounts").exists():
        raise LabError(f"{options} works on Linux only")
    if not is_root():
        raise LabError(f"{options} needs root", hint="Run it as root; without these options a lab needs no root.")
    for program in programs:
        find_program(program)
        device = _DEVICES.get(program)
        if device is not None and not Path(device).exists():
            raise LabError(f"{options} needs {device}, which does not exist", hint="Load its kernel module.")


def mounts_below(folder: Path) -> list[Path]:
    """Return the mount points below a folder, the most recent mount first."""
    lines = Path("/proc/self/mounts").read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    paths = [Path(_unescape(line.split(" ")[1])) for line in lines]
    top = folder.resolve()
    return [path for path in reversed(paths) if path.is_relative_to(top)]


def _unescape(path: str) -> str:
    return re.sub(r"\\(\d{3})", lambda match: chr(int(match[1], 8)), path)
