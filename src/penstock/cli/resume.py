"""`penstock resume`: goes on with a load that was cut short, from what the ledger knows of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from penstock.cli import options as given  # noqa: TC001 (typer reads annotations)
from penstock.cli.load import Housekeeping, LoadCommand, interrupting_signals
from penstock.cli.loads import LoadId  # noqa: TC001 (typer reads annotations)
from penstock.cli.messages import Messages
from penstock.cli.options_settings import Settings, SharedGroup, parse_settings
from penstock.cli.parsing import parse_sessions
from penstock.cli.request import Request
from penstock.cli.rules import RuleOptions, parse_rules
from penstock.cli.target import open_target

if TYPE_CHECKING:
    from penstock.model.job import LoadRules

app = typer.Typer(add_completion=False)


@app.command("resume")
def resume(
    load_id: LoadId,
    to: given.To = None,
    role: given.Role = None,
    iam_auth: given.IamAuth = False,
    tunnel: given.Tunnel = None,
    sessions: given.Sessions = None,
    changed: given.Changed = None,
    emptied: given.Emptied = None,
    ignore_space: given.IgnoreSpace = False,
    no_wait: given.NoWait = False,
    retry_for: given.RetryFor = None,
    on_error: given.OnErrorOption = None,
    max_rejects: given.MaxRejects = None,
    reject_file: given.RejectFile = None,
    max_record: given.MaxRecord = None,
    settings: Settings = None,
    shared_group: SharedGroup = False,
    ledger_schema: given.LedgerSchema = "penstock",
    warnings: given.Warnings = None,
    quiet: given.Quiet = False,
    as_json: given.Json = False,
) -> None:
    """Go on with a load that was cut short, on any host that reads the same sources.

    Its sources, table and options are those of the command that began it.
    """
    from penstock.api.ledger_view import LedgerView

    messages = Messages(is_quiet=quiet)
    with LedgerView(open_target(to, role=role, iam_auth=iam_auth, tunnel=tunnel), ledger_schema=ledger_schema) as view:
        # What the load itself has for --retry-for is not known yet.
        retry_for_s = parse_rules(RuleOptions(retry_for=retry_for)).retry_for_s
        whole_id, job = view.find_job(load_id, retry_for_s=retry_for_s, on_notice=messages.note)
    rule_options = RuleOptions(
        changed=changed,
        emptied=emptied,
        ignore_space=ignore_space,
        no_wait=no_wait,
        retry_for=retry_for,
        on_error=job.rules.on_error if on_error is None else on_error,
        max_rejects=max_rejects,
        reject_file=reject_file,
        max_record=max_record,
        warnings=warnings,
    )
    rules = _override(job.rules, rule_options)
    job = replace(job, rules=rules, sessions=parse_sessions(sessions) if sessions else job.sessions)
    command = LoadCommand(messages=messages, is_quiet=quiet, as_json=as_json)
    with interrupting_signals():
        command.run(
            Request(job=job, to=to, role=role, iam_auth=iam_auth, tunnel=tunnel),
            Housekeeping(
                ledger_schema=ledger_schema,
                reject_file=None if reject_file is None else Path(reject_file),
                settings=parse_settings(settings, may_share_group=shared_group),
                may_share_group=shared_group,
                resumes=whole_id,
            ),
            pg_bin=None,
            action="load",
        )


def _override(rules: LoadRules, options: RuleOptions) -> LoadRules:
    """Return the rules of the load that is resumed, with what was typed now. Raises UsageError."""
    said = parse_rules(options)
    return replace(
        rules,
        on_changed=rules.on_changed if options.changed is None else said.on_changed,
        on_emptied=rules.on_emptied if options.emptied is None else said.on_emptied,
        ignores_space=rules.ignores_space or said.ignores_space,
        waits=said.waits,
        retry_for_s=rules.retry_for_s if options.retry_for is None else said.retry_for_s,
        on_error=said.on_error,
        max_record_bytes=rules.max_record_bytes if options.max_record is None else said.max_record_bytes,
        warnings=rules.warnings if options.warnings is None else said.warnings,
        max_rejects=rules.max_rejects if options.max_rejects is None else said.max_rejects,
    )
