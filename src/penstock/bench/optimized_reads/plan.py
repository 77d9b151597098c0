"""How the article's machine is scaled to this one, and what the times say. Pure.

Two factors, both fixed before anything runs. Rates (IOPS, bytes a second) are scaled by the cores here over the vCPUs
there: what a core can read and write stays the same. Rows and memory are scaled by one factor, which sets only how long
it takes: tables stay as much larger than memory as they were. One factor for both would upset the balance of processor
and disk.

What does not scale: sessions are whole, so that four of them leave most of 16 vCPUs idle and overload two cores; client
and server share the cores here; and work_mem stays the article's 4 MB, since with less PostgreSQL's merges read single
pages, so that there are fewer runs to merge than in tables of 100 M rows.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from penstock.bench.optimized_reads.published import (
    BYTES_PER_S,
    IOPS,
    MEMORY_BYTES,
    MINUTES,
    QUERIES,
    ROWS,
    VCPUS,
)
from penstock.units import GIB, MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """What is asked: rows of each table, sessions at a time, and how often."""

    rows: int
    sessions: tuple[int, ...]
    rounds: int


# About an hour for each topology on two cores. The article begins at 4 sessions, on 16 vCPUs. Fewer rows leave less
# memory than the processes of sixteen sessions need.
FULL = Experiment(rows=1_000_000, sessions=(1, 2, 4, 8, 12, 16), rounds=3)

# For less than two minutes on two cores. Fewer rows leave less memory than the processes of the largest step need.
QUICK = Experiment(rows=400_000, sessions=(1, 2, 4), rounds=1)

# What a row of sysbench's takes with its part of two indexes, measured on 18; what is needed beside it for WAL, and for
# what sixteen sorts spill at once.
_ROW_BYTES = 280
_SPACE_FACTOR = 6
_LEAST_SPACE_BYTES = 6 * GIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaled:
    """The article's machine at this size: what its server may use, and what its volume delivers."""

    memory_bytes: int
    iops: int
    bytes_per_s: int
    disk_bytes: int

    @property
    def volume(self) -> str:
        """Return the volume as the lab takes it, with throughput in whole MiB."""
        return f"gp3:{-(-self.disk_bytes // GIB)}GiB:{self.iops}:{round(self.bytes_per_s / MIB)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """One of the three queries; `sql` has its limit in proportion to the rows."""

    name: str
    table: str
    sql: str


def scale(experiment: Experiment, *, cpu_count: int) -> Scaled:
    """Return the article's machine for so many rows and cores.

    >>> scale(FULL, cpu_count=2).iops
    625
    """
    by_cores, by_rows = cpu_count / VCPUS, experiment.rows / ROWS
    return Scaled(
        memory_bytes=round(MEMORY_BYTES * by_rows),
        iops=round(IOPS * by_cores),
        bytes_per_s=round(BYTES_PER_S * by_cores),
        disk_bytes=max(_LEAST_SPACE_BYTES, _SPACE_FACTOR * len(QUERIES) * _ROW_BYTES * experiment.rows),
    )


def queries(experiment: Experiment, *, schema: str) -> tuple[Query, ...]:
    """Return the three queries on the tables of a schema, which is a plain name."""
    return tuple(
        Query(name=name, table=table, sql=text.format(schema=schema, limit=round(limit * experiment.rows / ROWS)))
        for name, table, text, limit in QUERIES
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryRuns:
    """One query at so many sessions: seconds of each round on the volume and on the local disk.

    `temp_bytes` were written to temporary files by one round; `volume_busy` and `volume_queue` are the means of the
    volume's device while its rounds ran, None where the server's devices cannot be seen.
    """

    query: str
    volume_s: tuple[float, ...]
    local_s: tuple[float, ...]
    temp_bytes: int
    workers_planned: int
    workers_launched: int
    volume_busy: float | None = None
    volume_queue: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """All queries at so many sessions."""

    sessions: int
    runs: tuple[QueryRuns, ...]

    @property
    def volume_s(self) -> tuple[float, ...]:
        """Return the seconds of each round, all queries summed, with temporary work on the volume."""
        return tuple(map(sum, zip(*(run.volume_s for run in self.runs), strict=True)))

    @property
    def local_s(self) -> tuple[float, ...]:
        """Return the same with temporary work on the local disk."""
        return tuple(map(sum, zip(*(run.local_s for run in self.runs), strict=True)))

    @property
    def speed_up(self) -> float:
        """Return how many times as fast the local disk is, by medians."""
        return statistics.median(self.volume_s) / statistics.median(self.local_s)

    @property
    def temp_bytes(self) -> int:
        """Return what one round writes to temporary files."""
        return sum(run.temp_bytes for run in self.runs)

    @property
    def volume_busy(self) -> float | None:
        """Return the part of the time in which the volume had work, the queries' mean; None where nobody can see it."""
        seen = [run.volume_busy for run in self.runs if run.volume_busy is not None]
        return statistics.mean(seen) if seen else None

    @property
    def volume_queue(self) -> float | None:
        """Return the volume's mean queue; None where nobody can see it."""
        seen = [run.volume_queue for run in self.runs if run.volume_queue is not None]
        return statistics.mean(seen) if seen else None


def published_speed_up(sessions: float) -> float | None:
    """Return the article's, None where it has no such number of sessions.

    >>> published_speed_up(16)
    2.06875
    """
    minutes = MINUTES.get(int(sessions)) if sessions == int(sessions) else None
    return None if minutes is None else minutes[0] / minutes[1]


def as_loaded(sessions: float, *, cpu_count: int) -> float:
    """Return how many of the article's sessions load its vCPUs as these load so many cores.

    >>> as_loaded(2, cpu_count=2)
    16.0
    """
    return sessions * VCPUS / cpu_count
