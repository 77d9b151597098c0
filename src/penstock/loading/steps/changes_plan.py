"""Describes what a planned load does with the indexes, keys, triggers and autovacuum of its tables. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.changes.values import IndexOrKey, IndexPlan, name_with_attached
from penstock.core.slotted import slotted
from penstock.core.units import format_count
from penstock.core.values.accounts import PlanPart, Rows
from penstock.core.values.job import LoadRules
from penstock.loading.values.plan import LoadPlan, TargetPlan

# If more partitions than this have an equal index of their own, the indexes share one row.
_FEW = 3


@slotted
class TableChangesPlan:
    """What the load does with the triggers, autovacuum, indexes and keys of a table, in words for --plan."""

    table: str
    triggers: tuple[str, ...]
    autovacuum: str | None
    indexes: IndexPlan


@slotted
class ChangesPlan(PlanPart):
    """What the load does with the triggers, autovacuum, indexes and keys of each table."""

    tables: tuple[TableChangesPlan, ...]

    def describe(self) -> list[str | Rows]:
        """Return a line for triggers, autovacuum and indexes of each table, and a row for each index and key.

        The lines name the tables if there are several.
        """
        lines: list[str | Rows] = []
        for each in self.tables:
            of = f" of {each.table}" if len(self.tables) > 1 else ""
            lines += [f"triggers{of}  {text}" for text in each.triggers]
            lines += [] if each.autovacuum is None else [f"autovacuum{of}  {each.autovacuum}"]
            plan = each.indexes
            if plan.reason:
                what = "dropped and rebuilt after the load" if plan.dropped else "kept"
                rows = _rows("drop", plan.dropped) + _rows("keep", plan.kept)
                lines += [f"indexes{of}  {what}: {plan.reason}", Rows(rows, align="<<<<")]
                lines += [] if plan.gain is None else [plan.gain]
        return lines


def describe_changes(plan: LoadPlan) -> ChangesPlan:
    """Return what a planned load does with the triggers, autovacuum, indexes and keys of its tables."""
    return ChangesPlan(tables=tuple(_describe_table(target, plan.job.rules) for target in plan.targets))


def _describe_table(target: TargetPlan, rules: LoadRules) -> TableChangesPlan:
    is_altered = target.facts is not None and not target.is_replaced
    paused = "paused for the table and its TOAST table, then restored"
    return TableChangesPlan(
        table=str(target.table),
        triggers=_describe_triggers(target, rules) if is_altered else (),
        autovacuum=paused if is_altered and rules.autovacuum == "pause" else None,
        indexes=target.indexes,
    )


def _describe_triggers(target: TargetPlan, rules: LoadRules) -> tuple[str, ...]:
    """Return what happens to a table's triggers, and how often they fire."""
    facts = target.facts
    if facts is None or not (facts.row_triggers or facts.statement_triggers):
        return ()
    if rules.triggers == "disable":
        names = ", ".join((*facts.row_triggers, *facts.statement_triggers))
        return (f"disabled during the load, for other sessions too: {names}",)
    lines = []
    if facts.row_triggers:
        count = target.estimated_records
        often = "once for each row" if count is None else f"about {format_count(count)} times, once for each row"
        lines.append(f"kept: {', '.join(facts.row_triggers)}; fires {often}")
    if facts.statement_triggers:
        often = "once for each COPY command" if target.fills_table else "once"
        lines.append(f"kept: {', '.join(facts.statement_triggers)}; fires {often}")
    return tuple(lines)


def _rows(word: str, parts: Sequence[IndexOrKey]) -> list[tuple[str, str, str, str]]:
    """Return a row for each index and key. Many equal indexes of partitions share one row."""
    alike: dict[tuple[bool, str, str], list[IndexOrKey]] = {}
    for part in parts:
        alike.setdefault((part.is_of_partition, part.what, part.reason), []).append(part)
    rows = []
    for (is_of_partition, what, reason), found in alike.items():
        if is_of_partition and len(found) > _FEW:
            names = f"{found[0].name} and {len(found) - 1} more on partitions"
            rows.append((word, what, names, reason))
        else:
            rows += [(word, what, name_with_attached(part), reason) for part in found]
    return rows
