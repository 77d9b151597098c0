"""Peak memory of `penstock load` for a file, and for one ten times as large."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks import ways
from benchmarks.data import principals, repeated
from benchmarks.record import save, summarize
from benchmarks.rounds import run_checked
from benchmarks.server import Target, bench_server
from penstock_lab.datasets.people import expected_rows

if TYPE_CHECKING:
    from benchmarks.options import Options
    from benchmarks.processes import Cost

_TIMES = 10


def run(options: Options) -> None:
    """Run it and write the results."""
    path = principals(options.data, options.scale)
    rows = expected_rows("title.principals", options.scale)
    cases = [
        ("one file", path, rows),
        # The headers of the members after the first are rows.
        (f"{_TIMES} times as large", repeated(path, _TIMES), _TIMES * rows + _TIMES - 1),
    ]
    with bench_server(options.data) as server, Target(server.conninfo()) as target:
        costs: dict[str, list[Cost]] = {name: [] for name, _, _ in cases}
        for _ in range(options.runs):
            for name, file, file_rows in cases:
                variant = ways.penstock(server.conninfo(), file, setting=name)
                costs[name].append(run_checked(variant, target, rows=file_rows))
        results = {name: summarize(runs) for name, runs in costs.items()}
        table: list[tuple[str, ...]] = [("file", "rows", "median peak MB", "highest", "median s")]
        for name, _, file_rows in cases:
            peak = results[name]["peak_rss_bytes"]
            seconds = results[name]["seconds"]["median"]
            table.append(
                (name, f"{file_rows:,}", *(f"{peak[key] / 1e6:.0f}" for key in ("median", "highest")), f"{seconds:.2f}")
            )
        save(
            "memory",
            options=options,
            postgresql=target.settings(),
            settings={"file_bytes": {name: file.stat().st_size for name, file, _ in cases}},
            results=results,
            table=table,
            notes=[
                "Peak resident memory of the whole process, libraries included (MB = 10^6 bytes); no warm-up needed."
            ],
        )
