"""CPU of a load, of the client and of all the server's processes; and the difference of two ways in pairs of runs."""

from __future__ import annotations

import math
import os
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.processes import run_measured
from benchmarks.rounds import WrongRows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.server import Target
    from penstock.embedded.server import EmbeddedServer

# Two-sided 95 % quantiles of Student's t by degrees of freedom; between them the larger is taken.
_T = {
    1: 12.706,
    2: 4.303,
    3: 3.182,
    4: 2.776,
    5: 2.571,
    6: 2.447,
    7: 2.365,
    8: 2.306,
    9: 2.262,
    14: 2.145,
    19: 2.093,
    24: 2.064,
    29: 2.045,
    39: 2.023,
}

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


def run_once(
    argv: list[str],
    server: EmbeddedServer,
    target: Target,
    *,
    rows: int,
    status: int = 0,
    gunzip: Path | None = None,
) -> Run:
    """Run a load that ends with `status` into the table, which is new and empty, and must store so many rows.

    `gunzip` is decompressed into its standard input, by a process whose CPU is not counted.

    Raises ProcessFailed, WrongRows.
    """
    postmaster = server.status().pid
    assert postmaster is not None
    before_s = _server_cpu_s(postmaster)
    cost = run_measured(argv, gunzip=gunzip, status=status)
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
    except (FileNotFoundError, ProcessLookupError):
        # It has ended since: the postmaster's own account has it, or will have.
        return 0.0
    ticks = fields[11:15] if with_ended else fields[11:13]
    return sum(map(int, ticks)) / _TICKS_PER_S


def quantile_of(freedom: int) -> float:
    """Return the two-sided 95 % quantile of Student's t, that of fewer degrees of freedom where there is none."""
    return _T[max(degrees for degrees in _T if degrees <= freedom)]


def compare(before: Sequence[Run], after: Sequence[Run]) -> dict[str, float]:
    """Return the mean difference of CPU in percent of the baseline's, with its interval."""
    differences = [new.cpu_s - old.cpu_s for old, new in zip(before, after, strict=True)]
    base_s = statistics.fmean(found.cpu_s for found in before)
    mean_s = statistics.fmean(differences)
    freedom = len(differences) - 1
    half_s = quantile_of(freedom) * statistics.stdev(differences) / math.sqrt(len(differences))
    return {
        "mean_s": mean_s,
        "percent": 100 * mean_s / base_s,
        "low_percent": 100 * (mean_s - half_s) / base_s,
        "high_percent": 100 * (mean_s + half_s) / base_s,
    }


def summarize_runs(runs: Sequence[Run]) -> dict[str, Any]:
    """Return a way's runs, its median seconds and its mean CPU."""
    return {
        "runs": [
            {"seconds": found.seconds, "client_cpu_s": found.client_cpu_s, "server_cpu_s": found.server_cpu_s}
            for found in runs
        ],
        "median_seconds": statistics.median(found.seconds for found in runs),
        "mean_client_cpu_s": statistics.fmean(found.client_cpu_s for found in runs),
        "mean_server_cpu_s": statistics.fmean(found.server_cpu_s for found in runs),
    }


def table_of(runs: dict[str, list[Run]]) -> list[tuple[str, ...]]:
    """Return the table of ways, with its heading."""
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
