"""Converts a result to an object for JSON. benchmarks/recorded.py reads it back."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from penstock.bench.optimized_reads.plan import Step, as_loaded, published_speed_up, published_temp_bytes, speed_up
from penstock.bench.optimized_reads.published import MINUTES, SOURCE, TEMP_GB
from penstock.bench.optimized_reads.table import caveats

if TYPE_CHECKING:
    from penstock.bench.optimized_reads.run import ReadsResult


def as_object(result: ReadsResult) -> dict[str, object]:
    """Return a result as an object for JSON."""
    fields = asdict(result)
    fields["experiment"]["first_sides"] = result.experiment.first_sides
    fields["targets"] = [
        {
            "name": target.name,
            "postgresql": target.postgresql,
            "local_devices": [asdict(device) for device in target.local_devices],
            "steps": [_step(step, result) for step in target.steps],
        }
        for target in result.targets
    ]
    fields["caveats"] = list(caveats(result))
    fields["published"] = {
        "source": SOURCE,
        "minutes": {str(sessions): {"volume": ebs, "local": local} for sessions, (ebs, local) in MINUTES.items()},
        "temp_gb": {str(sessions): spilled_gb for sessions, spilled_gb in TEMP_GB.items()},
    }
    return fields


def _step(step: Step, result: ReadsResult) -> dict[str, object]:
    return {
        "sessions": step.sessions,
        "volume_s": step.volume_s,
        "local_s": step.local_s,
        "speed_up": step.speed_up,
        "published_speed_up": published_speed_up(step.sessions),
        "published_by_core": published_speed_up(as_loaded(step.sessions, cpu_count=result.machine.cpu_count)),
        "temp_bytes": step.temp_bytes,
        "published_temp_bytes": published_temp_bytes(step.sessions, rows=result.experiment.rows),
        "queries": [{**asdict(run), "speed_up": speed_up(run.volume_s, run.local_s)} for run in step.runs],
    }
