"""Reads the limits that control groups of both versions set for a process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

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
