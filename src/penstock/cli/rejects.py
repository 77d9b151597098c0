"""`penstock rejects`: what a load has rejected, and why."""

from __future__ import annotations

from pathlib import Path

import typer

from penstock.cli import options as given  # noqa: TC001 (typer reads annotations)
from penstock.cli.loads import Json, LoadId  # noqa: TC001 (typer reads annotations)
from penstock.cli.messages import Messages
from penstock.cli.output import write_result
from penstock.cli.rejects_view import cause_object, describe_causes, note_reject_files
from penstock.cli.target import open_target

app = typer.Typer(add_completion=False)


@app.command("rejects")
def rejects(
    load_id: LoadId,
    to: given.To = None,
    role: given.Role = None,
    iam_auth: given.IamAuth = False,
    tunnel: given.Tunnel = None,
    reject_file: given.RejectOutput = None,
    ledger_schema: given.LedgerSchema = "penstock",
    as_json: Json = False,
) -> None:
    """Show why records of a load were rejected, by cause, with the first record of each.

    The records are in the ledger, visible only to the role that loaded them; --reject-file writes
    them to a file to be corrected.
    """
    from penstock.api.ledger_view import LedgerView

    with LedgerView(open_target(to, role=role, iam_auth=iam_auth, tunnel=tunnel), ledger_schema=ledger_schema) as view:
        whole_id = view.find(load_id)
        causes = view.rejects(whole_id)
        paths = [] if reject_file is None else view.write_rejects(whole_id, Path(reject_file))
    if as_json:
        write_result({"load_id": whole_id, "causes": [cause_object(cause) for cause in causes]})
    else:
        write_result(describe_causes(causes, load_id=whole_id))
    note_reject_files(paths, Messages())
