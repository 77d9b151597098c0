"""Creates volumes: ext4 on a loop device on a sparse file, which qemu-storage-daemon exports by FUSE with a throttle.

LAB/volumes/NAME/image.raw    the sparse file
LAB/volumes/NAME/mirror.raw   a second copy of it, if blocks are replicated
LAB/volumes/NAME/export.raw   the file that the daemon exports
LAB/NAME                      the mount point of the file system

The loop device does not use direct I/O: with direct I/O, ext4 on such an export returned data that was never written.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path

from penstock.errors import LabError
from penstock.lab.programs import run_program
from penstock.lab.volumes.find import find_program, mounts_below
from penstock.lab.volumes.loops import attach_loop, detach_loop, loops_below
from penstock.lab.volumes.monitor import MONITOR_ARGV, set_limits
from penstock.storage.volume import IO_BYTES, Throttle

_TIMEOUT_S = 60
_RELEASE_TIMEOUT_S = 10
_POLL_S = 0.05

# Enough inodes for any database of a lab. With ext4's default, the inode tables of a large volume would use a gigabyte.
_INODES = 65_536


@dataclass(frozen=True, slots=True)
class VolumeFiles:
    """The paths of one volume of a lab."""

    lab: Path
    name: str

    @property
    def folder(self) -> Path:
        """Return the folder of the volume's files."""
        return self.lab / "volumes" / self.name

    @property
    def image(self) -> Path:
        """Return the sparse file that holds the volume's blocks."""
        return self.folder / "image.raw"

    @property
    def mirror(self) -> Path:
        """Return the second copy of the volume's blocks."""
        return self.folder / "mirror.raw"

    @property
    def export(self) -> Path:
        """Return the exported file, whose I/O is throttled."""
        return self.folder / "export.raw"

    @property
    def mount_point(self) -> Path:
        """Return the mount point."""
        return self.lab / self.name

    def is_exported(self) -> bool:
        """Return whether the daemon exports the volume."""
        return self.export.resolve() in mounts_below(self.lab)

    def is_mounted(self) -> bool:
        """Return whether the volume is mounted. The device is not accessed for this."""
        return self.mount_point.resolve() in mounts_below(self.lab)


def create_image(files: VolumeFiles, *, size_bytes: int, is_mirrored: bool = False) -> None:
    """Create an empty file system in a sparse file, and its copy if `is_mirrored`. Raises LabError."""
    files.folder.mkdir(parents=True, mode=0o700)
    with files.image.open("wb") as file:
        file.truncate(size_bytes)
    # Initialize all inode tables and the journal now. Otherwise the kernel would do it later, during a measurement.
    lazy = "lazy_itable_init=0,lazy_journal_init=0"
    _run(files.folder, "mkfs.ext4", "-q", "-F", "-N", str(_INODES), "-m", "0", "-E", lazy, str(files.image))
    if is_mirrored:
        run_program(
            ["/bin/cp", "--sparse=always", str(files.image), str(files.mirror)],
            purpose="copy a volume",
            user=None,
            timeout_s=_TIMEOUT_S,
            cwd=files.folder,
        )
    files.export.touch(mode=0o600)


def daemon_argv(files: VolumeFiles, throttle: Throttle | None, *, is_mirrored: bool) -> list[str]:
    """Return the command that exports a volume. Each copy of a mirrored volume has its own throttle."""
    images = [files.image, files.mirror] if is_mirrored else [files.image]
    argv = [find_program("qemu-storage-daemon"), *MONITOR_ARGV]
    for number, image in enumerate(images):
        file = {"driver": "file", "node-name": f"file{number}", "filename": str(image)}
        argv += ["--blockdev", json.dumps(file)]
        if throttle is not None:
            argv += ["--object", json.dumps(_throttle_group(f"group{number}", throttle))]
            node = {"driver": "throttle", "throttle-group": f"group{number}", "file": f"file{number}"}
        else:
            node = {"driver": "raw", "file": f"file{number}"}
        argv += ["--blockdev", json.dumps({**node, "node-name": f"copy{number}"})]
    if is_mirrored:
        # Writes go to both copies. Reads come from the first one, as RDS Multi-AZ reads from the primary's volume.
        quorum = {"driver": "quorum", "node-name": "both", "vote-threshold": 2, "read-pattern": "fifo"}
        argv += ["--blockdev", json.dumps({**quorum, "children": ["copy0", "copy1"]})]
    export = {"type": "fuse", "id": "export", "node-name": "both" if is_mirrored else "copy0"}
    mounted = {"mountpoint": str(files.export), "writable": True, "allow-other": "off"}
    return [*argv, "--export", json.dumps({**export, **mounted})]


def mount_volume(files: VolumeFiles, device_file: Path) -> None:
    """Mount the file system in `device_file` through a loop device. Raises LabError."""
    files.mount_point.mkdir(mode=0o755)
    file_device = device_file.stat().st_dev
    ahead = Path("/sys/class/bdi") / f"{os.major(file_device)}:{os.minor(file_device)}" / "read_ahead_kb"
    if device_file == files.export and ahead.exists():
        # The largest read that FUSE forwards. With the default of 128 KiB, one I/O of 256 KiB would be split, and the
        # throttle would count two.
        ahead.write_text(str(IO_BYTES // 1024), encoding="ascii")
    device = attach_loop(device_file)
    _run(files.folder, "mount", "-t", "ext4", "-o", "noatime", str(device), str(files.mount_point))
    files.mount_point.chmod(0o755)


def release_volumes(lab: Path) -> None:
    """Unmount and detach everything below a lab's folder. Raises LabError if a device stays in use.

    The caller has ended all processes, including the export daemons. Data that has not reached a volume is discarded:
    writing it at the volume's speed could take minutes, and the volume is removed anyway.
    """
    mounts = mounts_below(lab)
    exports = [mount for mount in mounts if mount.name == "export.raw"]
    for mount in mounts:
        if mount not in exports:
            _unmount(lab, mount)
    deadline_s = time.monotonic() + _RELEASE_TIMEOUT_S
    while loops := loops_below(lab):
        if time.monotonic() > deadline_s:
            raise LabError("a volume of the lab is in use", detail=", ".join(map(str, loops)))
        for device in loops:
            detach_loop(device)
        time.sleep(_POLL_S)
    for export in exports:
        _unmount(lab, export)


def _unmount(lab: Path, mount: Path) -> None:
    """Unmount a file system. Wait for processes that are ending. After the time limit, use a lazy unmount."""
    deadline_s = time.monotonic() + _RELEASE_TIMEOUT_S
    while mount in mounts_below(lab):
        is_late = time.monotonic() > deadline_s
        try:
            _run(lab, "umount", *(["--lazy"] if is_late else []), str(mount))
        except LabError:
            if is_late:
                raise
            time.sleep(_POLL_S)


def change_throttle(files: VolumeFiles, throttle: Throttle, *, is_mirrored: bool) -> None:
    """Change the limits of a volume that is in use and has limits. A burst bucket is full again. Raises LabError."""
    set_limits(files.folder, {f"group{number}": _limits(throttle) for number in range(2 if is_mirrored else 1)})


def _throttle_group(name: str, throttle: Throttle) -> dict[str, str | int]:
    limits = {f"x-{limit}": value for limit, value in _limits(throttle).items()}
    return {"qom-type": "throttle-group", "id": name, **limits}


def _limits(throttle: Throttle) -> dict[str, int]:
    limits = {"iops-total": throttle.iops, "iops-size": IO_BYTES, "bps-total": throttle.bytes_per_s}
    if throttle.burst_iops is not None and throttle.burst_ios:
        # QEMU's bucket holds maximum times length and leaks at the baseline rate, as gp2's bucket of I/Os does.
        length_s = max(round(throttle.burst_ios / throttle.burst_iops), 1)
        limits |= {"iops-total-max": throttle.burst_iops, "iops-total-max-length": length_s}
    return limits


def _run(folder: Path, program: str, *arguments: str) -> str:
    """Run a system program in the lab's folder, so that `down` finds the process if this command is killed."""
    purpose = f"set up or remove a volume with {program}"
    argv = [find_program(program), *arguments]
    return run_program(argv, purpose=purpose, user=None, timeout_s=_TIMEOUT_S, cwd=folder)
