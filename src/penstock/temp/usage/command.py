"""`penstock temp usage`: shows what spills to disk, and to which tablespaces."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from penstock.cli.options import (
    SERVER,
    Json,
    takes,
)
from penstock.cli.output import write_message, write_result
from penstock.cli.target import open_target
from penstock.core.errors import UsageError
from penstock.temp.usage.view import describe_usage, usage_object

# A day. Within a longer time the statistics have probably been reset.
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
    """Show which statements and databases write temporary files, and what each tablespace holds now.

    Each statement of the role's own has the reason why it spills, by its plan, and the cheapest remedy.
    Reads the server twice and changes nothing; works on standbys. Statements need the extension pg_stat_statements;
    those of other roles, and files on disk, need pg_monitor. A statement is counted when it ends.

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
