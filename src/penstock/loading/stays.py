"""What stays of a load that failed, and how to go on with it, as its error tells. Pure."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING

from penstock.errors import OtherTableError
from penstock.files.local import STDIN_LOCATION

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.errors import PenstockError
    from penstock.model.plan import LoadPlan


def fills_tables(plan: LoadPlan) -> bool:
    """Whether rows of a load are in some table before its end."""
    return any(target.landing == "table" for target in plan.targets)


def tell_what_stays(
    error: PenstockError,
    plan: LoadPlan,
    load_id: str,
    *,
    rows: int | None,
    has_all_rows: bool,
    is_complete: bool,
    has_begun: bool,
) -> PenstockError:
    """Return a copy of the error that says what stays and how to go on.

    `rows` were committed, None where that is not known; `has_all_rows`: what failed is the rebuild behind the last of
    them; `is_complete`: the load had ended before the error came; `has_begun`: tables that are truncated were.
    """
    stays = _describe_stay(plan, load_id, rows=rows, is_complete=is_complete, has_begun=has_begun)
    resume = (
        "" if rows == 0 or is_complete else f" {_describe_resuming(error, plan, load_id, has_all_rows=has_all_rows)}"
    )
    told = copy(error)
    told.detail = f"{error.detail}\n{stays}" if error.detail else stays
    told.hint = f"{error.hint or ''}{resume}".strip() or None
    return told


def tell_unknown(error: PenstockError, load_id: str, *, rows: int, tables: Sequence[str]) -> PenstockError:
    """Return a copy of the error of a load that the ledger does not have any more: what it stored cannot be known.

    `rows` are those that this process has seen committed to `tables`.
    """
    names = ", ".join(f'"{table}"' for table in tables)
    told = copy(error)
    stays = (
        f"The ledger does not have load {load_id} any more, so that it cannot be known what of it is stored: "
        f"at least {rows:,} rows had been committed to {names} and may still be there."
    )
    told.detail = f"{error.detail}\n{stays}" if error.detail else stays
    # The hints of the error itself are for loads that can be resumed.
    told.hint = f"Before the sources are loaded again, remove these rows from {names}: else they are stored twice."
    return told


def _describe_stay(plan: LoadPlan, load_id: str, *, rows: int | None, is_complete: bool, has_begun: bool) -> str:
    if is_complete:
        return f"Load {load_id} is complete but for that."
    if rows is None:
        return f"What was committed stays; load {load_id} knows of it."
    if rows == 0:
        truncated = [target for target in plan.targets if target.job.mode == "truncate"]
        names = ", ".join(f'"{target.table}"' for target in truncated if target.landing == "table")
        return f"Nothing was loaded; {names} is empty." if names and has_begun else "Nothing was loaded."
    if fills_tables(plan):
        return f"{rows:,} rows are committed and stay; load {load_id} knows of them."
    return f"No table was changed; {rows:,} records are set aside, and load {load_id} knows of them."


def _describe_resuming(error: PenstockError, plan: LoadPlan, load_id: str, *, has_all_rows: bool) -> str:
    if isinstance(error, OtherTableError):
        return f"Unless the first table is back, give the load up before a new one: penstock loads forget {load_id}."
    is_piped = any(STDIN_LOCATION in target.sources for target in plan.job.targets)
    if has_all_rows:
        again = "the same command with the same input" if is_piped else f"penstock resume {load_id}"
        return f"Once it is repaired, {again} ends the load; all rows are stored."
    if is_piped:
        return "The same command with the same input goes on with what is missing."
    return f"penstock resume {load_id} goes on with what is missing; say --changed load if a file was corrected."
