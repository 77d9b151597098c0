"""Creates a control group that limits a lab's memory, page cache included (cgroup versions 1 and 2)."""

from __future__ import annotations

import errno
import hashlib
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.errors import LabError
from penstock.lab.volumes.find import find_program

if TYPE_CHECKING:
    from penstock.lab.users import ServerUser

# The time that the kernel may take to forget processes that have ended.
_REMOVE_TIMEOUT_S = 10
_POLL_S = 0.05


def cgroup_of(folder: Path) -> Path:
    """Return the path of a lab's control group, which need not exist.

    The name is derived from the lab's folder, so `down` finds the group without a record. Raises LabError if no control
    group hierarchy with the memory controller is mounted.
    """
    digest = hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()[:12]
    return _hierarchy() / f"penstock-{digest}"


def create_cgroup(group: Path, *, memory_bytes: int) -> None:
    """Create a control group that allows `memory_bytes` of memory and no swap. Raises LabError."""
    try:
        if _is_unified(group.parent):
            (group.parent / "cgroup.subtree_control").write_text("+memory", encoding="ascii")
            limit, swap, none = "memory.max", "memory.swap.max", "0"
        else:
            limit, swap, none = "memory.limit_in_bytes", "memory.swappiness", "0"
        group.mkdir(exist_ok=True)
        (group / limit).write_text(str(memory_bytes), encoding="ascii")
        # A kernel without swap does not have this file.
        if (group / swap).exists():
            (group / swap).write_text(none, encoding="ascii")
    except OSError as error:
        raise LabError(
            "could not create a control group for --memory", detail=f'"{error.filename}": {error.strerror}'
        ) from error


def remove_cgroup(group: Path) -> None:
    """Remove a control group whose processes have ended. Raises LabError if a process is still in it."""
    deadline_s = time.monotonic() + _REMOVE_TIMEOUT_S
    while group.exists():
        try:
            group.rmdir()
        except OSError as error:
            if error.errno != errno.EBUSY or time.monotonic() > deadline_s:
                raise LabError(f'could not remove the control group "{group}"', detail=error.strerror) from error
            time.sleep(_POLL_S)


def entering(group: Path, user: ServerUser | None, argv: Sequence[str]) -> list[str]:
    """Return a command that enters a control group as root and then runs `argv` as `user`."""
    account = [] if user is None else [f"--reuid={user.uid}", f"--regid={user.gid}", "--clear-groups"]
    script = 'echo $$ > "$0" && exec "$@"'
    return ["/bin/sh", "-c", script, str(group / "cgroup.procs"), find_program("setpriv"), *account, *argv]


def _hierarchy() -> Path:
    for line in Path("/proc/self/mounts").read_text(encoding="utf-8", errors="surrogateescape").splitlines():
        _, path, kind, options, *_ = line.split(" ")
        if kind == "cgroup" and "memory" in options.split(","):
            return Path(path)
        if kind == "cgroup2" and _is_unified(Path(path)):
            return Path(path)
    raise LabError("--memory needs a control group hierarchy with the memory controller, which is not mounted")


def _is_unified(root: Path) -> bool:
    controllers = root / "cgroup.controllers"
    return controllers.exists() and "memory" in controllers.read_text(encoding="ascii").split()
