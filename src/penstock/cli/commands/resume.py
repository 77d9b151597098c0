"""`penstock resume`: resumes an interrupted load from the job that the ledger records."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from penstock.cli.commands.load import LoadCommand
from penstock.cli.options.declared import takes
from penstock.cli.options.shared import Json, LoadId, QuietLoad  # noqa: TC001 (typer reads annotations)
from penstock.cli.options.target import open_target
from penstock.cli.terminal.messages import Messages
from penstock.model.load.job import Access, Housekeeping, LoadJob, LoadRules, Request
from penstock.model.options import pick

# The options that may differ when a load is resumed. The table, and options that decide which rows are stored, may not
# differ.
_OPTIONS = (
    *(
        "to",
        "role",
        "iam_auth",
        "tunnel",
        "read_write",
        "sessions",
        "changed",
        "emptied",
        "wait",
        "retry_for",
        "ignore_space",
    ),
    *("on_error", "max_rejects", "max_record", "warnings", "settings", "shared_group", "ledger_schema", "reject_file"),
)


@takes(_OPTIONS)
def resume(load_id: LoadId, quiet: QuietLoad = False, as_json: Json = False, **options: Any) -> None:
    """Resume a load that was cut short, on any host that reads the same sources.

    Its sources, table and options are those of the command that began it.
    """
    from penstock.api.ledger_view import LedgerView

    messages = Messages(is_quiet=quiet)
    house, rules = Housekeeping(**pick(Housekeeping, options)), pick(LoadRules, options)
    # The load's own --retry-for is not known before its job is read.
    retry_for_s = LoadRules(**{name: rules[name] for name in ("retry_for",) if name in rules}).retry_for
    with LedgerView(open_target(options), ledger_schema=house.ledger_schema) as view:
        whole_id, job = view.find_job(load_id, retry_for_s=retry_for_s, on_notice=messages.note)
    job = replace(job, rules=replace(job.rules, **{"wait": True, **rules}), **pick(LoadJob, options))
    request = Request(job=job, access=Access(**pick(Access, options)), housekeeping=house)
    command = LoadCommand(messages=messages, as_json=as_json)
    command.run(request, action="load", resumes=whole_id)
