"""`penstock bench bulk-load` repeats the experiment on bulk loading; `penstock demo` does a small part of it."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.bench.command.options import Plot, To, choose_shapes
from penstock.cli.options import Json  # noqa: TC001 (typer reads annotations)
from penstock.cli.output import write_message, write_result
from penstock.core.errors import UsageError
from penstock.core.units import GIB, MB, format_bytes, format_count
from penstock.core.words import line_up

if TYPE_CHECKING:
    from penstock.bench.bulk_load.run import BulkLoadResult, BulkLoadTargetResult, Target
    from penstock.lab.datasets.datafiles import DataFile
    from penstock.lab.topology.shapes import Shape

_SHAPES: tuple[Shape, ...] = ("single", "multi-az", "cluster")


def bulk_load(
    quick: Annotated[
        bool, typer.Option("--quick", help="Load fewer rows, on topology single by default, in one round.")
    ] = False,
    topology: Annotated[
        str | None,
        typer.Option(
            "--topology", metavar="LIST", help="Measure these lab topologies: single, multi-az, cluster (default: all)."
        ),
    ] = None,
    files: Annotated[
        Path | None,
        typer.Option("--files", metavar="DIR", help="Load IMDb's own seven files (default: files in their shape)."),
    ] = None,
    to: To = None,
    volume: Annotated[
        str | None,
        typer.Option(
            "--volume",
            metavar="LIST",
            help="Load one file on these volumes, such as gp3:500GiB:12000:500, which are scaled, and the rest on the "
            "last (default: the published ones).",
        ),
    ] = None,
    plot: Plot = None,
    as_json: Json = False,
) -> None:
    """Measure the steps of a published bulk load: faster volumes, files in parallel, penstock, the server's settings.

    Each step is sampled and diagnosed. The lab's servers have the published volumes for as many cores as this machine
    has; they need root, FUSE and qemu-storage-daemon. At the end the server is killed, and its recovery timed.

    Exit codes: 0 measured, 2 no such topology or volume, or no matplotlib, 4 a file cannot be read or written, 6 tables
    of others are in the way, 7 the server refused, 8 a topology could not be brought up, or rows are missing.
    """
    from penstock.bench.bulk_load.plan import FULL, QUICK, choose_steps
    from penstock.bench.bulk_load.run import measure_bulk_load
    from penstock.bench.bulk_load.table import as_object, chart
    from penstock.core.plot import check_plot, draw_plot

    if plot is not None:
        check_plot(plot)
    default = () if to is not None else _SHAPES[:1] if quick else _SHAPES
    shapes = choose_shapes(topology, _SHAPES, default=default, volume=volume)
    result = measure_bulk_load(
        QUICK if quick else FULL,
        steps=choose_steps(None if volume is None else volume.split(",")),
        shapes=shapes,
        files_from=files,
        open_target=None if to is None else lambda found: _open(to, found),
        say=write_message,
    )
    write_result(as_object(result) if as_json else describe_bulk_load(result))
    if plot is not None:
        draw_plot(plot, chart(result))


def _open(to: str, files: tuple[DataFile, ...]) -> AbstractContextManager[Target]:
    from penstock.bench.bulk_load.run import users_target
    from penstock.cli.target import open_target
    from penstock.settings.backend import open_backend

    connect = open_target({"to": to})
    return users_target(connect, to, files, open_settings=lambda: open_backend(connect))


def describe_bulk_load(result: BulkLoadResult) -> list[str]:
    """Return the measurements as lines of text."""
    from penstock.bench.bulk_load.plan import SOURCE
    from penstock.bench.bulk_load.table import caveats, describe_rounds

    machine = result.machine
    size = f"{format_bytes(result.plain_bytes)} of text, {format_bytes(result.size_bytes)} gzip"
    lines = [
        f"{format_count(result.rows)} rows in seven files ({size}), {describe_rounds(result)}",
        f"on {machine.cpu_model}, {machine.cpu_count} cores for client and server",
        *describe_scale(result),
    ]
    for target in result.targets:
        lines += ["", *_describe_target(target)]
    return [*lines, "", "Published, not measured here:", f"  {SOURCE}.", *caveats(result)]


def describe_scale(result: BulkLoadResult) -> list[str]:
    """Return the two factors and what follows from them, in one line; no line without a lab."""
    from penstock.bench.bulk_load.plan import MEMORY_BYTES, VCPUS

    scaled = result.scaled
    if scaled is None:
        return []
    text = (
        f"rates by {result.machine.cpu_count} cores of {VCPUS} vCPUs: {scaled.rate_scale:.3g}; data and memory: "
        f"{scaled.data_scale:.3g} of the article's, so {scaled.memory_bytes / GIB:.2f} of {MEMORY_BYTES // GIB} GiB "
        f"and max_wal_size {scaled.max_wal_bytes / MB:.0f} MB"
    )
    return [text]


def _describe_target(target: BulkLoadTargetResult) -> list[str]:
    from penstock.bench.bulk_load.table import (
        LOAD_HEADING,
        RECOVERY_HEADING,
        TIME_HEADING,
        load_rows,
        recovery_rows,
        time_rows,
    )

    lines = [
        f"{target.name}, PostgreSQL {target.postgresql}; every step stored all rows",
        *line_up([TIME_HEADING, *time_rows(target)], align="<" + ">" * (len(TIME_HEADING) - 1), indent="  "),
        "",
        *line_up([LOAD_HEADING, *load_rows(target)], align="<" + ">" * 8 + "<" * 4, indent="  "),
    ]
    if recoveries := recovery_rows(target):
        lines += ["", *line_up([RECOVERY_HEADING, *recoveries], align="<>>>>", indent="  ")]
    claims = [(each.step.name, each.median.claim) for each in target.steps if each.median.claim]
    return [*lines, "", *line_up([(name, claim or "") for name, claim in claims], align="<<", indent="  ")]


# This is 5.6 million rows, 260 MB of text. One load takes seconds, the whole demo about half a minute on 2 fast cores.
_SCALE = 0.03
_ROUNDS = 3


def demo(
    scale: Annotated[float, typer.Option("--scale", help="Set the size; 1 is IMDb's (186 million rows).")] = _SCALE,
    rounds: Annotated[
        int, typer.Option("--rounds", min=1, help="Run each method this often and show the median.")
    ] = _ROUNDS,
    as_json: Json = False,
) -> None:
    """Load IMDb's seven files three ways on the embedded server and compare.

    The files are generated, with IMDb's columns and skew. They are loaded by one psql per file in turn, by one per file
    in parallel, and by penstock; the rows are counted each time. The tables of the last run are kept in database
    penstock_demo, which each demo drops and recreates. `penstock bench bulk-load` does the same on volumes like the
    published experiment's.
    """
    from penstock.bench.bulk_load.plan import BulkLoadExperiment
    from penstock.bench.bulk_load.run import DEMO_DATABASE, embedded_target, measure_bulk_load
    from penstock.bench.bulk_load.table import as_object
    from penstock.lab.embedded import default_server

    if not 0 < scale < float("inf"):
        raise UsageError(f"scale must be greater than zero: {scale}", hint="Scale 1 is IMDb's size.")
    server = default_server()
    result = measure_bulk_load(
        BulkLoadExperiment(imdb_scale=scale, rounds=rounds),
        open_target=lambda files: embedded_target(server, files),
        say=write_message,
    )
    kept = [
        "",
        f"query:  penstock server psql {DEMO_DATABASE} -c 'TABLE title_principals LIMIT 5'",
        "stop:   penstock server stop        (the data is kept)",
    ]
    write_result(as_object(result) if as_json else [*describe_bulk_load(result), *kept])
