"""`penstock bench`: repeats published experiments, and tests penstock on a user's server.

`penstock demo` does a small part of the experiment on bulk loading.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.options import SERVER, Json, takes
from penstock.cli.output import JSON_FORMAT, PROBLEMS, write_message, write_result
from penstock.core.errors import UsageError
from penstock.core.units import GIB, MB, format_bytes, format_count
from penstock.core.values.job import Access
from penstock.core.values.options import join_lists, parse_counts, parse_duration, pick, spell_options
from penstock.core.words import line_up
from penstock_lab.bench.commits.plan import CHECK_ROWS_PER_COMMIT

if TYPE_CHECKING:
    from penstock.core.connect.connection import ConnectionFactory
    from penstock.watch.sampler import Sampler
    from penstock_lab.bench.bulk_load.run import BulkLoadResult, BulkLoadTargetResult, Target
    from penstock_lab.bench.commits.plan import Sweep
    from penstock_lab.bench.commits.run import Check, CommitsResult, CommitsTargetResult
    from penstock_lab.bench.optimized_reads.run import ReadsResult, ReadsTargetResult
    from penstock_lab.datasets.datafiles import DataFile
    from penstock_lab.topology.shapes import Shape

To = Annotated[
    str | None,
    typer.Option("--to", metavar="CONNINFO", help="Measure this server, in a schema that is dropped afterwards."),
]
Plot = Annotated[
    Path | None,
    typer.Option("--plot", metavar="FILE", help="Also draw the times, as SVG or PNG by the file's extension."),
]


def choose_shapes(
    lists: Sequence[str] | None, known: Sequence[Shape], *, default: tuple[Shape, ...], volume: object
) -> tuple[Shape, ...]:
    """Return the known topologies that comma-separated lists name, in the order of `known`.

    If there is no list, they are `default`. Raises UsageError for an unknown name, and for a volume without a topology.
    """
    text = join_lists(lists)
    names = default if text is None else [name.strip() for name in text.split(",")]
    for name in names:
        if name not in known:
            raise UsageError(f'unknown topology "{name}"', hint=f"Use one of {', '.join(known)}.")
    if volume is not None and not names:
        raise UsageError("--volume needs a topology", hint="Name one with --topology; --to has its own volumes.")
    return tuple(shape for shape in known if shape in names)


ImportFrom = Annotated[
    str | None,
    typer.Option(
        "--s3",
        metavar="s3://BUCKET/PREFIX",
        help="With --to: have the server import the files from this place; they are written there, and removed.",
    ),
]
_BULK_LOAD_SHAPES: tuple[Shape, ...] = ("single", "multi-az", "cluster")


def bulk_load(
    quick: Annotated[
        bool, typer.Option("--quick", help="Load fewer rows, on topology single by default, in one round.")
    ] = False,
    topology: Annotated[
        list[str] | None,
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
        list[str] | None,
        typer.Option(
            "--volume",
            metavar="LIST",
            help="Load one file on these volumes, such as gp3:500GiB:12000:500, which are scaled, and the rest on the "
            "last (default: the published ones).",
        ),
    ] = None,
    s3: ImportFrom = None,
    plot: Plot = None,
    as_json: Json = False,
) -> None:
    """Measure the steps of a published bulk load. They are faster volumes, files in parallel, settings, and penstock.

    Each step is sampled and diagnosed. The lab's servers have the published volumes for as many cores as this machine
    has; they need root, FUSE and qemu-storage-daemon. At the end the server is killed, and its recovery timed.

    Exit codes: 0 measured, 2 no such topology or volume, or no matplotlib, 4 a file cannot be read or written, 6 tables
    of others are in the way, 7 the server refused, 8 a topology could not be brought up, or rows are missing.
    """
    from penstock_lab.bench.bulk_load.plan import FULL, QUICK, choose_steps
    from penstock_lab.bench.bulk_load.run import measure_bulk_load
    from penstock_lab.bench.bulk_load.table import as_object, chart
    from penstock_lab.bench.plot import check_plot, draw_plot

    if s3 is not None and to is None:
        raise UsageError("--s3 needs --to", hint="Name the server that imports with --to; a lab has its own S3.")
    if plot is not None:
        check_plot(plot)
    default = () if to is not None else _BULK_LOAD_SHAPES[:1] if quick else _BULK_LOAD_SHAPES
    shapes = choose_shapes(topology, _BULK_LOAD_SHAPES, default=default, volume=volume)
    result = measure_bulk_load(
        QUICK if quick else FULL,
        steps=choose_steps(None if not volume else ",".join(volume).split(",")),
        shapes=shapes,
        files_from=files,
        open_target=None if to is None else lambda found: _open(to, found, s3=s3),
        say=write_message,
    )
    write_result(as_object(result) if as_json else describe_bulk_load(result))
    if plot is not None:
        draw_plot(plot, chart(result))


def _open(to: str, files: tuple[DataFile, ...], *, s3: str | None) -> AbstractContextManager[Target]:
    from penstock.cli.options import open_target
    from penstock.settings.backend import open_backend
    from penstock_lab.bench.bulk_load.users import users_target

    connect = open_target({"to": to})
    return users_target(connect, to, files, open_settings=lambda: open_backend(connect), s3=s3, say=write_message)


def describe_bulk_load(result: BulkLoadResult) -> list[str]:
    """Return the measurements as lines of text."""
    from penstock_lab.bench.bulk_load.plan import SOURCE
    from penstock_lab.bench.bulk_load.table import caveats, describe_rounds

    machine = result.machine
    size = f"{format_bytes(result.plain_bytes)} of text, {format_bytes(result.size_bytes)} gzip"
    lines = [
        f"{format_count(result.rows)} rows in seven files ({size}), {describe_rounds(result)}",
        f"client, and servers of a lab: {machine.cpu_model}, {machine.cpu_count} cores",
        *describe_scale(result),
    ]
    for target in result.targets:
        lines += ["", *_describe_bulk_load_target(target)]
    return [*lines, "", "Published, not measured here:", f"  {SOURCE}.", *caveats(result)]


def describe_scale(result: BulkLoadResult) -> list[str]:
    """Return one line with the factors by which the lab scales the experiment, and the scaled memory and max_wal_size.

    Without a lab nothing is scaled, so the list is empty.
    """
    from penstock_lab.bench.bulk_load.plan import MEMORY_BYTES, VCPUS

    scaled = result.scaled
    if scaled is None:
        return []
    text = (
        f"rates by {result.machine.cpu_count} cores of {VCPUS} vCPUs: {scaled.rate_scale:.3g}; data and memory: "
        f"{scaled.data_scale:.3g} of the article's, so {scaled.memory_bytes / GIB:.2f} of {MEMORY_BYTES // GIB} GiB "
        f"and max_wal_size {scaled.max_wal_bytes / MB:.0f} MB"
    )
    return [text]


def _describe_bulk_load_target(target: BulkLoadTargetResult) -> list[str]:
    from penstock_lab.bench.bulk_load.table import (
        LOAD_HEADING,
        RECOVERY_HEADING,
        SETTLED_HEADING,
        TIME_HEADING,
        load_rows,
        recovery_rows,
        settled_rows,
        time_rows,
    )

    lines = [
        f"{target.name}, PostgreSQL {target.postgresql}; every step stored all rows",
        *line_up([TIME_HEADING, *time_rows(target)], align="<" + ">" * (len(TIME_HEADING) - 1), indent="  "),
        "",
        *line_up([LOAD_HEADING, *load_rows(target)], align="<" + ">" * 10 + "<" * 4, indent="  "),
    ]
    if recoveries := recovery_rows(target):
        lines += ["", *line_up([RECOVERY_HEADING, *recoveries], align="<>>>>", indent="  ")]
    if settled := settled_rows(target):
        lines += ["", *line_up([SETTLED_HEADING, *settled], align="<>>>>", indent="  ")]
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
    """Load IMDb's seven files on the embedded server in three ways. Compare them.

    The files are generated, with IMDb's columns and skew. They are loaded by one psql per file in turn, by one per file
    in parallel, and by penstock; the rows are counted each time. The tables of the last run are kept in database
    penstock_demo, which each demo drops and recreates. `penstock bench bulk-load` does the same on volumes like the
    published experiment's.
    """
    from penstock.embedded.server import default_server
    from penstock_lab.bench.bulk_load.plan import BulkLoadExperiment
    from penstock_lab.bench.bulk_load.run import DEMO_DATABASE, embedded_target, measure_bulk_load
    from penstock_lab.bench.bulk_load.table import as_object

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


# A commit waits for different things in each of these topologies.
_COMMITS_SHAPES: tuple[Shape, ...] = ("single", "cluster", "quorum")
# With volumes, multi-az is measured too, because it replicates the volume.
_COMMITS_SHAPES_ON_VOLUMES: tuple[Shape, ...] = ("single", "multi-az", "cluster", "quorum")


Rows = Annotated[
    int | None,
    typer.Option(
        "--rows",
        min=CHECK_ROWS_PER_COMMIT,
        help="Insert this many rows in every run, also one by one (default: 10 million, fewer in small batches).",
    ),
]


def commits(
    quick: Annotated[bool, typer.Option("--quick", help="Insert 100,000 rows instead of 10 million.")] = False,
    topology: Annotated[
        list[str] | None,
        typer.Option(
            "--topology",
            metavar="LIST",
            help="Measure these lab topologies, such as single,quorum (default: all, with --to none).",
        ),
    ] = None,
    to: To = None,
    volume: Annotated[
        list[str] | None,
        typer.Option(
            "--volume",
            metavar="LIST",
            help="Put each server's data on each of these volumes, such as unlimited@1ms, as lab up does, and add "
            "multi-az; quorum has none, as Aurora.",
        ),
    ] = None,
    zone_latency: Annotated[
        str,
        typer.Option("--zone-latency", help="Delay traffic to each zone of cluster and quorum by this time, each way."),
    ] = "0ms",
    rows: Rows = None,
    plot: Plot = None,
    as_json: Json = False,
) -> None:
    """Measure inserts with different numbers of rows per commit. Go from all rows at once to row by row.

    Each run empties the table of an earlier one. The lab's topologies are brought up for it and taken down again.

    A sampler runs beside it, except in one round; without --quick it takes about an hour on two cores. With --to an
    endpoint of RDS or Aurora it waits at the end until CloudWatch has reported its last minute.

    Exit codes: 0 measured, 2 no such topology or no matplotlib, 4 the plot cannot be written, 6 a foreign
    schema is in the way, 7 the server refused, or rows and commits do not match, 8 a topology could not be brought up.
    """
    from penstock.cli.options import open_target
    from penstock_lab.bench.commits.run import measure_commits
    from penstock_lab.bench.commits.table import as_object, chart
    from penstock_lab.bench.plot import check_plot, draw_plot

    sweep = _choose_sweep(quick=quick, rows=rows)
    if plot is not None:
        check_plot(plot)
    known = _COMMITS_SHAPES if volume is None else _COMMITS_SHAPES_ON_VOLUMES
    connect = None if to is None else open_target({"to": to})
    result = measure_commits(
        sweep,
        shapes=choose_shapes(topology, known, default=known if to is None else (), volume=volume),
        volumes=[] if volume is None else [each.strip() for each in ",".join(volume).split(",")],
        zone_latency_s=parse_duration(zone_latency, option="--zone-latency"),
        to=connect,
        open_sampler=None if connect is None else _find_sampler(connect, to),
        say=write_message,
    )
    write_result(as_object(result) if as_json else describe_commits(result))
    if plot is not None:
        draw_plot(plot, chart(result))


def _choose_sweep(*, quick: bool, rows: int | None) -> Sweep:
    from penstock_lab.bench.commits.plan import FULL, QUICK, measure_all

    if quick and rows is not None:
        raise UsageError("--quick and --rows exclude each other", hint="--quick inserts 100,000 rows at most.")
    return QUICK if quick else FULL if rows is None else measure_all(rows)


def _find_sampler(connect: ConnectionFactory, to: str | None) -> Callable[[], Sampler] | None:
    """Return what opens a sampler that also has CloudWatch's metrics, if `to` names an endpoint of RDS."""
    from penstock.watch.watching import find_rds_host, open_sampler
    from penstock_lab.bench.commits.run import SAMPLE_INTERVAL_S

    if find_rds_host(to) is None:
        return None
    return partial(open_sampler, connect, to=to, interval_s=SAMPLE_INTERVAL_S)


def describe_commits(result: CommitsResult) -> list[str]:
    """Return the measurements as lines of text."""
    from penstock_lab.bench.commits.plan import SOURCE
    from penstock_lab.bench.commits.table import MARK, SHARES, describe_rounds

    machine = f"{result.machine.cpu_model}, {result.machine.cpu_count} cores"
    lines = [f"{format_count(result.rows)} rows, medians of {describe_rounds(result)}"]
    lines.append(f"client, receivers, and servers of a lab: {machine}")
    for target in result.targets:
        lines += ["", *_describe_commits_target(target)]
    lines += ["", "Published for Aurora's storage, not measured here:", f"  {SOURCE}."]
    lines.append("bare: the run without a sampler, which median, min and max include.")
    lines.append(
        "CPUs: processors in use, of the backend that inserts, of its server, and of this machine, which includes"
    )
    lines.append("receivers, standbys, client and kernel; the article saw 1 of 2 at every length.")
    lines.append(
        "ms/commit: what a row takes more than in the largest batch, by the commits per row; CPU of it likewise."
    )
    if any(run.metrics for target in result.targets for run in target.sizes):
        lines.append(
            "% of the minutes: the runs' share of the minutes whose metrics are shown, as CloudWatch has them."
        )
    lines.append(f"{SHARES}: per cent of samples that wait for nothing, write WAL, and wait for a commit.")
    if any(run.size.is_scaled for target in result.targets for run in target.sizes):
        lines.append(f"{MARK} extrapolated: fewer rows were inserted, and the seconds scaled up to all.")
    if any(target.name == "quorum" for target in result.targets):
        lines.append("quorum: unlike on Aurora, the primary also flushes its own WAL and writes its own pages.")
    return lines


def _describe_commits_target(target: CommitsTargetResult) -> list[str]:
    from penstock_lab.bench.commits.plan import advise
    from penstock_lab.bench.commits.table import HEADING, USE_HEADING, metric_rows, rows, use_rows

    metrics = metric_rows(target)
    return [
        f"{target.name}, PostgreSQL {target.postgresql}",
        *line_up([HEADING, *rows(target)], align=">" * len(HEADING), indent="  "),
        "",
        *line_up([USE_HEADING, *use_rows(target)], align=">" * (len(USE_HEADING) - 1) + "<", indent="  "),
        *(["", *line_up(metrics, align=">" * len(metrics[0]), indent="  ")] if metrics else []),
        f"  check: {_describe_check(target.check)}",
        f"  advice: {format_count(advise(target.sizes))} rows per commit, the fewest within 7 % of the best",
    ]


def _describe_check(check: Check) -> str:
    others = check.counted_commits - check.commits
    return (
        f"+{format_count(check.counted_rows)} rows, +{format_count(check.counted_commits)} commits for "
        f"{format_count(check.rows)} rows with a commit every 1,000: {others} by others or around the call, "
        f"{check.background_commits_per_s:.1f} per second before it"
    )


_READS_SHAPES: tuple[Shape, ...] = ("single", "multi-az")


ToReads = Annotated[
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
        list[str] | None,
        typer.Option(
            "--topology", metavar="LIST", help="Measure these lab topologies: single, multi-az (default: single)."
        ),
    ] = None,
    sessions: Annotated[
        list[str] | None,
        typer.Option("--sessions", metavar="LIST", help="Numbers of sessions (default: 1,2,4,8; with --quick 1,2,4)."),
    ] = None,
    to: ToReads = None,
    against: Against = None,
    plot: Annotated[
        Path | None,
        typer.Option("--plot", metavar="FILE", help="Also draw the speed-ups, as SVG or PNG by the file's extension."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Measure what a local disk gains for queries that spill.

    The lab's server has a volume with the published one's IOPS and throughput for as many cores as this machine has,
    and a local disk beside it; it needs root, FUSE and qemu-storage-daemon. Without --quick it takes about half an
    hour for each topology on two cores.

    Exit codes: 0 measured, 2 no such topology or no matplotlib, 4 the plot cannot be written, 6 a foreign
    schema is in the way, 7 the server refused, 8 a topology could not be brought up, or rows are missing.
    """
    from penstock.cli.options import open_target
    from penstock_lab.bench.optimized_reads.plan import FULL, QUICK
    from penstock_lab.bench.optimized_reads.run import measure_reads
    from penstock_lab.bench.optimized_reads.table import as_object, chart
    from penstock_lab.bench.plot import check_plot, draw_plot

    if against is not None and to is None:
        raise UsageError("--against needs --to", hint="Name the server without local storage with --to.")
    if to is not None and topology:
        raise UsageError("--to and --topology exclude each other", hint="Only a lab's cores are known, and scaled by.")
    if plot is not None:
        check_plot(plot)
    default = () if to is not None else _READS_SHAPES[:1]
    shapes = choose_shapes(topology, _READS_SHAPES, default=default, volume=None)
    experiment = QUICK if quick else FULL
    if sessions:
        experiment = replace(experiment, sessions=parse_counts(",".join(sessions), option="--sessions"))
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
    from penstock_lab.bench.optimized_reads.plan import BYTES_PER_S, IOPS, SOURCE, VCPUS
    from penstock_lab.bench.optimized_reads.table import caveats

    experiment, machine, scaled = result.experiment, result.machine, result.scaled
    rounds = f"{experiment.rounds} rounds, either side first in half of them"
    lines = [
        f"{format_count(experiment.rows)} rows in each of three tables, three queries, {rounds}",
        f"client, and servers of a lab: {machine.cpu_model}, {machine.cpu_count} cores",
    ]
    if scaled is not None:
        lines.append(
            f"volume: {scaled.iops} IOPS, {scaled.bytes_per_s / MB:.0f} MB/s (the article's {format_count(IOPS)} and "
            f"{BYTES_PER_S / MB:.0f} for {machine.cpu_count} of {VCPUS} vCPUs); "
            f"memory: {scaled.memory_bytes / GIB:.2f} GiB"
        )
    for target in result.targets:
        lines += ["", *_describe_reads_target(target, result)]
    lines += ["", "Published, not measured here:", f"  {SOURCE}."]
    if scaled is not None:
        lines.append("published: at as many sessions; by core: at as many sessions for each core.")
    return [*lines, *caveats(result)]


def _describe_reads_target(target: ReadsTargetResult, result: ReadsResult) -> list[str]:
    from penstock_lab.bench.optimized_reads.table import IO_HEADING, TIME_HEADING, io_rows, time_rows

    times = time_rows(target, result)
    io = io_rows(target, rows=result.experiment.rows)
    return [
        f"{target.name}, PostgreSQL {target.postgresql}",
        *line_up([TIME_HEADING, *times], align="><" + ">" * (len(TIME_HEADING) - 2), indent="  "),
        "",
        "  one round's temporary files, the article's for as many rows, and what reached the devices:",
        *line_up([IO_HEADING, *io], align=">" * len(IO_HEADING), indent="  "),
    ]


@takes(SERVER)
def self_test(
    s3: Annotated[
        str | None,
        typer.Option(
            "--s3",
            metavar="s3://BUCKET/PREFIX",
            help="Also import an object of this place by the server; it is written there, and removed.",
        ),
    ] = None,
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="FILE", help="Write the report to this file.")
    ] = Path("penstock-self-test.json"),
    as_json: Json = False,
    **options: Any,
) -> None:
    """Test penstock on your own server, and write a report.

    It uses a schema that is dropped afterwards. Files are loaded in each mode; a load is killed and resumed; indexes
    are dropped and rebuilt; settings of the server are changed and restored if the role may do that; the server is
    watched. This takes about a minute. The role needs CREATE on the database. The report has versions, settings, and
    for each step its result, its seconds, and the SQLSTATE and the plain words of its error: no name, address or data,
    so it can be attached to an issue.

    Exit codes: 0 no step failed, 4 the report cannot be written, 5 a step failed, 6 the role may not create a schema, 7
    the server refused.
    """
    from penstock.core.newfile import check_writable

    check_writable(output)
    report = _test_server(options, s3=s3, output=output)
    write_result(report if as_json else [f"{report['state']}: wrote {output}"])
    if report["state"] != "ok":
        raise typer.Exit(PROBLEMS)


def _test_server(options: Mapping[str, Any], *, s3: str | None, output: Path) -> dict[str, object]:
    """Run the steps, and write and return the report, also if the test does not end. Raises PenstockError."""
    from tempfile import TemporaryDirectory

    from penstock.cli.options import open_target
    from penstock.core.connect.conninfo import given_settings, parse_conninfo
    from penstock.core.host.machine import host_name
    from penstock.core.newfile import write_file
    from penstock_lab.bench.self_test.report import describe_step, make_report
    from penstock_lab.bench.self_test.run import STEPS, SelfTestFindings, run_self_test

    connect, found = open_target(options), SelfTestFindings()
    settings = given_settings(parse_conninfo(options.get("to") or ""), os.environ)
    names = [*settings.values(), *map(str, options.values()), s3 or "", host_name()]
    try:
        with TemporaryDirectory(prefix="penstock-") as folder:
            run_self_test(
                connect,
                found,
                reach=spell_options(Access(**pick(Access, options))),
                folder=Path(folder),
                s3=s3,
                names=names,
                say=lambda step: write_message(describe_step(step)),
            )
    finally:
        report = make_report(
            found.steps,
            versions=found.versions,
            server=found.server,
            options=[*options, *(["s3"] if s3 else [])],
            is_whole=len(found.steps) == len(STEPS),
        )
        if found.steps:
            write_file(output, f"{json.dumps({'format': JSON_FORMAT, **report}, indent=1)}\n".encode())
    return report


app = typer.Typer(
    help="Repeat published experiments, and test penstock. Use this machine's lab, or your own server.",
    no_args_is_help=True,
    add_completion=False,
)
app.command("bulk-load")(bulk_load)
app.command()(commits)
app.command("optimized-reads")(optimized_reads)
app.command("self-test")(self_test)
