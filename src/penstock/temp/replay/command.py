"""`penstock temp replay`: compares your own statements with their temporary work in two tablespaces."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.cli.options import (
    SERVER,
    Json,
    takes,
)
from penstock.cli.output import write_message, write_result
from penstock.cli.target import open_target
from penstock.core.errors import Interrupted, ServerError, UsageError
from penstock.core.values.options import parse_counts, parse_duration
from penstock.temp.replay.view import describe_replay, replay_object

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


@takes(SERVER)
def replay(
    sql: SqlFile = None,
    top: Top = None,
    setup: Annotated[
        Path | None,
        typer.Option("--setup", metavar="FILE", help="Run these statements first in each session, such as SET."),
    ] = None,
    concurrency: Annotated[
        str, typer.Option("--concurrency", metavar="LIST", help="Numbers of sessions that run a statement at once.")
    ] = "1,2,4",
    rounds: Annotated[int, typer.Option("--rounds", min=3, help="Runs at each place, after a warm-up run.")] = 5,
    timeout: Annotated[str, typer.Option("--timeout", metavar="TIME", help="Cancel a statement after this time.")] = (
        "10min"
    ),
    place: PlaceName = None,
    against: Against = None,
    as_superuser: Annotated[
        bool, typer.Option("--as-superuser", help="Replay as a superuser, whose functions may do anything.")
    ] = False,
    as_json: Json = False,
    **options: Any,
) -> None:
    """Run statements with their temporary work in pg_default and in another place, and compare.

    Each statement (SELECT, VALUES, TABLE or WITH) runs under EXPLAIN (ANALYZE, BUFFERS) in a read-only transaction, in
    as many sessions at once as --concurrency says; its rows are not sent, and nothing is restarted. A read-only
    transaction does not prevent what functions do outside of the database: replay as a role that can do no harm.

    Exit codes: 0 compared, 2 both places are the same, or a statement does more than read, 6 a superuser, or a
    tablespace that the role may not use, 7 every statement failed.
    """
    from penstock.temp.replay.replay import replay_statements

    if (sql is None) == (top is None):
        raise UsageError("either --sql FILE or --top N is needed", hint="Name one of them.")
    if against is not None and place is not None:
        raise UsageError("--against cannot be used with --place", hint="Each server has its own temp_tablespaces.")
    result = replay_statements(
        open_target(options, allows_standby=True),
        sql=sql,
        top=top,
        setup=setup,
        concurrencies=parse_counts(concurrency, option="--concurrency"),
        rounds=rounds,
        timeout_s=parse_duration(timeout, option="--timeout"),
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
