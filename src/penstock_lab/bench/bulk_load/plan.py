"""Scales the published steps of experiment A to this machine, and finds which resource limited a run. Pure.

Experiment A repeats an article of the AWS Database Blog (`SOURCE`). There are two factors, both fixed before anything
runs. The factor for rates (IOPS, bytes a second) is the number of this machine's cores divided by the number of the
article's vCPUs. The factor for data, memory and max_wal_size is the size of this machine's file of title.principals
divided by the size of the article's file. This second factor changes only how long the steps take.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Literal

from penstock.core.errors import UsageError
from penstock.core.slotted import slotted
from penstock.core.units import GIB, MB, MIB
from penstock.core.values.device import VolumeLimits
from penstock.rds.volumes import parse_volume

if TYPE_CHECKING:
    from penstock.core.values.device import CounterRow
    from penstock_lab.datasets.datafiles import DataFile

SOURCE = (
    "AWS Database Blog on bulk loading into Amazon RDS for PostgreSQL: PostgreSQL 14, db.r6g.2xlarge, Multi-AZ, IMDb's "
    "seven files from S3 by aws_s3.table_import_from_s3"
)

SHORT_SOURCE = "RDS for PostgreSQL 14, db.r6g.2xlarge"

VCPUS = 8
MEMORY_BYTES = 64 * GIB

# The size of the article's gzip file of title.principals. The factor for data and memory is the size of this machine's
# file divided by this size.
PRINCIPALS_BYTES = 361 * MB

# The most bytes a second that the article's instance class transfers between the instance and its volumes.
INSTANCE_BYTES_PER_S = 593_750_000

# The default of max_wal_size on RDS. It is scaled by the factor for data.
MAX_WAL_BYTES = 2048 * MIB

Load = Literal[
    "aws_s3 in turn",
    "aws_s3 in parallel",
    "psql in turn",
    "psql in parallel",
    "penstock",
    "psql, then VACUUM",
    "penstock, then CHECKPOINT",
    "penstock that freezes",
]

# The loads after which the table is frozen and analyzed, and a checkpoint is written.
SETTLED: tuple[Load, ...] = ("psql, then VACUUM", "penstock, then CHECKPOINT", "penstock that freezes")

# What loads the same files without S3.
_BY_PSQL: Mapping[Load, Load] = {"aws_s3 in turn": "psql in turn", "aws_s3 in parallel": "psql in parallel"}


@slotted
class BulkLoadStep:
    """One load of the published article, by one method on one volume. Steps have the article's order."""

    name: str
    load: Load
    # The volume as `lab up --volume` names it.
    volume: str
    # Whether the step loads only title.principals, and not all seven files.
    is_one_file: bool = False
    # Whether the server has the settings of profile bulk-load. They are changed before the time that counts, and
    # restored after it.
    has_settings: bool = False
    # The time in the article, None if the article has none.
    published_s: float | None = None
    # The volume's largest queue in the article, None if the article has none.
    published_queue: int | None = None
    # What else the article says about this load.
    published: str = ""
    # How the step differs from the article's.
    differs: str = ""
    # Whether the server is killed at the end of the load, to measure a recovery.
    crashes: bool = False

    @property
    def is_import(self) -> bool:
        """Return whether the server imports from S3, as in the article."""
        return self.load in _BY_PSQL

    @property
    def is_settled(self) -> bool:
        """Return whether the step ends when the table is frozen and analyzed, and a checkpoint is written."""
        return self.load in SETTLED


FIRST = "gp2:250GiB:spent"
LARGE = "gp2:1500GiB:spent"
PROVISIONED = "io1:1500GiB:10000"

# The published steps, each an import by the article's own call, and those steps with settings that it lacks.
_IMPORTS = (
    BulkLoadStep(
        name="one file, gp2 250 GiB",
        load="aws_s3 in turn",
        is_one_file=True,
        volume=FIRST,
        published_s=345,
        published_queue=2048,
        differs="the burst bucket is spent; the article does not give its balance, and a full one lasts 2,400 s",
    ),
    BulkLoadStep(
        name="one file, gp2 1,500 GiB",
        load="aws_s3 in turn",
        is_one_file=True,
        volume=LARGE,
        published_s=62,
        published_queue=200,
        differs="4,500 IOPS without burst; the article's four stripes may have had up to 12,000",
    ),
    BulkLoadStep(
        name="one file, 10,000 IOPS",
        load="aws_s3 in turn",
        is_one_file=True,
        volume=PROVISIONED,
        published_s=62,
        published_queue=170,
        differs="the article does not give the size of its io1 volume",
    ),
    BulkLoadStep(
        name="seven files in turn",
        load="aws_s3 in turn",
        volume=PROVISIONED,
        published_s=129,
        published="CPU 15 %, 200 MB/s written",
    ),
    BulkLoadStep(
        name="seven files in parallel",
        load="aws_s3 in parallel",
        volume=PROVISIONED,
        published_s=57,
        published="CPU 90 %, 400 to 800 MB/s written",
    ),
    BulkLoadStep(
        name="one file, bulk-load",
        load="aws_s3 in turn",
        is_one_file=True,
        has_settings=True,
        volume=PROVISIONED,
        published_s=44,
        published="a gain from 57 to 44 s, where 57 s are those of seven files in parallel",
        differs="max_wal_size 4 GB, on RDS by the WAL that penstock expects; the article 4 GB",
    ),
    BulkLoadStep(
        name="seven files in turn, bulk-load",
        load="aws_s3 in turn",
        has_settings=True,
        volume=PROVISIONED,
        differs="not in the article",
    ),
    BulkLoadStep(
        name="seven files in parallel, bulk-load",
        load="aws_s3 in parallel",
        has_settings=True,
        volume=PROVISIONED,
        differs="not in the article, unless its 44 s are of seven files",
    ),
)

_BY_PENSTOCK = (
    BulkLoadStep(
        name="seven files, penstock",
        load="penstock",
        volume=PROVISIONED,
        differs="not in the article",
        crashes=True,
    ),
    BulkLoadStep(
        name="seven files, penstock, bulk-load",
        load="penstock",
        has_settings=True,
        volume=PROVISIONED,
        differs="not in the article",
        crashes=True,
    ),
)

STEPS = (
    *_IMPORTS,
    BulkLoadStep(
        name="seven files, a psql each",
        load="psql in parallel",
        volume=PROVISIONED,
        differs="not in the article; gzip and psql share the processors with the server",
    ),
    *_BY_PENSTOCK,
    *(
        BulkLoadStep(
            name=f"one file until frozen, {name}",
            load=load,
            is_one_file=True,
            volume=FIRST,
            differs="not in the article; ends when the table is frozen and analyzed, and a checkpoint is written",
        )
        for load, name in zip(SETTLED, ("psql and VACUUM", "penstock", "penstock --freeze always"), strict=True)
    ),
)

_MINUTE_S = 60.0

RECOVERY = "recovery of 10 minutes or more is possible with the settings"


# The only IMDb table that is loaded by the steps with one file.
PRINCIPALS = "title.principals"


@slotted
class BulkLoadExperiment:
    """How many rows are loaded, and how often each step runs."""

    # The share of IMDb's data that is loaded. 1 is all 186 million rows.
    imdb_scale: float
    rounds: int
    # How often a step runs whose times differ by more than WIDE_SPREAD.
    most_rounds: int = 1


# A round takes about 8 minutes on two cores.
FULL = BulkLoadExperiment(imdb_scale=0.1, rounds=3, most_rounds=7)

# The experiment takes about two minutes on two cores.
QUICK = BulkLoadExperiment(imdb_scale=0.055, rounds=1)

# The spread of a step's times, as a share of their median, beyond which the step runs more often.
WIDE_SPREAD = 0.2

# PostgreSQL needs at least two WAL segments of 16 MiB. With four segments, max_wal_size still has room for the WAL of
# two checkpoints.
_LEAST_WAL_BYTES = 64 * MIB

# The servers' processes need this much memory, however small the data are.
_LEAST_MEMORY_BYTES = 512 * MIB

# The disk has room for this many times the text. Text takes up to twice its size in a table, and again in WAL.
_SPACE_FACTOR = 6
_LEAST_SPACE_BYTES = 12 * GIB

# A resource is the bottleneck of a step that used at least this share of it. The share is below 1 because a load uses
# less when it begins and ends. A volume is a bottleneck only if requests also wait for it.
_USED = 0.8
_LEAST_QUEUE = 1.0

# A single session is the bottleneck if it spends this share of its time computing or waiting for its client, however
# busy the volume is.
_OWN = ("CPU", "Client:")
_LEAST_OWN = 2 / 3
_ONE_SESSION = 1.5


@slotted
class BulkLoadMachine:
    """The memory, disk and rates of the article's server, scaled to this machine's cores and to the files' size."""

    # The factor for rates.
    rate_scale: float
    # The factor for data and memory.
    data_scale: float
    memory_bytes: int
    max_wal_bytes: int
    disk_bytes: int

    @property
    def unlimited(self) -> str:
        """Return a volume of the same size without limits, as `lab up --volume` takes it.

        It is used while nothing is measured.
        """
        return f"gp3:{self.disk_gib}GiB:1000000:100000"

    @property
    def disk_gib(self) -> int:
        """Return the volume's size in GiB, rounded up."""
        return -(-self.disk_bytes // GIB)

    def limits(self, volume: str) -> VolumeLimits:
        """Return the scaled limits of one of the article's volumes and of its instance.

        `volume` is named as `lab up --volume` takes it. Raises UsageError.
        """
        throttle = parse_volume(volume).throttle
        if throttle is None:
            raise UsageError(f'"{volume}" has no limits to scale', hint="Name a volume with IOPS.")
        return VolumeLimits(
            iops=max(round(throttle.iops * self.rate_scale), 1),
            bytes_per_s=_whole_mib(throttle.bytes_per_s * self.rate_scale),
            instance_bytes_per_s=_whole_mib(INSTANCE_BYTES_PER_S * self.rate_scale),
        )

    def volume(self, volume: str) -> str:
        """Return one of the article's volumes with scaled limits. Both are as `lab up --volume` takes them.

        Raises UsageError.
        """
        limits = self.limits(volume)
        assert limits.bytes_per_s is not None
        assert limits.instance_bytes_per_s is not None
        bytes_per_s = min(limits.bytes_per_s, limits.instance_bytes_per_s)
        return f"gp3:{self.disk_gib}GiB:{limits.iops}:{bytes_per_s // MIB}"


def scale(files: Sequence[DataFile], *, cpu_count: int, machine_bytes: int) -> BulkLoadMachine:
    """Return the article's machine, scaled to this machine and these files.

    Rates are scaled to `cpu_count` cores, and memory and disk to the size of the files. The memory is at most
    `machine_bytes`, which is this machine's.
    """
    principals = next(file for file in files if file.table == PRINCIPALS)
    data_scale = principals.size_bytes / PRINCIPALS_BYTES
    plain_bytes = sum(file.plain_bytes for file in files)
    return BulkLoadMachine(
        rate_scale=cpu_count / VCPUS,
        data_scale=data_scale,
        memory_bytes=min(max(round(MEMORY_BYTES * data_scale), _LEAST_MEMORY_BYTES), machine_bytes),
        max_wal_bytes=max(round(MAX_WAL_BYTES * data_scale), _LEAST_WAL_BYTES),
        disk_bytes=max(_LEAST_SPACE_BYTES, _SPACE_FACTOR * plain_bytes),
    )


def choose_steps(volumes: Sequence[str] | None) -> tuple[BulkLoadStep, ...]:
    """Return all steps, each on its own volume. With `volumes`, return steps on these, as `lab up --volume` takes them.

    With `volumes`, a step on each of them imports one file. The steps that load seven files are all on the last of
    them. Raises UsageError if a volume is malformed, or has no fixed limits.
    """
    if volumes is None:
        return STEPS
    for volume in volumes:
        throttle = parse_volume(volume).throttle
        if throttle is None or throttle.burst_iops is not None:
            raise UsageError(
                f'"{volume}" has no fixed limits to scale',
                hint="Name a volume with IOPS; of gp2 with a burst the spent one, such as gp2:250GiB:spent.",
            )
    singles = (_on_own_storage(f"one file, {volume}", volume) for volume in volumes)
    return (*singles, *(replace(step, volume=volumes[-1]) for step in STEPS if not step.is_one_file))


def steps_without_volumes(*, has_s3: bool) -> tuple[BulkLoadStep, ...]:
    """Return the steps for a server whose volumes cannot be changed.

    With `has_s3`, the server imports the files, with and without settings. Otherwise psql sends them, without settings.
    """
    imports = (_on_own_storage("one file", ""), *(step for step in _IMPORTS if not _is_of_volumes(step)))
    if not has_s3:
        imports = tuple(replace(step, load=_BY_PSQL[step.load]) for step in imports if not step.has_settings)
    return tuple(replace(step, volume="") for step in (*imports, *_BY_PENSTOCK))


def _is_of_volumes(step: BulkLoadStep) -> bool:
    """Return whether a step differs from others by its volume alone."""
    return step.is_one_file and not step.has_settings


def _on_own_storage(name: str, volume: str) -> BulkLoadStep:
    return BulkLoadStep(
        name=name,
        load="aws_s3 in turn",
        is_one_file=True,
        volume=volume,
        published="345 s with gp2 of 250 GB, 62 s with 10,000 IOPS",
    )


@slotted
class BulkLoadRun:
    """One run of a step. Rates are means over the run, None if the server's device or processors are not visible.

    Peaks are the means of the worst second. Of Amazon RDS, means and peaks are CloudWatch's, of minutes.
    """

    seconds: float
    # When the load began, as ISO 8601.
    began_at: str
    rows: int
    samples: int
    sessions: float
    # The active sessions' largest waits with their shares of time.
    waits: tuple[tuple[str, float], ...]
    # The first diagnosis' code, None if there is no diagnosis.
    code: str | None
    # The first diagnosis' claim, None if there is no diagnosis.
    claim: str | None
    peak_queue: float | None = None
    mean_queue: float | None = None
    # A request of more than 256 KiB counts as several I/Os, as for a volume.
    ios_per_s: float | None = None
    bytes_per_s: float | None = None
    peak_bytes_per_s: float | None = None
    # The share of the server's processors that were busy, 0 to 1.
    cpu: float | None = None
    peak_cpu: float | None = None


@slotted
class Recovery:
    """The crash recovery of a server that was killed at the end of a load."""

    # The WAL since the last checkpoint.
    wal_bytes: int
    seconds: float


@slotted
class StepRuns:
    """The runs of one step, and its recoveries."""

    step: BulkLoadStep
    # The limits of its volume, None if they are not known.
    limits: VolumeLimits | None
    runs: tuple[BulkLoadRun, ...]
    recoveries: tuple[Recovery, ...] = ()

    @property
    def median(self) -> BulkLoadRun:
        """Return the run with the median time; of two runs, the slower one."""
        return sorted(self.runs, key=lambda run: run.seconds)[len(self.runs) // 2]

    @property
    def seconds(self) -> float:
        """Return the median time of a run in seconds."""
        return statistics.median(run.seconds for run in self.runs)


def find_spread(runs: Sequence[BulkLoadRun]) -> float:
    """Return the difference of the longest and the shortest time, as a share of the median time."""
    times = [run.seconds for run in runs]
    return (max(times) - min(times)) / statistics.median(times)


def summarize_minutes(means: Sequence[CounterRow], highest: Sequence[CounterRow], run: BulkLoadRun) -> BulkLoadRun:
    """Return a run with CloudWatch's figures: means over its minutes, and the highest of a minute.

    The rows have the mean and the highest value of each metric, one row for each minute. The first and the last minute
    of a run have what was done before and after it too. A figure of which no minute is known is None.
    """
    began_s = datetime.fromisoformat(run.began_at).timestamp()

    def find(rows: Sequence[CounterRow], *names: str) -> list[float]:
        return [
            sum(float(str(row[name])) for name in names)
            for row in rows
            if began_s - _MINUTE_S < datetime.fromisoformat(str(row["measured_at"])).timestamp() < began_s + run.seconds
            and all(name in row for name in names)
        ]

    def mean(*names: str, unit: float = 1.0) -> float | None:
        found = find(means, *names)
        return statistics.mean(found) / unit if found else None

    def peak(*names: str, unit: float = 1.0) -> float | None:
        found = find(highest, *names)
        return max(found) / unit if found else None

    throughput = ("ReadThroughput", "WriteThroughput")
    return replace(
        run,
        mean_queue=mean("DiskQueueDepth"),
        peak_queue=peak("DiskQueueDepth"),
        ios_per_s=mean("ReadIOPS", "WriteIOPS"),
        bytes_per_s=mean(*throughput),
        peak_bytes_per_s=peak(*throughput),
        cpu=mean("CPUUtilization", unit=100.0),
        peak_cpu=peak("CPUUtilization", unit=100.0),
    )


# The codes of the diagnoses that are right for each bottleneck. If forced checkpoints use up the volume, the first
# diagnosis names the checkpoints, so that code is right too.
NAMED_BY = {
    "IOPS": ("volume-iops", "checkpoints-forced"),
    "throughput": ("volume-throughput", "instance-limit", "checkpoints-forced"),
    "CPU": ("cpu-bound", "load-server-cpu", "load-encoding"),
    "one session": ("few-sessions", "client-bound", "load-few-sessions"),
}


def find_bottlenecks(run: BulkLoadRun, limits: VolumeLimits | None) -> tuple[str, ...]:
    """Return which of CPU, IOPS, throughput and "one session" limited a run, the most used first.

    This is found from the counters of the device and the processors. A single session is a bottleneck if it computes,
    or waits for its client, for most of its time.

    >>> run = BulkLoadRun(
    ...     seconds=1, began_at="", rows=1, samples=1, sessions=1, waits=(), code=None, claim=None, cpu=0.97
    ... )
    >>> find_bottlenecks(run, None)
    ('CPU',)
    """
    own = sum(share for name, share in run.waits if name.startswith(_OWN))
    is_alone = run.sessions < _ONE_SESSION and own >= _LEAST_OWN
    used = {"CPU": run.cpu or 0.0, "one session": 1.0 if is_alone else 0.0}
    waits = run.mean_queue is not None and run.mean_queue >= _LEAST_QUEUE
    if waits and limits is not None and run.ios_per_s is not None and run.bytes_per_s is not None:
        most = [limit for limit in (limits.bytes_per_s, limits.instance_bytes_per_s) if limit]
        used["throughput"] = max((run.bytes_per_s / limit for limit in most), default=0.0)
        used["IOPS"] = run.ios_per_s / limits.iops if limits.iops else 0.0
    return tuple(name for name in sorted(used, key=lambda each: -used[each]) if used[name] >= _USED)


def judge(run: BulkLoadRun, limits: VolumeLimits | None) -> bool | None:
    """Return whether penstock's first diagnosis names one of the run's bottlenecks. None if the run has none."""
    found = find_bottlenecks(run, limits)
    return any(run.code in NAMED_BY[name] for name in found) if found else None


def _whole_mib(bytes_per_s: float) -> int:
    return max(round(bytes_per_s / MIB), 1) * MIB
