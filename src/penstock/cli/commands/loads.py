"""`penstock loads`: what the ledger of a database says of its loads."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer

from penstock.cli.options.declared import LEDGER, takes
from penstock.cli.options.shared import Json, LoadId  # noqa: TC001 (typer reads annotations)
from penstock.cli.options.target import open_ledger
from penstock.cli.terminal.messages import Messages
from penstock.cli.terminal.output import write_result
from penstock.cli.views.loads_view import describe_load, describe_loads, describe_missing, load_object
from penstock.errors import UsageError

app = typer.Typer(add_completion=False)

KeepRows = Annotated[
    bool, typer.Option("--keep-rows", help="Remove the load from the ledger and keep its rows in the tables.")
]


@app.callback(invoke_without_command=True)
@takes(LEDGER)
def list_loads(context: typer.Context, as_json: Json = False, **options: Any) -> None:
    """List the loads that are recorded in a database: state, rows, rate, and number of missing objects.

    With a command, show or forget one of them; options must come after the command.
    """
    if context.invoked_subcommand is not None:
        _refuse_options(context, context.invoked_subcommand)
        return
    with open_ledger(options) as view:
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
@takes(LEDGER)
def show(load_id: LoadId, as_json: Json = False, **options: Any) -> None:
    """Show one load with its objects, and what is missing of each."""
    with open_ledger(options) as view:
        record, objects = view.load(view.find(load_id))
    if as_json:
        write_result(load_object(record, objects))
    else:
        write_result(describe_load(record, objects))


@app.command()
@takes(LEDGER)
def forget(load_id: LoadId, keep_rows: KeepRows = False, **options: Any) -> None:
    """Remove a load from the ledger, and the tables created for it; its objects then count as not loaded.

    A running load is refused, and without --keep-rows one that has rows in its tables.
    """
    with open_ledger(options) as view:
        whole_id = view.find(load_id)
        staying = view.forget(whole_id, keeps_rows=keep_rows)
    Messages().note(f"forgot load {whole_id}")
    for each in staying:
        Messages().note(f'{each.rows:,} rows of it remain in "{each.table}"')
