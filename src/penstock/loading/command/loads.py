"""`penstock loads` lists, shows, prunes and forgets the loads of a ledger. `penstock init` creates one to share."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import typer.core

from penstock.cli.options import LEDGER, Json, NewestId, open_ledger, takes
from penstock.cli.output import Messages, write_result
from penstock.core.errors import UsageError
from penstock.core.units import count_nouns
from penstock.core.values.job import Housekeeping
from penstock.core.values.options import OptionError, join_lists, parse_duration, pick, read_duration, split_names
from penstock.core.values.server import describe_server
from penstock.loading.views.outcome import (
    describe_load,
    describe_loads,
    describe_metrics,
    describe_missing,
    describe_pruned,
    describe_staging,
    load_object,
    server_object,
    staging_object,
)

if TYPE_CHECKING:
    # typer contains its own copy of click, and the types in it have no public name.
    from typer._click import Command, Context


# The beginning of a load's id, or the word for the newest. No command's name matches this pattern.
_ID = re.compile(r"[0-9a-f-]+|latest", re.IGNORECASE)


class _LoadsGroup(typer.core.TyperGroup):
    """A group in which `penstock loads ID` means `penstock loads show ID`."""

    def resolve_command(self, ctx: Context, args: list[str]) -> tuple[str | None, Command | None, list[str]]:
        """Return the name of the command, the command and its arguments.

        If `args` begin with a load's id, it is `show`.
        """
        return super().resolve_command(ctx, ["show", *args] if _ID.fullmatch(args[0]) else args)


app = typer.Typer(cls=_LoadsGroup, add_completion=False)

# How many loads are listed by default.
_LIMIT = 20

KeepRows = Annotated[
    bool, typer.Option("--keep-rows", help="Remove the load from the ledger and keep its rows in the tables.")
]


Since = Annotated[
    str | None,
    typer.Option(
        "--since",
        metavar="TIME",
        help="Only loads begun in that time, such as 12h or 7d, or since a date such as 2026-11-29.",
    ),
]
Into = Annotated[str | None, typer.Option("--into", metavar="TABLE", help="Only loads into this table.")]
Limit = Annotated[
    int, typer.Option("--limit", metavar="N", min=1, show_default=False, help="At most N, the newest (default: 20).")
]
AsMetrics = Annotated[
    bool,
    typer.Option(
        "--metrics", help="Print what is known of each table as metrics, in the format of OpenMetrics and Prometheus."
    ),
]
TextFile = Annotated[
    Path | None,
    typer.Option(
        "--textfile",
        metavar="FILE",
        help="With --metrics, replace this file as a whole: a .prom file of node_exporter's textfile collector.",
    ),
]
OlderThan = Annotated[
    str,
    typer.Option(
        "--older-than", metavar="TIME", show_default=False, help="Loads without progress for that time, such as 90d."
    ),
]


@app.callback(invoke_without_command=True)
@takes(LEDGER)
def list_loads(
    context: typer.Context,
    since: Since = None,
    into: Into = None,
    limit: Limit = _LIMIT,
    metrics: AsMetrics = False,
    textfile: TextFile = None,
    as_json: Json = False,
    **options: Any,
) -> None:
    """List the loads of a database: state, rows, rate, missing objects.

    With an id or latest, show that load; with a command, show or forget one of them, or prune the ledger. Options must
    come after the command or id.
    """
    if context.invoked_subcommand is not None:
        _refuse_options(context, context.invoked_subcommand)
        return
    if textfile is not None and not metrics:
        raise UsageError("--textfile cannot be used without --metrics")
    if metrics:
        if since is not None or into is not None or as_json or context.params["limit"] != _LIMIT:
            raise UsageError(
                "--metrics cannot be used with --since, --into, --limit or --json",
                hint="It prints one text for all tables.",
            )
        _write_metrics(options, textfile)
        return
    began = None if since is None else _read_since(since, now=datetime.now().astimezone())
    with open_ledger(options) as view:
        found = view.loads(since=began, into=into, limit=limit + 1)
        missing, staging, server = view.missing(), view.left_staging(), view.server()
    records = found[-limit:]
    has_more = len(found) > limit
    if as_json:
        result = server_object(server) | {"has_more": has_more}
        result["loads"] = [load_object(record) for record in records]
        result["missing"] = missing
        result["staging"] = [staging_object(each) for each in staging]
        write_result(result)
    else:
        lines = describe_loads(records, describe_server(server.name, server.database))
        lines += ["earlier loads are not shown: use --limit or --since"] if has_more else []
        write_result(lines + describe_missing(missing) + describe_staging(staging))


def _write_metrics(options: Mapping[str, Any], path: Path | None) -> None:
    with open_ledger(options) as view:
        lines = describe_metrics(view.totals(), view.server())
    if path is None:
        write_result(lines)
        return
    from penstock.core.newfile import write_file

    # Let other users read the file, because node_exporter runs as another user.
    write_file(path, "".join(f"{line}\n" for line in lines).encode(), mode=0o644)


def _read_since(text: str, *, now: datetime) -> datetime:
    """Return the time of --since, which is a date, or a duration before `now`. Raises UsageError.

    A number without a unit is refused: it may be meant as a year.
    """
    with suppress(ValueError):
        return datetime.fromisoformat(text).astimezone()
    with suppress(ValueError):
        if not text.strip().isdecimal():
            return now - timedelta(seconds=read_duration(text))
    raise OptionError("--since", text, "a time such as 12h or 7d, or a date such as 2026-11-29 or 2026-11-29T08:30")


def _refuse_options(context: typer.Context, command: str) -> None:
    """Raise UsageError if an option is given before a subcommand, because the subcommand would ignore it."""
    for param in context.command.params:
        source = context.get_parameter_source(param.name or "")
        if source is not None and source.name == "COMMANDLINE":
            raise UsageError(
                f"{param.opts[0]} must come after {command}",
                hint=f"Write: penstock loads {command} ID {param.opts[0]} ...",
            )


@app.command()
@takes(LEDGER)
def show(load_id: NewestId, as_json: Json = False, **options: Any) -> None:
    """Show a load's objects, what is missing of each, and who loads them."""
    with open_ledger(options) as view:
        record, objects = view.load(view.find_newest(load_id))
        members = view.members(record.load_id)
    if as_json:
        write_result(load_object(record, objects) | {"members": members})
    else:
        write_result(describe_load(record, objects, members))


@app.command()
@takes(LEDGER)
def prune(older_than: OlderThan, as_json: Json = False, **options: Any) -> None:
    """Remove what the ledger no longer needs of loads that are complete.

    Staging tables of failed merges are removed, too. One small row of each object stays, so that it is not loaded
    twice. Loads with rejected records are kept: see penstock rejects --discard.
    """
    age_s = parse_duration(older_than, option="--older-than")
    with open_ledger(options) as view:
        pruned = view.prune(age_s=age_s)
    if as_json:
        staging = [staging_object(each) for each in pruned.staging]
        write_result({"loads": pruned.loads, "size_bytes": pruned.size_bytes, "staging": staging})
    else:
        write_result(describe_pruned(pruned))


@app.command()
@takes(LEDGER)
def forget(load_id: NewestId, keep_rows: KeepRows = False, **options: Any) -> None:
    """Remove a load from the ledger, and the tables created for it. Its objects then count as not loaded.

    A running load is refused, and so is one with rejected records (penstock rejects ID --discard deletes them). A load
    that has rows in its tables, or of which row triggers skipped records, is refused without --keep-rows.
    """
    with open_ledger(options) as view:
        whole_id = view.find_newest(load_id, removable=True)
        staying = view.forget(whole_id, keeps_rows=keep_rows)
    Messages().note(f"forgot load {whole_id}")
    for each in staying:
        Messages().note(
            f'{count_nouns(each.rows, "row")} of it {"remains" if each.rows == 1 else "remain"} in "{each.table}"'
            f"{each.elsewhere}"
        )


Grant = Annotated[
    list[str] | None,
    typer.Option(
        "--grant", metavar="ROLE[,ROLE]", help="Let these roles record their loads in it. May be given several times."
    ),
]
Plan = Annotated[bool, typer.Option("--plan", help="Print the statements, and do nothing.")]

Upgrade = Annotated[
    bool, typer.Option("--upgrade", help="Upgrade a ledger that an older penstock created, and end its running loads.")
]


@takes((*LEDGER, "publish_ledger"))
def init(
    grant: Grant = None, upgrade: Upgrade = False, plan: Plan = False, as_json: Json = False, **options: Any
) -> None:
    """Create the ledger as the database's owner, for several roles. Keep what exists.

    Each role sees all loads, and row-level security lets it change only its own. To resume or forget a load of another
    role, a role must be a member of it. Run it as the database's owner, a member of that role, or a superuser.
    """
    house = Housekeeping(**pick(Housekeeping, options))
    granted = join_lists(grant)
    roles = () if granted is None else split_names(granted)
    with open_ledger(options) as view:
        statements = view.share(roles, is_publishing_allowed=house.publish_ledger, upgrades=upgrade, only_planned=plan)
        server = view.server()
    if as_json:
        result = server_object(server) | {"schema": house.ledger_schema}
        write_result(result | {"roles": roles, "statements": statements, "is_planned": plan})
    elif plan:
        write_result(["BEGIN;", *(f"{statement};" for statement in statements), "COMMIT;"])
    else:
        receivers = f", granted to {', '.join(roles)}" if roles else ""
        on_server = describe_server(server.name, server.database)
        write_result(f"the ledger is ready in schema {house.ledger_schema}{on_server}{receivers}")
