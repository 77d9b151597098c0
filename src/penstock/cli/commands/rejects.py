"""`penstock rejects`: shows which records a load has rejected, and why."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.cli.options.declared import LEDGER, takes
from penstock.cli.options.shared import Json, RejectingId  # noqa: TC001 (typer reads annotations)
from penstock.cli.options.target import open_ledger
from penstock.cli.terminal.messages import Messages
from penstock.cli.terminal.output import write_result
from penstock.cli.views.outcome_view import describe_server, server_object
from penstock.cli.views.rejects_view import cause_object, describe_causes, describe_discarded, note_reject_files
from penstock.errors import UsageError

Discard = Annotated[bool, typer.Option("--discard", help="Delete them: they will not be loaded.")]


@takes((*LEDGER, "reject_file"))
def rejects(load_id: RejectingId, discard: Discard = False, as_json: Json = False, **options: Any) -> None:
    """Show why records of a load were rejected, by cause, with the first record of each.

    The records are in the ledger, visible only to the role that loaded them; --reject-file writes
    them to a file to be corrected.
    """
    if discard and "reject_file" in options:
        raise UsageError(
            "--discard cannot be used with --reject-file",
            hint="Write the file first, then run penstock rejects ID --discard.",
        )
    with open_ledger(options) as view:
        whole_id, server = view.find_rejecting(load_id), view.server()
        head = server_object(server) | {"load_id": whole_id}
        on_server = describe_server(server.name, server.database)
        if discard:
            count = view.discard_rejects(whole_id)
            write_result(head | {"discarded": count} if as_json else describe_discarded(whole_id, count, on_server))
            return
        causes = view.rejects(whole_id)
        paths = view.write_rejects(whole_id, Path(options["reject_file"])) if "reject_file" in options else []
    if as_json:
        write_result(head | {"causes": [cause_object(cause) for cause in causes]})
    else:
        write_result(describe_causes(causes, load_id=whole_id, on_server=on_server))
    note_reject_files(paths, Messages())
