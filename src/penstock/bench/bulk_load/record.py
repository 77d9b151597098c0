"""Converts a result to an object for JSON. benchmarks/recorded.py reads it back."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from penstock.bench.bulk_load.plan import Run, StepRuns, find_bottlenecks, judge
from penstock.bench.bulk_load.published import SOURCE
from penstock.bench.bulk_load.table import caveats

if TYPE_CHECKING:
    from penstock.bench.bulk_load.run import BulkLoadResult


def as_object(result: BulkLoadResult) -> dict[str, object]:
    """Return a result as an object for JSON."""
    fields = asdict(result)
    fields["targets"] = [
        {
            "name": target.name,
            "postgresql": target.postgresql,
            "schema": target.schema,
            "steps": [_step(each) for each in target.steps],
        }
        for target in result.targets
    ]
    fields["caveats"] = list(caveats(result))
    fields["published"] = {"source": SOURCE}
    return fields


def _step(each: StepRuns) -> dict[str, object]:
    return {
        "step": asdict(each.step),
        "limits": None if each.limits is None else asdict(each.limits),
        "median_s": each.seconds,
        "runs": [_run(run, each) for run in each.runs],
        "recoveries": [asdict(recovery) for recovery in each.recoveries],
    }


def _run(run: Run, each: StepRuns) -> dict[str, object]:
    judgement = {"at_limit": find_bottlenecks(run, each.limits), "is_named": judge(run, each.limits)}
    return {**asdict(run), "waits": dict(run.waits), **judgement}
