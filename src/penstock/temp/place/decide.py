"""Decides whether temporary work can be placed in a directory, and what the user should know before. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from penstock.core.errors import TargetError
from penstock.core.units import MIB, format_bytes

if TYPE_CHECKING:
    from penstock.core.catalogue.settings import SettingsFacts
    from penstock.temp.place.directory import DirectoryFacts, PartFacts
    from penstock.temp.place.kind import PlaceRow

# The suggested temp_file_limit is the free space divided by this. The limit applies to each process. A few processes
# spill at the same time, and all of them fail if the disk is full.
_LIMIT_SHARE = 4

# The permissions that a directory must not have: the group may not write, and others may do nothing. A mode of 0750 is
# accepted, because initdb --allow-group-access sets it.
_OPEN = 0o027


def refuse_server(facts: SettingsFacts) -> None:
    """Raise TargetError if the role or this server does not allow a tablespace for temporary files to be created.

    The server must not be a standby or managed by a service or a tool, and the role must be a superuser.
    """
    if facts.is_in_recovery:
        raise TargetError(
            "cannot place temporary work on a standby",
            detail="Its tablespaces come from the primary.",
            hint="Run it on the primary, once the directory exists on every standby.",
        )
    if facts.flavour.kind not in {"postgresql", "citus"}:
        raise TargetError(
            f"cannot place temporary work on {facts.flavour.name}",
            detail="Its disks are the service's.",
            hint="On Amazon RDS, use an instance class with local storage: penstock rds show names it.",
        )
    if facts.managers:
        manager = facts.managers[0]
        raise TargetError(
            f"cannot place temporary work on a server that {manager.name} manages",
            detail=f"Recognized by {manager.told_by}. It restores its own settings, and creates servers without the "
            "directory.",
            hint=f"Set temp_tablespaces there: {manager.change}.",
        )
    if not facts.rights.is_superuser:
        raise TargetError(
            "only a superuser can place temporary work",
            detail="CREATE TABLESPACE needs it.",
            hint="Connect as a superuser, or take such a role with --role.",
        )


def refuse_directory(
    path: PurePosixPath, place: PlaceRow, found: DirectoryFacts | None, *, allows_same_device: bool
) -> None:
    """Raise TargetError if the directory cannot hold a tablespace for temporary files.

    `place` has the server's facts. `found` has those of the directory, None if the server runs on another machine or if
    this process cannot see the data directory; then only the path is checked. With `allows_same_device`, the directory
    may be on the disk that has the data.
    """
    if "'" in str(path):
        raise TargetError(
            f'directory "{path}" has a single quote in its name',
            detail="PostgreSQL takes none in a tablespace's location.",
            hint="Name another directory.",
        )
    quoted = shlex.quote(str(path))
    is_below = place.data_directory is not None and path.is_relative_to(place.data_directory)
    if is_below or (found is not None and found.is_inside_data):
        raise TargetError(
            f'directory "{path}" is inside the data directory',
            detail="Base backups would hold it twice.",
            hint="Name a directory elsewhere.",
        )
    if found is None:
        return
    if not found.is_directory:
        raise TargetError(
            f'directory "{path}" does not exist',
            hint=f"Create it as the server's account (user id {found.server_uid}): mkdir -m 700 {quoted}",
        )
    if found.owner_uid != found.server_uid:
        raise TargetError(
            f'directory "{path}" is not owned by the server\'s account',
            detail=f"Its owner is user id {found.owner_uid}, and the data directory's {found.server_uid}.",
            hint=f"Run as root: chown {found.server_uid} {quoted}",
        )
    if found.mode & _OPEN:
        raise TargetError(
            f'directory "{path}" is open to other users',
            detail=f"Its mode is {found.mode:04o}.",
            hint=f"Run chmod 700 {quoted}",
        )
    if found.is_empty is False:
        raise TargetError(
            f'directory "{path}" is not empty',
            hint="Name an empty directory; on a new file system create one below its top, which has lost+found.",
        )
    if found.shared and not allows_same_device:
        raise TargetError(
            f'directory "{path}" is on the disk that has the data',
            detail=f"Both are on {', '.join(found.shared)}: temporary work there takes from the same IOPS.",
            hint="Name a directory on another disk, or place it there all the same with --same-device.",
        )
    if (why := find_untrusted(found.parts, found.server_uid)) is not None:
        raise TargetError(
            f'directory "{path}" can be replaced by other users',
            detail=f"{why[0].upper()}{why[1:]}.",
            hint="Name a directory below ones that only root and the server's account may write to, without links.",
        )


def find_untrusted(parts: Sequence[PartFacts], server_uid: int) -> str | None:
    """Return why users other than root and the server's account may replace files below these directories.

    Return None if they may not. `server_uid` is the user id of the server's account. A sticky directory such as /tmp is
    not safe either: if a reboot empties it, any user may create a directory of the same name first.
    """
    for part in parts:
        if part.is_link:
            return f"{part.path} is a symbolic link"
        if part.owner_uid not in {0, server_uid}:
            return f"{part.path} belongs to user id {part.owner_uid}"
        if part.mode & 0o022:
            return f"others may write to {part.path}: its mode is {part.mode:04o}"
    return None


def find_open(parts: Sequence[PartFacts], server_uid: int) -> str | None:
    """Return why other users than the server's account may use these directories, None if they may not.

    The directories must belong to the server's account and have mode 0750 or stricter.
    """
    for part in parts:
        if part.owner_uid != server_uid:
            return f"{part.path} does not belong to the server's account"
        if part.mode & _OPEN:
            return f"the mode of {part.path} is {part.mode:04o}"
    return None


def list_remarks(path: PurePosixPath, place: PlaceRow, found: DirectoryFacts | None) -> list[str]:
    """Return sentences that the user should read before temporary files are placed in the directory.

    `found` has the facts of the directory, None if they could not be read.
    """
    remarks = []
    if found is None:
        remarks.append(
            "the server's machine is not this one, or its data directory cannot be seen: owner, mode and disk of the "
            "directory were not checked"
        )
    if place.receivers:
        names = ", ".join(dict.fromkeys(name or "(no name)" for name in place.receivers))
        remarks.append(
            f"these receive WAL: {names}; a standby without {path} stops replaying, so create it there first; one on "
            "the same machine shares it, and deletes this server's temporary files whenever it starts"
        )
    remarks.append(
        f"a base backup is restored with {path}, or with another place for it (pg_basebackup --tablespace-mapping)"
    )
    if place.temp_file_limit == "-1" and found is not None and found.free_bytes is not None:
        limit = f"{max(1, found.free_bytes // _LIMIT_SHARE // MIB)}MB"
        remarks.append(
            f"{format_bytes(found.free_bytes)} are free there, and nothing limits temporary files; to limit those of "
            f"each process: ALTER SYSTEM SET temp_file_limit = '{limit}'; SELECT pg_reload_conf();"
        )
    return remarks
