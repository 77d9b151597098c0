"""Checks a placement of temporary work: tablespace, setting, directory and disk, and which roles may use it.

A missing directory is created again if possible. It may be missing, for example, after a reboot of instance storage.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.host import measure_disk
from penstock.model.server.names import quote_name
from penstock.model.temp.placement import SETTING, TABLESPACE, CheckReport, Placement, Problem, spell_setting
from penstock.server.facts.facts import read_server_facts
from penstock.server.temp.setting import read_setting, setting_statement
from penstock.server.temp.tablespaces import (
    PlaceRow,
    TablespaceRow,
    find_occupants,
    find_tablespace,
    folder_exists,
    read_place,
)
from penstock.temp.placement.decide import find_open, find_untrusted
from penstock.temp.placement.directory import create_folders, look_at, look_at_parts
from penstock.units import format_bytes

if TYPE_CHECKING:
    from penstock.server.connect.connection import Connection, ConnectionFactory

# Report a disk as nearly full if less than this share of its size is free.
_LEAST_FREE = 0.1


def check_placement(
    connect: ConnectionFactory, control: Connection, placement: Placement, *, is_local: bool
) -> CheckReport:
    """Return what is wrong with a placement. Create its directory again if it is missing and this process may do so.

    `is_local` is true if the server runs on this machine. If it is false, directories and disks are not examined from
    here. Raises ServerError, TargetError.
    """
    place = read_place(control)
    found = find_tablespace(control)
    mended: list[str] = []
    problems = list(_judge_record(control, placement, found))
    shared = _find_shared(placement, place) if is_local else ()
    if shared:
        what = f"{placement.location} is on the disk that has the data ({', '.join(shared)}): sorts go there"
        problems.append(Problem(what=what, remedy="If its own disk is not mounted, mount it, and check again."))
    untrusted = _judge_path(found.location, place) if is_local and found is not None else None
    if untrusted is not None:
        problems.append(untrusted)
    if found is not None:
        folder = f"{found.location}/{place.version_folder}"
        # Do not suggest creating the directory if its disk is not mounted: it would be created on the data's disk.
        if not shared and untrusted is None and not folder_exists(control, folder):
            if is_local and _mend(found.location, place):
                mended.append(f"created {folder}")
            else:
                problems.append(_missing(found.location, folder))
        problems += [
            Problem(what=f"{each.what} would be lost with the disk", remedy=f"{each.move};")
            for each in find_occupants(connect, control, found.oid)
            if each.move is not None
        ]
        problems += _judge_rights(placement, found)
    disk = measure_disk(Path(placement.location)) if is_local else None
    if disk is not None and disk.free_bytes < _LEAST_FREE * disk.size_bytes:
        what = f"only {format_bytes(disk.free_bytes)} of {format_bytes(disk.size_bytes)} are free"
        problems.append(Problem(what=what, remedy="Set temp_file_limit, or move other files from the disk."))
    return CheckReport(
        placement=placement,
        problems=tuple(problems),
        mended=tuple(mended),
        free_bytes=None if disk is None else disk.free_bytes,
    )


def _judge_record(control: Connection, placement: Placement, found: TablespaceRow | None) -> Iterator[Problem]:
    again = "Run penstock temp remove, then place again."
    if not placement.is_placed:
        yield Problem(what="placing or removing it was interrupted", remedy="Run penstock temp remove, or place again.")
    if found is None:
        yield Problem(what=f'tablespace "{TABLESPACE}" does not exist', remedy=again)
    elif found.location != placement.location:
        yield Problem(what=f'tablespace "{TABLESPACE}" lies in {found.location}', remedy=again)
    current = read_setting(control, placement.scope)
    if current != (TABLESPACE,):
        what = f"{SETTING} of {placement.scope} is {spell_setting(current)}"
        if placement.scope.kind == "server" and read_server_facts(control).is_in_recovery:
            # ALTER SYSTEM is not replicated, but it is allowed on a standby.
            set_it = setting_statement(placement.scope, (TABLESPACE,))
            yield Problem(what=f"{what}, on this standby", remedy=f"{set_it}; SELECT pg_catalog.pg_reload_conf();")
        else:
            yield Problem(what=what, remedy=again)


def _judge_rights(placement: Placement, found: TablespaceRow) -> Iterator[Problem]:
    """Yield the roles that may not create files in the tablespace.

    PostgreSQL silently writes their spills elsewhere.
    """
    meant = placement.granted or found.excluded
    for role in found.excluded:
        if role in meant:
            grant = f"GRANT CREATE ON TABLESPACE {quote_name(TABLESPACE)} TO {quote_name(role)};"
            yield Problem(what=f'role "{role}" may not create there, so its work goes elsewhere', remedy=grant)


def _missing(location: str, folder: str) -> Problem:
    return Problem(
        what=f"{folder} is missing, as after a reboot of instance storage: sorts go to the data's disk, and temporary "
        "tables fail",
        remedy=f"As the server's account: mkdir -m 700 -p {shlex.quote(location)} {shlex.quote(folder)}",
    )


def _find_shared(placement: Placement, place: PlaceRow) -> tuple[str, ...]:
    """Return the disks that have both the directory and the data, if they shared no disk when the place was created."""
    if placement.shares_disk or place.data_directory is None:
        return ()
    location = Path(placement.location)
    with suppress(OSError):
        there = next(path for path in (location, *location.parents) if path.is_dir())
        seen = look_at(there, Path(place.data_directory))
        return () if seen is None else seen.shared
    return ()


def _judge_path(location: str, place: PlaceRow) -> Problem | None:
    """Return a problem if other users may read the temporary files or replace the directory, otherwise None."""
    with suppress(OSError):
        server_uid = Path(place.data_directory or "").stat().st_uid
        parts = look_at_parts(Path(location) / place.version_folder)
        own = [part for part in parts if Path(part.path).is_relative_to(location)]
        why = find_untrusted(parts, server_uid) or find_open(own, server_uid)
        if why is not None:
            remedy = (
                "Run penstock temp remove, then place again, below directories that only root and the server's account "
                "may write to."
            )
            return Problem(what=f"other users may read or replace temporary files: {why}", remedy=remedy)
    return None


def _mend(location: str, place: PlaceRow) -> bool:
    """Create the tablespace's directory and the version's folder in it. Return whether that succeeded.

    Both get the owner of the data directory. This process must be root or that owner.
    """
    with suppress(OSError):
        owner = Path(place.data_directory or "").stat()
        if os.geteuid() not in {0, owner.st_uid}:
            return False
        create_folders(Path(location), place.version_folder, uid=owner.st_uid, gid=owner.st_gid)
        return True
    return False
