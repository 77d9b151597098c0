"""Reads the devices, disks and file systems of this machine, their counters and their space."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from penstock.core.host.process import read_head
from penstock.core.slotted import slotted
from penstock.core.values.device import Device, DeviceCounters, DeviceKind

_MOUNTS = Path("/proc/self/mountinfo")
_DEVICES = Path("/sys/dev/block")
_SECTOR_BYTES = 512
# The place of the number of flushes in a device's stat file. Source: docs.kernel.org/block/stat.html.
_FLUSHES = 15
# An octal escape, such as \040 for a space in a mount point.
_ESCAPE = re.compile(r"\\([0-7]{3})")

# Parts of the model names of disks. A model in _LOCAL_MODELS is a local disk, and a model in _NETWORK_MODELS is a
# network disk. A model in _VIRTUAL_MODELS can be either.
# Source: docs.aws.amazon.com/ebs/latest/userguide/nvme-ebs-volumes.html; cloud.google.com/compute/docs/disks ("Local
# SSD"); learn.microsoft.com/azure/virtual-machines ("NVMe overview").
_LOCAL_MODELS = ("amazon ec2 nvme instance storage", "nvme_card", "microsoft nvme direct disk")
_NETWORK_MODELS = ("amazon elastic block store", "nvme_card-pd", "msft nvme accelerator", "persistentdisk")
_VIRTUAL_MODELS = ("qemu", "vmware", "virtual", "vbox", "xen", "msft")
_NETWORK_PATHS = ("/nvme-fabrics/", "/session", "/rbd", "/nbd", "/drbd")
_NETWORK_FILE_SYSTEMS = frozenset(("nfs", "nfs4", "cifs", "smb3", "ceph", "glusterfs", "lustre", "9p", "fuse.sshfs"))
_MEMORY_DISK = re.compile(r"/z?ram\d+$")
_MEMORY_FILE_SYSTEMS = frozenset(("tmpfs", "ramfs"))


def find_device(path: Path) -> Device | None:
    """Return the device that a path is on, or None if the path cannot be reached. Symbolic links are followed."""
    try:
        resolved = path.resolve(strict=True)
        number = resolved.stat().st_dev
        mounts = _MOUNTS.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return None
    source, file_system = find_mount(mounts, str(resolved))
    numbers: str | None = f"{os.major(number)}:{os.minor(number)}"
    if not (_DEVICES / f"{numbers}").exists():
        # btrfs, overlayfs and similar file systems have their own device numbers, which are not those of a disk.
        numbers = _number_of(source)
    disks = () if numbers is None else tuple(sorted(_disks_below((_DEVICES / numbers).resolve())))
    return Device(
        name=source.removeprefix("/dev/") if numbers is None else (_DEVICES / numbers).resolve().name,
        number=numbers,
        file_system=file_system,
        disks=tuple(disk.name for disk in disks),
        kind=judge_kind(file_system, [(str(disk), _read_model(disk)) for disk in disks]),
    )


def find_devices(path: Path) -> tuple[Device, ...]:
    """Return the device that a path is on. If this is a loop device, the device of its backing file follows."""
    found: list[Device] = []
    below: Path | None = path
    while below is not None and (device := find_device(below)) is not None:
        found.append(device)
        below = _read_backing_file(device)
    return tuple(found)


def read_counters(device: Device) -> DeviceCounters | None:
    """Return a device's counters so far, or None if it has none or no longer exists."""
    if device.number is None:
        return None
    try:
        found = parse_counters(read_head(f"{_DEVICES}/{device.number}/stat").decode("ascii"), at_s=time.monotonic())
        if device.name in device.disks:
            return found
        # The kernel counts flushes for whole disks only. A striped device flushes all of its disks at once.
        below = [read_head(f"/sys/block/{disk}/stat").decode("ascii") for disk in device.disks]
    except OSError:
        return None
    return replace(found, flushes=max((parse_counters(text, at_s=0.0).flushes for text in below), default=0))


def parse_counters(text: str, *, at_s: float) -> DeviceCounters:
    """Return the counters in the text of a device's stat file, which has sectors of 512 bytes and milliseconds.

    `at_s` is when the file was read, in seconds of the monotonic clock.
    """
    fields = [int(field) for field in text.split()]
    reads, _, read_sectors, read_ms, writes, _, write_sectors, write_ms, _, busy_ms, queue_ms = fields[:11]
    return DeviceCounters(
        at_s=at_s,
        reads=reads,
        read_bytes=read_sectors * _SECTOR_BYTES,
        read_s=read_ms / 1e3,
        writes=writes,
        write_bytes=write_sectors * _SECTOR_BYTES,
        write_s=write_ms / 1e3,
        busy_s=busy_ms / 1e3,
        queue_s=queue_ms / 1e3,
        # Linux 5.5 and later.
        flushes=fields[_FLUSHES] if len(fields) > _FLUSHES else 0,
    )


def find_mount(mounts: str, path: str) -> tuple[str, str]:
    r"""Return the source and type of the file system that contains a path, from the text of /proc/self/mountinfo.

    >>> find_mount("36 35 98:0 / / rw - ext4 /dev/root rw\n37 36 98:1 / /mnt rw - xfs /dev/sdb rw", "/mnt/a")
    ('/dev/sdb', 'xfs')
    """
    best, found = -1, ("", "unknown")
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        fields, described = before.split(), after.split()
        top = _ESCAPE.sub(lambda match: chr(int(match[1], 8)), fields[4])
        # The last mount on a directory hides earlier ones.
        if (path == top or path.startswith(top.rstrip("/") + "/")) and len(top) >= best:
            best, found = len(top), (described[1], described[0])
    return found


def judge_kind(file_system: str, disks: Sequence[tuple[str, str]]) -> DeviceKind:
    """Return the kind of a device. `disks` are its disks' folders in /sys and their models.

    >>> judge_kind("ext4", [("/sys/devices/pci0/nvme/nvme1/nvme1n1", "Amazon EC2 NVMe Instance Storage")])
    'local'
    """
    if file_system in _NETWORK_FILE_SYSTEMS:
        return "network"
    if file_system in _MEMORY_FILE_SYSTEMS or any(_MEMORY_DISK.search(path) for path, _ in disks):
        return "memory"
    kinds = {_judge_disk(path, model.lower()) for path, model in disks}
    if "network" in kinds:
        return "network"
    return "local" if kinds == {"local"} else "unknown"


def _judge_disk(path: str, model: str) -> DeviceKind:
    if model.startswith(_NETWORK_MODELS) or any(part in path for part in _NETWORK_PATHS):
        return "network"
    is_known = model.startswith(_LOCAL_MODELS)
    return "local" if is_known or (model and not any(part in model for part in _VIRTUAL_MODELS)) else "unknown"


def _number_of(source: str) -> str | None:
    if not source.startswith("/dev/"):
        return None
    try:
        number = os.stat(source).st_rdev  # noqa: PTH116 (a device file's own number)
    except OSError:
        return None
    numbers = f"{os.major(number)}:{os.minor(number)}"
    return numbers if (_DEVICES / numbers).exists() else None


def _disks_below(device: Path) -> set[Path]:
    """Return the whole disks of a device: the disk of a partition, or the disks of a mapped or striped device."""
    if (device / "partition").exists():
        return _disks_below(device.parent)
    slaves = device / "slaves"
    parts = [part.resolve() for part in slaves.iterdir()] if slaves.is_dir() else []
    return set().union(*map(_disks_below, parts)) if parts else {device}


def _read_backing_file(device: Device) -> Path | None:
    try:
        text = Path("/sys/block", device.name, "loop", "backing_file").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return Path(text.strip())


def _read_model(disk: Path) -> str:
    try:
        return (disk / "device" / "model").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


@slotted
class Disk:
    """A file system: its device, its size, and the bytes that are free."""

    path: str
    # The mounted device.
    device: str
    size_bytes: int
    # The space that an unprivileged process may use.
    free_bytes: int


def measure_disk(path: Path) -> Disk | None:
    """Return the file system that a path is on, or None if the path cannot be reached. Symbolic links are followed."""
    try:
        resolved = path.resolve(strict=True)
    except OSError:
        return None
    if (space := measure_space(resolved)) is None:
        return None
    free_bytes, size_bytes = space
    mounts = _MOUNTS.read_text(encoding="utf-8", errors="surrogateescape") if _MOUNTS.exists() else ""
    return Disk(
        path=str(resolved),
        device=find_mount(mounts, str(resolved))[0] or "unknown device",
        size_bytes=size_bytes,
        free_bytes=free_bytes,
    )


def measure_space(path: Path) -> tuple[int, int] | None:
    """Return the free bytes and the size of the file system that a path is on, or None if it cannot be reached.

    The free bytes are those that an unprivileged process may use.
    """
    try:
        counts = os.statvfs(path)
    except OSError:
        return None
    return counts.f_frsize * counts.f_bavail, counts.f_frsize * counts.f_blocks


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
