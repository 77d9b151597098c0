"""Finds how much memory this process, or a server on this machine, may use, and keeps memory that is freed."""

from __future__ import annotations

import ctypes
import os

from penstock.host.cgroups import read_limits
from penstock.host.cpus import is_named
from penstock.units import MIB

# Parameters of mallopt, from glibc's malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
# Each buffer of a load is smaller than the first figure. All buffers in use at a time are together smaller than the
# second.
_MAPPED_BYTES = 8 * MIB
_KEPT_BYTES = 256 * MIB


def memory_bytes(server_pid: int | None = None) -> int:
    """Return the bytes of memory that a process may use: the limit of its control groups, at most the machine's memory.

    By default the process is this one. `server_pid` is the pid of a server's backend, which may be in another control
    group. It is ignored unless the process with this pid is named postgres, because a server in a container, which is
    reached through a socket, reports pids of the container.
    """
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    pid = server_pid if server_pid is not None and is_named(server_pid, "postgres") else None
    limit = read_limits(pid).memory_bytes
    return whole if limit is None else min(whole, limit)


def keep_freed_memory() -> None:
    """Keep the memory that this process frees for its next buffers, if the C library is glibc.

    By default, glibc returns a freed buffer of 512 KiB to the kernel. Then each page of the next buffer is a page
    fault, which costs a tenth of the CPU that loading a compressed file takes here.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _MAPPED_BYTES)
        mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
