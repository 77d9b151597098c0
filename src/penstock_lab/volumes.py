"""Volumes of a lab: ext4 on a throttled device, and limits of memory and processors by control groups.

LAB/volumes/NAME/image.raw    the sparse file
LAB/volumes/NAME/mirror.raw   a second copy of it, if blocks are replicated
LAB/volumes/NAME/export.raw   the file that the daemon exports
LAB/NAME                      the mount point of the file system

The loop device does not use direct I/O: with direct I/O, ext4 on such an export returned data that was never written.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import re
import socket
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from penstock.core.errors import LabError
from penstock.core.values.options import parse_duration
from penstock.embedded.programs import find_program, run_program
from penstock.embedded.users import is_root
from penstock.rds.volumes import IO_BYTES, Throttle

# Each program, with the Debian package that contains it.
PACKAGES = {
    "qemu-storage-daemon": "qemu-system-common",
    "mkfs.ext4": "e2fsprogs",
    "mount": "mount",
    "umount": "mount",
    "setpriv": "util-linux",
}
_DEVICES = {"qemu-storage-daemon": "/dev/fuse", "mount": "/dev/loop-control"}


def check_machine(options: str, programs: Iterable[str]) -> None:
    """Raise LabError unless this is Linux, this process runs as root, and `programs` and their devices exist.

    `programs` are keys of PACKAGES. `options` is the text that messages name as needing them, such as "--volume and
    --memory".
    """
    if not Path("/proc/mounts").exists():
        raise LabError(f"{options} works on Linux only")
    if not is_root():
        raise LabError(f"{options} needs root", hint="Run it as root; without these options a lab needs no root.")
    for program in programs:
        find_program(program, package=PACKAGES[program])
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


# The requests of loop devices, with their numbers in linux/loop.h.
_SET_FD = 0x4C00
_CLEAR_FD = 0x4C01
_GET_FREE = 0x4C82


def attach_loop(path: Path) -> Path:
    """Return a new loop device whose backing file is `path`, without direct I/O. Raises OSError.

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
                    # EBUSY means that another process attached a file to this device in the meantime.
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
            # ENXIO means that the device has no file, because its last user has just closed it.
            if error.errno != errno.ENXIO:
                raise


def loops_below(folder: Path) -> list[Path]:
    """Return the loop devices whose backing files are below a directory."""
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


_SOCKET = "monitor.sock"
_TIMEOUT_S = 10.0

# The options for a socket of the daemon. The daemon's working directory is the volume's folder, so the socket's path is
# short enough.
MONITOR_ARGV = ("--chardev", f"socket,id=monitor,path={_SOCKET},server=on,wait=off", "--monitor", "chardev=monitor")


def set_limits(folder: Path, groups: Mapping[str, Mapping[str, int]]) -> None:
    """Change the limits of a volume while its daemon runs. The daemon's files are in `folder`.

    `groups` maps the names of the daemon's throttle groups to their limits, by qemu's names. Raises LabError.
    """
    commands: list[Mapping[str, object]] = [{"execute": "qmp_capabilities"}]
    for group, limits in groups.items():
        arguments = {"path": f"/objects/{group}", "property": "limits", "value": dict(limits)}
        commands.append({"execute": "qom-set", "arguments": arguments})
    try:
        _send(folder, commands)
    except (OSError, ValueError) as error:
        raise LabError(f'could not change the limits of the volume in "{folder}"', detail=str(error)) from error


def _send(folder: Path, commands: Iterable[Mapping[str, object]]) -> None:
    """Send commands one after the other, each when the earlier one is done. Raises OSError, ValueError."""
    # The socket is opened through a descriptor of the folder, because the folder's own path may be too long for a
    # socket.
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(_TIMEOUT_S)
            client.connect(f"/proc/self/fd/{descriptor}/{_SOCKET}")
            lines = client.makefile("r", encoding="utf-8")
            lines.readline()
            for command in commands:
                client.sendall(json.dumps(command).encode() + b"\n")
                _await_end(lines)
    finally:
        os.close(descriptor)


def _await_end(lines: TextIO) -> None:
    """Wait until a command is done. Raises ValueError if the daemon refuses it."""
    for line in lines:
        answer = json.loads(line)
        if "return" in answer:
            return
        if "error" in answer:
            raise ValueError(answer["error"].get("desc"))
    raise ValueError("the volume's daemon has ended")


_PROGRAM_TIMEOUT_S = 60
_RELEASE_TIMEOUT_S = 10
_POLL_S = 0.05

# How many inodes a volume has: enough for any database of a lab. With ext4's default, the inode tables of a large
# volume would use a gigabyte.
_INODES = 65_536


@dataclass(frozen=True, slots=True)
class VolumeFiles:
    """The paths of the files and directories of one volume of a lab."""

    lab: Path
    name: str

    @property
    def folder(self) -> Path:
        """Return the folder of the volume's files."""
        return self.lab / "volumes" / self.name

    @property
    def image(self) -> Path:
        """Return the path of the sparse file that has the volume's blocks."""
        return self.folder / "image.raw"

    @property
    def mirror(self) -> Path:
        """Return the path of the file that has a second copy of the volume's blocks."""
        return self.folder / "mirror.raw"

    @property
    def export(self) -> Path:
        """Return the path of the file that the daemon exports, and whose I/O it throttles."""
        return self.folder / "export.raw"

    @property
    def mount_point(self) -> Path:
        """Return the directory where the volume is mounted."""
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
            timeout_s=_PROGRAM_TIMEOUT_S,
            cwd=files.folder,
        )
    files.export.touch(mode=0o600)


# The socket of slow_flush.py, relative to the volume's folder, which is the working directory of both programs.
SLOW_FLUSH_SOCKET = "flush.sock"
# How long the daemon tries to connect to slow_flush.py, which starts beside it.
_CONNECT_S = 20


def split_latency(text: str) -> tuple[str, float]:
    """Return the volume that a text names, and how many seconds longer each flush of it takes: VOLUME[@LATENCY].

    Raises UsageError.

    >>> split_latency("unlimited@0.5ms"), split_latency("unlimited")
    (('unlimited', 0.0005), ('unlimited', 0.0))
    """
    volume, at, latency = text.partition("@")
    return volume, parse_duration(latency, option="--volume") if at else 0.0


def daemon_argv(
    files: VolumeFiles, throttle: Throttle | None, *, is_mirrored: bool, slow_flush_bytes: int | None = None
) -> list[str]:
    """Return the words of the command that exports a volume with its limits.

    Each copy of a mirrored volume has its own throttle. `throttle` is None for a volume without limits. If flushes are
    slow, `slow_flush_bytes` is the volume's size, and slow_flush.py runs.
    """
    images = [files.image, files.mirror] if is_mirrored else [files.image]
    argv = [find_program("qemu-storage-daemon", package=PACKAGES["qemu-storage-daemon"]), *MONITOR_ARGV]
    for number, image in enumerate(images):
        file = {"driver": "file", "node-name": f"file{number}", "filename": str(image)}
        argv += ["--blockdev", json.dumps(file)]
        if throttle is not None:
            argv += ["--object", json.dumps(_throttle_group(f"group{number}", throttle))]
            node = {"driver": "throttle", "throttle-group": f"group{number}", "file": f"file{number}"}
        else:
            node = {"driver": "raw", "file": f"file{number}"}
        argv += ["--blockdev", json.dumps({**node, "node-name": f"copy{number}"})]
    children = [f"copy{number}" for number in range(len(images))]
    if slow_flush_bytes is not None:
        # A write fails at once in this child, and a flush when its time is over. So all copies must succeed.
        server = {"type": "unix", "path": SLOW_FLUSH_SOCKET}
        client = {"driver": "nbd", "node-name": "client", "server": server, "open-timeout": _CONNECT_S}
        fault = {"event": "none", "errno": errno.EIO, "once": False, "immediately": True}
        faults = [{**fault, "iotype": kind} for kind in ("write", "write-zeroes")]
        faulty = {"driver": "blkdebug", "node-name": "slow", "image": "client", "inject-error": faults}
        argv += ["--blockdev", json.dumps(client), "--blockdev", json.dumps(faulty)]
        children.append("slow")
    if len(children) > 1:
        # Writes go to all copies. Reads come from the first one, as RDS Multi-AZ reads from the primary's volume.
        quorum = {"driver": "quorum", "node-name": "all", "vote-threshold": len(images), "read-pattern": "fifo"}
        argv += ["--blockdev", json.dumps({**quorum, "children": children})]
    export = {"type": "fuse", "id": "export", "node-name": "all" if len(children) > 1 else "copy0"}
    mounted = {"mountpoint": str(files.export), "writable": True, "allow-other": "off"}
    return [*argv, "--export", json.dumps({**export, **mounted})]


def mount_volume(files: VolumeFiles, device_file: Path) -> None:
    """Mount the file system in `device_file` through a loop device. Raises LabError."""
    files.mount_point.mkdir(mode=0o755)
    file_device = device_file.stat().st_dev
    ahead = Path("/sys/class/bdi") / f"{os.major(file_device)}:{os.minor(file_device)}" / "read_ahead_kb"
    if device_file == files.export and ahead.exists():
        # This is the largest read that FUSE forwards. With the default of 128 KiB, FUSE would split an I/O of 256 KiB,
        # and the throttle would count two.
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
    """Change the limits of a volume that is in use and has limits. After that, its burst bucket is full.

    Raises LabError.
    """
    set_limits(files.folder, {f"group{number}": _limits(throttle) for number in range(2 if is_mirrored else 1)})


def _throttle_group(name: str, throttle: Throttle) -> dict[str, str | int]:
    limits = {f"x-{limit}": value for limit, value in _limits(throttle).items()}
    return {"qom-type": "throttle-group", "id": name, **limits}


def _limits(throttle: Throttle) -> dict[str, int]:
    limits = {"iops-total": throttle.iops, "iops-size": IO_BYTES, "bps-total": throttle.bytes_per_s}
    if throttle.burst_iops is not None and throttle.burst_ios:
        # QEMU's bucket holds iops-total-max times its length, and drains at the baseline rate, as gp2's bucket of I/Os
        # does.
        length_s = max(round(throttle.burst_ios / throttle.burst_iops), 1)
        limits |= {"iops-total-max": throttle.burst_iops, "iops-total-max-length": length_s}
    return limits


def _run(folder: Path, program: str, *arguments: str) -> str:
    """Run a system program in the lab's folder. If this command is killed, `down` finds the program by that folder."""
    purpose = f"set up or remove a volume with {program}"
    argv = [find_program(program, package=PACKAGES[program]), *arguments]
    return run_program(argv, purpose=purpose, user=None, timeout_s=_PROGRAM_TIMEOUT_S, cwd=folder)


# The time that the kernel may take to forget processes that have ended.
_REMOVE_TIMEOUT_S = 10
_CGROUP_POLL_S = 0.05


def cgroup_of(folder: Path) -> Path:
    """Return the path of a lab's control group, which need not exist.

    The name is derived from the lab's folder, so `down` finds the group without a record. Raises LabError if no control
    group hierarchy with the memory controller is mounted.
    """
    digest = hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()[:12]
    return _hierarchy() / f"penstock-{digest}"


def create_cgroup(group: Path, *, memory_bytes: int) -> None:
    """Create a control group that allows `memory_bytes` of memory and no swap. Raises LabError."""
    try:
        if _is_unified(group.parent):
            (group.parent / "cgroup.subtree_control").write_text("+memory", encoding="ascii")
            limit, swap, none = "memory.max", "memory.swap.max", "0"
        else:
            limit, swap, none = "memory.limit_in_bytes", "memory.swappiness", "0"
        group.mkdir(exist_ok=True)
        (group / limit).write_text(str(memory_bytes), encoding="ascii")
        # A kernel without swap does not have this file.
        if (group / swap).exists():
            (group / swap).write_text(none, encoding="ascii")
    except OSError as error:
        raise LabError(
            "could not create a control group for --memory", detail=f'"{error.filename}": {error.strerror}'
        ) from error


def remove_cgroup(group: Path) -> None:
    """Remove a control group whose processes have ended. Raises LabError if a process is still in it."""
    deadline_s = time.monotonic() + _REMOVE_TIMEOUT_S
    while group.exists():
        try:
            group.rmdir()
        except OSError as error:
            if error.errno != errno.EBUSY or time.monotonic() > deadline_s:
                raise LabError(f'could not remove the control group "{group}"', detail=error.strerror) from error
            time.sleep(_CGROUP_POLL_S)


def _hierarchy() -> Path:
    for line in Path("/proc/self/mounts").read_text(encoding="utf-8", errors="surrogateescape").splitlines():
        _, path, kind, options, *_ = line.split(" ")
        if kind == "cgroup" and "memory" in options.split(","):
            return Path(path)
        if kind == "cgroup2" and _is_unified(Path(path)):
            return Path(path)
    raise LabError("--memory needs a control group hierarchy with the memory controller, which is not mounted")


def _is_unified(root: Path) -> bool:
    controllers = root / "cgroup.controllers"
    return controllers.exists() and "memory" in controllers.read_text(encoding="ascii").split()
