"""How much faster are queries that spill with temporary work on local disk, on the lab's volumes? With a plot."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from benchmarks.record import save, spread

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.options import Options

# Smaller scales ask whether it works here.
_FULL_SCALE = 1 / 9


def run(options: Options) -> None:
    """Run penstock bench optimized-reads and write its results, its plot beside them. Needs root."""
    options.results.mkdir(parents=True, exist_ok=True)
    plot = options.results / f".optimized-reads-{os.getpid()}.svg"
    argv = [sys.executable, "-m", "penstock", "bench", "optimized-reads", "--json", "--plot", str(plot)]
    argv += [] if options.scale >= _FULL_SCALE else ["--quick"]
    for option in ("topology", "sessions"):
        argv += [f"--{option}", given] if (given := os.environ.get(option.upper())) else []
    environment = {**os.environ, "PENSTOCK_HOME": str(options.data)}
    shown = subprocess.run(argv, env=environment, stdout=subprocess.PIPE, check=True)
    results = json.loads(shown.stdout)
    experiment, scaled = results["experiment"], results["scaled"]
    path = save(
        "optimized_reads",
        options=options,
        postgresql={"server_version": results["targets"][0]["postgresql"]},
        settings={"runs": experiment["rounds"], "rows": experiment["rows"], "parameters": "rds", **scaled},
        results=results,
        table=[
            (
                "topology",
                "sessions",
                "volume s",
                "min",
                "max",
                "local s",
                "min",
                "max",
                "speed-up",
                "published",
                "published, same sessions by core",
                "temporary GB",
                "volume busy %",
                "queue",
            ),
            *(row for target in results["targets"] for row in _rows(target)),
        ],
        notes=[
            "Three queries in turn, all sessions with the same one; seconds are the three's sum.",
            f"The volume has {scaled['iops']} IOPS and {scaled['bytes_per_s'] / 1e6:.0f} MB/s.",
            f"Published, not measured here: {results['published']['source']}.",
        ],
    )
    plot.replace(path.with_suffix(".svg"))
    with path.with_suffix(".md").open("a", encoding="utf-8") as text:
        text.write(f"\n![Speed-up by sessions]({path.with_suffix('.svg').name})\n")


def _rows(target: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    for step in target["steps"]:
        volume, local = spread(step["volume_s"]), spread(step["local_s"])
        published = [step["published_speed_up"], step["published_by_core"]]
        yield (
            target["name"],
            str(step["sessions"]),
            *(f"{side[name]:.1f}" for side in (volume, local) for name in ("median", "lowest", "highest")),
            f"{step['speed_up']:.2f}",
            *("-" if value is None else f"{value:.2f}" for value in published),
            f"{step['temp_bytes'] / 1e9:.2f}",
            f"{100 * step['volume_busy']:.0f}",
            f"{step['volume_queue']:.1f}",
        )
