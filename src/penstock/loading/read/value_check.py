"""Counts the values that columns change when they store them, in the blocks of a load, and warns of them.

The Rust core decides what is changed (rust/src/kept.rs). A block that is sent in the binary format has no such value,
because the encoder refuses blocks with such values.
"""

from __future__ import annotations

import shlex
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from penstock.core.units import format_count
from penstock.core.values.names import quote_name, quote_table
from penstock.core.values.notice import Notice
from penstock.core.values.server import DateOrder
from penstock.loading.copy.payload import Encoder, python_codec
from penstock.loading.formats import format_of
from penstock.loading.plan.modes import suggest_kept, widenable
from penstock.loading.values.objects import Block, PlannedObject
from penstock.loading.values.plan import TargetPlan, table_after_creation
from penstock.loading.values.types import CHANGES, ORDER, DecidingValue
from penstock.loading.warned import WarningLog

if TYPE_CHECKING:
    from penstock import _native

# What a column does not keep of a value, in words, by the names in CHANGES.
_LOST: Final = {
    "form": "leading zeros, 0x, _, the second 60 or words",
    "sign": "the sign of zero",
    "digits": "all digits",
    "time": "the time",
    "zone": "the time zone",
    "day": "the day",
    "blanks": "blanks beyond its length",
}

# The modes of loads that can be undone.
_UNDOABLE: Final = ("append", "insert-new")


@dataclass(slots=True)
class _ChangedValues:
    """The values that one column changes: what it does not keep, how many, and where the first one is."""

    work: PlannedObject
    column: str
    position: tuple[int, int]
    value: str
    lost: int = 0
    count: int = 0

    def add(self, other: _ChangedValues) -> None:
        if other.position < self.position:
            self.work, self.position, self.value = other.work, other.position, other.value
        self.lost |= other.lost
        self.count += other.count


class ValueCheck:
    """Counts the values of one load that their columns' types would change, such as 1.005 in numeric(9,2).

    Each block counts once. Any thread may call its methods.
    """

    def __init__(
        self, warnings: WarningLog, order: DateOrder, *, stores: bool = True, is_rejecting: bool = False
    ) -> None:
        self.warnings = warnings
        self._order = order
        # Whether the values are stored, which a check does not, and whether refused records are rejected.
        self._stores, self._is_rejecting = stores, is_rejecting
        self._lock = threading.Lock()
        # The values found, by table, column, and whether the change is about the order of dates.
        self._found: dict[tuple[str, str, bool], _ChangedValues] = {}
        # The blocks with such values, by object and start. The next attempt reads uncommitted blocks again, but their
        # values are counted only once.
        self._seen: set[tuple[int, int]] = set()

    def look(
        self, block: Block, work: PlannedObject, encoder: Encoder, payload: Sequence[bytes | memoryview] = ()
    ) -> None:
        """Count the values in a block that the types of columns would change. Call this before the block is sent.

        `payload` is the block's text for COPY, empty if it is not made yet.
        """
        if not encoder.kept or block.fault is not None or not block.records:
            return
        changes = [
            each for each in encoder.find_changes(block, payload) if each[1] != ORDER or not self._order.is_chosen
        ]
        if changes:
            self._add(changes, block, work, encoder)
            if self.warnings.is_strict:
                # Warn before the block is sent, so that the load ends before its next commit.
                self.conclude()

    def conclude(self) -> None:
        """Add a warning to the load's warnings for each column with such values that were found since the last call."""
        with self._lock:
            found, self._found = self._found, {}
        for each in sorted(found.values(), key=lambda each: each.position):
            way = partial(_describe_way, stores=self._stores, is_rejecting=self._is_rejecting)
            self.warnings.add(_compose_notice(each, self._order, way))

    def _add(self, changes: Iterable[_native.Change], block: Block, work: PlannedObject, encoder: Encoder) -> None:
        codec = python_codec(encoder.spec.encoding)
        with self._lock:
            if (work.number, block.start) in self._seen:
                return
            self._seen.add((work.number, block.start))
            for index, lost, count, line, value in changes:
                column, shown = encoder.spec.columns[index], value.decode(codec, errors="replace")
                found = _ChangedValues(work, column, (work.number, block.first_line + line), shown, lost, count)
                known = self._found.setdefault((str(work.target.table), column, lost == ORDER), found)
                if known is not found:
                    known.add(found)


def _compose_notice(
    found: _ChangedValues, order: DateOrder, describe_way: Callable[[_ChangedValues, str], str]
) -> Notice:
    target, line, uri = found.work.target, found.position[1], found.work.source.uri
    seen = DecidingValue(uri=uri, line=line, value=found.value).shown
    more = f" and {format_count(found.count - 1)} more" if found.count > 1 else ""
    name = f'column "{found.column}" of table "{target.table}"'
    column = table_after_creation(target).column(found.column)
    type_name = "" if column is None else column.type_name
    if found.lost == ORDER:
        words = shlex.join(["--date-order", f"{found.column}=dmy"])
        how = f"Use {words}, or mdy or ymd; or set" if format_of(target).is_delimited else "Set"
        return Notice(
            code="unclear-date",
            message=f"dates of {name} may begin with day, month or year, and DateStyle ({order.date_style}) decides: "
            f"{seen}{more}",
            uri=uri,
            line=line,
            hint=f"{how} DateStyle for this load: PGOPTIONS='-c datestyle=ISO,DMY', or MDY or YMD.",
        )
    kept = suggest_kept("" if column is None else column.base.name, found.value)
    is_widenable = target.facts is not None and found.column in widenable(target.facts)
    can_widen = is_widenable and not _is_part(target) and not format_of(target).is_typed
    widen = " --types widen does so before a load." if can_widen and target.job.types != "widen" else ""
    lost = " and ".join(_LOST[each] for number, each in enumerate(CHANGES) if found.lost & 1 << number)
    return Notice(
        code="value-changed",
        message=f"{name} does not keep {lost}, as its type is {type_name}: {seen}{more}",
        uri=uri,
        line=line,
        hint=f"If that matters, {describe_way(found, kept)}.{widen}",
    )


def _is_part(target: TargetPlan) -> bool:
    """Return whether the table is or becomes a partition, of which the parent decides the types."""
    return target.is_partition or (target.facts is not None and target.facts.is_partition)


def _describe_change(found: _ChangedValues, kept: str) -> str:
    """Return how to give a column the type `kept`."""
    target = found.work.target
    column = table_after_creation(target).column(found.column)
    if _is_part(target):
        return f"give the column of the partitioned table a type that keeps it, such as {kept},"
    if column is not None and column.is_domain:
        # Another type would drop the domain's constraints, so the user must decide about them.
        return f"give the column a type or a domain that keeps it, such as {kept},"
    return f"run: ALTER TABLE {quote_table(target.table)} ALTER COLUMN {quote_name(found.column)} TYPE {kept};"


def _describe_way(found: _ChangedValues, kept: str, *, stores: bool, is_rejecting: bool) -> str:
    """Return how to load the values into a column of type `kept`.

    An undo finds no row of an altered table. A load of one file alone could remove the rows of the others. With --again
    each file of the command would be loaded once more.
    """
    target, change, again = found.work.target, _describe_change(found, kept), "run the same command again"
    if not stores:
        is_new = target.facts is None
        return (
            f"create the table with a column of type {kept} before the load" if is_new else f"{change} before the load"
        )
    if target.job.mode == "upsert":
        return f"{change} and load the file again, with --again"
    if target.job.mode not in _UNDOABLE:
        return f"{change} and {again}"
    if is_rejecting or target.job.transform is not None or (target.is_staged and target.job.mode == "append"):
        return (
            "first delete the rows of the load by a statement of your own and run penstock loads forget ID "
            f"--keep-rows, then {change} and {again}"
        )
    partition = " and the partition" if target.is_partition else ""
    return f"first remove what is loaded (penstock undo ID){partition}, then {change} and {again}"
