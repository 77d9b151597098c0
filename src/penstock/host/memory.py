"""How much memory this machine gives us, or a server on it."""

from __future__ import annotations

import os

from penstock.host.cgroups import read_limits
from penstock.host.cpus import is_named


def memory_bytes(server_pid: int | None = None) -> int:
    """Return the memory of this machine, or what its control groups allow of that; by default our process.

    `server_pid` is a backend's: a server may be in another group. One in a container, reached by a socket, may have
    numbers of other processes: only one that is called postgres counts.
    """
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    pid = server_pid if server_pid is not None and is_named(server_pid, "postgres") else None
    limit = read_limits(pid).memory_bytes
    return whole if limit is None else min(whole, limit)
