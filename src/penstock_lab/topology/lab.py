"""Carries out the commands on a lab: bring it up, show its status, kill and heal members, fail over, take it down.

Only one command at a time changes the labs of a home. A command records in the state file what it will start before it
starts anything, so `down` ends everything even if the command was killed.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.core.errors import LabError, ServerError, UsageError
from penstock.core.newfile import open_own_folder
from penstock.core.slotted import slotted
from penstock.embedded.cluster import make_home
from penstock.embedded.control import exclusive_lock, find_free_port
from penstock.embedded.installations import Installation, installation_at
from penstock.embedded.layout import ClusterFiles
from penstock.embedded.server import EmbeddedServer, default_home
from penstock.embedded.users import choose_server_user, is_root
from penstock_lab.topology.parts import (
    LabParts,
    commit_durably,
    connect_to,
    counts,
    create_slots,
    promote,
    read_received,
    read_standbys,
)
from penstock_lab.topology.processes import LabResources, Processes, release
from penstock_lab.topology.s3 import check_moto
from penstock_lab.topology.shapes import Kind, Parameters, Shape, TopologyMember, members_of, needed_acknowledgements
from penstock_lab.topology.state import LabFiles, LabState, check_name, is_lab, lab_names

if TYPE_CHECKING:
    from penstock.core.values.inspection import StandbyRow
    from penstock_lab.s3.call import S3Call

_PROGRAMS: dict[Shape, tuple[str, ...]] = {
    "single": ("pg_ctl",),
    "multi-az": ("pg_ctl",),
    "cluster": ("pg_ctl", "pg_basebackup"),
    "quorum": ("pg_ctl", "pg_receivewal"),
}

_LAST_WAL_TIMEOUT_S = 30
_POLL_S = 0.05


@slotted
class MemberStatus:
    """The state of one member of a lab: a server, or a receiver of WAL."""

    name: str
    kind: Kind
    zone: str | None
    # The state of the member: down, running, volume lost, or what pg_stat_replication shows.
    state: str
    sync_state: str | None
    # The WAL that the member has not received.
    lag_bytes: int | None
    conninfo: str | None


@slotted
class LabStatus:
    """The state of a lab and of its members, and how to connect to its primary."""

    name: str
    shape: Shape
    stage: str
    parameters: Parameters
    zone_latency_s: float
    major: int
    folder: Path
    conninfo: str | None
    volume: str | None
    local_storage: Path | None
    memory_bytes: int | None
    # The environment variables that lead to the lab's S3, None if it has none.
    s3: Mapping[str, str] | None
    # How many members a commit waits for.
    needed: int
    members: tuple[MemberStatus, ...]
    # The members that receive no WAL now.
    missing: tuple[str, ...]

    @property
    def can_commit(self) -> bool:
        """Return whether enough members receive WAL to acknowledge a commit."""
        return self.conninfo is not None and len(self.members) - 1 - len(self.missing) >= self.needed


@dataclass(frozen=True, slots=True)
class Lab:
    """PostgreSQL servers in a topology on this machine, under one name. A lab need not exist.

    `files` has the lab's name and paths.
    """

    files: LabFiles

    @classmethod
    def named(cls, name: str, home: Path | None = None) -> Lab:
        """Return the lab with this name. Raises UsageError if the name is not valid."""
        check_name(name)
        return cls(LabFiles((home or default_home(os.environ, is_root=is_root())).absolute(), name))

    def up(
        self,
        shape: Shape,
        installation: Installation,
        *,
        parameters: Parameters,
        zone_latency_s: float = 0.0,
        volume: str | None = None,
        local_storage_bytes: int | None = None,
        memory_bytes: int | None = None,
        has_s3: bool = False,
    ) -> LabStatus:
        """Create and start the lab, and return its status.

        If it exists with the same options, start members that have ended. Members that the user has stopped
        (`state.down`) are not started. Files and processes that an interrupted command has left are removed first. If
        the lab cannot be brought up, everything is removed. Raises LabError, and UsageError for a volume that is not
        valid.
        """
        wanted = LabState(
            name=self.files.name,
            shape=shape,
            parameters=parameters,
            zone_latency_s=zone_latency_s,
            bin_dir=installation.bin_dir,
            major=installation.major,
            stage="starting",
            members=members_of(shape),
            # multi-az replicates the blocks below a file system, so it always needs a volume.
            volume=volume or ("unlimited" if shape == "multi-az" else None),
            local_storage_bytes=local_storage_bytes,
            memory_bytes=memory_bytes,
            s3_port=find_free_port() if has_s3 else None,
        )
        _check_programs(shape, installation)
        LabResources(self.files.folder, wanted).check()
        if has_s3:
            check_moto()
        with self._changing():
            state = self.files.read()
            if state is not None and state.stage == "up":
                _check_same(state, wanted)
                self._start(state)
                return self._status(state)
            self._remove()
            try:
                return self._build(wanted)
            except BaseException:
                self._remove()
                raise

    def down(self) -> bool:
        """End and remove everything of the lab. Return whether the lab existed. Raises LabError."""
        if not self.files.folder.exists():
            return False
        with self._changing():
            self._remove()
        return True

    def status(self) -> LabStatus:
        """Return the lab's status without changing anything. Raises UsageError if the lab does not exist."""
        return self._status(self._known())

    def conninfo(self) -> str:
        """Return the connection string of the primary. Raises LabError if it is down."""
        state = self._known()
        return self._parts(state).server(state.primary).conninfo()

    def kill(self, target: str) -> LabStatus:
        """Kill the members of a zone, or one member, and keep them down. Return the lab's status.

        Raises UsageError, LabError.
        """
        with self._changing():
            state = self._settled()
            chosen = _find_members(state, target)
            if any(member.kind == "primary" for member in chosen):
                raise LabError(
                    f'"{target}" has the primary of lab "{state.name}", which the lab needs',
                    hint="To lose the primary, run penstock lab failover.",
                )
            names = {member.name for member in chosen}
            state = replace(state, down=tuple(sorted(names | set(state.down))))
            self.files.write(state)
            self._parts(state).stop(chosen)
            return self._status(state)

    def heal(self) -> LabStatus:
        """Start the killed members, wait until they have caught up, and return the lab's status.

        Raises UsageError, LabError.
        """
        with self._changing():
            state = replace(self._settled(), down=())
            self.files.write(state)
            self._start(state)
            return self._status(state)

    def failover(self) -> LabStatus:
        """Crash the primary, promote the standby with the most WAL, and make the old primary a standby of the new one.

        Return the lab's status. Raises UsageError if the lab does not exist, LabError if it has no standby to promote.
        """
        with self._changing():
            state = self._settled()
            if state.shape != "cluster":
                raise LabError(
                    f'lab "{state.name}" has no standby to promote',
                    detail=f"It is {state.shape}: one server"
                    + (", and receivers of its WAL." if state.others else "."),
                    hint="Bring up a cluster with penstock lab up cluster.",
                )
            if state.down:
                raise LabError(
                    f'{", ".join(state.down)} of lab "{state.name}" is down, and may have commits that no other has',
                    hint="Run penstock lab heal first.",
                )
            state = self._fail_over(replace(state, stage="failing over"))
            return self._status(state)

    def trim_receivers(self) -> None:
        """Remove the receivers' complete WAL segments, except the last. Nothing in the lab reads them."""
        self._parts(self._known()).trim_receivers()

    def change_volume(self, volume: str) -> None:
        """Change the limits of the lab's volumes at once, while they are in use.

        On EBS, such a modification takes hours. The size of the volumes does not change. Raises UsageError, LabError.
        """
        with self._changing():
            state = self._settled()
            self._parts(state).resources.change_volumes(volume)
            self.files.write(replace(state, volume=volume))

    def primary(self) -> EmbeddedServer:
        """Return the server that is the primary, running or not. Raises UsageError if the lab does not exist."""
        state = self._known()
        return self._parts(state).server(state.primary)

    def s3_access(self) -> S3Call:
        """Return the region, the endpoint and the credentials of the lab's S3, with its bucket.

        Raises UsageError if the lab does not exist or has no S3.
        """
        state = self._known()
        s3 = self._parts(state).s3
        if s3 is None:
            raise UsageError(f'lab "{state.name}" has no S3', hint="Bring it up with --s3.")
        return s3.access

    def _build(self, state: LabState) -> LabStatus:
        parts = self._parts(state)
        make_home(ClusterFiles(self.files.folder), user=parts.user)
        self.files.write(state)
        parts.resources.create(parts.user)
        if parts.s3 is not None:
            parts.s3.create(parts.installation, parts.user)
        state = replace(state, stage="up")
        self._start(state)
        self.files.write(state)
        return self._status(state)

    def _start(self, state: LabState) -> None:
        """Start the members that should run but are down, and wait until a commit succeeds."""
        parts = self._parts(state)
        members = [member for member in state.members if member.name not in state.down]
        parts.start(members)
        names = [member.name for member in members if member.kind != "primary"]
        parts.await_streaming(names)
        if len(names) >= needed_acknowledgements(state.shape):
            with parts.primary_session() as connection:
                commit_durably(connection)

    def _fail_over(self, state: LabState) -> LabState:
        self.files.write(state)
        parts, lost = self._parts(state), state.primary
        parts.server(lost).stop("immediate")
        chosen = max(state.others, key=lambda member: _await_last_wal(parts, member))
        promote(parts.server(chosen))
        standbys = (replace(member, kind="standby") for member in state.members if member != chosen)
        members = (replace(chosen, kind="primary"), *sorted(standbys, key=lambda member: member.name))
        parts.end_relays()
        state = replace(state, members=members)
        self.files.write(state)
        parts = self._parts(state)
        with parts.primary_session() as connection:
            create_slots(connection, (member.name for member in state.others))
        for member in state.others:
            if member.name == lost.name:
                # At its next start the old primary copies the new primary's data.
                shutil.rmtree(parts.server(member).data_dir)
            else:
                # At its next start the standby reads which primary to follow.
                parts.server(member).stop("fast")
        state = replace(state, stage="up")
        self._start(state)
        self.files.write(state)
        return state

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Hold the lock of the home, which protects all labs. Raises LabError for errors of the file system."""
        labs = self.files.folder.parent
        make_home(ClusterFiles(labs), user=choose_server_user(self.files.folder))
        try:
            with exclusive_lock(labs / ".lock"):
                yield
        except OSError as error:
            raise LabError(
                f'could not use the files of lab "{self.files.name}"',
                detail=f'"{error.filename or self.files.folder}": {error.strerror or error}',
                hint="Free space there, or set the environment variable PENSTOCK_HOME to another directory.",
            ) from error

    def _remove(self) -> None:
        """End all processes and remove all files of the lab.

        The state file is not read, because it may be incomplete.
        """
        folder = self.files.folder
        if not os.path.lexists(folder):
            return
        # What a symbolic link names, or what has no state file, was not made by penstock.
        os.close(open_own_folder(folder))
        if not is_lab(folder):
            raise LabError(f'"{folder}" is no lab of penstock', hint="Move it away, or give the lab another name.")
        Processes(folder).end_all()
        release(folder)
        for part in folder.iterdir():
            # If the socket's path in the lab's folder would be too long, the socket is in /tmp.
            shutil.rmtree(ClusterFiles(part).socket_dir, ignore_errors=True)
            if part.is_dir() and not part.is_symlink():
                shutil.rmtree(part)
            elif part.name != "lab.json":
                part.unlink()
        shutil.rmtree(folder)

    def _known(self) -> LabState:
        if (state := self.files.read()) is not None:
            return state
        names = lab_names(self.files.home)
        raise UsageError(
            f'lab "{self.files.name}" does not exist',
            detail=f"Labs in {self.files.home}: {', '.join(names)}." if names else None,
            hint="Bring one up with penstock lab up.",
        )

    def _settled(self) -> LabState:
        """Return the state of a lab that is up. Raises LabError if a command on it was interrupted."""
        state = self._known()
        if state.stage != "up":
            raise LabError(
                f'lab "{state.name}" was interrupted while {state.stage}',
                hint=f"Remove it with penstock lab down {state.name}, or run penstock lab up again.",
            )
        return state

    def _parts(self, state: LabState) -> LabParts:
        return LabParts(self.files, state, installation_at(state.bin_dir))

    def _status(self, state: LabState) -> LabStatus:
        parts = self._parts(state)
        conninfo = parts.server(state.primary).status().conninfo
        standbys = {} if conninfo is None else _read_standbys(parts)
        return LabStatus(
            name=state.name,
            shape=state.shape,
            stage=state.stage,
            parameters=state.parameters,
            zone_latency_s=state.zone_latency_s,
            major=state.major,
            folder=self.files.folder,
            conninfo=conninfo,
            volume=state.volume,
            local_storage=parts.resources.local_storage,
            memory_bytes=state.memory_bytes,
            s3=None if parts.s3 is None else parts.s3.variables,
            needed=needed_acknowledgements(state.shape),
            members=tuple(_member_status(parts, member, standbys.get(member.name)) for member in state.members),
            missing=tuple(m.name for m in state.others if not counts(standbys.get(m.name))),
        )


def list_labs(home: Path | None = None) -> list[Lab]:
    """Return the labs whose directories exist, including those that are only partly created."""
    home = (home or default_home(os.environ, is_root=is_root())).absolute()
    return [Lab(LabFiles(home, name)) for name in lab_names(home)]


def _check_programs(shape: Shape, installation: Installation) -> None:
    for program in _PROGRAMS[shape]:
        if not Path(installation.program(program)).is_file():
            raise LabError(
                f"PostgreSQL {installation.major} has no {program}, which {shape} needs",
                detail=f'searched in "{installation.bin_dir}"',
                hint="Install its client programs too, or name another PostgreSQL with --pg-bin.",
            )


def _check_same(state: LabState, wanted: LabState) -> None:
    fields = (
        "shape",
        "parameters",
        "zone_latency_s",
        "bin_dir",
        "volume",
        "local_storage_bytes",
        "memory_bytes",
        "has_s3",
    )
    if differing := [field for field in fields if getattr(state, field) != getattr(wanted, field)]:
        raise LabError(
            f'lab "{state.name}" is up with other options',
            detail="; ".join(f"{name}: {getattr(state, name)}, not {getattr(wanted, name)}" for name in differing),
            hint=f"Take it down with penstock lab down {state.name}, or give the new one a name with --name.",
        )


def _find_members(state: LabState, target: str) -> list[TopologyMember]:
    zone = target.removeprefix("zone-")
    if found := [member for member in state.members if zone == member.zone or target == member.name]:
        return found
    zones = ", ".join(f"zone-{name}" for name in state.zones)
    raise UsageError(
        f'lab "{state.name}" has no zone or member "{target}"',
        detail=f"It has {zones or 'no zones'}; members: {', '.join(member.name for member in state.members)}.",
    )


def _await_last_wal(parts: LabParts, member: TopologyMember) -> int:
    """Wait until a standby has written all WAL that the lost primary sent, and return the end of the standby's WAL."""
    deadline_s = time.monotonic() + _LAST_WAL_TIMEOUT_S
    with connect_to(parts.server(member)) as connection:
        while (received := read_received(connection)).is_streaming:
            if time.monotonic() > deadline_s:
                raise LabError(f"{member.name} still receives WAL from a primary that is down")
            time.sleep(_POLL_S)
    return received.end_bytes


def _read_standbys(parts: LabParts) -> dict[str, StandbyRow]:
    try:
        with parts.primary_session() as connection:
            return {standby.name: standby for standby in read_standbys(connection) if standby.name is not None}
    except (LabError, ServerError):
        # The primary has ended since its status was read.
        return {}


def _member_status(parts: LabParts, member: TopologyMember, standby: StandbyRow | None) -> MemberStatus:
    conninfo = parts.server(member).status().conninfo if member.is_server else None
    is_running = conninfo is not None or (not member.is_server and parts.processes.find(member.name) is not None)
    state = "volume lost" if member.name in parts.resources.find_lost() else "running" if is_running else "down"
    return MemberStatus(
        name=member.name,
        kind=member.kind,
        zone=member.zone,
        state=(standby.state if standby is not None else None) or state,
        sync_state=None if standby is None else standby.sync_state,
        lag_bytes=None if standby is None else standby.lag_bytes,
        conninfo=conninfo,
    )
