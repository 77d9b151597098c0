"""`penstock loads`: what the ledger of a database says of its loads."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from penstock.cli import options as given  # noqa: TC001 (typer reads annotations)
from penstock.cli.loads_view import describe_load, describe_loads, describe_missing, load_object
from penstock.cli.messages import Messages
from penstock.cli.output import write_result
from penstock.cli.target import open_target
from penstock.errors import UsageError

app = typer.Typer(add_completion=False)

LoadId = Annotated[
    str, typer.Argument(metavar="ID", show_default=False, help="The load's id, or its first characters.")
]
KeepRows = Annotated[
    bool, typer.Option("--keep-rows", help="Remove the load from the ledger and keep its rows in the tables.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")]


@app.callback(invoke_without_command=True)
def list_loads(
    context: typer.Context,
    to: given.To = None,
    role: given.Role = None,
    iam_auth: given.IamAuth = False,
    tunnel: given.Tunnel = None,
    ledger_schema: given.LedgerSchema = "penstock",
    as_json: Json = False,
) -> None:
    """List the loads that are recorded in a database: state, rows, rate, and number of missing objects.

    With a command, show or forget one of them; options must come after the command.
    """
    if context.invoked_subcommand is not None:
        _refuse_options(context, context.invoked_subcommand)
        return
    from penstock.api.ledger_view import LedgerView

    with LedgerView(open_target(to, role=role, iam_auth=iam_auth, tunnel=tunnel), ledger_schema=ledger_schema) as view:
        records, missing = view.loads(), view.missing()
    if as_json:
        loads = [load_object(record) for record in records]
        write_result({"loads": loads, "missing": [asdict(each) for each in missing]})
    else:
        write_result(describe_loads(records) + describe_missing(missing))


def _refuse_options(context: typer.Context, command: str) -> None:
    """Raise UsageError where an option stands before a command, which would not see it."""
    for param in context.command.params:
        source = context.get_parameter_source(param.name or "")
        if source is not None and source.name == "COMMANDLINE":
            raise UsageError(
                f"{param.opts[0]} must come after {command}",
                hint=f"Write: penstock loads {command} ID {param.opts[0]} ...",
            )


@app.command()
def show(
    load_id: LoadId,
    to: given.To = None,
    role: given.Role = None,
    iam_auth: given.IamAuth = False,
    tunnel: given.Tunnel = None,
    ledger_schema: given.LedgerSchema = "penstock",
    as_json: Json = False,
) -> None:
    """Show one load with its objects, and what is missing of each."""
    from penstock.api.ledger_view import LedgerView

    with LedgerView(open_target(to, role=role, iam_auth=iam_auth, tunnel=tunnel), ledger_schema=ledger_schema) as view:
        record, objects = view.load(view.find(load_id))
    if as_json:
        write_result(load_object(record, objects))
    else:
        write_result(describe_load(record, objects))


@app.command()
def forget(
    load_id: LoadId,
    to: given.To = None,
    role: given.Role = None,
    iam_auth: given.IamAuth = False,
    tunnel: given.Tunnel = None,
    ledger_schema: given.LedgerSchema = "penstock",
    keep_rows: KeepRows = False,
) -> None:
    """Remove a load from the ledger, and the tables created for it; its objects then count as not loaded.

    A running load is refused, and without --keep-rows one that has rows in its tables.
    """
    from penstock.api.ledger_view import LedgerView

    with LedgerView(open_target(to, role=role, iam_auth=iam_auth, tunnel=tunnel), ledger_schema=ledger_schema) as view:
        whole_id = view.find(load_id)
        staying = view.forget(whole_id, keeps_rows=keep_rows)
    Messages().note(f"forgot load {whole_id}")
    for each in staying:
        Messages().note(f'{each.rows:,} rows of it remain in "{each.table}"')
