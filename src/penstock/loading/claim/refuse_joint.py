"""Refuses what does not go together with a load by several hosts. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.errors import UsageError
from penstock.model.load.plan import LoadPlan


def refuse_joint(plan: LoadPlan) -> None:
    """Raise UsageError if --join is given with what it cannot be used with."""
    if plan.job.rules.join:
        for what, why in _find_obstacles(plan):
            raise UsageError(f"--join cannot be used with {what}", detail=why, hint="Load it from one host.")


def _find_obstacles(plan: LoadPlan) -> Iterator[tuple[str, str]]:
    rules = plan.job.rules
    if rules.atomic:
        yield "--atomic", "The rows of several hosts are not committed in one transaction."
    if not rules.wait:
        yield "--no-wait", "A host that joins waits for the one that leads."
    if rules.max_rejects is not None:
        yield "--max-rejects", "Each host counts only what it has rejected itself."
    if plan.route.is_import:
        yield "--via server", "The server reads the objects itself."
    for target in plan.targets:
        for source in target.objects:
            if source.is_pipe:
                yield "standard input or a pipe", f"{source.uri} can be read by one process only."
        if target.job.add_columns or target.job.types == "widen":
            option = "--add-columns" if target.job.add_columns else "--types widen"
            yield option, "The table would change after other hosts have planned the load."
    if plan.is_in_job_order:
        yield "foreign keys between its tables", "Rows that are referred to are loaded first, by one session."
