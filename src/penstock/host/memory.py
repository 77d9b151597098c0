"""How much memory this machine gives us."""

from __future__ import annotations

import os
from pathlib import Path

_CGROUP_V2_LIMIT = Path("/sys/fs/cgroup/memory.max")


def memory_bytes() -> int:
    """Return the memory of this machine, or what its cgroup allows of that."""
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        limit = parse_limit(_CGROUP_V2_LIMIT.read_text(encoding="ascii"))
    except OSError:
        limit = None
    return whole if limit is None else min(whole, limit)


def parse_limit(text: str) -> int | None:
    r"""Return the bytes that cgroup v2's memory.max allows, None without a limit.

    >>> parse_limit("max\n"), parse_limit("1073741824\n")
    (None, 1073741824)
    """
    return None if text.strip() == "max" else int(text)
