"""Counts the processors that this process may use, and reads processor times.

CPU affinity and the quota of control groups limit the count. Sockets and cores do not matter.
"""

from __future__ import annotations

import math
import os
from contextlib import suppress
from pathlib import Path

from penstock.host.cgroups import read_limits


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
        _, *ticks = Path("/proc/stat").read_text(encoding="ascii").partition("\n")[0].split()
        return sum(int(ticks[kind]) for kind in (0, 1, 2, 5, 6, 7)) / os.sysconf("SC_CLK_TCK")
    import psutil  # noqa: PLC0415 (46 ms, for systems without /proc)

    times = psutil.cpu_times()._asdict()
    # user and nice already include guests. A processor that waits for a disk is idle.
    return float(sum(times.get(kind, 0.0) for kind in ("user", "nice", "system", "irq", "softirq", "steal")))


def process_cpu_s(pid: int, *, named: str) -> float | None:
    """Return the processor time of a process in seconds, or None if it has ended or has another name than `named`.

    The name is checked because a server in a container, which is reached through a socket, reports pids of the
    container. On this machine, another process may have the same pid.
    Source: docs.kernel.org/scheduler/sched-stats.html, "/proc/<pid>/schedstat".
    """
    try:
        on_cpu_ns, _, _ = Path("/proc", str(pid), "schedstat").read_text(encoding="ascii").partition(" ")
    except OSError:
        return None
    return int(on_cpu_ns) / 1e9 if is_named(pid, named) else None


def is_named(pid: int, name: str) -> bool:
    """Return whether a process with that pid and name exists."""
    try:
        return Path("/proc", str(pid), "comm").read_text(encoding="utf-8").strip() == name
    except OSError:
        return False
