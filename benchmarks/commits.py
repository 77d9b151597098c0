"""How long do inserts take with a commit every so many rows, on one server, a cluster and a quorum? With a plot."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from benchmarks.record import markdown, read, save, save_again
from benchmarks.recorded import read_commits
from penstock.core.units import format_count
from penstock_lab.bench.commits.plan import BASE, advise
from penstock_lab.bench.commits.table import (
    HEADING,
    USE_HEADING,
    as_object,
    chart,
    describe_rounds,
    overview,
    rows,
    use_rows,
)
from penstock_lab.bench.plot import draw_plot

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from benchmarks.options import Options
    from penstock_lab.bench.commits.run import CommitsResult

# Smaller scales ask whether it works here.
FULL_SCALE = 1 / 9


def run(options: Options) -> None:
    """Run penstock bench commits and write its results, its plot beside them."""
    measure("commits", options, [] if options.scale >= FULL_SCALE else ["--quick"])


def measure(name: str, options: Options, arguments: Sequence[str]) -> None:
    """Run penstock bench commits with arguments, and write its results as those of benchmark `name`."""
    argv = [sys.executable, "-m", "penstock", "bench", "commits", "--json", *arguments]
    environment = {**os.environ, "PENSTOCK_HOME": str(options.data)}
    shown = subprocess.run(argv, env=environment, stdout=subprocess.PIPE, check=True)
    result = read_commits(json.loads(shown.stdout))
    postgresql = {"server_version": result.targets[0].postgresql}
    _draw(save(name, options=options, postgresql=postgresql, **_describe(result)), result)


def compute_again(path: Path, options: Options) -> None:
    """Write a record's tables and plot again, from its runs."""
    result = read_commits(read(path)["results"])
    save_again(path, options=options, **_describe(result))
    _draw(path, result)


def _describe(result: CommitsResult) -> dict[str, Any]:
    """Return what of a record depends on the runs."""
    results = as_object(result)
    published: Any = results["published"]
    return {
        "settings": {"runs": result.rounds, "rows": result.rows, "parameters": "postgres"},
        "results": results,
        "table": [
            ("topology", *HEADING),
            *((target.name, *row) for target in result.targets for row in rows(target)),
        ],
        "notes": [
            f"Medians of {describe_rounds(result)} (bare), which median, min and max include.",
            (
                "The warm-up is the check of rows and commits. * extrapolated: fewer rows were inserted, and seconds "
                "scaled up, of this batch or of the one that it is a multiple of."
            ),
            f"Published, not measured here: {published['source']}.",
            *(f"{target.name}: {format_count(advise(target.sizes))} advised." for target in result.targets),
            "",
            (
                "Processors in use, of the backend that inserts, of its server and of this machine; what one commit "
                "adds to its rows, in time and in processors' time; and the waits of the backend:"
            ),
            "",
            *markdown(
                [
                    ("topology", *USE_HEADING),
                    *((target.name, *row) for target in result.targets for row in use_rows(target)),
                ]
            ),
            "",
            "Multiples of the largest batch, medians with lowest and highest:",
            "",
            *markdown(overview(result)),
            "",
            f"Multiples of {format_count(BASE)} rows per commit:",
            "",
            *markdown(overview(result, base=BASE)),
        ],
    }


def _draw(path: Path, result: CommitsResult) -> None:
    plot = path.with_suffix(".svg")
    draw_plot(plot, chart(result))
    with path.with_suffix(".md").open("a", encoding="utf-8") as text:
        text.write(f"\n![Seconds by rows per commit]({plot.name})\n")
