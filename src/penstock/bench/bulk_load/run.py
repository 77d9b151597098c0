"""Runs experiment A on topologies of the lab, and on servers of the user: every step in each round, then recoveries.

Steps are interleaved, so that a change of the machine's speed affects all of them. Volumes change their limits while
the server runs, as an EBS volume is modified. What is not measured runs without limits.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.bench.bulk_load.measure import choose_files, make_tables, measure
from penstock.bench.bulk_load.plan import Experiment, Recovery, Run, Scaled, StepRuns, scale, steps_without_volumes
from penstock.bench.ways import LoadSetting, load_in_parallel
from penstock.changes.settings_backend import SettingsBackend, SystemSettings
from penstock.frozen import frozen
from penstock.host import Machine, read_machine
from penstock.lab.datasets.imdb import read_imdb, write_imdb
from penstock.lab.datasets.upload import S3Folder
from penstock.lab.embedded import EmbeddedServer, format_conninfo
from penstock.lab.installations import default_installation
from penstock.lab.psql_copy import Psql
from penstock.lab.topology import Lab
from penstock.server.benchmarks.schema import SCHEMA, new_database, own_schema
from penstock.server.benchmarks.tables import create_import_functions, read_wal_to_replay
from penstock.server.connect.connection import ConnectionFactory, over_own_socket
from penstock.server.connect.conninfo import parse_conninfo
from penstock.server.facts.facts import read_server_facts
from penstock.server.facts.settings import alter_system, reload
from penstock.server.imports.call import S3Place
from penstock.units import MIB

if TYPE_CHECKING:
    from penstock.bench.bulk_load.published import Step
    from penstock.lab.datasets.datafiles import DataFile
    from penstock.lab.topology.shapes import Shape

_LAB_SCHEMA = "staging"
DEMO_DATABASE = "penstock_demo"


@frozen
class TargetResult:
    """One topology or server, and its steps in order."""

    name: str
    postgresql: str
    schema: str
    steps: tuple[StepRuns, ...]


@frozen
class BulkLoadResult:
    """All measurements, and the machine."""

    rounds: int
    machine: Machine
    # The article's machine as scaled for the lab, None without a lab.
    scaled: Scaled | None
    rows: int
    plain_bytes: int
    size_bytes: int
    is_imdbs: bool
    targets: tuple[TargetResult, ...]


@frozen
class Target:
    """A server to measure."""

    name: str
    setting: LoadSetting
    steps: tuple[Step, ...]
    # The article's machine at this size, None if the server's volumes cannot be changed, as is the lab.
    scaled: Scaled | None = None
    lab: Lab | None = None


def measure_bulk_load(
    experiment: Experiment,
    *,
    steps: Sequence[Step] = (),
    shapes: Sequence[Shape] = (),
    files_from: Path | None = None,
    open_target: Callable[[tuple[DataFile, ...]], AbstractContextManager[Target]] | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> BulkLoadResult:
    """Run the steps on topologies, which are created and removed here, and on the target that `open_target` opens.

    `files_from` is a directory with IMDb's own files. If it is None, files with the same shape are written. Raises
    LabError, TargetError, SourceError, ServerError.
    """
    machine = read_machine()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-imdb-")))
        say("reading IMDb's files" if files_from is not None else "writing files in the shape of IMDb's")
        files = write_imdb(folder, scale=experiment.imdb_scale) if files_from is None else read_imdb(files_from)
        scaled = scale(files, cpu_count=machine.cpu_count, machine_bytes=machine.memory_bytes) if shapes else None
        targets = []
        if scaled is not None:
            for shape in shapes:
                with _topology(shape, scaled, files, steps, say) as target:
                    targets.append(_measure(target, experiment, say))
        if open_target is not None:
            with open_target(files) as target:
                targets.append(_measure(target, experiment, say))
    return BulkLoadResult(
        rounds=experiment.rounds,
        machine=machine,
        scaled=scaled,
        rows=sum(file.rows for file in files),
        plain_bytes=sum(file.plain_bytes for file in files),
        size_bytes=sum(file.size_bytes for file in files),
        is_imdbs=files_from is not None,
        targets=tuple(targets),
    )


@contextmanager
def embedded_target(server: EmbeddedServer, files: tuple[DataFile, ...]) -> Iterator[Target]:
    """Provide the embedded server for the steps with seven files, with its own settings and a new database that stays.

    The new database has no tables of the user and no ledger of another version. Raises TargetError, ServerError.
    """
    conninfo = over_own_socket(server.ensure_running())
    with new_database(ConnectionFactory(conninfo), DEMO_DATABASE):
        conninfo = format_conninfo(**{**parse_conninfo(conninfo), "dbname": DEMO_DATABASE})
        psql = Psql(program=server.spec.installation.program("psql"), conninfo=conninfo)
        steps = tuple(step for step in steps_without_volumes() if not step.is_one_file)[:-1]
        setting = _make_setting(ConnectionFactory(conninfo), psql, files, schema="public")
        yield Target(name="the embedded server", setting=setting, steps=steps)


@contextmanager
def users_target(
    connect: ConnectionFactory, to: str, files: tuple[DataFile, ...], *, open_settings: Callable[[], SettingsBackend]
) -> Iterator[Target]:
    """Provide the server that a connection string names, with the storage that it has. Drop the schema at the end.

    Raises UsageError, TargetError, ServerError.
    """
    given = parse_conninfo(to)
    password = given.pop("password", None)
    # A distribution's psql supports TLS; the wheel's does not.
    program = shutil.which("psql") or default_installation().program("psql")
    psql = Psql(program=program, conninfo=format_conninfo(**given), password=password, is_users=True)
    setting = LoadSetting(files=files, schema=SCHEMA, psql=psql, connect=connect, open_settings=open_settings)
    with own_schema(connect, purpose="measure a bulk load", setup=""):
        yield Target(name=connect.safe_description, setting=setting, steps=steps_without_volumes())


def _make_setting(
    connect: ConnectionFactory, psql: Psql, files: Sequence[DataFile], *, schema: str = _LAB_SCHEMA
) -> LoadSetting:
    return LoadSetting(
        files=tuple(files),
        schema=schema,
        psql=psql,
        connect=connect,
        open_settings=lambda: SystemSettings(connect),
    )


@contextmanager
def _topology(
    shape: Shape, scaled: Scaled, files: Sequence[DataFile], steps: Sequence[Step], say: Callable[[str], None]
) -> Iterator[Target]:
    """Create a lab for this process and remove it at the end."""
    lab = Lab.named(f"bench-{shape}-{os.getpid()}")
    installation = default_installation()
    imports = any(step.is_import for step in steps)
    say(f"bringing up {shape}")
    try:
        found = lab.up(
            shape,
            installation,
            parameters="rds",
            volume=scaled.unlimited,
            memory_bytes=scaled.memory_bytes,
            has_s3=imports,
        )
        assert found.conninfo is not None
        conninfo = over_own_socket(found.conninfo)
        connect = ConnectionFactory(conninfo)
        with connect.connect(label="bench") as connection:
            alter_system(connection, "max_wal_size", f"{scaled.max_wal_bytes // MIB}MB")
            reload(connection)
        psql = Psql(program=installation.program("psql"), conninfo=conninfo)
        setting = _make_setting(connect, psql, files)
        if imports:
            setting = replace(setting, objects=_offer(lab, connect, choose_files(files, is_one=True)))
        yield Target(name=shape, setting=setting, steps=tuple(steps), scaled=scaled, lab=lab)
    finally:
        lab.down()


def _offer(lab: Lab, connect: ConnectionFactory, files: Sequence[DataFile]) -> dict[str, S3Place]:
    """Upload files to a lab's S3, create the functions that import them, and return each file's place by its table."""
    access = lab.s3_access()
    folder = S3Folder(f"s3://{access.bucket}", access)
    for file in files:
        folder.upload(file.path)
    with connect.connect(label="bench") as connection:
        create_import_functions(connection)
    return {file.table: S3Place(bucket=access.bucket, key=file.path.name, region=access.region) for file in files}


def _measure(target: Target, experiment: Experiment, say: Callable[[str], None]) -> TargetResult:
    say(f"{target.name}: warming up")
    # The first load would be slower, because WAL files are new and caches are cold.
    make_tables(target.setting)
    load_in_parallel(target.setting)
    runs: Mapping[str, list[Run]] = {step.name: [] for step in target.steps}
    recoveries: Mapping[str, list[Recovery]] = {step.name: [] for step in target.steps}
    for number in range(experiment.rounds):
        for step in target.steps:
            run = _run_step(target, step, recoveries[step.name])
            runs[step.name].append(run)
            say(f"round {number + 1} of {experiment.rounds}: {target.name}, {step.name}: {run.seconds:.1f} s")
    with target.setting.connect.connect(label="bench") as connection:
        version = read_server_facts(connection).version
    return TargetResult(
        name=target.name,
        postgresql=version,
        schema=target.setting.schema,
        steps=tuple(
            StepRuns(
                step=step,
                limits=None if target.scaled is None else target.scaled.limits(step.volume),
                runs=tuple(runs[step.name]),
                recoveries=tuple(recoveries[step.name]),
            )
            for step in target.steps
        ),
    )


def _run_step(target: Target, step: Step, recoveries: list[Recovery]) -> Run:
    """Run a step. If the step crashes the server, add the recovery. The rows are counted afterwards."""
    setting = replace(target.setting, files=choose_files(target.setting.files, is_one=step.is_one_file))
    limits = None if target.scaled is None else target.scaled.limits(step.volume)

    def after() -> None:
        if step.crashes and target.lab is not None:
            recoveries.append(_crash(setting.connect, target.lab.primary()))

    return measure(setting, step.load, limits=limits, limited=_limited(target, step.volume), after=after)


@contextmanager
def _limited(target: Target, volume: str) -> Iterator[None]:
    """Give a lab's volumes the limits of one of the article's volumes while the block runs."""
    if target.lab is None or target.scaled is None:
        yield
        return
    target.lab.change_volume(target.scaled.volume(volume))
    try:
        yield
    finally:
        target.lab.change_volume(target.scaled.unlimited)


def _crash(connect: ConnectionFactory, server: EmbeddedServer) -> Recovery:
    with connect.connect(label="bench") as connection:
        wal_bytes = read_wal_to_replay(connection)
    server.stop("immediate")
    began_s = time.monotonic()
    server.ensure_running()
    return Recovery(wal_bytes=wal_bytes, seconds=time.monotonic() - began_s)
