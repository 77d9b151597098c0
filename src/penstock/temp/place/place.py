"""Places temporary work in a tablespace, checks the place, and removes it.

A placement is recorded in the ledger, and the record is committed, before its first statement runs. The ledger does not
record which statements have run, because the catalogs show it. So a process may be killed at any point: a second
`place` completes an interrupted placement, and `remove` undoes as much of it as exists.
"""

from __future__ import annotations

import os
import shlex
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path, PurePosixPath

from penstock.changes.context import Context
from penstock.changes.journal import record, restore
from penstock.changes.records import SERVER_DATABASE, TableStore
from penstock.changes.values import SERVER, Change, Hold, lock_of
from penstock.core.catalogue.catalog import read_server_facts
from penstock.core.catalogue.settings import read_facts
from penstock.core.checks import check_standby
from penstock.core.connect.connection import Connection, ConnectionFactory
from penstock.core.connect.errors import is_of_file_system
from penstock.core.errors import PenstockError, TargetError, UsageError
from penstock.core.host.disks import measure_disk
from penstock.core.slotted import slotted
from penstock.core.units import format_bytes
from penstock.core.values.diagnosis import Diagnosis, refuse, warning
from penstock.core.values.names import quote_name
from penstock.core.values.temp_place import (
    DEFAULT_TABLESPACE,
    SETTING,
    TABLESPACE,
    CheckReport,
    Placement,
    PlaceReport,
    Scope,
    spell_setting,
)
from penstock.ledger.locks import try_lock
from penstock.temp.place.decide import find_open, find_untrusted, list_remarks, refuse_directory, refuse_server
from penstock.temp.place.directory import DirectoryFacts, create_folders, look_at, look_at_parts
from penstock.temp.place.kind import (
    PlaceRow,
    TablespaceRow,
    TempPlace,
    find_occupants,
    find_tablespace,
    folder_exists,
    make_change,
    read_effective,
    read_place,
    read_placement,
    read_setting,
    scope_exists,
    setting_statement,
)

# The code of what is wrong with a temp place.
_CODE = "temp-place"

# Report a disk as nearly full if less than this share of its size is free.
_LEAST_FREE = 0.1


def check_placement(
    connect: ConnectionFactory, control: Connection, placement: Placement, *, is_local: bool
) -> CheckReport:
    """Return what is wrong with a placement. Create its directory again if it is missing and this process may do so.

    `control` is a session in database SERVER_DATABASE. `is_local` is whether the server runs on this machine; otherwise
    this process cannot examine directories and disks. Raises ServerError, TargetError.
    """
    place = read_place(control)
    found = find_tablespace(control)
    mended: list[str] = []
    problems = list(_judge_record(control, placement, found))
    shared = _find_shared(placement, place) if is_local else ()
    if shared:
        what = f"{placement.location} is on the disk that has the data ({', '.join(shared)}): sorts go there"
        problems.append(warning(_CODE, what, "If its own disk is not mounted, mount it, and check again."))
    untrusted = _judge_path(found.location, place) if is_local and found is not None else None
    if untrusted is not None:
        problems.append(untrusted)
    if found is not None:
        try:
            # Do not suggest creating the directory if its disk is not mounted: it would be created on the data's disk.
            if not shared and untrusted is None:
                folder = f"{found.location}/{place.version_folder}"
                if not folder_exists(control, folder):
                    if is_local and not placement.shares_disk and _is_on_root(found.location):
                        problems.append(_unmounted(found.location, folder))
                    elif is_local and _mend(found.location, place):
                        mended.append(f"created {folder}")
                    else:
                        problems.append(_missing(found.location, folder))
            problems += [
                warning(_CODE, f"{each.what} would be lost with the disk", f"{each.move};")
                for each in find_occupants(connect, control, found.oid)
                if each.move is not None
            ]
        except PenstockError as error:
            if not is_of_file_system(error):
                raise
            problems.append(_unreadable(found.location, place, error))
        problems += _judge_rights(placement, found)
    disk = measure_disk(Path(placement.location)) if is_local else None
    if disk is not None and disk.free_bytes < _LEAST_FREE * disk.size_bytes:
        what = f"only {format_bytes(disk.free_bytes)} of {format_bytes(disk.size_bytes)} are free"
        problems.append(warning(_CODE, what, "Set temp_file_limit, or move other files from the disk."))
    return CheckReport(
        placement=placement,
        problems=tuple(problems),
        mended=tuple(mended),
        free_bytes=None if disk is None else disk.free_bytes,
    )


def _judge_record(control: Connection, placement: Placement, found: TablespaceRow | None) -> Iterator[Diagnosis]:
    again = "Run penstock temp remove, then place again."
    if not placement.is_placed:
        yield warning(_CODE, "placing or removing it was interrupted", "Run penstock temp remove, or place again.")
    if found is None:
        yield warning(_CODE, f'tablespace "{TABLESPACE}" does not exist', again)
    elif found.location != placement.location:
        yield warning(_CODE, f'tablespace "{TABLESPACE}" lies in {found.location}', again)
    current = read_setting(control, placement.scope)
    if current != (TABLESPACE,):
        what = f"{SETTING} of {placement.scope} is {spell_setting(current)}"
        if placement.scope.kind == "server" and read_server_facts(control).is_in_recovery:
            # ALTER SYSTEM is not replicated, but it is allowed on a standby.
            set_it = setting_statement(placement.scope, (TABLESPACE,))
            yield warning(_CODE, f"{what}, on this standby", f"{set_it}; SELECT pg_catalog.pg_reload_conf();")
        else:
            yield warning(_CODE, what, again)


def _judge_rights(placement: Placement, found: TablespaceRow) -> Iterator[Diagnosis]:
    """Yield the roles that may not create files in the tablespace.

    PostgreSQL silently writes the temporary files of such roles elsewhere.
    """
    meant = placement.granted or found.excluded
    for role in found.excluded:
        if role in meant:
            grant = f"GRANT CREATE ON TABLESPACE {quote_name(TABLESPACE)} TO {quote_name(role)};"
            yield warning(_CODE, f'role "{role}" may not create there, so its work goes elsewhere', grant)


def _missing(location: str, folder: str) -> Diagnosis:
    return warning(
        _CODE,
        f"{folder} is missing, as after a reboot of instance storage: sorts go to the data's disk, and temporary "
        "tables fail",
        _create(location, folder),
    )


def _unmounted(location: str, folder: str) -> Diagnosis:
    return warning(
        _CODE,
        f"{folder} is missing, and what exists of its path is on the disk of /: sorts go to the data's disk, and "
        "temporary tables fail",
        f"If its own disk is not mounted, mount it, and check again. Otherwise: {_create(location, folder)}",
    )


def _create(location: str, folder: str) -> str:
    return f"As the server's account: mkdir -m 700 -p {shlex.quote(location)} {shlex.quote(folder)}"


def _is_on_root(location: str) -> bool:
    """Return whether the existing part of a path is on the disk of /, as a mount point is while nothing is mounted."""
    path = Path(location)
    with suppress(OSError):
        there = next(each for each in (path, *path.parents) if each.is_dir())
        return there.stat().st_dev == Path("/").stat().st_dev
    return False


def _unreadable(location: str, place: PlaceRow, error: PenstockError) -> Diagnosis:
    directory = shlex.quote(location)
    owner = "to the server's account" if place.data_directory is None else f"--reference={place.data_directory}"
    return warning(
        _CODE,
        f"the server may not read {location}, so work that spills fails: its owner or mode was changed "
        f"({error.message})",
        f"As root: chown {owner} {directory}; chmod 700 {directory}",
    )


def _find_shared(placement: Placement, place: PlaceRow) -> tuple[str, ...]:
    """Return the disks that have both the directory and the data now, but had not when the place was created."""
    if placement.shares_disk or place.data_directory is None:
        return ()
    location = Path(placement.location)
    with suppress(OSError):
        there = next(path for path in (location, *location.parents) if path.is_dir())
        seen = look_at(there, Path(place.data_directory))
        return () if seen is None else seen.shared
    return ()


def _judge_path(location: str, place: PlaceRow) -> Diagnosis | None:
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
            return warning(_CODE, f"other users may read or replace temporary files: {why}", remedy)
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


@slotted
class PlaceRequest:
    """What the user asks for: in which directory, for which scope and for which roles temporary files are placed."""

    directory: str
    scope: Scope
    granted: tuple[str, ...] = ()
    # Whether the directory may be on the disk that has the data.
    allows_same_device: bool = False


class PlaceKeeper:
    """Creates, checks and removes a server's placement of temporary files.

    A placement is a tablespace for temporary files, with temp_tablespaces set to it. The object has a session, which
    `close` ends. `tell` is called with each statement before it runs, and with remarks for the user. Methods raise
    TargetError if temporary files cannot be placed, or the placement cannot be removed. They also raise UsageError and
    ServerError.
    """

    def __init__(self, connect: ConnectionFactory, *, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._connect = connect
        control = connect.in_database(SERVER_DATABASE)
        self._control = control.connect(label="temp")
        self._kind = TempPlace()
        self._context = Context(
            store=TableStore(connection=self._control),
            kinds=[self._kind],
            notice=tell,
            connect=connect,
            concerns=self._kind.handles,
        )
        try:
            control.refuse_pooler("place temporary work")
        except PenstockError:
            self.close()
            raise

    def close(self) -> None:
        """End the session."""
        self._control.close()

    def read(self) -> Placement | None:
        """Return the placement that the ledger records, or None if it records none."""
        return self._read(self._find())

    def _read(self, found: tuple[Change, Hold] | None) -> Placement | None:
        return None if found is None else read_placement(self._control, found[0], is_placed=found[1].stands)

    def _find(self) -> tuple[Change, Hold] | None:
        """Return the ledger's record of the placement with its hold, or None without a record.

        If the ledger has no hold for the record, a new hold is returned.
        """
        store = self._context.store
        written = store.read_changes(SERVER) if store.exists() else []
        change = next((each for each in written if self._kind.handles(each) and not each.is_copied), None)
        if change is None:
            return None
        holds = [hold for hold in store.read_holds(SERVER) if TABLESPACE in hold.names]
        return change, holds[0] if holds else _make_hold(change.load_id)

    # ---------------------------------------------------------------- place

    def plan(self, request: PlaceRequest) -> PlaceReport:
        """Return the statements that `place` would run. Nothing is changed."""
        placement = self._decide(request, self.read())
        return PlaceReport(placement=placement, statements=tuple(self._kind.plan(self._control, placement)))

    def place(self, request: PlaceRequest) -> PlaceReport:
        """Place temporary files, and prove that a sort and a temporary table use the tablespace.

        Return the statements that were run. If the proof fails, everything is undone. Until it has succeeded, a repair
        undoes what a crash of this process leaves. After that, the placement stays until `remove` is called.
        """
        with self._context.lock(SERVER):
            found = self._find()
            placement = self._decide(request, self._read(found))
            hold = found[1] if found is not None else _make_hold(str(uuid.uuid4()))
            self._context.store.ensure()
            if not placement.is_placed:
                self._take(hold, () if found is not None else [make_change(placement, hold.holder_id)])
            try:
                report = self._kind.apply(self._context, placement)
            except BaseException as error:
                if not placement.is_placed:
                    self._undo_failed(hold, error)
                raise
            record(self._context, replace(hold, stands=True))
        return replace(report, placement=replace(placement, is_placed=True))

    def _take(self, hold: Hold, changes: Sequence[Change]) -> None:
        """Record the hold with `changes`, and lock it for this session. The hold ends with the session."""
        is_locked = try_lock(self._control, hold.lock or "")
        assert is_locked, "no other session has the server's lock"
        record(self._context, replace(hold, stands=False), changes)

    def _decide(self, request: PlaceRequest, known: Placement | None) -> Placement:
        """Return the placement for a request: `known`, which the ledger records, or a new one.

        Raises TargetError, UsageError.
        """
        # normpath keeps two slashes at the start of a path. PostgreSQL replaces them by one.
        path = PurePosixPath(os.path.normpath(request.directory).replace("//", "/"))
        if not path.is_absolute():
            raise UsageError(f'"{path}" is not an absolute path', hint="Name the directory on the server's machine.")
        refuse_server(read_facts(self._control))
        if not scope_exists(self._control, request.scope):
            raise TargetError(
                f"{request.scope} does not exist",
                hint="Name an existing one with --scope, as in SQL: quote capitals and spaces, as in 'role:\"Ann\"'.",
            )
        role = (request.scope.name,) if request.scope.kind == "role" and request.scope.name else ()
        placement = Placement(
            location=str(path),
            scope=request.scope,
            granted=request.granted or role,
            prior=read_setting(self._control, request.scope),
        )
        if known is None and request.granted and request.scope.kind != "role":
            self._refuse_displacing(placement)
        found = find_tablespace(self._control)
        if known is not None and not known.is_same_as(placement):
            raise TargetError(
                f"temporary work of {known.scope} is placed in {known.location} already",
                hint="Place it with the same options, or run penstock temp remove first.",
            )
        if known is None and found is not None:
            raise TargetError(
                f'tablespace "{TABLESPACE}" exists already, and was not created by penstock',
                detail=f"It lies in {found.location}.",
                hint="Rename or drop it.",
            )
        place = read_place(self._control)
        directory = self._look_at(path, place)
        if found is None:
            refuse_directory(path, place, directory, allows_same_device=request.allows_same_device)
        for remark in list_remarks(path, place, directory):
            self._tell(remark)
        return known or replace(placement, shares_disk=directory is not None and bool(directory.shared))

    def _refuse_displacing(self, placement: Placement) -> None:
        """Raise TargetError if roles that are not granted have another place now: PostgreSQL would skip the new one."""
        former = placement.prior
        if former is None or placement.scope.kind == "server":
            # The server's setting may be in postgresql.conf.
            former = read_effective(self._control)
        if any(name not in ("", DEFAULT_TABLESPACE) for name in former):
            raise TargetError(
                "temporary work of other roles would move to the default tablespace of their databases",
                detail=f"It goes to {spell_setting(former)} now, and only granted roles may use the new place.",
                hint="Place the work of one role with --scope role:NAME, or leave --grant out.",
            )

    def _look_at(self, path: PurePosixPath, place: PlaceRow) -> DirectoryFacts | None:
        if place.data_directory is None or not read_server_facts(self._control).is_local:
            return None
        return look_at(Path(path), Path(place.data_directory))

    def _undo_failed(self, hold: Hold, error: BaseException) -> None:
        """Undo a placement that failed with `error`. The error's hint then says whether it was undone."""
        hint = "Everything was undone."
        try:
            self._undo(hold)
        except PenstockError:
            hint = "penstock repair undoes what was made of it."
        if isinstance(error, PenstockError):
            error.hint = hint

    # ---------------------------------------------------------------- check

    def check(self) -> CheckReport | None:
        """Return what is wrong with the placement, or None if there is no placement.

        A missing directory is created again if this process may do so.
        """
        placement = self.read()
        if placement is None:
            return None
        is_local = read_server_facts(self._control).is_local
        return check_placement(self._connect, self._control, placement, is_local=is_local)

    # ---------------------------------------------------------------- remove

    def remove(self) -> PlaceReport:
        """Undo the placement, and return the statements run.

        What somebody else has changed since stays, and is in the report. Raises TargetError, before anything is
        changed, if a permanent object is in the tablespace. Also raises TargetError if sessions use the tablespace. In
        this case the setting has been restored, so that these sessions stop using it.
        """
        refuse(check_standby(read_facts(self._control).is_in_recovery, "remove a placement"))
        with self._context.lock(SERVER):
            found = self._find()
            if found is None:
                raise TargetError("no temporary work is placed", hint="penstock temp place DIR does it.")
            change, hold = found
            self._kind.refuse_permanent(self._context, change)
            self._context.store.open()
            self._take(hold, ())
            return self._undo(hold)

    def _undo(self, hold: Hold) -> PlaceReport:
        done = restore(replace(self._context, leaving=[hold.holder_id]), [SERVER])
        if done.errors:
            raise done.errors[0]
        assert done.temp_place is not None, "it is written down"
        return done.temp_place


def _make_hold(holder_id: str) -> Hold:
    lock = lock_of(holder_id)
    return Hold(holder_id=holder_id, target_oid=SERVER, lock=lock, names=(TABLESPACE,), reason="temp remove")
