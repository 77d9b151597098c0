"""`penstock retry`: loads rejected records once more, as they are or as they were corrected."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli import options as given  # noqa: TC001 (typer reads annotations)
from penstock.cli.exit_codes import REJECTS
from penstock.cli.loads import Json, LoadId  # noqa: TC001 (typer reads annotations)
from penstock.cli.output import write_result
from penstock.cli.rejects_view import describe_retry
from penstock.cli.target import open_target

app = typer.Typer(add_completion=False)

File = Annotated[
    str | None,
    typer.Argument(
        metavar="[FILE]",
        show_default=False,
        help="Load this corrected reject file: each of its records replaces the rejected one.",
    ),
]


@app.command("retry")
def retry(
    load_id: LoadId,
    file: File = None,
    to: given.To = None,
    role: given.Role = None,
    iam_auth: given.IamAuth = False,
    tunnel: given.Tunnel = None,
    ledger_schema: given.LedgerSchema = "penstock",
    as_json: Json = False,
) -> None:
    """Load the rejected records of a load again, after the table was changed, or from a corrected file.

    Records that are loaded are removed from the rejected ones, so none is loaded twice; the others remain. Rejected
    records of merged or replaced tables are loaded from a file: see penstock rejects --reject-file.

    Exit codes: 0 all were loaded, 3 some remain.
    """
    from penstock.api.ledger_view import LedgerView

    with LedgerView(open_target(to, role=role, iam_auth=iam_auth, tunnel=tunnel), ledger_schema=ledger_schema) as view:
        outcome = view.retry(view.find(load_id), None if file is None else Path(file))
    write_result(asdict(outcome) if as_json else describe_retry(outcome))
    if outcome.left:
        raise typer.Exit(REJECTS)
