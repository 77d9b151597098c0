"""Runs experiment A on topologies of the lab, and on servers of the user, and measures each step.

Steps are interleaved, so that a change of the machine's speed affects all of them. The limits of a volume are changed
while the server runs, as when an EBS volume is modified. Outside of measurements, volumes have no limits.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.core.catalogue.catalog import read_server_facts
from penstock.core.catalogue.settings import alter_system, reload
from penstock.core.connect.connection import ConnectionFactory, over_own_socket
from penstock.core.connect.conninfo import parse_conninfo
from penstock.core.host.machine import Machine, read_machine
from penstock.core.slotted import slotted
from penstock.core.units import MIB
from penstock.core.values.device import VolumeLimits, count_bytes, count_ios
from penstock.diagnose.examination import examine
from penstock.diagnose.load import LoadCase, judge_load
from penstock.diagnose.rules.limits import DeviceIntervals
from penstock.embedded.installations import default_installation
from penstock.embedded.server import EmbeddedServer, format_conninfo
from penstock.loading.imports.server import S3Object
from penstock.settings.backend import SystemSettings
from penstock.watch.devices import DATA
from penstock.watch.sampler import KnownServer, Sampler, sampling_beside
from penstock.watch.values import Recording, RecordingHeader, Sample
from penstock_lab.bench.bulk_load.plan import (
    PRINCIPALS,
    WIDE_SPREAD,
    BulkLoadExperiment,
    BulkLoadMachine,
    BulkLoadRun,
    BulkLoadStep,
    Load,
    Recovery,
    StepRuns,
    find_spread,
    scale,
    steps_without_volumes,
)
from penstock_lab.bench.ways import (
    LoadTask,
    bulk_load_settings,
    check_rows,
    checkpoint,
    count_rows,
    create_import_functions,
    import_in_parallel,
    import_in_turn,
    load_and_checkpoint,
    load_and_vacuum,
    load_frozen,
    load_in_parallel,
    load_in_turn,
    load_with_penstock,
    make_staging,
    new_database,
    read_wal_to_replay,
    staging_tables,
)
from penstock_lab.datasets.datafiles import DataFile, S3Folder
from penstock_lab.datasets.writer import read_imdb, write_imdb
from penstock_lab.programs import Psql
from penstock_lab.topology.lab import Lab

if TYPE_CHECKING:
    from penstock.core.values.accounts import LoadCounts
    from penstock.core.values.diagnosis import Diagnosis
    from penstock_lab.topology.shapes import Shape

# The intervals are short because a quick run of one file takes two seconds.
_SAMPLE_INTERVAL_S, _COUNTERS_EVERY_S = 0.05, 0.5
_WAITS_SHOWN = 3

LOAD_METHODS: Mapping[Load, Callable[[LoadTask], LoadCounts | None]] = {
    "aws_s3 in turn": import_in_turn,
    "aws_s3 in parallel": import_in_parallel,
    "psql in turn": load_in_turn,
    "psql in parallel": load_in_parallel,
    "penstock": load_with_penstock,
    "psql, then VACUUM": load_and_vacuum,
    "penstock, then CHECKPOINT": load_and_checkpoint,
    "penstock that freezes": load_frozen,
}


def choose_files(files: Sequence[DataFile], *, is_one: bool) -> tuple[DataFile, ...]:
    """Return the files that a step loads: title.principals if `is_one` is true, otherwise all."""
    return tuple(file for file in files if not is_one or file.table == PRINCIPALS)


def make_tables(setting: LoadTask) -> None:
    """Create empty tables in place of those of the last run, and write a checkpoint.

    Raises TargetError, ServerError.
    """
    with setting.connect.connect(label="bench") as connection:
        make_staging(connection, setting.schema, staging_tables(setting.files))
        checkpoint(connection)


def measure(
    setting: LoadTask,
    step: BulkLoadStep,
    *,
    limits: VolumeLimits | None,
    limited: AbstractContextManager[None],
    after: Callable[[], None],
) -> BulkLoadRun:
    """Create the tables, load them and call `after` within the context `limited`, and then count the rows.

    Return the load's time, waits and rates, as a sampler found them. The time is that of the load alone: settings are
    changed before and restored after it. Raises PenstockError, and LabError if rows are missing.
    """
    make_tables(setting)
    with limited:
        with bulk_load_settings(setting) if step.has_settings else nullcontext():
            sampler = Sampler(
                setting.connect,
                interval_s=_SAMPLE_INTERVAL_S,
                counters_every_s=_COUNTERS_EVERY_S,
                known=KnownServer(
                    volume=limits, application="psql" if "psql" in step.load else setting.connect.application
                ),
            )
            with closing(sampler), sampling_beside(sampler, interval_s=_SAMPLE_INTERVAL_S) as samples:
                began_s = time.monotonic()
                counts = LOAD_METHODS[step.load](setting)
                seconds = time.monotonic() - began_s
        after()
    rows = count_loaded(setting, step.name)
    return summarize(sampler.header, samples, counts, seconds=seconds, rows=rows)


def count_loaded(setting: LoadTask, what: str) -> int:
    """Return how many rows all tables have. Raises LabError if a table's number of rows differs from its file's."""
    with setting.connect.connect(label="bench") as connection:
        counts = count_rows(connection, setting.schema, list(staging_tables(setting.files)))
    check_rows(what, counts, setting.files)
    return sum(counts.values())


def summarize(
    header: RecordingHeader, samples: Sequence[Sample], counts: LoadCounts | None, *, seconds: float, rows: int
) -> BulkLoadRun:
    """Return what a recording shows about a load. `counts` is what the loader itself counted, None for psql."""
    findings = examine(Recording(header=header, samples=samples, load=counts))
    diagnoses: tuple[Diagnosis, ...] = findings.diagnoses
    if counts is not None:
        diagnoses = judge_load(LoadCase(counts=counts, findings=findings, cpu_count=header.cpu_count))
    first = diagnoses[0] if diagnoses else None
    activity = findings.activity
    return BulkLoadRun(
        seconds=seconds,
        began_at=header.started_at,
        rows=rows,
        samples=activity.samples,
        sessions=activity.sessions,
        waits=tuple((part.name, part.share) for part in activity.waits[:_WAITS_SHOWN]),
        code=None if first is None else first.code,
        claim=None if first is None else first.claim,
        **_measure_device(samples),
        **_measure_cpu(header, samples),
    )


def _measure_device(samples: Sequence[Sample]) -> dict[str, float]:
    """Return the rates of the device with the data. The peak queue is the largest mean queue of an interval."""
    meter = DeviceIntervals()
    for sample in samples:
        meter.see(sample, data_s=0.0, wal_s=0.0)
    seen = [each.rates for each in meter.by_device.get(meter.device_of.get(DATA, ""), [])]
    if not seen:
        return {}
    total_s = sum(each.elapsed_s for each in seen)
    io_bytes = VolumeLimits().io_bytes
    return {
        "peak_queue": max(each.queue for each in seen),
        "mean_queue": sum(each.queue * each.elapsed_s for each in seen) / total_s,
        "ios_per_s": sum(count_ios(each, io_bytes) * each.elapsed_s for each in seen) / total_s,
        "bytes_per_s": sum(count_bytes(each) * each.elapsed_s for each in seen) / total_s,
        "peak_bytes_per_s": max(map(count_bytes, seen)),
    }


def _measure_cpu(header: RecordingHeader, samples: Sequence[Sample]) -> dict[str, float]:
    """Return the share of the processors that were busy: the mean, and that of the worst second."""
    seen = [(each.host_busy_cpus, each.interval_s) for each in samples[1:] if each.host_busy_cpus is not None]
    if not seen or not header.cpu_count:
        return {}
    shares, busy_s, passed_s = [], 0.0, 0.0
    for busy_cpus, seconds in seen:
        busy_s, passed_s = busy_s + busy_cpus * seconds, passed_s + seconds
        if passed_s >= 1.0:
            shares.append(min(1.0, busy_s / passed_s / header.cpu_count))
            busy_s = passed_s = 0.0
    whole = sum(busy * seconds for busy, seconds in seen) / sum(seconds for _, seconds in seen)
    cpu = min(1.0, whole / header.cpu_count)
    return {"cpu": cpu, "peak_cpu": max(shares, default=cpu)}


_LAB_SCHEMA = "staging"
DEMO_DATABASE = "penstock_demo"


@slotted
class BulkLoadTargetResult:
    """The results of all steps, in their order, on one topology or server."""

    name: str
    postgresql: str
    schema: str
    steps: tuple[StepRuns, ...]
    # Why steps with settings did not run, None if they did.
    lacks: str | None = None


@slotted
class BulkLoadResult:
    """All measurements, with the machine and the files on which they were made."""

    rounds: int
    machine: Machine
    # The article's machine as scaled for the lab, None without a lab.
    scaled: BulkLoadMachine | None
    rows: int
    plain_bytes: int
    size_bytes: int
    is_imdbs: bool
    targets: tuple[BulkLoadTargetResult, ...]


@slotted
class Target:
    """A server to measure, with the steps to run on it."""

    name: str
    setting: LoadTask
    steps: tuple[BulkLoadStep, ...]
    # The article's machine, scaled as for the lab. None if the server's volumes cannot be changed.
    scaled: BulkLoadMachine | None = None
    lab: Lab | None = None
    # Why steps with settings do not run, None if they do.
    lacks: str | None = None
    # Adds to the steps' runs what is known of them only later.
    complete: Callable[[tuple[StepRuns, ...]], tuple[StepRuns, ...]] = lambda steps: steps


def measure_bulk_load(
    experiment: BulkLoadExperiment,
    *,
    steps: Sequence[BulkLoadStep] = (),
    shapes: Sequence[Shape] = (),
    files_from: Path | None = None,
    open_target: Callable[[tuple[DataFile, ...]], AbstractContextManager[Target]] | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> BulkLoadResult:
    """Run the steps on topologies, which are created and removed here, and on the server that `open_target` opens.

    `files_from` is a directory with IMDb's own files. If it is None, files with the same shape are written. `say` is
    called with the progress. Raises LabError, TargetError, SourceError, ServerError.
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
    """Provide the embedded server, with its own settings, for the steps with seven files.

    The tables are in a new database, which is kept at the end. It has no tables of the user and no ledger of another
    version. Raises TargetError, ServerError.
    """
    conninfo = over_own_socket(server.ensure_running())
    with new_database(ConnectionFactory(conninfo), DEMO_DATABASE):
        conninfo = format_conninfo(**{**parse_conninfo(conninfo), "dbname": DEMO_DATABASE})
        psql = Psql(program=server.spec.installation.program("psql"), conninfo=conninfo)
        steps = tuple(step for step in steps_without_volumes(has_s3=False) if not step.is_one_file)[:-1]
        with closing(ConnectionFactory(conninfo)) as connect:
            setting = _make_setting(connect, psql, files, schema="public")
            yield Target(name="the embedded server", setting=setting, steps=steps)


def _make_setting(
    connect: ConnectionFactory, psql: Psql, files: Sequence[DataFile], *, schema: str = _LAB_SCHEMA
) -> LoadTask:
    return LoadTask(
        files=tuple(files),
        schema=schema,
        psql=psql,
        connect=connect,
        open_settings=lambda: SystemSettings(connect),
    )


@contextmanager
def _topology(
    shape: Shape,
    scaled: BulkLoadMachine,
    files: Sequence[DataFile],
    steps: Sequence[BulkLoadStep],
    say: Callable[[str], None],
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
        with closing(ConnectionFactory(conninfo)) as connect:
            with connect.connect(label="bench") as connection:
                alter_system(connection, "max_wal_size", f"{scaled.max_wal_bytes // MIB}MB")
                reload(connection)
            psql = Psql(program=installation.program("psql"), conninfo=conninfo)
            setting = _make_setting(connect, psql, files)
            if imports:
                setting = replace(setting, objects=_offer(lab, connect, files))
            yield Target(name=shape, setting=setting, steps=tuple(steps), scaled=scaled, lab=lab)
    finally:
        lab.down()


def _offer(lab: Lab, connect: ConnectionFactory, files: Sequence[DataFile]) -> dict[str, S3Object]:
    """Upload files to a lab's S3, and create the functions that import them. Return the S3 object of each table."""
    access = lab.s3_access()
    folder = S3Folder(f"s3://{access.bucket}", access)
    for file in files:
        folder.upload(file.path)
    with connect.connect(label="bench") as connection:
        create_import_functions(connection)
    return {file.table: S3Object(bucket=access.bucket, key=file.path.name, region=access.region) for file in files}


def _measure(target: Target, experiment: BulkLoadExperiment, say: Callable[[str], None]) -> BulkLoadTargetResult:
    say(f"{target.name}: warming up")
    # This load is not measured. The first load is slower than later ones, because WAL files are new and caches are
    # cold.
    make_tables(target.setting)
    load_in_parallel(target.setting)
    runs: Mapping[str, list[BulkLoadRun]] = {step.name: [] for step in target.steps}
    recoveries: Mapping[str, list[Recovery]] = {step.name: [] for step in target.steps}
    for number in range(max(experiment.rounds, experiment.most_rounds)):
        for step in target.steps:
            if number >= experiment.rounds and find_spread(runs[step.name]) <= WIDE_SPREAD:
                continue
            run = _run_step(target, step, recoveries[step.name])
            runs[step.name].append(run)
            say(f"round {number + 1} of {experiment.rounds}: {target.name}, {step.name}: {run.seconds:.1f} s")
    with target.setting.connect.connect(label="bench") as connection:
        version = read_server_facts(connection).version
    steps = tuple(
        StepRuns(
            step=step,
            limits=None if target.scaled is None else target.scaled.limits(step.volume),
            runs=tuple(runs[step.name]),
            recoveries=tuple(recoveries[step.name]),
        )
        for step in target.steps
    )
    return BulkLoadTargetResult(
        name=target.name,
        postgresql=version,
        schema=target.setting.schema,
        steps=target.complete(steps),
        lacks=target.lacks,
    )


def _run_step(target: Target, step: BulkLoadStep, recoveries: list[Recovery]) -> BulkLoadRun:
    """Run a step. If the step crashes the server, add the time of its recovery to `recoveries`."""
    setting = replace(target.setting, files=choose_files(target.setting.files, is_one=step.is_one_file))
    limits = None if target.scaled is None else target.scaled.limits(step.volume)

    def after() -> None:
        if step.crashes and target.lab is not None:
            recoveries.append(_crash(setting.connect, target.lab.primary()))

    return measure(setting, step, limits=limits, limited=_limited(target, step.volume), after=after)


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
