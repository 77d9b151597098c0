"""Chooses the account that an embedded server runs as, and finds directories that this account cannot reach.

PostgreSQL refuses to run as root. So a server that root starts runs as an unprivileged account, and a server that an
ordinary user starts runs as that user. Nothing is assumed about what the account may read: see `first_unreachable`.
"""

from __future__ import annotations

import os
import pwd
import stat
from pathlib import Path

from penstock.core.errors import LabError
from penstock.core.slotted import slotted

# The accounts that can run servers, the preferred one first. Packages create `postgres` for this purpose, and `nobody`
# exists on every machine.
_ACCOUNTS = ("postgres", "nobody")


@slotted
class ServerUser:
    """An account of this machine that can run a server."""

    name: str
    uid: int
    gid: int


def is_root() -> bool:
    """Return whether this process runs as root."""
    return os.geteuid() == 0


def choose_server_user(data_dir: Path) -> ServerUser | None:
    """Return the account that runs the server of a data directory, or None if the caller's account does.

    Only root needs another account. An existing data directory keeps its owner, because the account `postgres` may have
    been created after the directory. Raises LabError if root finds no unprivileged account.
    """
    if not is_root():
        return None
    if data_dir.exists() and (owner := data_dir.stat().st_uid) != 0:
        try:
            return _account(pwd.getpwuid(owner))
        except KeyError:
            raise LabError(
                "the account of the embedded server does not exist on this machine",
                detail=f'"{data_dir}" belongs to user id {owner}.',
                hint=f"Create it: useradd --system --uid {owner} penstock-server",
            ) from None
    for name in _ACCOUNTS:
        try:
            return _account(pwd.getpwnam(name))
        except KeyError:
            continue
    raise LabError(
        "no unprivileged account to run PostgreSQL",
        detail=f"this process is root, and none of the accounts {', '.join(_ACCOUNTS)} exists",
        hint="Run penstock as an ordinary user.",
    )


def give_to(path: Path, user: ServerUser | None) -> None:
    """Make `user` the owner of `path`. None leaves the owner unchanged."""
    if user is not None:
        os.chown(path, user.uid, user.gid, follow_symlinks=False)


def first_unreachable(directory: Path, user: ServerUser) -> Path | None:
    """Return the outermost directory on the path to `directory` that `user` may not search, or None.

    None means that `user` may search them all.
    """
    path = directory.resolve()
    for step in (*reversed(path.parents), path):
        if not _may_search(step.stat(), user):
            return step
    return None


def _account(entry: pwd.struct_passwd) -> ServerUser:
    return ServerUser(name=entry.pw_name, uid=entry.pw_uid, gid=entry.pw_gid)


def _may_search(status: os.stat_result, user: ServerUser) -> bool:
    if status.st_uid == user.uid:
        return bool(status.st_mode & stat.S_IXUSR)
    if status.st_gid == user.gid:
        return bool(status.st_mode & stat.S_IXGRP)
    return bool(status.st_mode & stat.S_IXOTH)
