"""Converts a result to an object for JSON. benchmarks/recorded.py reads it back."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from penstock.bench.commits.plan import BASE, SizeResult, advise, multiples
from penstock.bench.commits.published import SAMPLES, SECONDS, SOURCE, UNSAMPLED
from penstock.bench.commits.table import SHARES

if TYPE_CHECKING:
    from penstock.bench.commits.run import CommitsResult


def as_object(result: CommitsResult) -> dict[str, object]:
    """Return a result as an object for JSON."""
    fields = asdict(result)
    fields["rounds"] = result.rounds
    fields["targets"] = [
        {
            "name": target.name,
            "postgresql": target.postgresql,
            "check": asdict(target.check),
            "advised_rows_per_commit": advise(target.sizes),
            "sizes": [
                _size(run, of_largest=of_largest, of_base=of_base)
                for run, of_largest, of_base in zip(
                    target.sizes, multiples(target.sizes), multiples(target.sizes, base=BASE), strict=True
                )
            ],
        }
        for target in result.targets
    ]
    fields["published"] = {
        "source": SOURCE,
        "seconds": {str(size): seconds for size, seconds in SECONDS.items()},
        "without_sampler": sorted(UNSAMPLED),
        "samples": {str(size): dict(zip(SHARES.split("/"), found, strict=True)) for size, found in SAMPLES.items()},
    }
    return fields


def _size(run: SizeResult, *, of_largest: float | None, of_base: float | None) -> dict[str, object]:
    return {
        **asdict(run.size),
        "is_scaled": run.size.is_scaled,
        "runs_s": run.runs_s,
        "bare_s": run.bare_s,
        "samples": dict(run.waits),
        "shares": None if run.shares is None else dict(zip(SHARES.split("/"), run.shares, strict=True)),
        "busy_cpus": run.busy_cpus,
        "median_s": run.median_s,
        "lowest_s": min(run.totals_s),
        "highest_s": max(run.totals_s),
        "multiple_of_largest": of_largest,
        f"multiple_of_{BASE}": of_base,
    }
