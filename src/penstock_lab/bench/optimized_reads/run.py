"""Runs experiment B: three queries at several numbers of sessions, with temporary files on the volume or on local disk.

At each number of sessions, each query runs on the volume and then on the local disk. The next round begins with the
local disk, so that a change of the machine's speed, and writes that a run leaves, affect both sides equally. Rows
are counted after the load; a table that lacks rows raises an error.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from psycopg import sql

from penstock.core.catalogue.catalog import read_server_facts
from penstock.core.connect.connection import Connection, ConnectionFactory, over_own_socket
from penstock.core.connect.errors import translate_errors
from penstock.core.host.disks import find_device, find_devices, read_counters
from penstock.core.host.machine import Machine, read_machine
from penstock.core.slotted import slotted
from penstock.core.values.server import ServerFacts
from penstock.core.values.temp_place import DEFAULT_TABLESPACE, parse_setting
from penstock.embedded.installations import default_installation
from penstock.temp.replay.run import ReplaySession, read_replay_facts, run_together
from penstock.temp.statements import check_places
from penstock_lab.bench.optimized_reads.plan import (
    Query,
    QueryRuns,
    ReadsExperiment,
    ReadsMachine,
    ReadsStep,
    Side,
    mean_use,
    queries,
    scale,
)
from penstock_lab.bench.ways import SCHEMA, check_rows, count_rows, load_files, own_schema
from penstock_lab.datasets.datafiles import CREATE, TABLES, DataFile, write_sysbench
from penstock_lab.topology.lab import Lab

if TYPE_CHECKING:
    from penstock.core.values.device import Device, DeviceCounters
    from penstock.temp.values import StatementRun
    from penstock_lab.topology.shapes import Shape

# The longest time of a query: nobody waits for longer.
_QUERY_TIMEOUT_S = 6 * 3600.0


class SpillExperiment:
    """The tables of the experiment on one server. The function `spill_experiment` creates them."""

    def __init__(self, factory: ConnectionFactory, control: Connection) -> None:
        self._factory = factory
        self._control = control
        facts = read_replay_facts(control)
        self._block_bytes = facts.block_bytes
        # The value of the session.
        self.temp_tablespaces = facts.temp_tablespaces

    def facts(self) -> ServerFacts:
        """Return the server's facts. Raises ServerError."""
        return read_server_facts(self._control)

    def finish_tables(self, tables: Sequence[str]) -> None:
        """Build the keys and indexes that sysbench creates after it inserts rows. Raises ServerError."""
        with translate_errors("building the indexes of the experiment"):
            for table in tables:
                name = sql.Identifier(SCHEMA, table)
                self._control.execute(sql.SQL("ALTER TABLE {} ADD PRIMARY KEY (id)").format(name))
                self._control.execute(sql.SQL("CREATE INDEX ON {} (k)").format(name))
                self._control.execute(sql.SQL("VACUUM (ANALYZE) {}").format(name))

    def create_tablespace(self, name: str, directory: str) -> None:
        """Create a tablespace in a directory of the server's machine. Needs a superuser. Raises ServerError."""
        with translate_errors("creating a tablespace"):
            statement = sql.SQL("CREATE TABLESPACE {} LOCATION {}")
            self._control.execute(statement.format(sql.Identifier(name), sql.Literal(directory)))

    def warm(self, table: str) -> None:
        """Read a table, so that as much of it as fits is in the cache for the next run. Raises ServerError."""
        with translate_errors("reading a table of the experiment"):
            # The query counts column pad, because pad has no index. count(*) would read only the primary key's index.
            name = sql.Identifier(SCHEMA, table)
            self._control.execute(sql.SQL("SELECT pg_catalog.count(pad) FROM {}").format(name))

    def run(self, query: str, *, sessions: int, tablespace: str) -> StatementRun:
        """Run a query in `sessions` sessions at the same time, with temporary files in a tablespace.

        Return time and bytes. Raises ServerError.
        """
        with ExitStack() as stack:
            opened = [
                stack.enter_context(closing(ReplaySession(self._factory, timeout_s=_QUERY_TIMEOUT_S)))
                for _ in range(sessions)
            ]
            return run_together(opened, query, tablespace=tablespace, block_bytes=self._block_bytes)


@contextmanager
def spill_experiment(factory: ConnectionFactory, *, setup: str) -> Iterator[SpillExperiment]:
    """Run the statements of `setup`, which create tables, in their own schema, and drop the schema in every case.

    `own_schema` has the rights needed and the errors raised.
    """
    with own_schema(factory, purpose="measure queries that spill", setup=setup) as control:
        yield SpillExperiment(factory, control)


_LOCAL = "local_storage"


@slotted
class ReadsTargetResult:
    """The results of one topology, or of one or two servers of the user."""

    name: str
    postgresql: str
    steps: tuple[ReadsStep, ...]
    # The local disk's device and, if that is a loop device, the devices below it. Empty if they are not visible.
    local_devices: tuple[Device, ...] = ()


@slotted
class ReadsResult:
    """All measurements, with the machine on which they were made."""

    experiment: ReadsExperiment
    machine: Machine
    # The article's machine as scaled for the lab, None without a lab.
    scaled: ReadsMachine | None
    targets: tuple[ReadsTargetResult, ...]


@dataclass(slots=True)
class _ReadsTarget:
    """A server to measure: for each side, where its queries run and in which tablespace they spill; and the devices."""

    name: str
    sides: Mapping[Side, tuple[SpillExperiment, str]]
    volume_device: Device | None = None
    local_devices: tuple[Device, ...] = ()

    def devices(self, side: Side) -> dict[str, Device]:
        """Return the devices, by name, whose counters are read while temporary files are on the given disk."""
        if side == "volume":
            return {} if self.volume_device is None else {"volume": self.volume_device}
        first, *below = self.local_devices or (None,)
        if first is None:
            return {}
        return {"local": first, "below": below[-1]} if below else {"local": first}


def measure_reads(
    experiment: ReadsExperiment,
    *,
    shapes: Sequence[Shape] = (),
    to: ConnectionFactory | None = None,
    against: ConnectionFactory | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> ReadsResult:
    """Run the experiment on topologies, which are created and removed here, or on servers of the user.

    With `to` and `against`, queries on server `to` are compared with those on server `against`, which has the local
    disk. With `to` alone, its tablespace pg_default is compared with the role's temp_tablespaces. Raises LabError,
    TargetError, ServerError.
    """
    machine = read_machine()
    scaled = scale(experiment, cpu_count=machine.cpu_count) if shapes else None
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-sysbench-")))
        say(f"writing {experiment.rows:,} rows for each of {len(TABLES)} tables")
        files = write_sysbench(folder, rows=experiment.rows)
        targets = []
        if scaled is not None:
            for shape in shapes:
                with _topology(shape, scaled, files, say) as target:
                    targets.append(_measure(target, experiment, say))
        if to is not None:
            with _endpoints(to, against, files, say) as target:
                targets.append(_measure(target, experiment, say))
    return ReadsResult(experiment=experiment, machine=machine, scaled=scaled, targets=tuple(targets))


@contextmanager
def _topology(
    shape: Shape, scaled: ReadsMachine, files: Sequence[DataFile], say: Callable[[str], None]
) -> Iterator[_ReadsTarget]:
    """Create a lab for this process, with the tables loaded and a tablespace on local disk. Remove it at the end."""
    lab = Lab.named(f"bench-{shape}-{os.getpid()}")
    say(f"bringing up {shape}")
    try:
        found = lab.up(
            shape,
            default_installation(),
            parameters="rds",
            volume=scaled.volume,
            local_storage_bytes=scaled.disk_bytes,
            memory_bytes=scaled.memory_bytes,
        )
        assert found.conninfo is not None
        assert found.local_storage is not None
        factory = ConnectionFactory(over_own_socket(found.conninfo))
        with _loaded(factory, files, say) as made:
            made.create_tablespace(_LOCAL, str(found.local_storage))
            yield _ReadsTarget(
                name=shape,
                sides={"volume": (made, "pg_default"), "local": (made, _LOCAL)},
                volume_device=find_device(found.folder / "primary"),
                local_devices=find_devices(found.local_storage),
            )
    finally:
        lab.down()


@contextmanager
def _endpoints(
    to: ConnectionFactory, against: ConnectionFactory | None, files: Sequence[DataFile], say: Callable[[str], None]
) -> Iterator[_ReadsTarget]:
    if against is None:
        with to.connect(label="bench") as connection:
            places = parse_setting(read_replay_facts(connection).temp_tablespaces)
        check_places((DEFAULT_TABLESPACE,), places or (DEFAULT_TABLESPACE,))
    with _loaded(to, files, say) as volume:
        if against is None:
            sides: dict[Side, tuple[SpillExperiment, str]] = {
                "volume": (volume, DEFAULT_TABLESPACE),
                "local": (volume, volume.temp_tablespaces),
            }
            yield _ReadsTarget(name=to.safe_description, sides=sides)
            return
        with _loaded(against, files, say) as local:
            name = f"{to.safe_description} against {against.safe_description}"
            both: dict[Side, tuple[SpillExperiment, str]] = {
                "volume": (volume, DEFAULT_TABLESPACE),
                "local": (local, local.temp_tablespaces),
            }
            yield _ReadsTarget(name=name, sides=both)


@contextmanager
def _loaded(
    factory: ConnectionFactory, files: Sequence[DataFile], say: Callable[[str], None]
) -> Iterator[SpillExperiment]:
    """Create the tables, load them with penstock, count rows and build indexes. Drop the tables at the end."""
    setup = "; ".join(CREATE.format(table=table) for table in TABLES)
    with spill_experiment(factory, setup=setup) as made:
        say("loading the tables")
        load_files(factory, SCHEMA, files)
        with factory.connect(label="bench") as connection:
            counts = count_rows(connection, SCHEMA, TABLES)
        check_rows("penstock", counts, files)
        made.finish_tables(TABLES)
        yield made


def _measure(target: _ReadsTarget, experiment: ReadsExperiment, say: Callable[[str], None]) -> ReadsTargetResult:
    chosen = queries(experiment, schema=SCHEMA)
    # The queries run once before the rounds. Otherwise the first round would include cold caches and the load's writes.
    say(f"{target.name}: warming up")
    for query in chosen:
        _QueryMeasurements().add(target, query, experiment.sessions[0], first="volume")
    seen: dict[tuple[int, str], _QueryMeasurements] = {}
    for number, first in enumerate(experiment.first_sides):
        for sessions in experiment.sessions:
            say(f"{target.name}: round {number + 1} of {experiment.rounds}, {sessions} sessions, {first} first")
            for query in chosen:
                seen.setdefault((sessions, query.name), _QueryMeasurements()).add(target, query, sessions, first=first)
    steps = tuple(
        ReadsStep(sessions=sessions, runs=tuple(seen[sessions, query.name].conclude(query.name) for query in chosen))
        for sessions in experiment.sessions
    )
    version = target.sides["volume"][0].facts().version
    return ReadsTargetResult(name=target.name, postgresql=version, steps=steps, local_devices=target.local_devices)


class _QueryMeasurements:
    def __init__(self) -> None:
        self._runs: dict[Side, list[StatementRun]] = {"volume": [], "local": []}
        self._counters: dict[str, list[tuple[DeviceCounters, DeviceCounters]]] = {}

    def add(self, target: _ReadsTarget, query: Query, sessions: int, *, first: Side) -> None:
        """Run the query with temporary files on one disk and then on the other, beginning with `first`.

        Before each run, as much of the table as fits is read into the cache.
        """
        other: Side = "local" if first == "volume" else "volume"
        for side in (first, other):
            server, tablespace = target.sides[side]
            server.warm(query.table)
            devices = target.devices(side)
            before = {name: read_counters(device) for name, device in devices.items()}
            self._runs[side].append(server.run(query.sql, sessions=sessions, tablespace=tablespace))
            after = {name: read_counters(device) for name, device in devices.items()}
            for name, counters in before.items():
                if counters is not None and (later := after[name]) is not None:
                    self._counters.setdefault(name, []).append((counters, later))

    def conclude(self, name: str) -> QueryRuns:
        """Return the times and the use of devices of all runs of the query. `name` is the query's name."""
        last = self._runs["volume"][-1]
        return QueryRuns(
            query=name,
            volume_s=tuple(run.elapsed_s for run in self._runs["volume"]),
            local_s=tuple(run.elapsed_s for run in self._runs["local"]),
            wait_s=tuple(run.wait_s for run in self._runs["volume"] if run.wait_s is not None),
            cpu_s=tuple(run.cpu_s for run in self._runs["volume"] if run.cpu_s is not None),
            temp_bytes=last.written_bytes,
            workers_planned=last.workers_planned,
            workers_launched=last.workers_launched,
            volume=mean_use(self._counters.get("volume", ())),
            local=mean_use(self._counters.get("local", ())),
            below=mean_use(self._counters.get("below", ())),
        )
