"""`penstock lab`: data sets and servers for tests. The lab room creates them."""

from __future__ import annotations

import sys
from pathlib import Path  # noqa: TC003 (typer reads the annotations at run time)
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.commands import lab_topology
from penstock.cli.terminal.output import write_result
from penstock.units import format_bytes, format_count

if TYPE_CHECKING:
    from penstock.lab.datasets.datafiles import DataFile, TableProgress

app = typer.Typer(
    help="Create data sets, and servers in several topologies, for tests.",
    no_args_is_help=True,
    add_completion=False,
)


app.command()(lab_topology.up)
app.command()(lab_topology.down)
app.command()(lab_topology.status)
app.command("list")(lab_topology.list_all)
app.command()(lab_topology.kill)
app.command()(lab_topology.heal)
app.command()(lab_topology.failover)


@app.callback()
def _group() -> None:
    """Create data sets, and servers in several topologies, for tests."""


@app.command("imdb")
def imdb(
    scale: Annotated[
        float,
        typer.Option("--scale", help="Set the size; 1 is IMDb's (186 million rows), 0.001 is small."),
    ],
    out: Annotated[
        Path, typer.Option("--out", help="Write the files to this directory; it is created if it does not exist.")
    ],
    seed: Annotated[
        int, typer.Option("--seed", help="Seed the random numbers: the same seed gives the same files.")
    ] = 1,
    tables: Annotated[
        str | None,
        typer.Option(
            "--tables",
            metavar="LIST",
            help="Write these tables, such as title.principals,title.ratings (default: all).",
        ),
    ] = None,
) -> None:
    r"""Write files shaped like IMDb's seven data files: gzip, tab separated, with a header and \N for null."""
    from penstock.lab.datasets.imdb import write_imdb

    chosen = None if tables is None else [name.strip() for name in tables.split(",") if name.strip()]
    show = _show_progress if sys.stderr.isatty() else None
    for file in write_imdb(out, scale=scale, seed=seed, tables=chosen, on_progress=show):
        write_result(_describe(file))


@app.command("sysbench")
def sysbench(
    rows: Annotated[int, typer.Option("--rows", min=1, help="Rows of each of the three tables.")],
    out: Annotated[
        Path, typer.Option("--out", help="Write the files to this directory; it is created if it does not exist.")
    ],
    seed: Annotated[
        int, typer.Option("--seed", help="Seed the random numbers: the same seed gives the same files.")
    ] = 1,
) -> None:
    """Write files shaped like sysbench's tables sbtest1 to sbtest3: gzip, tab separated, with a header.

    k has sysbench's distribution special, the default of its version 1.0.
    """
    from penstock.lab.datasets.sysbench import write_sysbench

    show = _show_progress if sys.stderr.isatty() else None
    for file in write_sysbench(out, rows=rows, seed=seed, on_progress=show):
        write_result(_describe(file))


def _show_progress(progress: TableProgress) -> None:
    """Rewrite one line of the terminal; the line is cleared when a table is finished."""
    percent = 100 * progress.rows // progress.expected_rows
    is_done = progress.rows == progress.expected_rows
    line = "" if is_done else f"{progress.table}: {format_count(progress.rows)} rows, {percent} %"
    print(f"\r\033[K{line}", end="", file=sys.stderr, flush=True)


def _describe(file: DataFile) -> str:
    return (
        f"{file.path}: {format_count(file.rows)} rows, {format_bytes(file.plain_bytes)}, "
        f"{format_bytes(file.size_bytes)} gzip"
    )
