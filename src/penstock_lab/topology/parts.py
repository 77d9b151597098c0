"""Creates the parts of one lab: servers, standbys by pg_basebackup, WAL receivers, and relays for zones.

lab.py decides which of them run.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.core.connect.connection import Connection, ConnectionFactory, over_own_socket
from penstock.core.connect.errors import translate_errors
from penstock.core.errors import LabError
from penstock.core.host.machine import memory_bytes
from penstock.core.slotted import slotted
from penstock.core.sql import fetch_rows
from penstock.core.units import MIB, format_bytes
from penstock.core.values.inspection import StandbyRow
from penstock.embedded.cluster import make_home, make_private_dir, make_private_dirs, write_private
from penstock.embedded.control import reachable
from penstock.embedded.layout import SUPERUSER, ClusterFiles
from penstock.embedded.programs import run_program
from penstock.embedded.server import EmbeddedServer, format_conninfo
from penstock.embedded.users import ServerUser, choose_server_user
from penstock_lab.topology import relay
from penstock_lab.topology.processes import LabResources, Launch, Processes
from penstock_lab.topology.s3 import S3StandIn
from penstock_lab.topology.shapes import TopologyMember, base_settings, server_settings

if TYPE_CHECKING:
    from penstock.embedded.installations import Installation
    from penstock_lab.topology.state import LabFiles, LabState

# How long pg_basebackup may copy a primary: an hour is enough for the tens of gigabytes that a lab has at most.
_COPY_TIMEOUT_S = 3600
_PROMOTE_TIMEOUT_S = 120


def copy_primary(standby: EmbeddedServer, primary: EmbeddedServer) -> None:
    """Copy a running primary's data to a standby that is down, completely or not at all. Raises LabError."""
    files, user = standby.spec.files, choose_server_user(primary.data_dir)
    make_home(files, user=user)
    shutil.rmtree(files.data, ignore_errors=True)
    copy = files.home / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    make_private_dir(copy, user)
    run_program(
        [
            reachable(primary.spec, user).program("pg_basebackup"),
            f"--dbname={primary.conninfo()}",
            f"--pgdata={copy}",
            "--checkpoint=fast",
            "--wal-method=stream",
            "--no-sync",
            "--no-manifest",
            "--no-password",
        ],
        purpose="copy a primary",
        user=user,
        timeout_s=_COPY_TIMEOUT_S,
        cwd=copy,
    )
    write_private(copy / "standby.signal", "", owner=user)
    copy.rename(files.data)


def promote(standby: EmbeddedServer) -> None:
    """Promote a running standby. Raises LabError."""
    user = choose_server_user(standby.data_dir)
    run_program(
        [
            reachable(standby.spec, user).program("pg_ctl"),
            "promote",
            f"--pgdata={standby.data_dir}",
            "--wait",
            "--silent",
        ],
        purpose="promote a standby",
        user=user,
        timeout_s=_PROMOTE_TIMEOUT_S,
        cwd=standby.data_dir,
    )


@slotted
class Received:
    """The row that received.sql returns on a standby: how much WAL it has received."""

    # The end of the WAL that the standby has received.
    end_bytes: int
    # Whether the standby is still streaming.
    is_streaming: bool


def create_slots(connection: Connection, names: Iterable[str]) -> None:
    """Create the physical replication slots that are missing. They keep WAL from now on.

    Needs REPLICATION. Raises ServerError.
    """
    query = """
        SELECT pg_catalog.pg_create_physical_replication_slot(%(name)s, true)
         WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_replication_slots AS s WHERE s.slot_name = %(name)s)
    """
    with translate_errors("creating replication slots"):
        for name in names:
            connection.execute(query, {"name": name})


def read_standbys(connection: Connection) -> list[StandbyRow]:
    """Return the rows of pg_stat_replication: who receives WAL now.

    Needs pg_read_all_stats for names and states. Raises ServerError.
    """
    with translate_errors("reading the state of standbys"):
        return fetch_rows(connection, "core/inspect_standbys", StandbyRow)


def commit_durably(connection: Connection) -> None:
    """Commit a transaction that writes WAL but changes no table. It waits for standbys as any other.

    Raises ServerError.
    """
    with translate_errors("committing"):
        connection.execute("SELECT pg_catalog.pg_logical_emit_message(true, 'penstock', '')")


def read_received(connection: Connection) -> Received:
    """Return how much WAL a standby has received. Raises ServerError."""
    with translate_errors("reading what a standby has received"):
        return fetch_rows(connection, "penstock_lab.topology/received", Received)[0]


_PORT = 5432
_POLL_S = 0.05

# How long members may take to receive WAL after a start. A receiver that lost its connection retries after 5 s
# (pg_receivewal's RECONNECT_SLEEP_TIME).
_STREAMING_TIMEOUT_S = 60

# The segment size that initdb sets by default. pg_receivewal fills a new segment with zeros at once.
_WAL_SEGMENT_BYTES = 16 * MIB


@dataclass(frozen=True, slots=True)
class LabParts:
    """Starts and stops the servers and processes of a lab, which its state file lists."""

    files: LabFiles
    state: LabState
    installation: Installation

    @property
    def processes(self) -> Processes:
        """Return the lab's processes that are not servers."""
        return Processes(self.files.folder)

    @property
    def resources(self) -> LabResources:
        """Return the lab's volumes, local storage and memory limit."""
        return LabResources(self.files.folder, self.state)

    @property
    def s3(self) -> S3StandIn | None:
        """Return the lab's S3, or None if it has none."""
        return None if self.state.s3_port is None else S3StandIn(lab=self.files.folder, port=self.state.s3_port)

    @property
    def programs(self) -> Installation:
        """Return the installation that the servers run.

        If the lab has an S3, this is the lab's own copy with the extensions.
        """
        return self.installation if self.s3 is None else self.s3.programs(self.installation)

    @property
    def user(self) -> ServerUser | None:
        """Return the account of servers and receivers, or None if they run as the caller."""
        return choose_server_user(self._home(self.state.primary.name) / "data")

    def server(self, member: TopologyMember) -> EmbeddedServer:
        """Return the server of a member, running or not, with the settings of its role in the topology."""
        state = self.state
        servers = sum(other.is_server for other in state.members)
        upstream = None if member.kind == "primary" else self._upstream(member)
        return EmbeddedServer.create(
            self._home(member.name),
            self.programs,
            {
                **server_settings(state.shape, state.members, member, upstream=upstream),
                **({} if self.s3 is None else self.s3.settings),
            },
            base=base_settings(
                state.parameters,
                memory_bytes=(state.memory_bytes or memory_bytes()) // servers,
                has_statements=self.installation.has_library("pg_stat_statements"),
            ),
            copies=self.files.copies,
            cgroup=self.resources.cgroup,
        )

    @contextmanager
    def primary_session(self) -> Iterator[Connection]:
        """Provide a session on the primary while the block runs. Raises LabError, ServerError."""
        with connect_to(self.server(self.state.primary)) as connection:
            yield connection

    def start(self, members: Sequence[TopologyMember]) -> None:
        """Start the given members that do not run, and the relays that they need. Raises LabError, ServerError."""
        self.resources.check_present()
        if self.s3 is not None:
            self.s3.start(self.processes)
        self.server(self.state.primary).ensure_running()
        others = [member for member in members if member.kind != "primary"]
        if not others:
            return
        with self.primary_session() as connection:
            create_slots(connection, (member.name for member in others))
        self._start_relays({member.zone for member in others if member.zone is not None})
        self._start_receivers([member for member in others if member.kind == "receiver"])
        for member in others:
            if member.kind == "standby":
                self._start_standby(member)

    def await_streaming(self, names: Iterable[str]) -> None:
        """Wait until members receive the primary's WAL and count for commits. Raises LabError after a time limit."""
        expected = set(names)
        deadline_s = time.monotonic() + _STREAMING_TIMEOUT_S
        with self.primary_session() as connection:
            while missing := expected - {standby.name for standby in read_standbys(connection) if counts(standby)}:
                for member in self.state.others:
                    if member.name in missing and member.kind == "receiver":
                        self.processes.check_alive(member.name)
                if time.monotonic() > deadline_s:
                    raise LabError(
                        f"{', '.join(sorted(missing))} of the lab did not catch up within {_STREAMING_TIMEOUT_S} s",
                        detail=self.processes.last_words(sorted(missing)) or None,
                    )
                time.sleep(_POLL_S)

    def stop(self, members: Sequence[TopologyMember]) -> None:
        """Kill members, as the loss of a zone does, and the relays of zones without running members."""
        self.processes.end(member.name for member in members if member.kind == "receiver")
        for member in members:
            if member.kind == "standby":
                self.server(member).stop("immediate")
        left = {member.zone for member in self.state.others if member.name not in self.state.down}
        self._end_relays(zone for zone in self.state.zones if zone not in left)

    def end_relays(self) -> None:
        """End all relays. The next start creates new ones, to the server that is the primary then."""
        self._end_relays(self.state.zones)

    def trim_receivers(self) -> None:
        """Remove the receivers' complete WAL segments, except the last. Nothing in the lab reads these segments."""
        for member in self.state.members:
            if member.kind == "receiver":
                whole = sorted(path for path in self._home(member.name).iterdir() if len(path.name) == 24)
                for path in whole[:-1]:
                    path.unlink()

    def _home(self, name: str) -> Path:
        return self.files.folder / name

    def _upstream(self, member: TopologyMember) -> str:
        """Return the conninfo from a member to the primary, through its zone's relay if the lab has zone latency."""
        if self.state.zone_latency_s and member.zone is not None:
            home = self._home(_relay_name(member.zone))
        else:
            home = self._home(self.state.primary.name)
        return format_conninfo(host=str(ClusterFiles(home).socket_dir), port=str(_PORT), user=SUPERUSER)

    def _start_relays(self, zones: Iterable[str]) -> None:
        if not self.state.zone_latency_s:
            return
        target = _socket(self._home(self.state.primary.name))
        launches = []
        for name in sorted(map(_relay_name, zones)):
            if self.processes.find(name) is not None:
                continue
            home = self._home(name)
            make_home(ClusterFiles(home), user=self.user)
            make_private_dirs(ClusterFiles(home), user=self.user)
            argv = [sys.executable, "-I", relay.__file__, str(_socket(home)), str(target)]
            argv.append(repr(self.state.zone_latency_s))
            # Relays run as the caller's account: another account may be unable to run this interpreter.
            launches.append(Launch(name=name, argv=argv, folder=home, user=None))
        if launches:
            self.processes.start(launches)
        for launch in launches:
            self._await_socket(launch)

    def _end_relays(self, zones: Iterable[str]) -> None:
        for name in map(_relay_name, zones):
            self.processes.end([name])
            _socket(self._home(name)).unlink(missing_ok=True)

    def _await_socket(self, launch: Launch) -> None:
        while not _socket(launch.folder).exists():
            self.processes.check_alive(launch.name)
            time.sleep(_POLL_S)

    def _start_receivers(self, members: Sequence[TopologyMember]) -> None:
        launches = []
        program = reachable(self.server(self.state.primary).spec, self.user).program("pg_receivewal")
        for member in members:
            if self.processes.find(member.name) is not None:
                continue
            folder = self._home(member.name)
            make_private_dir(folder, self.user)
            argv = [
                program,
                f"--dbname={self._upstream(member)} application_name={member.name}",
                f"--directory={folder}",
                f"--slot={member.name}",
                # Flush and acknowledge at once. Without this option a commit would wait for the end of a segment.
                "--synchronous",
                "--no-password",
            ]
            launches.append(Launch(name=member.name, argv=argv, folder=folder, user=self.user))
        if launches:
            self._check_space([launch for launch in launches if not any(launch.folder.iterdir())])
            self.processes.start(launches)

    def _check_space(self, launches: Sequence[Launch]) -> None:
        """Raise LabError if the disk is too full for receivers to start.

        A receiver that starts on a full disk cannot write the error to its log.
        """
        free_bytes = shutil.disk_usage(self.files.folder).free
        if free_bytes < len(launches) * _WAL_SEGMENT_BYTES:
            raise LabError(
                f"could not start {', '.join(launch.name for launch in launches)}",
                detail=f'No space left on device: "{self.files.folder}" has {format_bytes(free_bytes)} free, and each'
                f" begins with {format_bytes(_WAL_SEGMENT_BYTES)} of WAL.",
                hint="Free space there, or set the environment variable PENSTOCK_HOME to another directory.",
            )

    def _start_standby(self, member: TopologyMember) -> None:
        server = self.server(member)
        if not server.data_dir.exists():
            copy_primary(server, self.server(self.state.primary))
        server.ensure_running()


@contextmanager
def connect_to(server: EmbeddedServer) -> Iterator[Connection]:
    """Provide a session on a running server, primary or standby, while the block runs. Raises LabError, ServerError."""
    factory = ConnectionFactory(
        over_own_socket(server.conninfo()), application_name="penstock lab", allows_standby=True
    )
    with factory.connect() as connection:
        yield connection


def counts(standby: StandbyRow | None) -> bool:
    """Return whether a member receives the primary's WAL, and its acknowledgement counts for synchronous commits."""
    return standby is not None and standby.state == "streaming" and standby.sync_state in ("quorum", "sync")


def _relay_name(zone: str) -> str:
    return f"relay_{zone}"


def _socket(home: Path) -> Path:
    return ClusterFiles(home).socket_dir / f".s.PGSQL.{_PORT}"
