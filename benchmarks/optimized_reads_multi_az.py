"""How much faster are queries that spill with temporary work on local disk, with a synchronous standby? With a plot."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.optimized_reads import compute_again, measure

if TYPE_CHECKING:
    from benchmarks.options import Options

__all__ = ["compute_again", "run"]


def run(options: Options) -> None:
    """Run the experiment of optimized_reads on topology multi-az, and write its results with its plot. Needs root."""
    measure("optimized_reads_multi_az", options, "multi-az")
