"""This machine: its processors, memory, disks and control groups, and the interrupts of this process.

The number of processors is limited by CPU affinity and by the quota of control groups. Sockets and cores do not count.
"""

from __future__ import annotations

import ctypes
import math
import os
import platform
import re
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from penstock.core.frozen import frozen
from penstock.core.units import MIB
from penstock.core.values.device import Device, DeviceCounters, DeviceKind


def host_name() -> str:
    """Return the name of this host."""
    return socket.gethostname()


def client_name() -> str:
    """Return the host name and process id of this process, which the ledger shows as the client of the load."""
    return f"{host_name()} {os.getpid()}"


_PROC = Path("/proc")

# In control groups of version 1, a memory limit of at least this many bytes means "no limit". Version 1 has no word for
# that: it shows the largest number of whole pages, which depends on the page size.
_UNLIMITED_V1 = 1 << 62


@frozen
class Limits:
    """The limits that control groups set for a process. None means no limit."""

    memory_bytes: int | None = None
    cpus: float | None = None


def read_limits(pid: int | None = None) -> Limits:
    """Return the limits of a process of this machine, by default this process.

    A group's limits also apply to all groups below it, so the smallest limit on the path counts. Both limits are None
    if the process has ended or the machine has no control groups.
    """
    process = _PROC / ("self" if pid is None else str(pid))
    try:
        groups = (process / "cgroup").read_text(encoding="utf-8", errors="surrogateescape")
        mounts = (_PROC / "self" / "mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return Limits()
    memory_bytes = min(_values(groups, mounts, "memory", _read_memory), default=None)
    return Limits(
        memory_bytes=None if memory_bytes is None else int(memory_bytes),
        cpus=min(_values(groups, mounts, "cpu", _read_cpus), default=None),
    )


def find_folders(groups: str, mounts: str, controller: str) -> list[tuple[Path, bool]]:
    """Return the cgroup folders that limit a process for a controller, and whether each is version 2.

    For each mount, the folder of the process's group comes first, then its parents.

    `groups` is the text of /proc/PID/cgroup, `mounts` that of /proc/self/mountinfo. A machine may use version 1 for one
    controller and version 2 for others.
    """
    paths: dict[bool, str] = {}
    for line in groups.splitlines():
        number, names, path = line.split(":", 2)
        if number == "0" and not names:
            paths[True] = path
        elif controller in names.split(","):
            paths[False] = path
    found = []
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        fields, described = before.split(), after.split()
        is_v2 = described[0] == "cgroup2"
        is_v1 = described[0] == "cgroup" and controller in described[2].split(",")
        if (is_v1 or is_v2) and is_v2 in paths:
            top, group = Path(fields[4]), _below(fields[3], paths[is_v2])
            found += [(folder, is_v2) for folder in (top / group, *(top / group).parents) if folder.is_relative_to(top)]
    return found


def parse_quota(text: str) -> float | None:
    """Return the CPUs that version 2's cpu.max allows, such as 2.0 for "200000 100000", or None if it sets no limit."""
    quota, period = text.split()
    return None if quota == "max" else int(quota) / int(period)


def parse_limit(text: str) -> int | None:
    r"""Return the bytes that memory.max (version 2) or memory.limit_in_bytes (1) allows, or None if there is no limit.

    >>> parse_limit("max\n"), parse_limit("9223372036854771712\n"), parse_limit("1073741824\n")
    (None, None, 1073741824)
    """
    if text.strip() == "max":
        return None
    limit = int(text)
    return None if limit >= _UNLIMITED_V1 else limit


def _below(root: str, path: str) -> str:
    """Return a group's path relative to the mounted group. A container's mount may begin at its own group."""
    inside = path[len(root) :] if root != "/" and path.startswith(root) else path
    return "" if "/.." in inside else inside.strip("/")


def _values(groups: str, mounts: str, controller: str, read: Callable[[Path, bool], float | None]) -> Iterator[float]:
    for folder, is_v2 in find_folders(groups, mounts, controller):
        try:
            value = read(folder, is_v2)
        except (OSError, ValueError):
            # The file does not exist in the root group of version 2, or in a group whose controller is off.
            continue
        if value is not None:
            yield value


def _read_memory(folder: Path, is_v2: bool) -> int | None:
    return parse_limit(_read(folder / ("memory.max" if is_v2 else "memory.limit_in_bytes")))


def _read_cpus(folder: Path, is_v2: bool) -> float | None:
    if is_v2:
        return parse_quota(_read(folder / "cpu.max"))
    quota = int(_read(folder / "cpu.cfs_quota_us"))
    return None if quota < 0 else quota / int(_read(folder / "cpu.cfs_period_us"))


def _read(path: Path) -> str:
    return path.read_text(encoding="ascii")


def _read_head(path: str) -> bytes:
    """Return the first 4 KiB of a file of the kernel.

    This takes a quarter of the time that Path.read_text takes. It is for files that are read at each tick of a sampler.
    """
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(file, 4096)
    finally:
        os.close(file)


def cpu_count() -> int:
    """Return the number of processors that this process may use, at least 1."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = read_limits().cpus
    return max(1, allowed if quota is None else min(allowed, math.ceil(quota)))


def busy_cpu_s() -> float:
    """Return for how many seconds all processors of this machine together have been busy since it started.

    Source: man proc_stat: user, nice, system, idle, iowait, irq, softirq, steal, in ticks.
    """
    with suppress(OSError):
        _, *ticks = _read_head("/proc/stat").partition(b"\n")[0].split()
        return sum(int(ticks[kind]) for kind in (0, 1, 2, 5, 6, 7)) / os.sysconf("SC_CLK_TCK")
    import psutil  # noqa: PLC0415 (46 ms, for systems without /proc)

    times = psutil.cpu_times()._asdict()
    # The time of guests is not added, because user and nice include it. iowait is not added, because a processor that
    # waits for a disk is idle.
    return float(sum(times.get(kind, 0.0) for kind in ("user", "nice", "system", "irq", "softirq", "steal")))


def process_cpu_s(pid: int) -> float | None:
    """Return the processor time of a process in seconds, or None if it has ended.

    Source: docs.kernel.org/scheduler/sched-stats.html, "/proc/<pid>/schedstat".
    """
    try:
        return int(_read_head(f"/proc/{pid}/schedstat").split()[0]) / 1e9
    except OSError:
        return None


def server_cpu_s(backend_pid: int) -> float | None:
    """Return the processor time of all processes of a backend's server in seconds, including ended processes.

    Returns None if the backend is not on this machine, or has another pid there. Processes that have ended count as
    ended children of their parent, the postmaster.
    Source: man proc_pid_stat, fields 4 and 14 to 17; man proc_tid_children.
    """
    try:
        parent = int(_read_status(backend_pid)[1])
        if not (is_named(backend_pid, "postgres") and is_named(parent, "postgres")):
            return None
        ticks = sum(map(int, _read_status(parent)[11:15]))
        children = Path("/proc", str(parent), "task", str(parent), "children").read_text(encoding="ascii").split()
    except OSError:
        return None
    running_s = (process_cpu_s(int(pid)) for pid in children)
    return ticks / os.sysconf("SC_CLK_TCK") + sum(seconds for seconds in running_s if seconds is not None)


def _read_status(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat from the third on. The second, the process's name, may contain blanks."""
    return Path("/proc", str(pid), "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()


def is_named(pid: int, name: str) -> bool:
    """Return whether a process with that pid and name exists.

    A server in a container, which is reached through a socket, reports pids of the container. On this machine, another
    process may have the same pid.
    """
    try:
        return Path("/proc", str(pid), "comm").read_text(encoding="utf-8").strip() == name
    except OSError:
        return False


# Parameters of mallopt, from glibc's malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
# The thresholds that `keep_freed_memory` sets. glibc keeps freed buffers that are smaller than the first, until
# together they exceed the second. Each buffer of a load is smaller than the first, and all buffers in use at a time are
# together smaller than the second.
_MAPPED_BYTES = 8 * MIB
_KEPT_BYTES = 256 * MIB


def memory_bytes(server_pid: int | None = None) -> int:
    """Return the bytes of memory that a process may use: the limit of its control groups, at most the machine's memory.

    By default the process is this one. `server_pid` is the pid of a server's backend, which may be in another control
    group. It is ignored unless the process with this pid is named postgres (`is_named`).
    """
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    pid = server_pid if server_pid is not None and is_named(server_pid, "postgres") else None
    limit = read_limits(pid).memory_bytes
    return whole if limit is None else min(whole, limit)


def keep_freed_memory() -> None:
    """Keep the memory that this process frees for its next buffers, if the C library is glibc.

    By default, glibc returns a freed buffer of 512 KiB to the kernel. Each page of the next buffer then causes a page
    fault. When a compressed file is loaded, these faults take a tenth of the client's CPU time.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _MAPPED_BYTES)
        mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)


_CPUINFO = Path("/proc/cpuinfo")


@frozen
class Machine:
    """The facts of one machine."""

    cpu_model: str
    # The processors that this process may use.
    cpu_count: int
    memory_bytes: int
    kernel: str


def read_machine() -> Machine:
    """Return the facts of this machine."""
    cpuinfo = _CPUINFO.read_text(encoding="utf-8", errors="replace") if _CPUINFO.exists() else ""
    return Machine(
        cpu_model=parse_cpu_model(cpuinfo) or platform.processor() or platform.machine(),
        cpu_count=cpu_count(),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        kernel=f"{platform.system()} {platform.release()}",
    )


def parse_cpu_model(cpuinfo: str) -> str | None:
    r"""Return the processor's name from the text of /proc/cpuinfo, or None if it has none, as on ARM.

    >>> parse_cpu_model("processor\t: 0\nmodel name\t: Example 2.4 GHz\n")
    'Example 2.4 GHz'
    """
    for line in cpuinfo.splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return None


_MOUNTS = Path("/proc/self/mountinfo")
_DEVICES = Path("/sys/dev/block")
_SECTOR_BYTES = 512
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
        text = _read_head(f"{_DEVICES}/{device.number}/stat").decode("ascii")
    except OSError:
        return None
    return parse_counters(text, at_s=time.monotonic())


def parse_counters(text: str, *, at_s: float) -> DeviceCounters:
    """Return the counters in the text of a device's stat file. Sectors are 512 bytes, times are in milliseconds."""
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


@frozen
class Disk:
    """A file system."""

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

    An unprivileged process may use the free bytes.
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


_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """Holds back interrupts of this process, such as Ctrl-C, and delivers them later.

    At most `limit` interrupts are held back. The next one is delivered at once.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held: list[Callable[[], object]] = []

    def hold(self, deliver: Callable[[], object]) -> None:
        """Hold back an interrupt.

        If `limit` interrupts are held back already, deliver this one at once, because the main thread may hang.
        """
        if len(self._held) >= self._limit:
            deliver()
        else:
            self._held.append(deliver)

    def deliver(self) -> None:
        """Call the handler of the interrupt that was held back, if there is one. Several interrupts count as one."""
        if self._held:
            deliver = self._held[0]
            self._held.clear()
            deliver()

    def end(self) -> None:
        """Stop holding back interrupts.

        An interrupt that arrives from now on is delivered at once, even if the handler of its signal is not restored
        yet.
        """
        self._limit = 0

    def drop(self) -> None:
        """Forget the interrupts that arrived."""
        self._held.clear()


@contextmanager
def holding_interrupts(*, limit: int = 2) -> Iterator[Interrupts]:
    """Hold back interrupts within the context, until the block calls `deliver` or ends.

    Only signals with a handler in Python are held back, and only in the main thread, because no other thread gets
    signals. Contexts may be nested: the inner one delivers to the outer one.
    """
    interrupts = Interrupts(limit)
    if threading.current_thread() is not threading.main_thread():
        yield interrupts
        return
    handlers = {number: handler for number in _SIGNALS if callable(handler := signal.getsignal(number))}

    def hold(number: int, frame: FrameType | None) -> None:
        interrupts.hold(lambda: handlers[signal.Signals(number)](number, frame))

    try:
        for number in handlers:
            signal.signal(number, hold)
        yield interrupts
    finally:
        interrupts.end()
        for number, handler in handlers.items():
            signal.signal(number, handler)
        interrupts.deliver()
