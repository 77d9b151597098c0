"""How much faster are queries that spill with temporary work on local disk, on the lab's volumes? With a plot."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from benchmarks.record import markdown, read, save, save_again
from benchmarks.recorded import read_optimized_reads
from penstock.core.units import MB
from penstock_lab.bench.optimized_reads.table import (
    IO_HEADING,
    TIME_HEADING,
    as_object,
    caveats,
    chart,
    io_rows,
    time_rows,
)
from penstock_lab.bench.plot import draw_plot

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.options import Options
    from penstock_lab.bench.optimized_reads.run import ReadsResult

# Smaller scales ask whether it works here.
_FULL_SCALE = 1 / 9


def run(options: Options) -> None:
    """Run penstock bench optimized-reads on one server and write its results, its plot beside them. Needs root."""
    measure("optimized_reads", options, "single")


def measure(name: str, options: Options, topology: str) -> None:
    """Run the experiment on a topology, and write its results as the record of a benchmark. Needs root."""
    argv = [sys.executable, "-m", "penstock", "bench", "optimized-reads", "--json", "--topology", topology]
    argv += ["--sessions", "1,2,4,8,12,16"] if options.scale >= _FULL_SCALE else ["--quick"]
    environment = {**os.environ, "PENSTOCK_HOME": str(options.data)}
    shown = subprocess.run(argv, env=environment, stdout=subprocess.PIPE, check=True)
    result = read_optimized_reads(json.loads(shown.stdout))
    postgresql = {"server_version": result.targets[0].postgresql}
    _draw(save(name, options=options, postgresql=postgresql, **_describe(result)), result)


def compute_again(path: Path, options: Options) -> None:
    """Write a record's tables and plot again, from its runs."""
    result = read_optimized_reads(read(path)["results"])
    save_again(path, options=options, **_describe(result))
    _draw(path, result)


def _describe(result: ReadsResult) -> dict[str, Any]:
    """Return what of a record depends on the runs."""
    results, experiment, scaled = as_object(result), result.experiment, result.scaled
    assert scaled is not None
    published: Any = results["published"]
    machine: Any = results["scaled"]
    io = ((target.name, *row) for target in result.targets for row in io_rows(target, rows=experiment.rows))
    return {
        "settings": {"runs": experiment.rounds, "rows": experiment.rows, "parameters": "rds", **machine},
        "results": results,
        "table": [
            ("topology", *TIME_HEADING),
            *((target.name, *row) for target in result.targets for row in time_rows(target, result)),
        ],
        "notes": [
            (
                f"The side that is first in each round: {', '.join(experiment.first_sides)}. All sessions run the same "
                "query at a time; published: at as many sessions; by core: at as many sessions for each core."
            ),
            "",
            *markdown([("topology", *IO_HEADING), *io]),
            "",
            (
                "The volume's and the local disk's I/O is that of the round's runs with temporary work there; the disk "
                "below the local one is used by all of the machine. The temporary files published are those of as many "
                "rows."
            ),
            f"The volume has {scaled.iops} IOPS and {scaled.bytes_per_s / MB:.0f} MB/s.",
            *caveats(result),
            f"Published, not measured here: {published['source']}.",
        ],
    }


def _draw(path: Path, result: ReadsResult) -> None:
    plot = path.with_suffix(".svg")
    draw_plot(plot, chart(result))
    with path.with_suffix(".md").open("a", encoding="utf-8") as text:
        text.write(f"\n![Speed-up by sessions]({plot.name})\n")
