"""`penstock repair`: restores the changes that ended loads have left in a database and on its server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.changes.values import RepairStep, name_with_attached
from penstock.cli.options import LEDGER, Json, Quiet, open_target, takes
from penstock.cli.output import Messages, show_warning, shown_warnings, write_result
from penstock.core.units import format_bytes, format_duration
from penstock.core.values.job import Housekeeping
from penstock.core.values.notice import Notice
from penstock.core.values.options import join_lists, pick, split_names
from penstock.core.values.server import describe_server
from penstock.core.words import line_up
from penstock.loading.views.outcome import server_object, staging_object
from penstock.settings.view import describe_results
from penstock.temp.view import describe_removed, report_object

if TYPE_CHECKING:
    from penstock.restore.repair import RepairOutcome

Plan = Annotated[bool, typer.Option("--plan", help="Print what would be restored, and do nothing else.")]
ForgetMissing = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME[,NAME]",
        help="Forget these indexes and keys, which a failed rebuild has left missing; print the statements "
        "that create them by hand, and do nothing else. May be given several times.",
    ),
]


@takes(LEDGER)
def repair(
    plan: Plan = False,
    forget_missing: ForgetMissing = None,
    quiet: Quiet = False,
    as_json: Json = False,
    **options: Any,
) -> None:
    """Restore what loads have changed, after a crash or a failed rebuild.

    These are indexes and keys that were dropped, triggers that were disabled, autovacuum that was paused, settings of
    the server, and a tablespace for temporary work if penstock temp place or remove was interrupted. Staging tables
    that failed merges have left are dropped: a load that had one reads its files again when it is resumed. What a
    running load has changed is kept. Changes of a table are restored as the role that made them: run repair as that
    role, or as a member of it.
    """
    from penstock.restore.repair import Repairer

    messages = Messages(is_quiet=quiet)
    connect = open_target(options)
    repairer = Repairer(connect, **pick(Housekeeping, options), on_notice=messages.note)
    with repairer:
        server = repairer.server()
        on_server = describe_server(server.name, server.database)
        forgotten = join_lists(forget_missing)
        if plan or forgotten is not None:
            names = None if forgotten is None else split_names(forgotten) or ("",)
            steps = repairer.plan() if names is None else repairer.forget_missing(names, only_planned=plan)
            planned = server_object(server) | {"steps": steps}
            write_result(planned if as_json else describe_steps(steps, on_server))
            return
        done = repairer.run()
    for text in dict.fromkeys(done.held):
        show_warning(Notice(code="not-restored", message=text))
    for text in () if done.temp_place is None else done.temp_place.left:
        show_warning(Notice(code="settings", message=f"not restored: {text}"))
    if as_json:
        errors = [{"message": error.message, "detail": error.detail, "hint": error.hint} for error in done.errors]
        dropped = [staging_object(each) for each in done.dropped]
        temp_place = None if done.temp_place is None else report_object(done.temp_place)
        result = {"rebuilt": done.rebuilt, "settings": done.settings, "dropped": dropped, "temp_place": temp_place}
        held = {"held": done.held, "errors": errors, "warnings": shown_warnings()}
        write_result({**server_object(server), **result, **held})
    elif not quiet:
        write_result(describe_repair(done, on_server))
    done.raise_first()


def describe_steps(steps: Sequence[RepairStep], on_server: str = "") -> list[str]:
    """Return lines of text: a heading, and a line for each step of a repair with its table, object, role and reason.

    `on_server` is text that follows the heading's first words.
    """
    if not steps:
        return [f"nothing to repair{on_server}"]
    heads = ("table", "what", "name", "as", "action", "why")
    rows = [(step.table, step.kind, name_with_attached(step), step.owner, step.action, step.reason) for step in steps]
    return [f"to repair{on_server}:", *line_up([heads, *rows], align="<<<<<<")]


def describe_repair(done: RepairOutcome, on_server: str) -> list[str]:
    """Return lines of text that list what a repair has restored and dropped. `on_server` is text for the heading."""
    lines = [f"settings: {line}" for line in describe_results(done.settings)]
    lines += [f"dropped {each.table} ({format_bytes(each.size_bytes)})" for each in done.dropped]
    lines += [] if done.temp_place is None else describe_removed(done.temp_place)
    if done.rebuilt:
        rows = [(each.table, each.kind, each.name, format_duration(each.seconds)) for each in done.rebuilt]
        lines += [f"restored {len(done.rebuilt)}:", *line_up(rows, align="<<<>", indent="  ")]
    if lines:
        return [f"repaired{on_server}:", *lines]
    return [f"{'nothing was restored' if done.errors or done.held else 'nothing to repair'}{on_server}"]
