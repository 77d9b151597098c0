"""`penstock server`: commands for the embedded PostgreSQL server. Package lab does the work."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from penstock.cli.options import Json  # noqa: TC001 (typer reads annotations)
from penstock.cli.output import NOT_RUNNING, write_result

if TYPE_CHECKING:
    from penstock.embedded.server import EmbeddedServer, ServerStatus

app = typer.Typer(
    help="Start, stop, inspect or enter the embedded PostgreSQL server. Loads go there by default.",
    no_args_is_help=True,
    add_completion=False,
)

BinDir = Annotated[
    Path | None,
    typer.Option(
        "--pg-bin",
        metavar="DIR",
        help="Use the PostgreSQL with its programs in this folder; each major version has its own server.",
    ),
]


@app.command()
def start(pg_bin: BinDir = None) -> None:
    """Start the server, and print how to connect to it. Create it if it does not exist.

    It runs until it is stopped. Exit codes: 0 it runs, 2 no PostgreSQL in DIR, 8 it could not be started.
    """
    write_result(_server(pg_bin).ensure_running())


@app.command()
def stop(
    mode: Annotated[
        Literal["smart", "fast", "immediate"],
        typer.Option(
            "--mode",
            help="Wait for clients to leave (smart), end their sessions (fast), or recover at next start (immediate).",
        ),
    ] = "fast",
    pg_bin: BinDir = None,
) -> None:
    """Stop the server; its data is kept.

    Exit codes: 0 it is stopped (or was), 2 no PostgreSQL in DIR, 8 it could not be stopped.
    """
    was_running = _server(pg_bin).stop(mode)
    write_result("server stopped" if was_running else "server was not running")


@app.command()
def status(
    as_json: Json = False,
    pg_bin: BinDir = None,
) -> None:
    """Show whether the server runs, and how to connect to it. Show where its files are.

    Exit codes: 0 it runs, 3 it does not, 2 no PostgreSQL in DIR, 8 its files cannot be read.
    """
    found = _server(pg_bin).status()
    write_result(_as_json(found) if as_json else _as_text(found))
    if not found.is_running:
        raise typer.Exit(NOT_RUNNING)


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def psql(
    context: typer.Context,
    pg_bin: BinDir = None,
) -> None:
    """Open psql on the server, starting it if necessary.

    Arguments are passed to psql: penstock server psql -c 'SELECT 1'.

    Exit codes: psql's own, or 2 no PostgreSQL in DIR, 8 the server could not be started.
    """
    server = _server(pg_bin)
    server.ensure_running()
    server.exec_psql(context.args)


def _server(pg_bin: Path | None) -> EmbeddedServer:
    from penstock.embedded.server import default_server

    return default_server(pg_bin)


def _as_text(found: ServerStatus) -> list[str]:
    lines = [
        f"PostgreSQL {found.major} is running (process {found.pid})"
        if found.is_running
        else f"PostgreSQL {found.major} is not running",
        f"data directory: {found.data_dir}",
        f"log: {found.log}",
    ]
    if found.conninfo is not None:
        lines.append(f"connect with: {found.conninfo}")
    return lines


def _as_json(found: ServerStatus) -> dict[str, object]:
    return {
        "state": "running" if found.is_running else "stopped",
        "major": found.major,
        "pid": found.pid,
        "started_at": found.started_at,
        "conninfo": found.conninfo,
        "data_dir": found.data_dir,
        "log": found.log,
    }
