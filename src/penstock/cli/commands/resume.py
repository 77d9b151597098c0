"""`penstock resume`: resumes an interrupted load from the job that the ledger records."""

from __future__ import annotations

from typing import Any

from penstock.api.options import RESUME
from penstock.cli.commands.load import LoadCommand
from penstock.cli.options.declared import takes
from penstock.cli.options.shared import Json, QuietLoad, UnfinishedId  # noqa: TC001 (typer reads annotations)
from penstock.cli.options.target import open_target
from penstock.cli.terminal.messages import Messages
from penstock.model.load.job import Access, Housekeeping, Request
from penstock.model.options import pick


@takes(("to", *RESUME))
def resume(load_id: UnfinishedId, quiet: QuietLoad = False, as_json: Json = False, **options: Any) -> None:
    """Resume a load that was cut short, on any host that reads the same sources.

    Its sources, table and options are those of the command that began it.
    """
    from penstock.api.ledger_view import LedgerView

    messages = Messages(is_quiet=quiet)
    house = Housekeeping(**pick(Housekeeping, options))
    with LedgerView(open_target(options), ledger_schema=house.ledger_schema) as view:
        whole_id, job = view.find_resumed(load_id, options, on_notice=messages.note)
    request = Request(job=job, access=Access(**pick(Access, options)), housekeeping=house)
    command = LoadCommand(messages=messages, as_json=as_json)
    command.run(request, action="load", resumes=whole_id)
