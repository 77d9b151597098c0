"""Reads the facts of this machine that recorded results must state, and how much memory a process may use."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from pathlib import Path

from penstock.host.cgroups import read_limits
from penstock.host.cpus import cpu_count, is_named

_CPUINFO = Path("/proc/cpuinfo")


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A machine: the processors that this process may use, its memory, its kernel."""

    cpu_model: str
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


def memory_bytes(server_pid: int | None = None) -> int:
    """Return the bytes of memory that a process may use: the limit of its control groups, at most the machine's memory.

    The process is the one with `server_pid`, by default this process. `server_pid` is the pid of a server's backend,
    which may be in another control group. It is ignored unless a process named postgres has that pid, because a server
    in a container, which is reached through a socket, reports pids of the container.
    """
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    pid = server_pid if server_pid is not None and is_named(server_pid, "postgres") else None
    limit = read_limits(pid).memory_bytes
    return whole if limit is None else min(whole, limit)
