"""`penstock lab`: creates data sets, and servers in several topologies, for tests. Package lab does the work."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from penstock.cli.options import Json  # noqa: TC001 (typer reads annotations)
from penstock.cli.output import NOT_RUNNING, write_result
from penstock.core.errors import UsageError
from penstock.core.units import format_bytes, format_count
from penstock.core.values.options import join_lists, parse_duration
from penstock.core.words import line_up

if TYPE_CHECKING:
    from penstock_lab.datasets.datafiles import DataFile, TableProgress
    from penstock_lab.topology.lab import Lab, LabStatus

    OnProgress = Callable[[TableProgress], None]

_DEFAULT_NAME = "lab"

Name = Annotated[str, typer.Option("--name", help="Use the lab of this name; several can run at once.")]
NameArgument = Annotated[str, typer.Argument(metavar="[NAME]", help="Name of the lab, as given to lab up --name.")]

ShapeArgument = Annotated[
    Literal["single", "multi-az", "cluster", "quorum"],
    typer.Argument(
        help="single: one server. multi-az: one server on a volume of two copies. cluster: a primary and two "
        "synchronous standbys, one of which a commit waits for. quorum: a primary and six receivers of its WAL in "
        "three zones, four of which a commit waits for."
    ),
]
VolumeOption = Annotated[
    str | None,
    typer.Option(
        "--volume",
        metavar="VOLUME",
        help="Put each server's data on a volume with the limits of gp2:SIZE[:spent], gp3:SIZE:IOPS:MiBps or "
        "io1:SIZE:IOPS, or on an unlimited one (Linux, root). multi-az has one always.",
    ),
]
ZoneLatency = Annotated[
    str,
    typer.Option("--zone-latency", help="Delay traffic to each zone by this time, such as 1ms, each way."),
]
ParametersOption = Annotated[
    Literal["postgres", "rds", "embedded"],
    typer.Option(
        "--parameters",
        help="Settings of the servers: PostgreSQL's own defaults, those of an RDS instance with this memory, or "
        "those of the embedded server.",
    ),
]


def up(
    shape: ShapeArgument,
    name: Name = _DEFAULT_NAME,
    zone_latency: ZoneLatency = "0ms",
    parameters: ParametersOption = "postgres",
    volume: VolumeOption = None,
    local_storage: Annotated[
        str | None,
        typer.Option("--local-storage", metavar="SIZE", help="Add a device without limits for temporary data (root)."),
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option("--memory", metavar="SIZE", help="Limit the servers' memory, page cache included (root)."),
    ] = None,
    has_s3: Annotated[
        bool,
        typer.Option("--s3", help="Start an S3 beside it (moto), and let its servers CREATE EXTENSION aws_s3."),
    ] = False,
    pg_bin: Annotated[
        Path | None,
        typer.Option("--pg-bin", metavar="DIR", help="Use the PostgreSQL with its programs in this folder."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Start a topology on this machine. Print how to connect to its primary.

    It runs until penstock lab down. If the lab is up already, it is printed, and its missing parts are started.

    Exit codes: 0 it is up, 2 no PostgreSQL in DIR, 8 it could not be brought up, and was removed.
    """
    from penstock.embedded.installations import default_installation, installation_at
    from penstock.rds.volumes import parse_size
    from penstock_lab.topology.lab import Lab
    from penstock_lab.topology.shapes import zones_of

    latency_s = parse_duration(zone_latency, option="--zone-latency")
    if latency_s and not zones_of(shape):
        raise UsageError(
            f"{shape} has one server, and has no zones to delay", hint="Use --zone-latency with cluster or quorum."
        )
    installation = default_installation() if pg_bin is None else installation_at(pg_bin)
    lab = Lab.named(name)
    found = lab.up(
        shape,
        installation,
        parameters=parameters,
        zone_latency_s=latency_s,
        volume=volume,
        local_storage_bytes=parse_size(local_storage, option="--local-storage") if local_storage else None,
        memory_bytes=parse_size(memory, option="--memory") if memory else None,
        has_s3=has_s3,
    )
    _print(found, as_json=as_json)


def down(
    name: NameArgument = _DEFAULT_NAME,
    takes_all: Annotated[bool, typer.Option("--all", help="Take down every lab, also one partly up.")] = False,
) -> None:
    """Take a lab down: end its processes, and remove its sockets and data.

    Exit codes: 0 it is down (or was), 8 it could not be taken down.
    """
    from penstock_lab.topology.lab import Lab, list_labs

    labs = list_labs() if takes_all else [Lab.named(name)]
    taken = [lab.files.name for lab in labs if lab.down()]
    if taken:
        write_result(f"down: {', '.join(taken)}")
    else:
        write_result("no lab was up" if takes_all else f'lab "{name}" was not up')


def status(name: NameArgument = _DEFAULT_NAME, as_json: Json = False) -> None:
    """Show which parts of a lab run. Show which receive WAL, and whether a commit would be acknowledged.

    Exit codes: 0 it runs, 2 no such lab, 3 its primary is not running.
    """
    found = _lab(name).status()
    _print(found, as_json=as_json)
    if found.conninfo is None:
        raise typer.Exit(NOT_RUNNING)


def list_all(as_json: Json = False) -> None:
    """List the labs of this machine that are up."""
    from penstock_lab.topology.lab import list_labs

    found = [(lab.files.name, lab.files.read()) for lab in list_labs()]
    rows = [
        {"name": name, "shape": state and state.shape, "stage": state.stage if state else "starting"}
        for name, state in found
    ]
    if as_json:
        write_result({"labs": rows})
    elif rows:
        write_result(line_up([[str(cell or "-") for cell in row.values()] for row in rows], align="<<<"))
    else:
        write_result("no lab is up")


def kill(
    target: Annotated[str, typer.Argument(metavar="ZONE", help="zone-a, zone-b or zone-c, or the name of one member.")],
    name: NameArgument = _DEFAULT_NAME,
    as_json: Json = False,
) -> None:
    """Lose a zone at once, and keep it down until penstock lab heal.

    Exit codes: 0 it is down, 2 no such lab or zone, 8 the zone has the primary.
    """
    _print(_lab(name).kill(target), as_json=as_json)


def heal(name: NameArgument = _DEFAULT_NAME, as_json: Json = False) -> None:
    """Start the lost members again, and wait until they have caught up.

    Exit codes: 0 everything runs, 2 no such lab, 8 a member did not catch up.
    """
    _print(_lab(name).heal(), as_json=as_json)


def failover(name: NameArgument = _DEFAULT_NAME, as_json: Json = False) -> None:
    """Lose a cluster's primary as by a crash, and promote a standby. Print how to connect to it.

    The lost server comes back as a standby of the new primary.

    Exit codes: 0 a standby was promoted, 2 no such lab, 8 it has no standby, or one is down.
    """
    _print(_lab(name).failover(), as_json=as_json)


def _lab(name: str) -> Lab:
    from penstock_lab.topology.lab import Lab

    return Lab.named(name)


def _print(found: LabStatus, *, as_json: bool) -> None:
    write_result(_as_json(found) if as_json else _as_text(found))


def _as_text(found: LabStatus) -> list[str]:
    from penstock_lab.topology.s3 import BUCKET

    latency = f", {found.zone_latency_s * 1000:g} ms to each zone" if found.zone_latency_s else ""
    lines = [
        f'lab "{found.name}": {found.shape}, PostgreSQL {found.major}, {found.parameters} settings{latency}'
        + ("" if found.stage == "up" else f" (interrupted while {found.stage})"),
        f"connect with: {found.conninfo}" if found.conninfo else "the primary is not running",
        *line_up(
            [
                (
                    member.name,
                    member.kind,
                    "" if member.zone is None else f"zone-{member.zone}",
                    member.state,
                    member.sync_state or "",
                    "" if not member.lag_bytes else f"{format_bytes(member.lag_bytes)} behind",
                )
                for member in found.members
            ],
            align="<<<<<<",
            indent="  ",
        ),
    ]
    given = {
        "volume": found.volume,
        "local storage": found.local_storage,
        "memory": None if found.memory_bytes is None else format_bytes(found.memory_bytes),
    }
    lines += [f"{name}: {value}" for name, value in given.items() if value is not None]
    if found.s3 is not None:
        variables = " ".join(f"{name}={value}" for name, value in found.s3.items())
        lines.append(f"S3 with bucket {BUCKET}: export {variables}")
    if found.needed:
        lines.append(_describe_commits(found))
    return lines


def _describe_commits(found: LabStatus) -> str:
    others = len(found.members) - 1
    missing = f"; missing: {', '.join(found.missing)}" if found.missing else ""
    verdict = "are acknowledged" if found.can_commit else "wait"
    return f"commits {verdict}: {found.needed} of {others} needed, {others - len(found.missing)} connected{missing}"


def _as_json(found: LabStatus) -> dict[str, object]:
    return {**asdict(found), "can_commit": found.can_commit}


app = typer.Typer(
    help="Create data sets, and servers in several topologies, for tests.",
    no_args_is_help=True,
    add_completion=False,
)


app.command()(up)
app.command()(down)
app.command()(status)
app.command("list")(list_all)
app.command()(kill)
app.command()(heal)
app.command()(failover)


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
        list[str] | None,
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
    r"""Write files shaped like IMDb's seven data files. They are gzip, tab separated, with a header and \N for null."""
    from penstock_lab.datasets.writer import write_imdb

    named = join_lists(tables)
    chosen = None if named is None else [name.strip() for name in named.split(",") if name.strip()]
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
    from penstock_lab.datasets.datafiles import S3Folder
    from penstock_lab.datasets.writer import read_imdb

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
    from penstock_lab.datasets.datafiles import S3Folder
    from penstock_lab.datasets.writer import choose_tables

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
    """Write files shaped like sysbench's tables sbtest1 to sbtest3. They are gzip, tab separated, with a header.

    k has sysbench's distribution special, the default of its version 1.0.
    """
    from penstock_lab.datasets.datafiles import write_sysbench

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
