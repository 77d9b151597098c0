"""Ends a failed load: drops what was created for it, restores what its steps changed, and adds hints to its error."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.core.catalogue.tables import drop_created
from penstock.core.connect.connection import Connection
from penstock.core.connect.errors import in_transaction
from penstock.core.errors import PenstockError
from penstock.core.host.process import holding_interrupts
from penstock.ledger.committed import count_rows
from penstock.ledger.targets import read_landings
from penstock.loading.claim.decide import describe_left
from penstock.loading.failure import add_detail, add_unknown_rows, add_what_stays, add_who_goes_on
from penstock.loading.land.context import LandingContext
from penstock.loading.steps.step import RunningLoad, Step

# The SQLSTATE if the ledger's own tables do not exist any more.
_UNDEFINED_TABLE = "42P01"


def give_up(load: RunningLoad, steps: Sequence[Step], error: PenstockError) -> PenstockError:
    """End a failed load, and return a copy of `error` that adds which rows stay and how to resume the load.

    The steps undo their changes. If no row stays, the load is removed from the ledger, and the tables created for it
    are dropped. If other hosts continue the load or another process leads it, nothing is undone.
    """
    member, left = load.claimed.member, load.claimed.left
    if left:
        error = add_detail(error, describe_left(left, load.load_id))
    if (member.leave() or not member.leads) and not load.is_ended:
        for step in reversed(steps):
            step.lose_lead(load)
        return add_who_goes_on(error, load.load_id)
    rows, is_gone = None, False
    try:
        with load.tools.connect.connect(label="end") as connection:
            # An interrupt is raised only at the end of this block. The steps are then undone without a connection.
            with holding_interrupts(limit=1):
                rows = _tidy(load, connection)
                is_gone = rows is None
            undo(load, steps, connection, "")
    except (PenstockError, KeyboardInterrupt) as lost:
        why = lost.message if isinstance(lost, PenstockError) else "interrupted"
        is_gone = is_gone or getattr(lost, "sqlstate", None) == _UNDEFINED_TABLE
        names = ", ".join(f'"{table.name}"' for table in load.claimed.created.values())
        if names and rows is None:
            load.tools.warnings.warn("table-left", f"not dropped after the load: {names} ({why})")
        undo(load, steps, None, why)
    except BaseException:
        undo(load, steps, None, "internal error")
        raise
    if is_gone and not load.is_ended:
        return add_unknown_rows(error, load.load_id, rows=load.tally.rows_seen, tables=_filled_tables(load))
    return add_what_stays(
        error,
        load.plan,
        load.load_id,
        rows=rows,
        has_all_rows=load.has_all_rows,
        is_complete=load.is_ended,
        emptied=load.emptied,
    )


def undo(load: RunningLoad, steps: Sequence[Step], connection: Connection | None, why: str) -> None:
    """Let each step undo its changes, the last step first.

    If `connection` is None, the steps warn that their changes stay, and `why` is the reason why no connection exists.
    Every step is called even if another one has failed. Raises the first error of the steps, with the later errors as
    its notes.
    """
    first: BaseException | None = None
    for step in reversed(steps):
        try:
            step.on_failure(load, connection, why)
        except BaseException as error:  # noqa: BLE001 (it is raised below)
            if first is None:
                first = error
            else:
                first.add_note(f"then {type(error).__name__}: {error}")
    if first is not None:
        raise first


def _filled_tables(load: RunningLoad) -> list[str]:
    landed = {each.record.number: each.table for each in load.claimed.landings if each.table is not None}
    tables = [landed.get(number, target.table) for number, target in enumerate(load.plan.targets)]
    return list(dict.fromkeys(map(str, tables)))


def _tidy(load: RunningLoad, connection: Connection) -> int | None:
    """Return how many rows stay. If none stay, remove the load from the ledger and drop the tables created for it.

    Returns None if the load is not in the ledger any more. Staged records of a pipe count as not staying, because the
    load cannot be resumed and its staging table is not visible to others.
    """
    plan, tools, claimed = load.plan, load.tools, load.claimed
    is_lost = not plan.is_repeatable and not plan.fills_tables
    with in_transaction(connection, "removing the load from the ledger"):
        if claimed.landings:
            # Read the landing records before they are removed with the load. Read them from the ledger, because an
            # earlier run, or a COMMIT whose answer was lost, may have changed them.
            records = read_landings(connection, tools.ledger.schema, load.load_id)
            emptied = [str(plan.targets[number].table) for number, record in records.items() if record.is_truncated]
            load.emptied = tuple(dict.fromkeys(emptied))
        if not tools.ledger.forget_unused(connection, claimed.claim, even_if_used=is_lost):
            return count_rows(connection, tools.ledger.schema, load.load_id)
        if claimed.landings:
            from penstock.loading.land.landing import give_up_landings  # noqa: PLC0415 (20 ms, for who merges or replaces)

            context = LandingContext(plan=plan, tools=tools, connection=connection, claim=claimed.claim)
            give_up_landings(context, claimed.landings)
    for table in reversed([*claimed.created.values()]):
        drop_created(connection, table)
    return 0
