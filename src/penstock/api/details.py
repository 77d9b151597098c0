"""Describes what a load planned and did, for its recording. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.loading.steps.changes_plan import describe_changes
from penstock.model.load.details import LoadDetails
from penstock.model.load.part import Rows, StepPart
from penstock.model.load.plan import LoadPlan, TargetPlan, total_size
from penstock.model.redaction import hide_secrets
from penstock.units import count_nouns, format_bytes

if TYPE_CHECKING:
    from penstock.model.load.outcome import LoadOutcome


def describe_load(plan: LoadPlan, outcome: LoadOutcome) -> LoadDetails:
    """Return what a load did, without secrets in the names of its files."""
    sessions = f"{plan.sessions.initial}, at most {plan.sessions.maximum}: {plan.sessions.reason}"
    return LoadDetails(
        files=tuple(replace(file, uri=hide_secrets(file.uri)) for file in outcome.files),
        plan=(("sessions", sessions), *map(_describe_target, plan.targets), *_rows([describe_changes(plan)])),
        done=tuple(_rows(outcome.steps.values())),
    )


def _describe_target(target: TargetPlan) -> tuple[str, str]:
    size = total_size(target.objects)
    of_size = "" if size is None else f", {format_bytes(size)}"
    is_new = "" if target.create_columns is None else "; the table is created"
    objects = count_nouns(len(target.objects), "object")
    return f"table {target.table}", f"{target.job.mode}; {objects}{of_size}{is_new}"


def _rows(parts: Iterable[StepPart]) -> Iterator[tuple[str, ...]]:
    for part in parts:
        for line in part.describe():
            yield from (tuple(row) for row in line.rows) if isinstance(line, Rows) else [(line,)]
