"""Ends a failed load: drops what was created for it, restores what its steps changed, and adds hints to its error.

The functions that extend an error come first. They return copies of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy

from penstock.changes.records import find_changed
from penstock.core.catalogue.tables import drop_created
from penstock.core.connect.connection import Connection
from penstock.core.connect.errors import in_transaction
from penstock.core.errors import DeleteLimitError, OtherTableError, PenstockError
from penstock.core.host.process import holding_interrupts
from penstock.core.units import count_nouns
from penstock.core.values.source import hides_part
from penstock.ledger.committed import count_rows
from penstock.ledger.lookup import read_meaning
from penstock.ledger.targets import read_landings
from penstock.loading.claim.decide import NothingToDo, describe_left
from penstock.loading.land.context import LandingContext
from penstock.loading.plan.modes import compose_alter
from penstock.loading.plan.remedies import add_command
from penstock.loading.steps.step import RunningLoad, Step
from penstock.loading.values.plan import LoadPlan


def add_detail(error: PenstockError, sentence: str) -> PenstockError:
    """Return a copy of the error with one more line of detail."""
    extended = copy(error)
    extended.detail = f"{error.detail}\n{sentence}" if error.detail else sentence
    return extended


def add_what_stays(
    error: PenstockError,
    plan: LoadPlan,
    load_id: str,
    *,
    rows: int | None,
    has_all_rows: bool,
    is_complete: bool,
    emptied: Sequence[str],
) -> PenstockError:
    """Return a copy of a load's error that also says which rows of the load stay, and how to resume the load.

    `rows` is the number of committed rows, None if it is not known. If `has_all_rows` is true, all rows are stored and
    a later step failed. If `is_complete` is true, the load was complete before the error. `emptied` are the names of
    the tables that this run or an earlier one has truncated for the load.
    """
    altered = {target.table: target.changes for target in plan.targets if target.changes}
    stays = _describe_stay(plan, load_id, rows=rows, is_complete=is_complete, emptied=emptied)
    if altered:
        # The columns were changed in the transaction that recorded the load.
        made = "; ".join(compose_alter(table, changes) for table, changes in altered.items())
        stays = f"{stays}\nThe columns that the load has changed stay so: {made}."
    extended = add_detail(error, stays)
    if rows != 0 and not is_complete:
        resume = _describe_resuming(error, plan, load_id, has_all_rows=has_all_rows, is_unsure=rows is None)
        extended.hint = f"{error.hint or ''} {resume}".strip() or None
    extended.load_id = None if rows == 0 and not is_complete else load_id
    if rows == 0 and not is_complete:
        add_command(extended, plan.targets, plan.job, [notice.options for notice in plan.notices])
    return extended


def add_who_goes_on(error: PenstockError, load_id: str) -> PenstockError:
    """Return a copy of the error of one member of a load by several hosts.

    The copy adds that the rows of this host stay, and that the other members load the objects that it has claimed.
    """
    extended = add_detail(
        error, f"What this host committed stays in load {load_id}; the load's other members take its objects."
    )
    extended.hint = f"{error.hint or ''} See penstock loads show {load_id}; without members, penstock resume ends it."
    extended.hint = extended.hint.strip()
    extended.load_id = load_id
    return extended


def add_unknown_rows(error: PenstockError, load_id: str, *, rows: int, tables: Sequence[str]) -> PenstockError:
    """Return a copy of the error of a load whose records in the ledger are gone.

    The copy adds that the number of stored rows is not known. `rows` is the number of rows that this process has seen
    committed, and `tables` are the names of the tables that COPY fills.
    """
    names = ", ".join(f'"{table}"' for table in tables)
    stored = f"{count_nouns(rows, 'row')} {'was' if rows == 1 else 'were'}"
    stays = (
        f"The ledger does not have load {load_id} any more, so what it stored is not known: "
        f"at least {stored} committed to {names} and may still exist."
    )
    extended = add_detail(error, stays)
    # Replace the error's own hint, which is for loads that can be resumed.
    extended.hint = f"Before you load the sources again, remove these rows from {names}, or they are stored twice."
    return extended


def _describe_stay(plan: LoadPlan, load_id: str, *, rows: int | None, is_complete: bool, emptied: Sequence[str]) -> str:
    if is_complete:
        return f"All rows of load {load_id} are stored."
    if rows is None:
        return f"Committed rows are kept in load {load_id}."
    if rows == 0:
        names = ", ".join(f'"{table}"' for table in emptied)
        verb = "is" if len(emptied) == 1 else "are"
        return f"No rows were loaded; {names} {verb} empty." if names else "No rows were loaded."
    if plan.fills_tables:
        return f"{count_nouns(rows, 'row')} {'is' if rows == 1 else 'are'} committed in load {load_id}."
    is_altered = any(target.changes for target in plan.targets)
    return (
        f"No {'row of a table' if is_altered else 'table'} was changed; {count_nouns(rows, 'record')} "
        f"{'is' if rows == 1 else 'are'} staged in load {load_id}."
    )


def _describe_resuming(
    error: PenstockError, plan: LoadPlan, load_id: str, *, has_all_rows: bool, is_unsure: bool
) -> str:
    """Return how to resume the load. `is_unsure` says that the load may be complete: a pipe would be loaded again."""
    if isinstance(error, OtherTableError):
        return f"Restore the table, or run penstock loads forget {load_id} before a new load."
    if isinstance(error, DeleteLimitError):
        return ""
    objects = [source for target in plan.targets for source in target.objects]
    is_piped = any(source.is_pipe for source in objects)
    is_hidden = any(hides_part(source) for target in plan.job.targets for source in target.sources)
    # A copy of a pipe is another file each time.
    option = ", --changed load" if any(source.is_spooled for source in objects) else ""
    command = f"the same command{option}{' and the same input' if is_piped else ''}"
    if has_all_rows:
        again = command if is_piped or is_hidden else f"penstock resume {load_id}"
        return f"Once it is repaired, end the load with: {again}"
    if is_piped or is_hidden:
        resume = f"Unless penstock loads show {load_id} says that it is complete, resume" if is_unsure else "Resume"
        return f"{resume} with {command}."
    has_transform = any(target.job.transform is not None for target in plan.targets)
    statement = "; if the statement was, by the same command" if has_transform else ""
    resume = f"Resume with: penstock resume {load_id} (if a file was corrected, with --changed load{statement})."
    is_undoable = plan.fills_tables and not has_transform and plan.job.rules.on_error != "reject"
    if is_undoable and all(target.job.mode == "append" for target in plan.targets):
        return f"{resume} To load another file in place of one of these, first run: penstock undo {load_id}."
    return resume


# The SQLSTATE if the ledger's own tables do not exist any more.
_UNDEFINED_TABLE = "42P01"


def give_up(load: RunningLoad, steps: Sequence[Step], error: PenstockError) -> PenstockError:
    """End a failed load, and return a copy of `error` that adds which rows stay and how to resume the load.

    The steps undo their changes. If no row stays, the load is removed from the ledger, and the tables created for it
    are dropped. If other hosts continue the load, nothing is undone. If this is the last host, and it has not led the
    load, what the leader has left changed at the tables is restored.
    """
    member, left = load.claimed.member, load.claimed.left
    if left:
        error = add_detail(error, describe_left(left, load.load_id))
    goes_on = member.leave()
    if (goes_on or not member.leads) and not load.is_ended:
        for step in reversed(steps):
            step.lose_lead(load)
        if goes_on or not _end_as_last(load, steps):
            return add_who_goes_on(error, load.load_id)
        return add_what_stays(
            error, load.plan, load.load_id, rows=None, has_all_rows=False, is_complete=load.is_ended, emptied=()
        )
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


def _end_as_last(load: RunningLoad, steps: Sequence[Step]) -> bool:
    """Restore what the leader of a load by several hosts has left changed, if this host is the last one.

    Return false, and change nothing, if another process leads the load, or if the server cannot be asked. If the load
    is complete, nothing is to be restored. An error becomes a warning.
    """
    oids = [target.facts.oid for target in load.plan.targets if target.facts is not None]
    schema, is_last = load.tools.ledger.schema, False
    try:
        with load.tools.connect.connect(label="end") as connection:
            known = read_meaning(connection, schema, load.load_id)
            if known is None or load.claimed.member.has_leader(connection):
                return False
            is_last, load.is_ended = True, known.state == "complete"
            if not load.is_ended:
                nothing = NothingToDo(skipped=0, changed_by=dict.fromkeys(find_changed(connection, schema, oids), ()))
                for step in reversed(steps):
                    step.nothing_to_do(nothing, connection)
    except (PenstockError, KeyboardInterrupt) as lost:
        if is_last:
            why = lost.message if isinstance(lost, PenstockError) else "interrupted"
            what = "indexes, keys or triggers that the leading host has changed may be left"
            load.tools.warnings.warn("not-restored", f"{what} ({why}): run penstock repair")
    return is_last


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
            known = read_meaning(connection, tools.ledger.schema, load.load_id)
            # The answer to the load's last COMMIT may have been lost.
            load.is_ended = load.is_ended or (known is not None and known.state == "complete")
            return count_rows(connection, tools.ledger.schema, load.load_id)
        if claimed.landings:
            from penstock.loading.land.landing import give_up_landings  # noqa: PLC0415 (20 ms, for who merges or replaces)

            context = LandingContext(plan=plan, tools=tools, connection=connection, claim=claimed.claim)
            give_up_landings(context, claimed.landings)
    for table in reversed([*claimed.created.values()]):
        drop_created(connection, table)
    return 0
