"""Files of very unequal size: the load's time against its sessions' busy seconds, shared evenly.

One of 300 MB, three of 40 MB and twenty of 1 MB (at scale 1/9), all plain. Sessions that never wait for work would make
both equal.
"""

from __future__ import annotations

import statistics
from dataclasses import asdict
from typing import TYPE_CHECKING

from benchmarks.data import principals, split_unequally
from benchmarks.record import save, spread
from benchmarks.rounds import WrongRows
from benchmarks.server import SCHEMA, TABLE, Target, bench_server
from penstock.core.connect.connection import ConnectionFactory
from penstock.core.values.job import LoadJob, LoadRules, TargetJob
from penstock.core.values.table import TableName
from penstock.loading.loader import Loader
from penstock_lab.datasets.people import expected_rows

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.options import Options
    from penstock.loading.values.outcome import LoadOutcome

# In megabytes; what counts is how they compare.
_SIZES_MB = (300, *[40] * 3, *[1] * 20)

# A fixed number: one that is added on the way has no share of the time before.
_SESSIONS = 2


def run(options: Options) -> None:
    """Run it and write the results."""
    files = split_unequally(principals(options.data, options.scale), [size / sum(_SIZES_MB) for size in _SIZES_MB])
    rows = expected_rows("title.principals", options.scale)
    with bench_server(options.data) as server, Target(server.conninfo()) as target:
        outcomes = [_load(server.conninfo(), files, target, rows) for _ in range(options.runs + 1)][1:]
        even_s = [outcome.busy_seconds / outcome.sessions for outcome in outcomes]
        ratios = [outcome.seconds / even for outcome, even in zip(outcomes, even_s, strict=True)]
        seconds, ratio = spread([outcome.seconds for outcome in outcomes]), spread(ratios)
        runs = [{**asdict(outcome), "ratio": found} for outcome, found in zip(outcomes, ratios, strict=True)]
        row = (f"{seconds['median']:.2f}", f"{statistics.median(even_s):.2f}", *(f"{ratio[key]:.3f}" for key in ratio))
        save(
            "unequal_files",
            options=options,
            postgresql=target.settings(),
            settings={"file_bytes": [file.stat().st_size for file in files], "rows": rows},
            results={"runs": runs, "seconds": seconds, "ratio": ratio},
            table=[("median s", "busy s / sessions", "ratio", "lowest", "highest"), row],
            notes=["Busy is a session that sends or waits for the server. Measured through penstock's Python API."],
        )


def _load(conninfo: str, files: list[Path], target: Target, rows: int) -> LoadOutcome:
    """Load all files into the new table as one target."""
    target.renew()
    sources = tuple(str(file) for file in files)
    job = LoadJob(
        targets=(TargetJob(sources=sources, into=TableName(schema=SCHEMA, name=TABLE)),),
        sessions=_SESSIONS,
        rules=LoadRules(again=True, vacuum=False),
    )
    with Loader(ConnectionFactory(conninfo)) as loader:
        outcome = loader.run(loader.plan(job))
    if (count := target.count()) != rows:
        raise WrongRows(f"{count} rows of {rows} were stored")
    print(f"{outcome.seconds:.2f} s, busy {outcome.busy_seconds:.2f} s in {outcome.sessions} sessions", flush=True)
    return outcome
