"""How long do inserts take with a commit every so many rows, on one server, a cluster and a quorum? With a plot."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from benchmarks.record import save

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.options import Options

# Smaller scales ask whether it works here.
_FULL_SCALE = 1 / 9


def run(options: Options) -> None:
    """Run penstock bench commits and write its results, its plot beside them."""
    options.results.mkdir(parents=True, exist_ok=True)
    plot = options.results / f".commits-{os.getpid()}.svg"
    argv = [sys.executable, "-m", "penstock", "bench", "commits", "--json", "--plot", str(plot)]
    argv += [] if options.scale >= _FULL_SCALE else ["--quick"]
    environment = {**os.environ, "PENSTOCK_HOME": str(options.data)}
    shown = subprocess.run(argv, env=environment, stdout=subprocess.PIPE, check=True)
    results = json.loads(shown.stdout)
    path = save(
        "commits",
        options=options,
        postgresql={"server_version": results["targets"][0]["postgresql"]},
        settings={"runs": results["rounds"], "rows": results["rows"], "parameters": "postgres"},
        results=results,
        table=[
            (
                "topology",
                "rows per commit",
                "seconds",
                "min",
                "max",
                "bare",
                "of the largest",
                "published",
                "CPU/write/commit %",
            ),
            *(row for target in results["targets"] for row in _rows(target, results["published"]["seconds"])),
        ],
        notes=[
            "The warm-up is the check of rows and commits. * fewer rows were inserted, and the seconds scaled up.",
            f"Published, not measured here: {results['published']['source']}.",
            *(f"{target['name']}: {target['advised_rows_per_commit']:,} advised." for target in results["targets"]),
        ],
    )
    plot.replace(path.with_suffix(".svg"))
    with path.with_suffix(".md").open("a", encoding="utf-8") as text:
        text.write(f"\n![Seconds by rows per commit]({path.with_suffix('.svg').name})\n")


def _rows(target: dict[str, Any], published: dict[str, float]) -> Iterator[tuple[str, ...]]:
    largest_s = published[max(published, key=int)]
    for size in target["sizes"]:
        totals_s = [taken_s * size["total_rows"] / size["rows"] for taken_s in size["runs_s"]]
        theirs_s = published.get(str(size["rows_per_commit"]))
        yield (
            target["name"],
            f"{size['rows_per_commit']:,}",
            f"{size['median_s']:.2f}{'*' if size['is_scaled'] else ''}",
            f"{min(totals_s):.2f}",
            f"{max(totals_s):.2f}",
            "-" if size["bare_s"] is None else f"{size['bare_s'] * size['total_rows'] / size['rows']:.2f}",
            f"{size['multiple_of_largest']:.2f}",
            "-" if theirs_s is None else f"{theirs_s / largest_s:.2f}",
            "/".join(f"{100 * share:.0f}" for share in (size["shares"] or {}).values()) or "-",
        )
