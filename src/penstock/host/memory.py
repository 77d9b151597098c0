"""Finds out how much memory this process, or a server on this machine, may use."""

from __future__ import annotations

import os

from penstock.host.cgroups import read_limits
from penstock.host.cpus import is_named


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
