"""Reads the results of `penstock bench ... --json` from records: the runs, from which all other figures follow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.core.host.machine import Machine
from penstock.core.values.device import Device, VolumeLimits
from penstock_lab.bench.bulk_load.plan import BulkLoadMachine, BulkLoadRun, BulkLoadStep, Recovery, StepRuns
from penstock_lab.bench.bulk_load.run import BulkLoadResult, BulkLoadTargetResult
from penstock_lab.bench.commits.plan import CallUse, Size, SizeResult
from penstock_lab.bench.commits.run import Check, CommitsResult, CommitsTargetResult
from penstock_lab.bench.optimized_reads.plan import QueryDeviceUse, QueryRuns, ReadsExperiment, ReadsMachine, ReadsStep
from penstock_lab.bench.optimized_reads.run import ReadsResult, ReadsTargetResult

if TYPE_CHECKING:
    from collections.abc import Mapping


def read_commits(fields: Mapping[str, Any]) -> CommitsResult:
    """Return the result from which an object was made; only its runs are read."""
    return CommitsResult(
        rows=fields["rows"],
        machine=Machine(**fields["machine"]),
        targets=tuple(
            CommitsTargetResult(
                name=target["name"],
                postgresql=target["postgresql"],
                check=Check(**target["check"]),
                sizes=tuple(map(_read_size, target["sizes"])),
            )
            for target in fields["targets"]
        ),
    )


def _read_size(fields: Mapping[str, Any]) -> SizeResult:
    return SizeResult(
        size=Size(**{name: fields[name] for name in ("rows_per_commit", "rows", "total_rows")}),
        runs_s=tuple(fields["runs_s"]),
        bare_s=fields["bare_s"],
        waits=tuple(fields["samples"].items()),
        uses=tuple(CallUse(**use) for use in fields.get("uses", ())),
        metrics=tuple(fields.get("metrics", {}).items()),
        metrics_share=fields.get("metrics_share"),
    )


def read_optimized_reads(fields: Mapping[str, Any]) -> ReadsResult:
    """Return the result from which an object was made; only its runs are read."""
    experiment, scaled = fields["experiment"], fields["scaled"]
    return ReadsResult(
        experiment=ReadsExperiment(
            rows=experiment["rows"], sessions=tuple(experiment["sessions"]), rounds=experiment["rounds"]
        ),
        machine=Machine(**fields["machine"]),
        scaled=None if scaled is None else ReadsMachine(**scaled),
        targets=tuple(map(_read_side, fields["targets"])),
    )


def _read_side(fields: Mapping[str, Any]) -> ReadsTargetResult:
    devices = ({**device, "disks": tuple(device["disks"])} for device in fields["local_devices"])
    return ReadsTargetResult(
        name=fields["name"],
        postgresql=fields["postgresql"],
        steps=tuple(
            ReadsStep(sessions=step["sessions"], runs=tuple(map(_read_runs, step["queries"])))
            for step in fields["steps"]
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
        wait_s=tuple(fields.get("wait_s", ())),
        cpu_s=tuple(fields.get("cpu_s", ())),
        **{name: None if use is None else QueryDeviceUse(**use) for name, use in uses.items()},
    )


def read_bulk_load(fields: Mapping[str, Any]) -> BulkLoadResult:
    """Return the result from which an object was made; only its runs are read."""
    kept = {name: fields[name] for name in ("rounds", "rows", "plain_bytes", "size_bytes", "is_imdbs")}
    scaled = fields["scaled"]
    return BulkLoadResult(
        **kept,
        machine=Machine(**fields["machine"]),
        scaled=None if scaled is None else BulkLoadMachine(**scaled),
        targets=tuple(
            BulkLoadTargetResult(
                name=target["name"],
                postgresql=target["postgresql"],
                schema=target["schema"],
                lacks=target["lacks"],
                steps=tuple(map(_read_step, target["steps"])),
            )
            for target in fields["targets"]
        ),
    )


def _read_step(fields: Mapping[str, Any]) -> StepRuns:
    runs = [{name: run[name] for name in BulkLoadRun.__dataclass_fields__} for run in fields["runs"]]
    return StepRuns(
        step=BulkLoadStep(**fields["step"]),
        limits=None if fields["limits"] is None else VolumeLimits(**fields["limits"]),
        runs=tuple(BulkLoadRun(**{**run, "waits": tuple(run["waits"].items())}) for run in runs),
        recoveries=tuple(Recovery(**recovery) for recovery in fields["recoveries"]),
    )
