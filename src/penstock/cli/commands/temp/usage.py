"""`penstock temp usage`: what spills to disk, and where it goes."""

from __future__ import annotations

import time
from contextlib import closing
from typing import Annotated, Any

import typer

from penstock.cli.options.declared import SERVER, takes
from penstock.cli.options.shared import Json  # noqa: TC001 (typer reads annotations)
from penstock.cli.options.target import open_target
from penstock.cli.terminal.output import write_message, write_result
from penstock.cli.views.temp_usage_view import describe_usage, usage_object
from penstock.server.temp.usage import read_usage
from penstock.temp.usage.compare import compare_readings
from penstock.units import format_duration


@takes(SERVER)
def usage(
    interval: Annotated[
        float, typer.Option("--interval", min=0.1, metavar="SECONDS", help="Compare two readings so far apart.")
    ] = 60.0,
    top: Annotated[int, typer.Option("--top", min=1, metavar="N", help="Show so many statements.")] = 10,
    as_json: Json = False,
    **options: Any,
) -> None:
    """Show which statements and databases write temporary files, and what lies in each tablespace now.

    Reads the server twice and changes nothing; works on standbys. Statements need the extension pg_stat_statements;
    those of other roles, and files on disk, need pg_monitor. A statement is counted when it ends.

    Exit codes: 0 reported; others as for every command.
    """
    with closing(open_target(options, allows_standby=True).connect(label="usage")) as connection:
        before = read_usage(connection)
        write_message(f"watching for {format_duration(interval)}")
        time.sleep(interval)
        report = compare_readings(before, read_usage(connection), top=top)
    write_result(usage_object(report) if as_json else describe_usage(report))
