"""`penstock verify`: holds a complete load against its files, the ledger and the table."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.options import LEDGER, Json, NewestId, Quiet, open_ledger, takes
from penstock.cli.output import PROBLEMS, Messages, to_fields, write_result
from penstock.core.errors import TargetError, UsageError
from penstock.core.values.names import parse_table_name
from penstock.core.values.server import describe_server
from penstock.loading.command.progress import showing_progress
from penstock.proof.values import TableOutcome, VerifyOutcome
from penstock.proof.view import describe_table, describe_verification

if TYPE_CHECKING:
    from penstock.api.ledger_view import LedgerView

Values = Annotated[
    bool,
    typer.Option(
        "--values",
        help="Also read the files again, send them into a temporary table, and have the server compare every value.",
    ),
]


Into = Annotated[
    str | None,
    typer.Option(
        metavar="TABLE",
        show_default=False,
        help="Verify all loads together that have filled this table, in place of one load.",
    ),
]


@takes(LEDGER)
def verify(
    load_id: NewestId = "",
    values: Values = False,
    into: Into = None,
    quiet: Quiet = False,
    as_json: Json = False,
    **options: Any,
) -> None:
    """Verify that a load, or all loads into a table, have stored each record of their files once. Nothing is changed.

    The load must be complete. The files must have the versions that were loaded, or the same size and content. The
    ledger must have the whole of each file, and nothing of it twice. The number of records read from a file must be the
    number that was stored, rejected or skipped. If the load emptied, replaced or created the table, and no other load
    has written to it since, the table must have exactly the load's rows, otherwise at least those that it stored,
    updated or found. Without --values only these counts are compared, and the result is that they agree or differ. Only
    --values compares each value, and can say verified.

    Exit codes: 0 verified, or no problem was found by counts, 5 problems were found.
    """
    if bool(load_id) == (into is not None):
        hint = "The ids are listed by penstock loads. See penstock verify --help."
        raise UsageError("name either a load, or a table with --into", hint=hint)
    messages = Messages(is_quiet=quiet)
    outcome: VerifyOutcome | TableOutcome
    with open_ledger(options, allows_standby=not values) as view, showing_progress(messages) as on_progress:
        if into is None:
            outcome = view.verify(_find_load(view, load_id), values=values, on_progress=on_progress)
        else:
            outcome = view.verify_table(parse_table_name(into), values=values, on_progress=on_progress)
    if as_json:
        verdict = {"is_verified": outcome.is_verified} if values else {}
        write_result(verdict | {"agrees": outcome.agrees} | to_fields(outcome))
    elif not quiet or not outcome.agrees or (values and not outcome.is_verified):
        on_server = describe_server(outcome.server, outcome.database)
        if isinstance(outcome, VerifyOutcome):
            write_result([*describe_verification(outcome, on_server)])
        else:
            write_result([*describe_table(outcome, on_server)])
    if outcome.problems:
        raise typer.Exit(PROBLEMS)


def _find_load(view: LedgerView, load_id: str) -> str:
    try:
        return view.find_newest(load_id)
    except TargetError as error:
        if load_id != "latest" and not set(load_id.lower()) <= set("0123456789abcdef-"):
            error.hint = f"See penstock loads. If it is a table: penstock verify --into {shlex.quote(load_id)}."
        raise
