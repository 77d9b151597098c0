"""Experiment A on this machine: seven files, one session per file in turn, one per file in parallel, or penstock.

Runs of the three ways alternate, so that a change of the machine's speed affects every way. The first round is not
counted. Rows are counted after each run.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.bench.ways import WAYS, LoadSetting, Way, staging_tables, table_of
from penstock.errors import LabError
from penstock.host import Machine, read_machine
from penstock.server.benchmarks.tables import checkpoint, count_rows, make_staging
from penstock.server.connect.connection import ConnectionFactory, over_own_socket
from penstock.server.facts.facts import read_server_facts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.lab import EmbeddedServer
    from penstock.lab.datasets.datafiles import DataFile

# The comment on the tables of a comparison. Only tables with this comment are replaced.
MARK = "created by penstock demo, which drops and recreates it at each run"


@dataclass(frozen=True, slots=True, kw_only=True)
class WayResult:
    """The runs of one way in order, in seconds. `published_s` is the article's time, measured on another machine."""

    name: str
    description: str
    runs_s: tuple[float, ...]
    published_s: int | None

    @property
    def median_s(self) -> float:
        """Return the median of the runs."""
        return statistics.median(self.runs_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkLoadResult:
    """The comparison. Every run loaded `rows`. `plain_bytes` is the size of the files' decompressed text."""

    ways: tuple[WayResult, ...]
    schema: str
    tables: tuple[str, ...]
    rows: int
    plain_bytes: int
    size_bytes: int
    machine: Machine
    postgresql: str

    def times_as_fast(self, way: WayResult) -> float:
        """Return how many times as fast as the first way another way is."""
        return self.ways[0].median_s / way.median_s


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStarted:
    """Tells that a run begins. Round 0 warms up and is not counted."""

    way: str
    round: int
    rounds: int


def compare_ways(
    server: EmbeddedServer,
    files: Sequence[DataFile],
    *,
    schema: str,
    rounds: int,
    ways: Sequence[Way] = WAYS,
    on_run: Callable[[RunStarted], None] | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> BulkLoadResult:
    """Load the files into `schema` in each way, `rounds` times after a warm-up. The tables of the last run remain.

    Tables of an earlier comparison are replaced. Raises TargetError if other tables in the schema have their names,
    LabError if a way loads another number of rows than were written, and ServerError.
    """
    setting = LoadSetting(
        files=tuple(files),
        schema=schema,
        server=server,
        connect=ConnectionFactory(over_own_socket(server.ensure_running())),
    )
    runs_s: dict[str, list[float]] = {way.name: [] for way in ways}
    for number in range(rounds + 1):
        for way in ways:
            if on_run is not None:
                on_run(RunStarted(way=way.name, round=number, rounds=rounds))
            elapsed_s = _time_way(way, setting, clock)
            # The first round pays for new WAL files and cold caches.
            if number > 0:
                runs_s[way.name].append(elapsed_s)
    with setting.connect.connect(label="bench") as connection:
        version = read_server_facts(connection).version
    return BulkLoadResult(
        ways=tuple(
            WayResult(
                name=way.name,
                description=way.description,
                runs_s=tuple(runs_s[way.name]),
                published_s=way.published_s,
            )
            for way in ways
        ),
        schema=schema,
        tables=tuple(staging_tables(files)),
        rows=sum(file.rows for file in files),
        plain_bytes=sum(file.plain_bytes for file in files),
        size_bytes=sum(file.size_bytes for file in files),
        machine=read_machine(),
        postgresql=version,
    )


def _time_way(way: Way, setting: LoadSetting, clock: Callable[[], float]) -> float:
    """Load in one way into new tables and return the seconds, without those for creating tables and counting rows."""
    tables = staging_tables(setting.files)
    with setting.connect.connect(label="bench") as connection:
        make_staging(connection, setting.schema, tables, mark=MARK)
        checkpoint(connection)
        began_s = clock()
        way.run(setting)
        elapsed_s = clock() - began_s
        counts = count_rows(connection, setting.schema, list(tables))
    check_rows(way.name, counts, setting.files)
    return elapsed_s


def check_rows(way: str, counts: dict[str, int], files: Sequence[DataFile]) -> None:
    """Raise LabError if a table's number of rows differs from its file's."""
    for file in files:
        if counts[table_of(file)] != file.rows:
            raise LabError(
                f'"{way}" did not load every row of {file.table}',
                detail=f"{counts[table_of(file)]} rows in the table, {file.rows} in the file",
            )
