"""What the ledger costs: client and server CPU of a load with it, and of a penstock from before it (--baseline).

Pairs of runs, in alternating order; the difference is given with its 95 % confidence interval.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.cpu import Run, compare, run_once, summarize_runs, table_of
from benchmarks.data import PENSTOCK, principals
from benchmarks.record import save
from benchmarks.server import QUALIFIED, Target, bench_server
from benchmarks.ways import AS_COPY
from penstock_lab.datasets.people import expected_rows

if TYPE_CHECKING:
    from benchmarks.options import Options

_PAIRS = 20


def run(options: Options) -> None:
    """Run it and write the results."""
    if options.baseline is None:
        print("ledger_overhead was left out: no --baseline.")
        return
    path = principals(options.data, options.scale)
    rows = expected_rows("title.principals", options.scale)
    load = ["load", str(path), "--into", QUALIFIED, "--quiet"]
    with bench_server(options.data) as server, Target(server.conninfo()) as target:
        to = ["--to", server.conninfo()]
        ways = {
            "before the ledger": [str(options.baseline), *load, *to],
            "with the ledger": [PENSTOCK, *load, *to, "--again", *AS_COPY],
        }
        runs: dict[str, list[Run]] = {name: [] for name in ways}
        pairs = max(_PAIRS, options.runs)
        for number in range(-1, pairs):
            for name in list(ways) if number % 2 else reversed(ways):
                target.renew()
                found = run_once(ways[name], server, target, rows=rows)
                print(f"{name}: {found.seconds:.2f} s, {found.cpu_s:.2f} s of CPU", flush=True)
                if number >= 0:
                    runs[name].append(found)
        overhead = compare(runs["before the ledger"], runs["with the ledger"])
        interval = f"{overhead['low_percent']:+.2f} to {overhead['high_percent']:+.2f} %"
        save(
            "ledger_overhead",
            options=options,
            postgresql=target.settings(),
            settings={"rows": rows, "pairs": pairs, "baseline": str(Path(options.baseline).name)},
            results={"overhead": overhead} | {name: summarize_runs(found) for name, found in runs.items()},
            table=table_of(runs),
            notes=[
                f"The ledger's share of client and server CPU: {overhead['percent']:+.2f} %, 95 % interval {interval}.",
                "The server's CPU is that of all its processes, from before the load until its backends have ended.",
            ],
        )
