"""Reads the facts of this machine that must be stated with recorded results."""

from __future__ import annotations

import os
import platform
from pathlib import Path

from penstock.frozen import frozen
from penstock.host.cpus import cpu_count

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
