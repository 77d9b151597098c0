"""`penstock bench optimized-reads`: compares queries that spill to the data's volume and to a local disk."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.bench.command.options import choose_shapes
from penstock.cli.options import Json  # noqa: TC001 (typer reads annotations)
from penstock.cli.output import write_message, write_result
from penstock.core.errors import UsageError
from penstock.core.units import GIB, MB, format_count
from penstock.core.values.options import parse_counts
from penstock.core.words import line_up

if TYPE_CHECKING:
    from penstock.bench.optimized_reads.run import ReadsResult, ReadsTargetResult
    from penstock.lab.topology.shapes import Shape

_SHAPES: tuple[Shape, ...] = ("single", "multi-az")


To = Annotated[
    str | None,
    typer.Option(
        "--to",
        metavar="CONNINFO",
        help="Measure this server, in a schema that is dropped afterwards: pg_default against the role's "
        "temp_tablespaces, or against another server.",
    ),
]
Against = Annotated[
    str | None,
    typer.Option("--against", metavar="CONNINFO", help="With --to: the server that has the local disk."),
]


def optimized_reads(
    quick: Annotated[
        bool, typer.Option("--quick", help="Use fewer rows, 1, 2 and 4 sessions, and two rounds.")
    ] = False,
    topology: Annotated[
        str | None,
        typer.Option(
            "--topology", metavar="LIST", help="Measure these lab topologies: single, multi-az (default: single)."
        ),
    ] = None,
    sessions: Annotated[
        str | None,
        typer.Option("--sessions", metavar="LIST", help="Numbers of sessions (default: 1,2,4,8; with --quick 1,2,4)."),
    ] = None,
    to: To = None,
    against: Against = None,
    plot: Annotated[
        Path | None,
        typer.Option("--plot", metavar="FILE", help="Also draw the speed-ups, as SVG or PNG by the file's extension."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Measure how much faster queries that spill to disk are with temporary work on a local disk.

    The lab's server has a volume with the published one's IOPS and throughput for as many cores as this machine has,
    and a local disk beside it; it needs root, FUSE and qemu-storage-daemon. Without --quick it takes about half an
    hour for each topology on two cores.

    Exit codes: 0 measured, 2 no such topology or no matplotlib, 4 the plot cannot be written, 6 a foreign
    schema is in the way, 7 the server refused, 8 a topology could not be brought up, or rows are missing.
    """
    from penstock.bench.optimized_reads.plan import FULL, QUICK
    from penstock.bench.optimized_reads.run import measure_reads
    from penstock.bench.optimized_reads.table import as_object, chart
    from penstock.cli.target import open_target
    from penstock.core.plot import check_plot, draw_plot

    if against is not None and to is None:
        raise UsageError("--against needs --to", hint="Name the server without local storage with --to.")
    if plot is not None:
        check_plot(plot)
    default = () if to is not None else _SHAPES[:1]
    shapes = choose_shapes(topology, _SHAPES, default=default, volume=None)
    experiment = QUICK if quick else FULL
    if sessions is not None:
        experiment = replace(experiment, sessions=parse_counts(sessions, option="--sessions"))
    result = measure_reads(
        experiment,
        shapes=shapes,
        to=None if to is None else open_target({"to": to}),
        against=None if against is None else open_target({"to": against}),
        say=write_message,
    )
    write_result(as_object(result) if as_json else describe_reads(result))
    if plot is not None:
        draw_plot(plot, chart(result))


def describe_reads(result: ReadsResult) -> list[str]:
    """Return the measurements as lines of text."""
    from penstock.bench.optimized_reads.plan import BYTES_PER_S, IOPS, SOURCE, VCPUS
    from penstock.bench.optimized_reads.table import caveats

    experiment, machine, scaled = result.experiment, result.machine, result.scaled
    rounds = f"{experiment.rounds} rounds, either side first in half of them"
    lines = [
        f"{format_count(experiment.rows)} rows in each of three tables, three queries, {rounds}",
        f"on {machine.cpu_model}, {machine.cpu_count} cores for client and server",
    ]
    if scaled is not None:
        lines.append(
            f"volume: {scaled.iops} IOPS, {scaled.bytes_per_s / MB:.0f} MB/s (the article's {format_count(IOPS)} and "
            f"{BYTES_PER_S / MB:.0f} for {machine.cpu_count} of {VCPUS} vCPUs); "
            f"memory: {scaled.memory_bytes / GIB:.2f} GiB"
        )
    for target in result.targets:
        lines += ["", *_describe_target(target, result)]
    lines += ["", "Published, not measured here:", f"  {SOURCE}."]
    if scaled is not None:
        lines.append("published: at as many sessions; by core: at as many sessions for each core.")
    return [*lines, *caveats(result)]


def _describe_target(target: ReadsTargetResult, result: ReadsResult) -> list[str]:
    from penstock.bench.optimized_reads.table import IO_HEADING, TIME_HEADING, io_rows, time_rows

    times = time_rows(target, cpu_count=result.machine.cpu_count)
    io = io_rows(target, rows=result.experiment.rows)
    return [
        f"{target.name}, PostgreSQL {target.postgresql}",
        *line_up([TIME_HEADING, *times], align="><" + ">" * (len(TIME_HEADING) - 2), indent="  "),
        "",
        "  one round's temporary files, the article's for as many rows, and what reached the devices:",
        *line_up([IO_HEADING, *io], align=">" * len(IO_HEADING), indent="  "),
    ]
