"""Scales experiment B to this machine, and compares times with the published ones. Pure.

Experiment B repeats an article of AWS on Optimized Reads (`SOURCE`). There are two factors, both fixed before anything
runs. The factor for rates (IOPS, bytes a second) is the number of this machine's cores divided by the number of the
article's vCPUs, so each core can read and write as much as in the article. Rows and memory have a second factor. The
ratio of table size to memory stays that of the article, and only the duration changes. A single factor for rates, rows
and memory would change the balance of processor and disk.

Three things do not scale. A session cannot be divided: four sessions leave most of 16 vCPUs idle, but overload two
cores. On this machine, client and server share the cores. And work_mem stays at the article's 4 MB, because with less
memory PostgreSQL's merges read single pages. The tables are smaller than the article's 100 million rows, so with the
same work_mem a sort has fewer runs to merge.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Literal

from penstock.core.slotted import slotted
from penstock.core.units import GB, GIB, MIB
from penstock.core.values.device import DeviceCounters, rates

SOURCE = (
    "Introducing Optimized Reads for Amazon RDS for PostgreSQL (AWS Database Blog, 2023): db.m5.4xlarge on EBS against "
    "db.m5d.4xlarge with local NVMe, Single-AZ, three tables of 100 M rows by sysbench"
)

SHORT_SOURCE = "RDS, db.m5.4xlarge and db.m5d.4xlarge (AWS, 2023)"

VCPUS = 16
MEMORY_BYTES = 64 * GIB
ROWS = 100_000_000

# The provisioned IOPS of the article's volume, and its instance's dedicated bandwidth of 4,750 Mbps.
IOPS = 5_000
BYTES_PER_S = 4_750_000_000 // 8

# The article's times in minutes by number of sessions: with temporary files on EBS, and on local storage.
MINUTES = {
    4: (11.3, 10.6),
    8: (22.0, 16.5),
    12: (40.4, 23.4),
    16: (66.2, 32.0),
}

# The article's temporary files in GB by number of sessions: the total that all sessions wrote, not the largest amount
# at one time.
TEMP_GB = {4: 1_090, 8: 2_268, 12: 3_449, 16: 4_629}

# The article's queries: name, table, text, and the LIMIT, which the article gives for tables of `ROWS` rows.
QUERIES = (
    ("distinct", "sbtest1", "SELECT DISTINCT pad FROM {schema}.sbtest1 LIMIT {limit}", 65_000_000),
    (
        "group and order",
        "sbtest2",
        (
            "SELECT c1.pad, sum(c1.c), avg(c1.k)"
            " FROM (SELECT pad, length(c) AS c, k FROM {schema}.sbtest2 LIMIT {limit}) AS c1 GROUP BY c1.pad ORDER BY 3"
        ),
        100_000_000,
    ),
    ("order", "sbtest3", "SELECT k, length(pad) FROM {schema}.sbtest3 ORDER BY pad LIMIT {limit}", 50_000_000),
)


Side = Literal["volume", "local"]


@slotted
class ReadsExperiment:
    """How many rows the tables have, and in how many sessions and rounds the queries run."""

    # How many rows each table has.
    rows: int
    # The numbers of concurrent sessions.
    sessions: tuple[int, ...]
    # The number of rounds. It is even, so that each side begins half of them.
    rounds: int

    @property
    def first_sides(self) -> tuple[Side, ...]:
        """Return for each round where temporary files are first: on the "volume" or on the "local" disk.

        They alternate, because the writes that the first leaves unfinished slow down the second.
        """
        return tuple("local" if number % 2 else "volume" for number in range(self.rounds))


# The full experiment. It takes about half an hour for each topology on two cores. The article has 4 to 16 sessions on
# 16 vCPUs. On two cores, steps with 12 and 16 sessions would take an hour more. Memory is scaled with the rows: with
# fewer rows it would be less than the processes of the largest step need.
FULL = ReadsExperiment(rows=1_000_000, sessions=(1, 2, 4, 8), rounds=4)

# The short experiment. It takes less than four minutes on two cores. Memory is scaled with the rows: with fewer rows it
# would be less than the processes of the largest step need.
QUICK = ReadsExperiment(rows=400_000, sessions=(1, 2, 4), rounds=2)

# The space of one sysbench row with its part of two indexes, measured on PostgreSQL 18. The factor and the minimum
# leave room for WAL and for what sixteen sorts write to disk at once.
_ROW_BYTES = 280
_SPACE_FACTOR = 6
_LEAST_SPACE_BYTES = 6 * GIB


@slotted
class ReadsMachine:
    """The memory of the article's server, and the rates and size of its volume, scaled to this machine."""

    memory_bytes: int
    iops: int
    bytes_per_s: int
    disk_bytes: int

    @property
    def volume(self) -> str:
        """Return the volume as `lab up --volume` takes it. Throughput is rounded to whole MiB."""
        return f"gp3:{-(-self.disk_bytes // GIB)}GiB:{self.iops}:{round(self.bytes_per_s / MIB)}"


@slotted
class Query:
    """One of the article's three queries."""

    name: str
    table: str
    # The text of the query. Its LIMIT is in proportion to the rows.
    sql: str


def scale(experiment: ReadsExperiment, *, cpu_count: int) -> ReadsMachine:
    """Return the article's machine, with memory scaled to the experiment's rows, and rates to `cpu_count` cores.

    >>> scale(FULL, cpu_count=2).iops
    625
    """
    by_cores, by_rows = cpu_count / VCPUS, experiment.rows / ROWS
    return ReadsMachine(
        memory_bytes=round(MEMORY_BYTES * by_rows),
        iops=round(IOPS * by_cores),
        bytes_per_s=round(BYTES_PER_S * by_cores),
        disk_bytes=max(_LEAST_SPACE_BYTES, _SPACE_FACTOR * len(QUERIES) * _ROW_BYTES * experiment.rows),
    )


def queries(experiment: ReadsExperiment, *, schema: str) -> tuple[Query, ...]:
    """Return the article's three queries on the tables of `schema`, a name that needs no quotes."""
    return tuple(
        Query(name=name, table=table, sql=text.format(schema=schema, limit=round(limit * experiment.rows / ROWS)))
        for name, table, text, limit in QUERIES
    )


@slotted
class QueryDeviceUse:
    """The bytes and the load of a device during one run of a query, as means over the rounds."""

    read_bytes: float
    write_bytes: float
    # The share of time in which the device did I/O, 0 to 1.
    busy: float
    queue: float


@slotted
class QueryRuns:
    """The times of one query in several sessions, with temporary files on the volume and on the local disk.

    The use of a device is None if this process cannot see the server's devices.
    """

    query: str
    # The seconds of each round with temporary files on the volume.
    volume_s: tuple[float, ...]
    # The seconds of each round with temporary files on the local disk.
    local_s: tuple[float, ...]
    # How many bytes of temporary files one round wrote.
    temp_bytes: int
    workers_planned: int
    workers_launched: int
    # The seconds of each round that a session waited for temporary files on the volume, the mean of all sessions. Empty
    # if the server does not time them.
    wait_s: tuple[float, ...] = ()
    # The seconds of processors that each round on the volume used in all processes of the server. Empty if it is not on
    # this machine.
    cpu_s: tuple[float, ...] = ()
    # The use of the volume while it had the temporary files.
    volume: QueryDeviceUse | None = None
    # The use of the local disk while it had the temporary files.
    local: QueryDeviceUse | None = None
    # The use of the disk below the local device while the local disk had the temporary files. Other processes of the
    # machine are included.
    below: QueryDeviceUse | None = None


@slotted
class ReadsStep:
    """The runs of all queries in one number of sessions."""

    sessions: int
    runs: tuple[QueryRuns, ...]

    @property
    def spilling(self) -> tuple[QueryRuns, ...]:
        """Return the runs of those queries that write temporary files.

        For others it does not matter where such files are.
        """
        return tuple(run for run in self.runs if run.temp_bytes)

    @property
    def volume_s(self) -> tuple[float, ...]:
        """Return the seconds of each round, summed over all queries that spill, with temporary files on the volume."""
        return tuple(map(sum, zip(*(run.volume_s for run in self.spilling), strict=True)))

    @property
    def local_s(self) -> tuple[float, ...]:
        """Return the seconds of each round, summed over all queries that spill, with temporary files on local disk."""
        return tuple(map(sum, zip(*(run.local_s for run in self.spilling), strict=True)))

    @property
    def waiting(self) -> float | None:
        """Return the share of the time on the volume in which sessions wait for temporary files; None if not known."""
        return _share_waiting(self.spilling)

    def forecast_s(self, *, cpu_count: int) -> float | None:
        """Return the forecast of one round's seconds on a disk that never waits, summed over all queries that spill.

        None if it is not known how long sessions wait.
        """
        return _forecast_s(self.spilling, cpu_count=cpu_count)

    @property
    def speed_up(self) -> float | None:
        """Return the typical time on the volume as a multiple of that on the local disk. None if no query spills."""
        return speed_up(self.volume_s, self.local_s) if self.spilling else None

    @property
    def temp_bytes(self) -> int:
        """Return how many bytes of temporary files all queries write in one round."""
        return sum(run.temp_bytes for run in self.runs)

    def use(self, device: Literal["volume", "local", "below"]) -> QueryDeviceUse | None:
        """Return a device's use in one round, or None if it is not visible.

        Bytes are added up over the queries. Busy time and queue are averaged.

        >>> ReadsStep(sessions=1, runs=()).use("volume") is None
        True
        """
        seen = [use for run in self.runs if (use := getattr(run, device)) is not None]
        if not seen:
            return None
        return QueryDeviceUse(
            read_bytes=sum(use.read_bytes for use in seen),
            write_bytes=sum(use.write_bytes for use in seen),
            busy=statistics.mean(use.busy for use in seen),
            queue=statistics.mean(use.queue for use in seen),
        )


def _share_waiting(runs: Sequence[QueryRuns]) -> float | None:
    if not runs or not all(run.wait_s for run in runs):
        return None
    return sum(typical_s(run.wait_s) for run in runs) / sum(typical_s(run.volume_s) for run in runs)


def _forecast_s(runs: Sequence[QueryRuns], *, cpu_count: int) -> float | None:
    if not runs or not all(run.wait_s for run in runs):
        return None
    return sum(forecast_s(run, cpu_count=cpu_count) for run in runs)


def forecast_s(run: QueryRuns, *, cpu_count: int) -> float:
    """Return the forecast of a query's seconds on a disk that never waits, from its runs on the volume alone.

    It is the time without the waits for temporary files, and at least the time that all its work takes on `cpu_count`
    processors: sessions that wait for a disk do not wait for a processor.

    >>> run = QueryRuns(query="q", volume_s=(10.0,), local_s=(), temp_bytes=1, workers_planned=0, workers_launched=0,
    ...     wait_s=(7.0,), cpu_s=(8.0,))
    >>> forecast_s(run, cpu_count=2), forecast_s(run, cpu_count=4)
    (4.0, 3.0)
    """
    computed_s = typical_s(run.cpu_s) / cpu_count if run.cpu_s else 0.0
    return max(computed_s, typical_s(run.volume_s) - typical_s(run.wait_s))


def typical_s(seconds: Sequence[float]) -> float:
    """Return the mean of two medians: of the even rounds and of the odd ones, which begin with different disks.

    The disk that comes first in a round is slower. Both orders count equally, even if one has a round more.

    >>> typical_s([9.0, 1.0, 7.0, 3.0])
    5.0
    >>> typical_s([9.0, 1.0, 7.0])
    4.5
    """
    return statistics.mean(statistics.median(half) for half in (seconds[::2], seconds[1::2]) if half)


def speed_up(volume_s: Sequence[float], local_s: Sequence[float]) -> float:
    """Return the typical time of rounds on the volume as a multiple of that of rounds on the local disk."""
    return typical_s(volume_s) / typical_s(local_s)


def is_difference(volume_s: Sequence[float], local_s: Sequence[float]) -> bool:
    """Return whether the ranges of times on the volume and on the local disk, over all rounds, do not overlap.

    >>> is_difference([2.0, 3.0], [1.0, 1.5]), is_difference([2.0, 3.0], [1.0, 2.5])
    (True, False)
    """
    return max(local_s) < min(volume_s) or max(volume_s) < min(local_s)


def speed_up_range(volume_s: Sequence[float], local_s: Sequence[float]) -> tuple[float, float]:
    """Return the lowest and the highest speed-up that a round on the volume and one on the local disk give.

    >>> speed_up_range([2.0, 3.0], [1.0, 1.5])
    (1.333..., 3.0)
    """
    return min(volume_s) / max(local_s), max(volume_s) / min(local_s)


def mean_use(pairs: Sequence[tuple[DeviceCounters, DeviceCounters]]) -> QueryDeviceUse | None:
    """Return a device's mean use over runs, from its counters before and after each run. None without runs."""
    if not pairs:
        return None
    means = [rates(before, after) for before, after in pairs]
    return QueryDeviceUse(
        read_bytes=statistics.mean(after.read_bytes - before.read_bytes for before, after in pairs),
        write_bytes=statistics.mean(after.write_bytes - before.write_bytes for before, after in pairs),
        busy=statistics.mean(each.busy for each in means),
        queue=statistics.mean(each.queue for each in means),
    )


def published_temp_bytes(sessions: int, *, rows: int) -> float | None:
    """Return how many bytes of temporary files the article's queries wrote, scaled to `rows`.

    Return None if the article did not measure this number of sessions.

    >>> published_temp_bytes(4, rows=1_000_000)
    10900000000.0
    """
    spilled_gb = TEMP_GB.get(sessions)
    return None if spilled_gb is None else spilled_gb * GB * rows / ROWS


def published_speed_up(sessions: float) -> float | None:
    """Return the article's time on the volume as a multiple of that on the local disk.

    Return None if the article did not measure this number of sessions.

    >>> published_speed_up(16)
    2.06875
    """
    minutes = MINUTES.get(int(sessions)) if sessions == int(sessions) else None
    return None if minutes is None else minutes[0] / minutes[1]


def as_loaded(sessions: float, *, cpu_count: int) -> float:
    """Return in how many sessions each of the article's vCPUs had the work that each of `cpu_count` cores has here.

    >>> as_loaded(2, cpu_count=2)
    16.0
    """
    return sessions * VCPUS / cpu_count
