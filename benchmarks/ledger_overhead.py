"""What the ledger costs: client and server CPU of a load with it, and of a penstock from before it (--baseline).

Pairs of runs, in alternating order; the difference is given with its 95 % confidence interval.
"""

from __future__ import annotations

import math
import os
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.data import PENSTOCK, principals
from benchmarks.processes import run_measured
from benchmarks.record import save
from benchmarks.rounds import WrongRows
from benchmarks.server import QUALIFIED, Target, bench_server
from penstock.lab.imdb import expected_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.options import Options
    from penstock.lab import EmbeddedServer

_PAIRS = 20

# Two-sided 95 % quantiles of Student's t by degrees of freedom; between them the larger is taken.
_T = {9: 2.262, 14: 2.145, 19: 2.093, 24: 2.064, 29: 2.045, 39: 2.023}

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One load's seconds: by the wall, of the client's CPU, and of all the server's processes' CPU."""

    seconds: float
    client_cpu_s: float
    server_cpu_s: float

    @property
    def cpu_s(self) -> float:
        """Return what both together used."""
        return self.client_cpu_s + self.server_cpu_s


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
            "with the ledger": [PENSTOCK, *load, *to, "--again"],
        }
        runs: dict[str, list[Run]] = {name: [] for name in ways}
        pairs = max(_PAIRS, options.runs)
        for number in range(-1, pairs):
            for name in list(ways) if number % 2 else reversed(ways):
                found = _run_once(ways[name], server, target, rows=rows)
                print(f"{name}: {found.seconds:.2f} s, {found.cpu_s:.2f} s of CPU", flush=True)
                if number >= 0:
                    runs[name].append(found)
        overhead = _overhead(runs["before the ledger"], runs["with the ledger"])
        interval = f"{overhead['low_percent']:+.2f} to {overhead['high_percent']:+.2f} %"
        save(
            "ledger_overhead",
            options=options,
            postgresql=target.settings(),
            settings={"rows": rows, "pairs": pairs, "baseline": str(Path(options.baseline).name)},
            results={"overhead": overhead} | {name: _summarize(found) for name, found in runs.items()},
            table=_table(runs),
            notes=[
                f"The ledger's share of client and server CPU: {overhead['percent']:+.2f} %, 95 % interval {interval}.",
                "The server's CPU is that of all its processes, from before the load until its backends have ended.",
            ],
        )


def _run_once(argv: list[str], server: EmbeddedServer, target: Target, *, rows: int) -> Run:
    target.renew()
    postmaster = server.status().pid
    assert postmaster is not None
    before_s = _server_cpu_s(postmaster)
    cost = run_measured(argv)
    target.wait_alone()
    after_s = _server_cpu_s(postmaster)
    if (count := target.count()) != rows:
        raise WrongRows(f"{argv[0]} stored {count} rows of {rows}")
    assert cost.cpu_s is not None
    return Run(seconds=cost.seconds, client_cpu_s=cost.cpu_s, server_cpu_s=after_s - before_s)


def _server_cpu_s(postmaster: int) -> float:
    """Return the CPU of the postmaster, of its children that have ended, and of those that live."""
    children = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text(encoding="ascii").split()
    return _cpu_s(postmaster, with_ended=True) + sum(_cpu_s(int(pid), with_ended=False) for pid in children)


def _cpu_s(pid: int, *, with_ended: bool) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except FileNotFoundError:
        # It has ended since: the postmaster's own account has it, or will have.
        return 0.0
    ticks = fields[11:15] if with_ended else fields[11:13]
    return sum(map(int, ticks)) / _TICKS_PER_S


def _overhead(before: Sequence[Run], after: Sequence[Run]) -> dict[str, float]:
    """Return the mean difference of CPU in percent of the baseline's, with its interval."""
    differences = [new.cpu_s - old.cpu_s for old, new in zip(before, after, strict=True)]
    base_s = statistics.fmean(found.cpu_s for found in before)
    mean_s = statistics.fmean(differences)
    freedom = len(differences) - 1
    quantile = _T[max(degrees for degrees in _T if degrees <= freedom)]
    half_s = quantile * statistics.stdev(differences) / math.sqrt(len(differences))
    return {
        "mean_s": mean_s,
        "percent": 100 * mean_s / base_s,
        "low_percent": 100 * (mean_s - half_s) / base_s,
        "high_percent": 100 * (mean_s + half_s) / base_s,
    }


def _summarize(runs: Sequence[Run]) -> dict[str, Any]:
    return {
        "runs": [
            {"seconds": found.seconds, "client_cpu_s": found.client_cpu_s, "server_cpu_s": found.server_cpu_s}
            for found in runs
        ],
        "median_seconds": statistics.median(found.seconds for found in runs),
        "mean_client_cpu_s": statistics.fmean(found.client_cpu_s for found in runs),
        "mean_server_cpu_s": statistics.fmean(found.server_cpu_s for found in runs),
    }


def _table(runs: dict[str, list[Run]]) -> list[tuple[str, ...]]:
    rows = [("penstock", "median s", "client CPU s", "server CPU s", "CPU s in all")]
    for name, found in runs.items():
        rows.append(
            (
                name,
                f"{statistics.median(each.seconds for each in found):.2f}",
                f"{statistics.fmean(each.client_cpu_s for each in found):.3f}",
                f"{statistics.fmean(each.server_cpu_s for each in found):.3f}",
                f"{statistics.fmean(each.cpu_s for each in found):.3f}",
            )
        )
    return rows
