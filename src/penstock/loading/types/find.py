"""Plans the types of the columns of a load: looks at the files where the job asks for it, and notes what was found."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.loading.plan.dialects import refuse_other_dialects
from penstock.loading.plan.work import all_objects
from penstock.loading.types.decide import choose_types, unclear_notices, usable_types
from penstock.loading.types.scan import scan_objects
from penstock.loading.warned import WarningLog
from penstock.model.load.plan import total_size
from penstock.model.source.types import UNCLEAR_DATE
from penstock.units import format_bytes, format_count

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.loading.context import LoadTools
    from penstock.loading.plan.work import ObjectWork
    from penstock.loading.types.scan import Findings
    from penstock.model.load.plan import LoadPlan, TargetPlan
    from penstock.model.server.table import TableName


def find_types(plan: LoadPlan, tools: LoadTools, *, server_encoding: str) -> LoadPlan:
    """Return the plan with the types of the tables that it creates, if --types asks for them.

    Reads all objects of these tables to their end. Raises PenstockError.
    """
    wanted = usable_types(server_encoding=server_encoding) | UNCLEAR_DATE
    found = {table: _scan(works, tools, wanted=wanted) for table, works in _by_table(plan, _is_created_typed).items()}
    if not found:
        return plan
    targets = tuple(
        _with_types(target, found[target.table]) if _is_created_typed(target) else target for target in plan.targets
    )
    notices = {notice: None for target in targets for notice in unclear_notices(str(target.table), target.typed)}
    return replace(plan, targets=targets, notices=(*plan.notices, *notices))


def _is_created_typed(target: TargetPlan) -> bool:
    return target.job.types != "text" and target.create_columns is not None


def _by_table(plan: LoadPlan, is_wanted: Callable[[TargetPlan], bool]) -> dict[TableName, list[ObjectWork]]:
    """Return the objects of the tables whose values are looked at; several targets may have one table."""
    works: dict[TableName, list[ObjectWork]] = {}
    for work in all_objects(plan.targets):
        if is_wanted(work.target):
            works.setdefault(work.target.table, []).append(work)
    return works


def _scan(works: Sequence[ObjectWork], tools: LoadTools, *, wanted: int) -> Findings:
    size = total_size(work.source for work in works)
    length = "size unknown" if size is None else format_bytes(size)
    count = f"{format_count(len(works))} object{'' if len(works) == 1 else 's'}"
    tools.notice(f'looking at every value for the types of table "{works[0].target.table}": {count}, {length}')
    # The load checks the objects again, and gives its warnings.
    refuse_other_dialects(works, tools.sources, WarningLog())
    return scan_objects(works, tools, wanted=wanted)


def _with_types(target: TargetPlan, found: Findings) -> TargetPlan:
    columns = target.create_columns or ()
    typed = choose_types([name for name in columns if name not in target.job.set], found)
    types = {column.name: column.type_name for column in typed}
    return replace(target, typed=typed, create_types=tuple(types.get(name, "text") for name in columns))
