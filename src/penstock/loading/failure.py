"""Adds to the error of a failed load which rows stay in the tables, and how to resume the load. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy

from penstock.core.errors import DeleteLimitError, OtherTableError, PenstockError
from penstock.core.units import count_nouns
from penstock.loading.files.local import STDIN_LOCATION
from penstock.loading.plan.modes import compose_alter
from penstock.loading.plan.remedies import add_command
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
    resume = (
        "" if rows == 0 or is_complete else f" {_describe_resuming(error, plan, load_id, has_all_rows=has_all_rows)}"
    )
    extended = add_detail(error, stays)
    extended.hint = f"{error.hint or ''}{resume}".strip() or None
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


def _describe_resuming(error: PenstockError, plan: LoadPlan, load_id: str, *, has_all_rows: bool) -> str:
    if isinstance(error, OtherTableError):
        return f"If the table is not restored as it was, run penstock loads forget {load_id} before a new load."
    if isinstance(error, DeleteLimitError):
        return ""
    is_piped = any(STDIN_LOCATION in target.sources for target in plan.job.targets)
    if has_all_rows:
        again = "the same command with the same input" if is_piped else f"penstock resume {load_id}"
        return f"Once it is repaired, end the load with: {again}"
    if is_piped:
        return "Resume with the same command and the same input."
    return f"Resume with: penstock resume {load_id} (if a file was corrected, with --changed load)."
