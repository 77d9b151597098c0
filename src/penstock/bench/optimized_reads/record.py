"""Converts a result to an object for JSON and back. Figures that follow from the runs are computed again."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from penstock.bench.optimized_reads.plan import (
    DeviceUse,
    Experiment,
    QueryRuns,
    Scaled,
    Step,
    as_loaded,
    published_speed_up,
    published_temp_bytes,
    speed_up,
)
from penstock.bench.optimized_reads.published import MINUTES, SOURCE, TEMP_GB
from penstock.bench.optimized_reads.run import ReadsResult, TargetResult
from penstock.bench.optimized_reads.table import caveats
from penstock.host import Machine
from penstock.model.server.device import Device

if TYPE_CHECKING:
    from collections.abc import Mapping


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


def from_object(fields: Mapping[str, Any]) -> ReadsResult:
    """Return the result from which an object was made; only its runs are read."""
    experiment, scaled = fields["experiment"], fields["scaled"]
    return ReadsResult(
        experiment=Experiment(
            rows=experiment["rows"], sessions=tuple(experiment["sessions"]), rounds=experiment["rounds"]
        ),
        machine=Machine(**fields["machine"]),
        scaled=None if scaled is None else Scaled(**scaled),
        targets=tuple(map(_read_target, fields["targets"])),
    )


def _read_target(fields: Mapping[str, Any]) -> TargetResult:
    devices = ({**device, "disks": tuple(device["disks"])} for device in fields["local_devices"])
    return TargetResult(
        name=fields["name"],
        postgresql=fields["postgresql"],
        steps=tuple(
            Step(sessions=step["sessions"], runs=tuple(map(_read_runs, step["queries"]))) for step in fields["steps"]
        ),
        local_devices=tuple(Device(**device) for device in devices),
    )


def _read_runs(fields: Mapping[str, Any]) -> QueryRuns:
    uses = {name: fields[name] for name in ("volume", "local", "below")}
    return QueryRuns(
        query=fields["query"],
        volume_s=tuple(fields["volume_s"]),
        local_s=tuple(fields["local_s"]),
        temp_bytes=fields["temp_bytes"],
        workers_planned=fields["workers_planned"],
        workers_launched=fields["workers_launched"],
        **{name: None if use is None else DeviceUse(**use) for name, use in uses.items()},
    )
