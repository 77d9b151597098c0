"""`penstock undo`: removes the rows that a load has stored, and the load from the ledger."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.options import LEDGER, Json, NewestId, Quiet, open_ledger, takes
from penstock.cli.output import Messages, show_warning, shown_warnings, write_result
from penstock.core.units import count_nouns
from penstock.core.values.server import describe_server

if TYPE_CHECKING:
    from penstock.removal.decide import UndoOutcome

Plan = Annotated[bool, typer.Option("--plan", help="Count the rows that would be removed, and do nothing else.")]
Partial = Annotated[
    bool,
    typer.Option(
        "--partial",
        help="Remove the rows that are as the load stored them, if others were changed since then, or if triggers may "
        "have stored records elsewhere.",
    ),
]


@takes(LEDGER)
def undo(
    load_id: NewestId,
    plan: Plan = False,
    partial: Partial = False,
    quiet: Quiet = False,
    as_json: Json = False,
    **options: Any,
) -> None:
    """Remove exactly the rows that a load has stored, and the load from the ledger. Its files can then be loaded again.

    Rows are known by the transactions that stored them. If some were updated, moved or deleted since then, nothing is
    removed without --partial. Triggers fire and foreign keys hold as for any DELETE. Loads with --mode append or
    insert-new can be undone, also with --create, and also if they were interrupted. A load cannot be undone if it had
    --on-error reject or a transform, if its table has row security, if a trigger on INSERT may have updated other rows,
    if the database was restored or copied since, or if its details were pruned.
    """
    with open_ledger(options, allows_standby=plan) as view:
        whole_id = view.find_newest(load_id, removable=not plan)
        if load_id == "latest" and not plan:
            record, _ = view.load(whole_id)
            began = f"began at {record.began_at:%Y-%m-%d %H:%M:%S%z} into {', '.join(record.tables)}"
            Messages(is_quiet=quiet).note(f"undoing load {whole_id}, which {began}")
        outcome = view.undo(whole_id, is_partial=partial, only_planned=plan)
    for notice in outcome.warnings:
        show_warning(notice)
    if as_json:
        write_result(asdict(outcome) | {"warnings": shown_warnings()})
    elif not quiet:
        write_result(list(describe_undo(outcome, is_planned=plan)))


def describe_undo(outcome: UndoOutcome, *, is_planned: bool) -> Iterator[str]:
    """Yield lines that say which rows were removed from each table; with `is_planned`, which would be removed."""
    on_server = describe_server(outcome.server, outcome.database)
    yield f"{'would undo' if is_planned else 'undid'} load {outcome.load_id}{on_server}:"
    for each in outcome.tables:
        stay = each.stored - each.rows
        changed = f", {stay:,} of {each.stored:,} were changed since and are not removed" if stay else ""
        yield f'  {count_nouns(each.rows, "row")} of "{each.table}"{changed}'
        yield from (f"    referred to by {referrer}" for referrer in each.referrers if is_planned)
    if not outcome.tables:
        yield "  it has stored no rows"
    if not is_planned:
        others = f", but for {count_nouns(outcome.shared, 'file')} of other loads, too" if outcome.shared else ""
        yield f"its files count as not loaded{others}"
