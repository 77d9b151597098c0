"""How fast are IMDb's files imported by the server, as published, or loaded by penstock, and recovered? A plot."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from benchmarks.record import markdown, read, save, save_again
from benchmarks.recorded import read_bulk_load
from penstock_lab.bench.bulk_load.table import (
    LOAD_HEADING,
    RECOVERY_HEADING,
    SETTLED_HEADING,
    TIME_HEADING,
    as_object,
    caveats,
    chart,
    load_rows,
    recovery_rows,
    settled_rows,
    time_rows,
)
from penstock_lab.bench.command import describe_scale
from penstock_lab.bench.plot import draw_plot

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.options import Options
    from penstock_lab.bench.bulk_load.run import BulkLoadResult

# Smaller scales ask whether it works here.
_FULL_SCALE = 1 / 9


def run(options: Options) -> None:
    """Run penstock bench bulk-load on multi-az, the article's, and write its results and its plot. Needs root."""
    argv = [sys.executable, "-m", "penstock", "bench", "bulk-load", "--topology", "multi-az", "--json"]
    argv += [] if options.scale >= _FULL_SCALE else ["--quick"]
    environment = {**os.environ, "PENSTOCK_HOME": str(options.data)}
    shown = subprocess.run(argv, env=environment, stdout=subprocess.PIPE, check=True)
    result = read_bulk_load(json.loads(shown.stdout))
    postgresql = {"server_version": result.targets[0].postgresql}
    _draw(save("bulk_load", options=options, postgresql=postgresql, **_describe(result)), result)


def compute_again(path: Path, options: Options) -> None:
    """Write a record's tables and plot again, from its runs."""
    result = read_bulk_load(read(path)["results"])
    save_again(path, options=options, **_describe(result))
    _draw(path, result)


def _describe(result: BulkLoadResult) -> dict[str, Any]:
    """Return what of a record depends on the runs."""
    results = as_object(result)
    published: Any = results["published"]
    loads = [(target.name, *row) for target in result.targets for row in load_rows(target)]
    recoveries = [(target.name, *row) for target in result.targets for row in recovery_rows(target)]
    settled = [(target.name, *row) for target in result.targets for row in settled_rows(target)]
    claims = [
        f"{target.name}, {each.step.name}: {each.median.claim or 'no diagnosis'}."
        for target in result.targets
        for each in target.steps
    ]
    return {
        "settings": {"runs": result.rounds, "rows": result.rows, "parameters": "rds"},
        "results": results,
        "table": [
            ("topology", *TIME_HEADING),
            *((target.name, *row) for target in result.targets for row in time_rows(target)),
        ],
        "notes": [
            *describe_scale(result),
            "",
            *markdown([("topology", *LOAD_HEADING), *loads]),
            "",
            *markdown([("topology", *RECOVERY_HEADING), *recoveries]),
            "",
            *markdown([("topology", *SETTLED_HEADING), *settled]),
            "",
            *(f"* {text}" for text in (*claims, *caveats(result))),
            "",
            f"Published, not measured here: {published['source']}.",
        ],
    }


def _draw(path: Path, result: BulkLoadResult) -> None:
    plot = path.with_suffix(".svg")
    draw_plot(plot, chart(result))
    with path.with_suffix(".md").open("a", encoding="utf-8") as text:
        text.write(f"\n![Seconds by step]({plot.name})\n")
