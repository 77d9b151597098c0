"""Reads the name, processors and memory of this machine.

The number of processors is limited by CPU affinity and by the quota of control groups. Sockets and cores do not count.
"""

from __future__ import annotations

import math
import os
import platform
import socket
from contextlib import suppress
from pathlib import Path

from penstock.core.host.cgroups import read_limits
from penstock.core.host.process import is_named, read_head
from penstock.core.slotted import slotted


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
