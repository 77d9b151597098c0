"""`penstock retry`: loads rejected records again, unchanged or from a corrected file."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.cli.options.declared import LEDGER, takes
from penstock.cli.options.shared import Json, RejectingId  # noqa: TC001 (typer reads annotations)
from penstock.cli.options.target import open_ledger
from penstock.cli.terminal.exit_codes import REJECTS
from penstock.cli.terminal.output import write_result
from penstock.cli.views.outcome_view import describe_server, server_object
from penstock.cli.views.rejects_view import describe_retry
from penstock.model.server.names import parse_table_name

File = Annotated[
    str | None,
    typer.Argument(
        metavar="[FILE]",
        show_default=False,
        help="Load this corrected reject file: each of its records replaces the rejected one.",
    ),
]
Into = Annotated[
    str | None,
    typer.Option(
        metavar="TABLE",
        show_default=False,
        help="Name the table of FILE's records if several reject files of the load have its header.",
    ),
]


@takes(LEDGER)
def retry(load_id: RejectingId, file: File = None, into: Into = None, as_json: Json = False, **options: Any) -> None:
    """Load the rejected records of a load again, after the table was changed, or from a corrected file.

    All of them are stored as their load would have stored them, referenced tables first, in one transaction. Records
    that are loaded are removed from the rejected ones, so none is loaded twice; the others remain, with their places in
    the load's own files. A corrected file has the records of one of the load's reject files, in their order; those that
    are not corrected yet remain.

    Exit codes: 0 all were loaded, 3 some remain.
    """
    with open_ledger(options) as view:
        server = view.server()
        path, table = None if file is None else Path(file), None if into is None else parse_table_name(into)
        outcome = view.retry(view.find_rejecting(load_id), path, into=table)
    on_server = describe_server(server.name, server.database)
    write_result(server_object(server) | asdict(outcome) if as_json else describe_retry(outcome, on_server))
    if outcome.left:
        raise typer.Exit(REJECTS)
