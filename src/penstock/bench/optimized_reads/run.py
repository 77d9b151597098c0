"""Runs experiment B: the three queries at several numbers of sessions, with temporary files on either side.

At each number of sessions, each query runs on the volume and then on the local disk. The next round begins with the
local disk, so that a change of the machine's speed, and writes that a run leaves, affect both sides equally. Rows
are counted after the load; a table that lacks rows raises an error.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.bench.optimized_reads.plan import (
    Experiment,
    Query,
    QueryRuns,
    Scaled,
    Side,
    Step,
    mean_use,
    queries,
    scale,
)
from penstock.bench.ways import check_rows, load_files
from penstock.frozen import frozen
from penstock.host import Machine, find_device, find_devices, read_counters, read_machine
from penstock.lab.datasets.sysbench import CREATE, TABLES, write_sysbench
from penstock.lab.installations import default_installation
from penstock.lab.topology import Lab
from penstock.server.benchmarks.schema import SCHEMA
from penstock.server.benchmarks.spills import SpillExperiment, SpillRun, spill_experiment
from penstock.server.benchmarks.tables import count_rows
from penstock.server.connect.connection import ConnectionFactory, over_own_socket

if TYPE_CHECKING:
    from penstock.lab.datasets.datafiles import DataFile
    from penstock.lab.topology.shapes import Shape
    from penstock.model.server.device import Device, DeviceCounters


_LOCAL = "local_storage"


@frozen
class TargetResult:
    """One topology or a pair of endpoints."""

    name: str
    postgresql: str
    steps: tuple[Step, ...]
    # The local disk's device and, if that is a loop device, the devices below it. Empty if they are not visible.
    local_devices: tuple[Device, ...] = ()


@frozen
class ReadsResult:
    """All measurements, and the machine."""

    experiment: Experiment
    machine: Machine
    # The article's machine as scaled for the lab, None without a lab.
    scaled: Scaled | None
    targets: tuple[TargetResult, ...]


@dataclass(frozen=True, slots=True)
class _Target:
    """Where the queries run: the server and tablespace of either side, and their devices."""

    name: str
    sides: Mapping[Side, tuple[SpillExperiment, str]]
    volume_device: Device | None = None
    local_devices: tuple[Device, ...] = ()

    def devices(self, side: Side) -> dict[str, Device]:
        """Return the devices whose counters are read while temporary files are on a side."""
        if side == "volume":
            return {} if self.volume_device is None else {"volume": self.volume_device}
        first, *below = self.local_devices or (None,)
        if first is None:
            return {}
        return {"local": first, "below": below[-1]} if below else {"local": first}


def measure_reads(
    experiment: Experiment,
    *,
    shapes: Sequence[Shape] = (),
    to: ConnectionFactory | None = None,
    against: ConnectionFactory | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> ReadsResult:
    """Run the experiment on topologies, which are created and removed here, or on servers of the user.

    If `against` is given, that server has the local disk, and `to` has none. If only `to` is given, its tablespace
    pg_default is compared with the role's temp_tablespaces. Raises LabError, TargetError, ServerError.
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
def _topology(shape: Shape, scaled: Scaled, files: Sequence[DataFile], say: Callable[[str], None]) -> Iterator[_Target]:
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
            yield _Target(
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
) -> Iterator[_Target]:
    with _loaded(to, files, say) as volume:
        if against is None:
            sides: dict[Side, tuple[SpillExperiment, str]] = {"volume": (volume, "pg_default"), "local": (volume, "")}
            yield _Target(name=to.safe_description, sides=sides)
            return
        with _loaded(against, files, say) as local:
            name = f"{to.safe_description} against {against.safe_description}"
            yield _Target(name=name, sides={"volume": (volume, "pg_default"), "local": (local, "")})


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


def _measure(target: _Target, experiment: Experiment, say: Callable[[str], None]) -> TargetResult:
    chosen = queries(experiment, schema=SCHEMA)
    # Without this, the first runs would measure cold caches and the writes that the load left.
    say(f"{target.name}: warming up")
    for query in chosen:
        _Seen().add(target, query, experiment.sessions[0], first="volume")
    seen: dict[tuple[int, str], _Seen] = {}
    for number, first in enumerate(experiment.first_sides):
        for sessions in experiment.sessions:
            say(f"{target.name}: round {number + 1} of {experiment.rounds}, {sessions} sessions, {first} first")
            for query in chosen:
                seen.setdefault((sessions, query.name), _Seen()).add(target, query, sessions, first=first)
    steps = tuple(
        Step(sessions=sessions, runs=tuple(seen[sessions, query.name].conclude(query.name) for query in chosen))
        for sessions in experiment.sessions
    )
    version = target.sides["volume"][0].facts().version
    return TargetResult(name=target.name, postgresql=version, steps=steps, local_devices=target.local_devices)


class _Seen:
    def __init__(self) -> None:
        self._runs: dict[Side, list[SpillRun]] = {"volume": [], "local": []}
        self._counters: dict[str, list[tuple[DeviceCounters, DeviceCounters]]] = {}

    def add(self, target: _Target, query: Query, sessions: int, *, first: Side) -> None:
        """Run the query on both sides. Before each run, read as much of the table into the cache as fits."""
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
        """Return the result of all runs of one query."""
        last = self._runs["volume"][-1]
        return QueryRuns(
            query=name,
            volume_s=tuple(run.elapsed_s for run in self._runs["volume"]),
            local_s=tuple(run.elapsed_s for run in self._runs["local"]),
            temp_bytes=last.temp_bytes,
            workers_planned=last.workers_planned,
            workers_launched=last.workers_launched,
            volume=mean_use(self._counters.get("volume", ())),
            local=mean_use(self._counters.get("local", ())),
            below=mean_use(self._counters.get("below", ())),
        )
