"""Places temporary work and removes the place, so that a process that dies anywhere leaves what either command ends.

A placement is written down and committed before its first statement. Whether a statement was made is never written
down: the catalogue is looked at. So `place` again completes what was cut short, and `remove` undoes what there is.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from penstock.errors import PenstockError, TargetError, UsageError
from penstock.model.temp.placement import SETTING, TABLESPACE, Placement, PlaceReport, spell_setting
from penstock.server.facts.facts import read_server_facts
from penstock.server.facts.settings import read_facts, reload
from penstock.server.leases import LEASE_DATABASE
from penstock.server.temp.placements import PlacementStore
from penstock.server.temp.proof import find_disproof
from penstock.server.temp.setting import find_naming, read_setting, scope_exists, setting_statement
from penstock.server.temp.tablespaces import (
    DROP,
    create_statement,
    find_name_at,
    find_occupants,
    find_spilling,
    find_tablespace,
    grant_statement,
    read_place,
    run_statement,
)
from penstock.temp.placement.check import check_placement
from penstock.temp.placement.decide import list_remarks, refuse_directory, refuse_server
from penstock.temp.placement.directory import look_at

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.model.temp.placement import CheckReport, Scope
    from penstock.server.connect.connection import ConnectionFactory
    from penstock.server.temp.tablespaces import PlaceRow, TablespaceRow
    from penstock.temp.placement.directory import DirectoryFacts

# Of what lies in a tablespace that is to be dropped.
_LISTED = 10
_WANTED = (TABLESPACE,)
_RELOAD = "SELECT pg_catalog.pg_reload_conf()"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceRequest:
    """What is asked for; `allows_same_device`: though the directory is on the data's disk."""

    directory: str
    scope: Scope
    granted: tuple[str, ...] = ()
    allows_same_device: bool = False


class PlaceKeeper:
    """Keeps the place for temporary work of one server, by a session of its own; close it.

    `tell` hears each statement before it is run, and what else is to be known. Methods raise TargetError where
    something cannot be placed or removed, UsageError, ServerError.
    """

    def __init__(self, connect: ConnectionFactory, *, tell: Callable[[str], None]) -> None:
        self._connect = connect
        self._tell = tell
        control = connect.in_database(LEASE_DATABASE)
        self._control = control.connect(label="temp")
        self._store = PlacementStore(self._control)
        self._done: list[str] = []
        try:
            control.refuse_pooler("place temporary work")
        except PenstockError:
            self.close()
            raise

    def close(self) -> None:
        """End the session."""
        self._control.close()

    def read(self) -> Placement | None:
        """Return what is written down, None if nothing is."""
        return self._store.read()

    # ---------------------------------------------------------------- placed

    def plan(self, request: PlaceRequest) -> PlaceReport:
        """Return what `place` would run; changes nothing."""
        placement = self._decide(request)
        return PlaceReport(placement=placement, statements=(*self._statements(placement), *_reloads(placement)))

    def place(self, request: PlaceRequest) -> PlaceReport:
        """Make a place and prove it: a sort that spills and a temporary table are found there, or all is undone."""
        with self._store.alone():
            placement = self._decide(request)
            is_new = placement.stage != "placed"
            if is_new:
                placement = replace(placement, stage="placing")
                self._store.write(placement)
            try:
                self._make(placement)
            except BaseException as error:
                if is_new:
                    self._undo_failed(placement, error)
                raise
            placement = replace(placement, stage="placed")
            self._store.write(placement)
        return PlaceReport(placement=placement, statements=tuple(self._done))

    def _decide(self, request: PlaceRequest) -> Placement:
        """Return the placement, as it is written down already or new. Raises TargetError, UsageError."""
        # normpath keeps a second slash at the start, which PostgreSQL does not.
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
        known, found = self._store.read(), find_tablespace(self._control)
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

    def _look_at(self, path: PurePosixPath, place: PlaceRow) -> DirectoryFacts | None:
        if place.data_directory is None or not read_server_facts(self._control).is_local:
            return None
        return look_at(Path(path), Path(place.data_directory))

    def _statements(self, placement: Placement) -> list[str]:
        """Return what is still to be run. Raises TargetError where the setting is somebody else's by now."""
        statements = [grant_statement(placement.granted)]
        if find_tablespace(self._control) is None:
            statements.insert(0, create_statement(placement.location))
        current = read_setting(self._control, placement.scope)
        if current not in {placement.prior, _WANTED}:
            raise TargetError(
                f"{SETTING} of {placement.scope} was changed by somebody else",
                detail=f"It is {spell_setting(current)}.",
                hint="Run penstock temp remove, then place again.",
            )
        if current != _WANTED:
            statements.append(setting_statement(placement.scope, _WANTED))
        return statements

    def _make(self, placement: Placement) -> None:
        """Run what is missing, and prove it."""
        for statement in self._statements(placement):
            self._run(statement)
        self._reload(placement)
        found = find_tablespace(self._control)
        assert found is not None, "it was created"
        why = find_disproof(self._connect, self._control, placement, found.oid)
        if why is not None:
            raise TargetError(
                f"temporary work does not go to {placement.location}",
                detail=f"{why}.",
                hint="penstock temp check shows more.",
            )

    def _undo_failed(self, placement: Placement, error: BaseException) -> None:
        """Undo what was made of a placement, and have its error say whether that could be done."""
        hint = "Everything was undone."
        try:
            self._undo(placement)
        except PenstockError:
            hint = "penstock repair undoes what was made of it."
        if isinstance(error, PenstockError):
            error.hint = hint

    # ---------------------------------------------------------------- kept

    def check(self) -> CheckReport | None:
        """Return what is wrong with the place, None if there is none; a directory that was lost is created again."""
        placement = self.read()
        if placement is None:
            return None
        is_local = read_server_facts(self._control).is_local
        return check_placement(self._connect, self._control, placement, is_local=is_local)

    # ---------------------------------------------------------------- removed

    def remove(self) -> PlaceReport:
        """Undo the place, but for what somebody else has changed since, which the report has.

        Raises TargetError, before anything is changed, where something permanent lies there; where sessions use it,
        once the setting is restored, so that they stop.
        """
        if read_facts(self._control).is_in_recovery:
            raise TargetError("cannot remove a placement on a standby", hint="Run it on the primary.")
        with self._store.alone():
            return self._undo(self._require())

    def clear(self) -> PlaceReport | None:
        """Undo a place if placing or removing it was interrupted."""
        with self._store.alone():
            placement = self.read()
            return None if placement is None or placement.stage == "placed" else self._undo(placement)

    def _require(self) -> Placement:
        placement = self.read()
        if placement is None:
            raise TargetError("no temporary work is placed", hint="penstock temp place DIR does it.")
        return placement

    def _undo(self, placement: Placement) -> PlaceReport:
        left: list[str] = []
        found = find_tablespace(self._control)
        if found is not None and found.location != placement.location:
            left.append(f'tablespace "{TABLESPACE}" lies in {found.location} now')
            found = None
        elif found is None and (renamed := find_name_at(self._control, placement.location)) is not None:
            left.append(f'tablespace "{renamed}" lies in {placement.location}: it had another name')
        if found is not None:
            self._refuse_permanent(found)
        self._store.write(replace(placement, stage="removing"))
        current = read_setting(self._control, placement.scope)
        if current == _WANTED:
            self._run(setting_statement(placement.scope, placement.prior))
        elif current != placement.prior:
            left.append(f"{SETTING} of {placement.scope} is {spell_setting(current)} now")
        # Of a role that has another name by now, say.
        left += [f"{SETTING} of {whose} names it still" for whose in find_naming(self._control, TABLESPACE)]
        # Also if there was none: who died before may not have waited for it.
        self._reload(placement)
        if found is not None:
            # Only now: where reports spill all the time, there is never a moment without their files.
            self._refuse_temporary(found, placement)
            self._run(DROP)
        self._store.forget()
        return PlaceReport(placement=placement, statements=tuple(self._done), left=tuple(left))

    def _refuse_permanent(self, found: TablespaceRow) -> None:
        occupants = find_occupants(self._connect, self._control, found.oid)
        lines = [f"{each.what}: {each.move};" for each in occupants if each.move is not None]
        _refuse_used(lines, hint="Run the statements shown, each in its database.")

    def _refuse_temporary(self, found: TablespaceRow, placement: Placement) -> None:
        occupants = find_occupants(self._connect, self._control, found.oid)
        occupants += find_spilling(self._control, found.oid)
        hint = (
            f"{SETTING} of {placement.scope} is restored; run it again when these are gone: temporary files end with "
            "their statements, temporary tables with their sessions."
        )
        if placement.scope.kind != "server":
            hint += " Sessions that began before keep the setting until they end."
        _refuse_used([each.what for each in occupants], hint=hint)

    # ---------------------------------------------------------------- both

    def _run(self, text: str) -> None:
        self._tell(f"{text};")
        run_statement(self._control, text)
        self._done.append(text)

    def _reload(self, placement: Placement) -> None:
        for text in _reloads(placement):
            self._tell(f"{text};")
            reload(self._control)
            self._done.append(text)


def _refuse_used(lines: Sequence[str], *, hint: str) -> None:
    if lines:
        more = [f"and {len(lines) - _LISTED} more"] if len(lines) > _LISTED else []
        raise TargetError(
            f'tablespace "{TABLESPACE}" is in use', detail="\n".join([*lines[:_LISTED], *more]), hint=hint
        )


def _reloads(placement: Placement) -> tuple[str, ...]:
    return (_RELOAD,) if placement.scope.kind == "server" else ()
