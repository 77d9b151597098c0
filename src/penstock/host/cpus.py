"""How many processors this machine gives us: affinity and cgroup quota count, sockets and cores do not."""

from __future__ import annotations

import math
import os
from pathlib import Path

from penstock.host.cgroups import read_limits


def cpu_count() -> int:
    """Return the processors this process may use, at least 1."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = read_limits().cpus
    return max(1, allowed if quota is None else min(allowed, math.ceil(quota)))


def busy_cpu_s() -> float:
    """Return for how many seconds the processors of this machine have been busy since it started, all together."""
    import psutil  # noqa: PLC0415 (46 ms, which a load should not pay: it asks for the number of processors only)

    times = psutil.cpu_times()._asdict()
    # Guests are counted in user and nice already, and waiting for a disk leaves a processor idle.
    return float(sum(times.get(kind, 0.0) for kind in ("user", "nice", "system", "irq", "softirq", "steal")))


def process_cpu_s(pid: int, *, named: str) -> float | None:
    """Return the processor time that a process has had, in seconds; None where it is gone, or has not that name.

    A server that is reached by a socket may have other process numbers than this machine, as in a container.
    Source: docs.kernel.org/scheduler/sched-stats.html, "/proc/<pid>/schedstat".
    """
    try:
        on_cpu_ns, _, _ = Path("/proc", str(pid), "schedstat").read_text(encoding="ascii").partition(" ")
    except OSError:
        return None
    return int(on_cpu_ns) / 1e9 if is_named(pid, named) else None


def is_named(pid: int, name: str) -> bool:
    """Return whether there is a process of that number and name."""
    try:
        return Path("/proc", str(pid), "comm").read_text(encoding="utf-8").strip() == name
    except OSError:
        return False
