"""`penstock lab`: data sets and servers for tests. Package lab creates them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.output import write_result
from penstock.core.errors import UsageError
from penstock.core.units import format_bytes, format_count
from penstock.lab.command import topology as lab_topology

if TYPE_CHECKING:
    from penstock.lab.datasets.datafiles import DataFile, TableProgress

    OnProgress = Callable[[TableProgress], None]

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


@app.command("imdb")
def imdb(
    out: Annotated[
        str,
        typer.Option(
            "--out",
            metavar="PLACE",
            help="Write the files to this directory, which is created, or to s3://bucket/prefix, with Content-Encoding "
            "gzip.",
        ),
    ],
    scale: Annotated[
        float | None,
        typer.Option("--scale", help="Set the size; 1 is IMDb's (186 million rows), 0.001 is small."),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option("--seed", help="Seed the random numbers: the same seed gives the same files (default: 1)."),
    ] = None,
    tables: Annotated[
        str | None,
        typer.Option(
            "--tables",
            metavar="LIST",
            help="Write these tables, such as title.principals,title.ratings (default: all).",
        ),
    ] = None,
    files: Annotated[
        Path | None,
        typer.Option("--files", metavar="DIR", help="Upload IMDb's own files in this directory to s3://bucket/prefix."),
    ] = None,
) -> None:
    r"""Write files shaped like IMDb's seven data files: gzip, tab separated, with a header and \N for null."""
    from penstock.lab.datasets.writer import write_imdb

    chosen = None if tables is None else [name.strip() for name in tables.split(",") if name.strip()]
    if files is not None:
        _upload_files(files, out, tables=chosen, has_other_options=(scale, seed) != (None, None))
        return
    if scale is None:
        raise UsageError("--scale is missing", hint="Name a size, such as 0.001, or upload files with --files DIR.")
    write = partial(write_imdb, scale=scale, seed=1 if seed is None else seed)
    show = _show_progress if sys.stderr.isatty() else None
    if out.startswith("s3://"):
        _write_to_s3(write, out, tables=chosen, show=show)
    else:
        for file in write(Path(out), tables=chosen, on_progress=show):
            write_result(_describe(file))


def _upload_files(folder: Path, out: str, *, tables: list[str] | None, has_other_options: bool) -> None:
    from penstock.lab.datasets.datafiles import S3Folder
    from penstock.lab.datasets.writer import read_imdb

    if has_other_options:
        raise UsageError("--files uploads files as they are", hint="Leave --scale and --seed out.")
    if not out.startswith("s3://"):
        raise UsageError("--files needs an --out such as s3://bucket/prefix")
    target = S3Folder(out)
    for file in read_imdb(folder, tables=tables):
        write_result(_describe(file, target.upload(file.path)))


def _write_to_s3(
    write: Callable[..., Sequence[DataFile]], out: str, *, tables: list[str] | None, show: OnProgress | None
) -> None:
    """Write and upload one table after the other, so only the largest file needs space on disk."""
    from penstock.lab.datasets.datafiles import S3Folder
    from penstock.lab.datasets.writer import choose_tables

    target = S3Folder(out)
    for table in choose_tables(tables):
        with TemporaryDirectory(prefix="penstock-") as folder:
            for file in write(Path(folder), tables=[table], on_progress=show):
                write_result(_describe(file, target.upload(file.path)))


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
    from penstock.lab.datasets.datafiles import write_sysbench

    show = _show_progress if sys.stderr.isatty() else None
    for file in write_sysbench(out, rows=rows, seed=seed, on_progress=show):
        write_result(_describe(file))


def _show_progress(progress: TableProgress) -> None:
    """Rewrite one line of the terminal. Clear the line when a table is finished."""
    percent = 100 * progress.rows // progress.expected_rows
    is_done = progress.rows == progress.expected_rows
    line = "" if is_done else f"{progress.table}: {format_count(progress.rows)} rows, {percent} %"
    print(f"\r\033[K{line}", end="", file=sys.stderr, flush=True)


def _describe(file: DataFile, url: str | None = None) -> str:
    return (
        f"{url or file.path}: {format_count(file.rows)} rows, {format_bytes(file.plain_bytes)}, "
        f"{format_bytes(file.size_bytes)} gzip"
    )
