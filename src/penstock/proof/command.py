"""`penstock verify`: holds a complete load against its files, the ledger and the table."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer

from penstock.cli.options import LEDGER, Json, NewestId, Quiet, open_ledger, takes
from penstock.cli.output import PROBLEMS, Messages, write_result
from penstock.core.values.server import describe_server
from penstock.loading.command.progress import showing_progress
from penstock.proof.view import describe_verification

Values = Annotated[
    bool,
    typer.Option(
        "--values",
        help="Also read the files again, send them into a temporary table, and have the server compare every value.",
    ),
]


@takes(LEDGER)
def verify(
    load_id: NewestId, values: Values = False, quiet: Quiet = False, as_json: Json = False, **options: Any
) -> None:
    """Verify that a load has stored each record of its files once. Nothing is changed.

    The load must be complete. The files must have the versions that were loaded, or the same size and content. The
    ledger must have every part of each file once, and the records that were cut must be those that were stored,
    rejected or skipped. If the load emptied, replaced or created the table, and no other load has written to it since,
    the table must have exactly the load's rows, otherwise at least those that it stored, updated or found. Counts agree
    or differ; only --values verifies.

    Exit codes: 0 verified, or no problem was found by counts, 5 problems were found.
    """
    messages = Messages(is_quiet=quiet)
    with open_ledger(options, allows_standby=not values) as view, showing_progress(messages) as on_progress:
        outcome = view.verify(view.find_newest(load_id), values=values, on_progress=on_progress)
    if as_json:
        verdict = {"is_verified": outcome.is_verified} if values else {}
        write_result(verdict | {"agrees": outcome.agrees} | asdict(outcome))
    elif not quiet or not outcome.agrees:
        write_result([*describe_verification(outcome, describe_server(outcome.server, outcome.database))])
    if outcome.problems:
        raise typer.Exit(PROBLEMS)
