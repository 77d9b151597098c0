"""`penstock rejects` shows which records a load has rejected, and `penstock retry` loads them again."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.cli.options import LEDGER, Json, RejectingId, open_ledger, takes
from penstock.cli.output import REJECTS, Messages, write_result
from penstock.core.errors import UsageError
from penstock.core.values.names import parse_table_name
from penstock.core.values.server import describe_server
from penstock.loading.command.records import (
    cause_object,
    describe_causes,
    describe_discarded,
    describe_retry,
    note_reject_files,
)
from penstock.loading.views.outcome import server_object

Discard = Annotated[bool, typer.Option("--discard", help="Delete them: they will not be loaded.")]


@takes((*LEDGER, "reject_file"))
def rejects(load_id: RejectingId, discard: Discard = False, as_json: Json = False, **options: Any) -> None:
    """Show why records were rejected, by cause. Show the first record of each cause.

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
    """Load the rejected records of a load again. Do so after the table was changed, or from a corrected file.

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
