"""`penstock temp`: commands for temporary work."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.options import SERVER, Json, Quiet, open_target, takes
from penstock.cli.output import PROBLEMS, Messages, show_warning, shown_warnings, write_message, write_result
from penstock.core.errors import Interrupted, ServerError, UsageError
from penstock.core.values.notice import Notice
from penstock.core.values.options import join_lists, parse_counts, parse_duration
from penstock.core.values.temp_place import parse_name, parse_scope
from penstock.temp.view import (
    check_object,
    describe_check,
    describe_placed,
    describe_plan,
    describe_removed,
    describe_replay,
    describe_usage,
    replay_object,
    report_object,
    usage_object,
)

if TYPE_CHECKING:
    from penstock.temp.place.place import PlaceKeeper

# Each name of a list. A name keeps its double quotes, since it is SQL's.
_NAMES = re.compile(r'(?:"(?:[^"]|"")*"|[^,"])+')

# The longest interval: a day. Within a longer time the statistics have probably been reset.
_LONGEST_S = 86_400.0


@takes(SERVER)
def usage(
    interval: Annotated[
        float,
        typer.Option(
            "--interval",
            min=0.0,
            metavar="SECONDS",
            help="Compare two readings so far apart; 0 shows statements since statistics were reset.",
        ),
    ] = 60.0,
    top: Annotated[int, typer.Option("--top", min=1, metavar="N", help="Show so many statements.")] = 10,
    as_json: Json = False,
    **options: Any,
) -> None:
    """Show which statements and databases write temporary files. Show what each tablespace holds now.

    For a query that the connected role has run in this database, also shows what it spills for, such as a sort, and the
    cheapest remedy. Reads the server twice and changes nothing; works on standbys. Statements need the extension
    pg_stat_statements; those of other roles, and files on disk, need pg_monitor. A statement is counted when it ends.

    Exit codes: 0 reported; others as for every command.
    """
    from penstock.temp.usage.usage import temp_usage
    from penstock.watch.watching import find_rds_host

    if not interval <= _LONGEST_S:
        raise UsageError(f"invalid value {interval} for --interval", hint="Give a number of seconds, up to 86400.")
    report = temp_usage(
        open_target(options, allows_standby=True),
        interval_s=interval,
        top=top,
        host=find_rds_host(options.get("to")),
        say=write_message,
    )
    write_result(usage_object(report) if as_json else describe_usage(report))


Dir = Annotated[str, typer.Argument(metavar="DIR", show_default=False, help="An empty directory of the server's.")]
ScopeOption = Annotated[
    str, typer.Option("--scope", metavar="SCOPE", help="Whose temporary work: server, database:NAME or role:NAME.")
]
Grant = Annotated[
    list[str] | None,
    typer.Option(
        metavar="ROLE[,ROLE]",
        help="Let only these roles use it. May be given several times (default: the role of --scope, or else every "
        "role).",
    ),
]
SameDevice = Annotated[bool, typer.Option("--same-device", help="Place it there though the data is on the same disk.")]
Plan = Annotated[bool, typer.Option("--plan", help="Print the statements, and do nothing else.")]
_WRITES = ("read_write", *SERVER)


@takes(_WRITES)
def place(
    directory: Dir,
    scope: ScopeOption = "server",
    grant: Grant = None,
    same_device: SameDevice = False,
    plan: Plan = False,
    quiet: Quiet = False,
    as_json: Json = False,
    **options: Any,
) -> None:
    """Put sorts, hashes and temporary tables on another disk. Prove that they go there.

    Creates a tablespace there, grants its use and sets temp_tablespaces, as a superuser. A sort that spills and a
    temporary table of a new session are then looked for in it; if they are not found, everything is undone. If it was
    interrupted, run it again to complete it; penstock temp remove and penstock repair undo it.
    """
    from penstock.temp.place.place import PlaceRequest

    request = PlaceRequest(
        directory=directory,
        scope=parse_scope(scope),
        granted=_parse_roles(grant),
        allows_same_device=same_device,
    )
    with closing(_open(options, is_quiet=quiet)) as keeper:
        report = keeper.plan(request) if plan else keeper.place(request)
    if as_json:
        write_result(report_object(report))
    elif plan or not quiet:
        write_result(describe_plan(report) if plan else describe_placed(report))


def _parse_roles(grant: list[str] | None) -> tuple[str, ...]:
    """Return the roles of --grant. Without any, every role may use the place."""
    found = tuple(parse_name(each.strip()) for each in _NAMES.findall(join_lists(grant) or ""))
    if grant and not found:
        raise UsageError("--grant names no role", hint="Name roles, or leave --grant out to let every role use it.")
    return found


@takes(SERVER)
def check(as_json: Json = False, **options: Any) -> None:
    """Check the place for temporary work. Create its directory again if a reboot has removed it.

    Looks for a missing directory, for tables and indexes there that would be lost with the disk, for roles that may not
    use it, for a changed setting, and at the space that is free. The directory is created if the server runs on this
    machine and this process may; otherwise the command is shown.

    Exit codes: 0 no problem was found, 5 problems were found; others as for every command.
    """
    with closing(_open(options)) as keeper:
        report = keeper.check()
    if report is None:
        write_result({"placement": None} if as_json else "no temporary work is placed")
        return
    write_result(check_object(report) if as_json else describe_check(report))
    if report.problems:
        raise typer.Exit(PROBLEMS)


@takes(_WRITES)
def remove(quiet: Quiet = False, as_json: Json = False, **options: Any) -> None:
    """Undo the place for temporary work. Restore temp_tablespaces, and drop the tablespace.

    What somebody else has changed since stays, and is shown. If permanent tables or indexes are in the tablespace, the
    command lists them, changes nothing and fails. If temporary files or tables are there, it restores temp_tablespaces,
    lists them and fails; run it again when they are gone.
    """
    with closing(_open(options, is_quiet=quiet)) as keeper:
        report = keeper.remove()
    for text in report.left:
        show_warning(Notice(code="settings", message=f"not restored: {text}"))
    if as_json:
        write_result(report_object(report) | {"warnings": shown_warnings()})
    elif not quiet:
        write_result(describe_removed(report))


def _open(options: Mapping[str, Any], *, is_quiet: bool = False) -> PlaceKeeper:
    from penstock.temp.place.place import PlaceKeeper

    return PlaceKeeper(open_target(options, allows_standby=True), tell=Messages(is_quiet=is_quiet).note)


SqlFile = Annotated[
    Path | None,
    typer.Option("--sql", metavar="FILE", help="Replay the statements of this file, separated by semicolons."),
]
Top = Annotated[
    int | None,
    typer.Option("--top", min=1, help="Replay the N statements of pg_stat_statements that spilled most."),
]
PlaceName = Annotated[
    str | None,
    typer.Option(
        "--place",
        metavar="TABLESPACE",
        help="The second place (default: temp_tablespaces as in force for the role). The first is pg_default.",
    ),
]
Against = Annotated[
    str | None,
    typer.Option(
        "--against",
        metavar="CONNINFO",
        help="Compare with this server instead, each with its own temp_tablespaces.",
    ),
]
Setup = Annotated[
    Path | None,
    typer.Option("--setup", metavar="FILE", help="Run these statements first in each session, such as SET."),
]
Concurrency = Annotated[
    list[str] | None,
    typer.Option(
        "--concurrency", metavar="LIST", help="Numbers of sessions that run a statement at once (default: 1,2,4)."
    ),
]
Rounds = Annotated[int, typer.Option("--rounds", min=3, help="Runs at each place, after a warm-up run.")]
_ROUNDS = 5
Timeout = Annotated[str, typer.Option("--timeout", metavar="TIME", help="Cancel a statement after this time.")]
_TIMEOUT = "10min"
CopyPlan = Annotated[
    bool,
    typer.Option(
        "--plan", help="Of an instance of RDS, print the commands that replay on a copy of it with local storage."
    ),
]


@takes(SERVER)
def replay(
    sql: SqlFile = None,
    top: Top = None,
    setup: Setup = None,
    concurrency: Concurrency = None,
    rounds: Rounds = _ROUNDS,
    timeout: Timeout = _TIMEOUT,
    place: PlaceName = None,
    against: Against = None,
    plan: CopyPlan = False,
    as_superuser: Annotated[
        bool, typer.Option("--as-superuser", help="Replay as a superuser, whose functions may do anything.")
    ] = False,
    as_json: Json = False,
    **options: Any,
) -> None:
    """Compare statements with their temporary files in two tablespaces. The first is pg_default.

    Each statement (SELECT, VALUES, TABLE, WITH or EXECUTE) runs under EXPLAIN (ANALYZE, BUFFERS) in a read-only
    transaction, in as many sessions at once as --concurrency says; its rows are not sent, and nothing is restarted. A
    read-only transaction does not prevent what functions do outside of the database: replay as a role that can do no
    harm.

    Exit codes: 0 compared, 2 both places are the same, or a statement does more than read, 6 a superuser, or a
    tablespace that the role may not use, 7 every statement failed.
    """
    from penstock.temp.replay.replay import replay_statements

    if (sql is None) == (top is None):
        raise UsageError("either --sql FILE or --top N is needed", hint="Name one of them.")
    _refuse_pairs(options, place=place, against=against, plan=plan)
    concurrencies = parse_counts(join_lists(concurrency) or "1,2,4", option="--concurrency")
    timeout_s = parse_duration(timeout, option="--timeout")
    if plan:
        given = {"--top": top, "--sql": sql, "--setup": setup, "--concurrency": join_lists(concurrency)}
        given |= {
            "--rounds": None if rounds == _ROUNDS else rounds,
            "--timeout": None if timeout == _TIMEOUT else timeout,
        }
        commands = _plan_copy(options, given, as_superuser=as_superuser)
        write_result({"commands": commands} if as_json else commands)
        return
    result = replay_statements(
        open_target(options, allows_standby=True),
        sql=sql,
        top=top,
        setup=setup,
        concurrencies=concurrencies,
        rounds=rounds,
        timeout_s=timeout_s,
        place=place,
        against=None if against is None else open_target({**options, "to": against}, allows_standby=True),
        allows_superuser=as_superuser,
        say=write_message,
    )
    write_result(replay_object(result) if as_json else describe_replay(result))
    if result.is_interrupted:
        raise Interrupted("replay interrupted")
    if all(each.verdict == "failed" for each in result.comparisons):
        raise ServerError("no statement could be replayed", hint="What is printed above says why each failed.")


def _refuse_pairs(options: Mapping[str, Any], *, place: str | None, against: str | None, plan: bool) -> None:
    """Raise UsageError for options of which one leaves the other no meaning."""
    if against is not None and place is not None:
        raise UsageError("--against cannot be used with --place", hint="Each server has its own temp_tablespaces.")
    if plan and (against is not None or place is not None):
        raise UsageError("--plan cannot be used with --against or --place", hint="It makes the second server.")
    if plan and (options.get("iam_auth") or options.get("tunnel")):
        raise UsageError(
            "--plan cannot be used with --iam-auth or --tunnel",
            detail="A copy has neither.",
            hint="Give a connection string of a role that logs in by password.",
        )
    if against is not None and options.get("tunnel") is not None:
        raise UsageError(
            "--against cannot be used with --tunnel",
            detail="A tunnel leads to one server, and both would be that one.",
            hint="Open a tunnel to each, and name its end in --to and --against by hostaddr and port.",
        )


def _plan_copy(options: Mapping[str, Any], replayed: Mapping[str, object], *, as_superuser: bool) -> list[str]:
    """Return the commands that replay statements on a copy of the instance of --to.

    `replayed` are the options of the replay; those that are None were not given. Raises UsageError, AwsError.
    """
    from penstock.core.connect.conninfo import describe_target, given_settings, parse_conninfo
    from penstock.rds.describe import describe_rds
    from penstock.temp.copies import compose_copy

    given = {**replayed, "--role": options.get("role")}
    replay = [word for name, value in given.items() if value is not None for word in (name, str(value))]
    replay += ["--as-superuser"] if as_superuser else []
    settings = given_settings(parse_conninfo(options.get("to") or ""), os.environ)
    found = describe_rds(now=datetime.now(UTC), to=options.get("to"))
    return compose_copy(found, replay=replay, to=describe_target(settings))


app = typer.Typer(
    help="Find queries that spill to disk, and give them a local disk. Measure what that gains.",
    no_args_is_help=True,
    add_completion=False,
)
app.command()(usage)
app.command()(place)
app.command()(check)
app.command()(remove)
app.command()(replay)
