"""How long do inserts take, down to single rows, on volumes whose flushes take 0.5, 1 and 2 ms? With a plot."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.commits import FULL_SCALE, compute_again, measure

if TYPE_CHECKING:
    from benchmarks.options import Options

__all__ = ["compute_again", "run"]

_VOLUMES = "unlimited@0.5ms,unlimited@1ms,unlimited@2ms"
# Every run inserts them all, so single rows take longest: at 2 ms, two minutes.
_ROWS, _FEW_ROWS = 50_000, 1_000


def run(options: Options) -> None:
    """Run penstock bench commits on these volumes and beside them a quorum, and write its results with its plot."""
    rows = _ROWS if options.scale >= FULL_SCALE else _FEW_ROWS
    topologies = "single,multi-az,quorum"
    measure("commit_latency", options, [f"--rows={rows}", f"--topology={topologies}", f"--volume={_VOLUMES}"])
