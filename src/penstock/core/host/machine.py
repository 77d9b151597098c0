"""Reads the name, processors and memory of this machine, and the limits that control groups set for a process.

The number of processors is limited by CPU affinity and by the quota of control groups. Sockets and cores do not count.
"""

from __future__ import annotations

import math
import os
import platform
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from penstock.core.host.process import is_named, read_head
from penstock.core.slotted import slotted

_PROC = Path("/proc")

# In control groups of version 1, a memory limit of at least this many bytes means "no limit". Version 1 has no word for
# that: it shows the largest number of whole pages, which depends on the page size.
_UNLIMITED_V1 = 1 << 62


@slotted
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
    """Return the folders of the control groups that limit a process, and whether each is of version 2.

    `controller` is the limited resource, such as memory. For each mount, the folder of the process's group comes first,
    then its parents. `groups` is the text of /proc/PID/cgroup, `mounts` that of /proc/self/mountinfo. A machine may use
    version 1 for one controller and version 2 for others.
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


def host_name() -> str:
    """Return the name of this host."""
    return socket.gethostname()


def client_name() -> str:
    """Return the host name and process id of this process, which the ledger shows as the client of the load."""
    return f"{host_name()} {os.getpid()}"


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
        _, *ticks = read_head("/proc/stat").partition(b"\n")[0].split()
        return sum(int(ticks[kind]) for kind in (0, 1, 2, 5, 6, 7)) / os.sysconf("SC_CLK_TCK")
    import psutil  # noqa: PLC0415 (46 ms, for systems without /proc)

    times = psutil.cpu_times()._asdict()
    # The time of guests is not added, because user and nice include it. iowait is not added, because a processor that
    # waits for a disk is idle.
    return float(sum(times.get(kind, 0.0) for kind in ("user", "nice", "system", "irq", "softirq", "steal")))


def memory_bytes(server_pid: int | None = None) -> int:
    """Return the bytes of memory that a process may use: the limit of its control groups, at most the machine's memory.

    By default the process is this one. `server_pid` is the pid of a server's backend, which may be in another control
    group. It is ignored unless the process with this pid is named postgres (`is_named`).
    """
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    pid = server_pid if server_pid is not None and is_named(server_pid, "postgres") else None
    limit = read_limits(pid).memory_bytes
    return whole if limit is None else min(whole, limit)


_CPUINFO = Path("/proc/cpuinfo")


@slotted
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
