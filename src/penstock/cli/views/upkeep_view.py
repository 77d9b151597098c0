"""Describes VACUUM, CHECKPOINT, triggers and autovacuum in lines of a load's plan. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.units import format_count

if TYPE_CHECKING:
    from penstock.model.load.job import LoadRules
    from penstock.model.load.plan import LoadPlan, TargetPlan
    from penstock.model.server.server import ServerFacts


def describe_after(plan: LoadPlan, server: ServerFacts, *, is_leased: bool = False) -> list[tuple[str, str]]:
    """Return the rows of a load's plan about what follows the load: VACUUM and CHECKPOINT, with the reasons."""
    return [("then", _plan_vacuum(plan)), ("", _plan_checkpoint(plan, server, is_leased=is_leased))]


def describe_switches(target: TargetPlan, rules: LoadRules) -> list[tuple[str, str]]:
    """Return the rows of a load's plan about triggers and autovacuum, and how often triggers fire."""
    is_altered = target.facts is not None and not target.is_replaced
    rows = _describe_triggers(target, rules) if is_altered else []
    if is_altered and rules.autovacuum == "pause":
        rows.append(("autovacuum", "paused for the table and its TOAST table, then restored"))
    return rows


def _describe_triggers(target: TargetPlan, rules: LoadRules) -> list[tuple[str, str]]:
    facts = target.facts
    if facts is None or not (facts.row_triggers or facts.statement_triggers):
        return []
    if rules.triggers == "disable":
        names = ", ".join((*facts.row_triggers, *facts.statement_triggers))
        return [("triggers", f"disabled during the load, for other sessions too: {names}")]
    rows = []
    if facts.row_triggers:
        count = target.estimated_records
        often = "once for each row" if count is None else f"about {format_count(count)} times, once for each row"
        rows.append(f"kept: {', '.join(facts.row_triggers)}; fires {often}")
    if facts.statement_triggers:
        often = "once for each COPY command" if target.fills_table else "once"
        rows.append(f"kept: {', '.join(facts.statement_triggers)}; fires {often}")
    return [("triggers" if number == 0 else "", row) for number, row in enumerate(rows)]


def _plan_vacuum(plan: LoadPlan) -> str:
    rules = plan.job.rules
    if not rules.vacuum:
        return "no VACUUM: --no-vacuum"
    lacking = [str(target.table) for target in plan.targets if target.facts is not None and not target.facts.may_vacuum]
    if len(lacking) == len(plan.targets):
        return "no VACUUM: the role lacks the privilege"
    words = "VACUUM (ANALYZE) of tables that got rows"
    if lacking:
        words += f", except {', '.join(lacking)}: the role lacks the privilege"
    return words


def _plan_checkpoint(plan: LoadPlan, server: ServerFacts, *, is_leased: bool) -> str:
    from penstock.loading.plan.upkeep import decide_checkpoint

    decision = decide_checkpoint(
        asked=plan.job.rules.checkpoint,
        # The plan cannot know how many bytes are loaded.
        stored_bytes=float("inf"),
        is_leased=is_leased,
        is_aurora=server.is_aurora,
        may_checkpoint=server.may_checkpoint,
    )
    if not decision.is_due:
        return f"no CHECKPOINT: {decision.reason}"
    size = "" if plan.job.rules.checkpoint else ", if at least 1 GiB is loaded"
    return f"CHECKPOINT{size}: {decision.reason}"
