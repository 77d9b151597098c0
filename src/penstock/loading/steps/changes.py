"""The step that changes indexes, keys, triggers and autovacuum before the rows, and restores them after the rows.

`describe_changes` says beforehand what it will do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.changes.values import IndexOrKey, IndexPlan, Rebuilt, name_with_attached
from penstock.core.connect.connection import Connection
from penstock.core.slotted import slotted
from penstock.core.units import format_count, format_duration
from penstock.core.values.accounts import PlanPart, Rows
from penstock.core.values.job import LoadRules
from penstock.loading.claim.decide import NothingToDo
from penstock.loading.context import LoadTools
from penstock.loading.steps.step import PlanFacts, RunningLoad, Step
from penstock.loading.values.outcome import LoadOutcome
from penstock.loading.values.plan import LoadPlan, TargetPlan

if TYPE_CHECKING:
    from penstock.loading.indexes.table_changes import TableChanges


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


@slotted
class RebuiltIndexes:
    """The indexes and keys that were dropped and rebuilt, each with the seconds that its rebuild took.

    `seconds` is how long all rebuilds took together, which is part of the load's time. `gains` are sentences that say
    which options would have made the load faster.
    """

    rebuilt: tuple[Rebuilt, ...] = ()
    seconds: float = 0.0
    gains: tuple[str, ...] = ()

    def describe(self) -> Sequence[str | Rows]:
        """Return a line for each index and key with its seconds, and the lines in `gains`."""
        if not self.rebuilt:
            return self.gains
        count = len(self.rebuilt)
        what = "1 index or key" if count == 1 else f"{count} indexes and keys"
        rows = [
            (each.table, each.name, format_duration(each.seconds))
            for each in sorted(self.rebuilt, key=lambda each: -each.seconds)
        ]
        head = f"rebuilt {what} in {format_duration(self.seconds)}, which is part of that time"
        return [head, Rows(rows, align="<<>"), *self.gains]


class Changes(Step):
    """Drops indexes and keys, disables triggers and pauses autovacuum, and restores all of this after the rows.

    Also restores what killed loads have left changed at the same tables.
    """

    name = "changes"

    def __init__(self, plan: LoadPlan, tools: LoadTools) -> None:
        self._plan = plan
        self._tools = tools
        self._changes: TableChanges | None = None
        self._rebuilt: tuple[Rebuilt, ...] = ()
        self._rebuild_s = 0.0

    @property
    def needs_all_rows(self) -> bool:
        """Return whether the load has changed tables.

        If it has, `after` is called only when the load has all rows, because adding rows after the rebuild is slow.
        """
        return self._changes is not None

    def plan(self, facts: PlanFacts) -> ChangesPlan:
        """Return what is done with the triggers, autovacuum, indexes and keys of each table."""
        return describe_changes(facts.plan)

    def reserve(self, load: RunningLoad, connection: Connection) -> None:
        """Wait for the locks that `before` needs, if a table of the load is truncated before its first row.

        Otherwise the table would be empty while `before` waits for them.
        """
        changed_by = load.claimed.changed_by
        is_emptying = any(target.is_truncated_first for target in self._plan.targets)
        if is_emptying and (changed_by or self._plan.changes_shape):
            self._open().reserve(connection, changed_by=changed_by)

    def before(self, load: RunningLoad, connection: Connection) -> None:
        """Restore what other loads have left changed. Then record the changes of this load, and make them."""
        if load.claimed.changed_by or self._plan.changes_shape:
            claimed = load.claimed
            numbers = {work.target_index for work in claimed.work}
            numbers |= {landing.record.number for landing in claimed.landings}
            # With --join, another process may have the objects of a table.
            filled = {
                target.table
                for number, target in enumerate(self._plan.targets)
                if self._plan.job.rules.join or number in numbers
            }
            self._open().before(
                load.load_id,
                connection,
                changed_by=claimed.changed_by,
                created=claimed.created,
                filled=filled,
                has_work=bool(claimed.work),
                has_rows=bool(claimed.work or claimed.landings),
            )

    def after(self, load: RunningLoad, connection: Connection) -> None:
        """Rebuild the dropped indexes and keys, and restore all other changes. The load's time includes this."""
        changes = self._changes
        if changes is None:
            return
        began_s = self._tools.clock()
        try:
            self._rebuilt += changes.after(load.load_id, connection, report=load.report)
        finally:
            self._rebuild_s += self._tools.clock() - began_s
            load.has_all_rows = changes.has_failed

    def conclude(self, load: RunningLoad, outcome: LoadOutcome) -> LoadOutcome:
        """Restore the load's changes if an error has kept `after` from it. Return the outcome with the rebuilt indexes.

        The outcome also gets the options that would have made the load faster.
        """
        if self._changes is not None and self._changes.is_holding:
            load.at_end(lambda connection: self.after(load, connection))
            outcome = replace(outcome, seconds=self._tools.clock() - load.tally.began_s)
        # Compare the bytes that were sent, because the size of a pipe is not known when the plan is made.
        is_large = outcome.bytes_copied >= self._plan.tuning.least_dropping_bytes
        gains = [target.indexes.gain for target in self._plan.targets if target.indexes.gain and is_large]
        if not self._rebuilt and not gains:
            return outcome
        part = RebuiltIndexes(rebuilt=self._rebuilt, seconds=self._rebuild_s, gains=tuple(dict.fromkeys(gains)))
        return outcome.with_part(self.name, part)

    def before_confirming(self, load: RunningLoad, connection: Connection) -> None:
        """Restore the load's changes again if the server lacks the commits that restored them, after a failover."""
        if self._changes is not None and self._changes.holds_again(load.load_id, connection):
            self.after(load, connection)

    def on_failure(self, load: RunningLoad, connection: Connection | None, why: str) -> None:
        """Restore what the load has changed. If `connection` is None, warn that it stays changed, because of `why`."""
        if self._changes is None:
            return
        if connection is None:
            self._changes.warn_left(why)
        else:
            self._changes.on_failure(load.load_id, connection)

    def lose_lead(self, load: RunningLoad) -> None:  # noqa: ARG002 (a step's)
        """Forget the changes, because another host leads the load now. It restores them."""
        self._changes = None

    def nothing_to_do(self, nothing: NothingToDo, connection: Connection) -> None:
        """Restore what killed loads have left changed."""
        if nothing.changed_by:
            self._open().restore_left(nothing.changed_by, connection)

    def _open(self) -> TableChanges:
        if self._changes is None:
            from penstock.loading.indexes.table_changes import TableChanges  # noqa: PLC0415 (32 ms, for who rebuilds indexes or merges)

            self._changes = TableChanges(self._plan, self._tools)
        return self._changes
