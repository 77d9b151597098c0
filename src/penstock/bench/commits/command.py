"""`penstock bench commits`: shows how long inserts take by rows per commit. Package bench runs the experiment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from penstock.bench.command.options import Plot, To, choose_shapes
from penstock.cli.options import Json  # noqa: TC001 (typer reads annotations)
from penstock.cli.output import write_message, write_result
from penstock.core.units import format_count
from penstock.core.words import line_up

if TYPE_CHECKING:
    from penstock.bench.commits.run import Check, CommitsResult, CommitsTargetResult
    from penstock.lab.topology.shapes import Shape

# In each of these topologies, a commit waits for something else.
_SHAPES: tuple[Shape, ...] = ("single", "cluster", "quorum")
# With volumes, multi-az is measured too, because it replicates the volume.
_SHAPES_ON_VOLUMES: tuple[Shape, ...] = ("single", "multi-az", "cluster", "quorum")


def commits(
    quick: Annotated[bool, typer.Option("--quick", help="Insert 100,000 rows instead of 10 million.")] = False,
    topology: Annotated[
        str | None,
        typer.Option(
            "--topology",
            metavar="LIST",
            help="Measure these lab topologies, such as single,quorum (default: all, with --to none).",
        ),
    ] = None,
    to: To = None,
    volume: Annotated[
        str | None,
        typer.Option(
            "--volume",
            metavar="VOLUME",
            help="Put each server's data on a volume, as lab up does, and add multi-az; quorum has none, as Aurora.",
        ),
    ] = None,
    plot: Plot = None,
    as_json: Json = False,
) -> None:
    """Measure how long inserts take for different numbers of rows per commit, from all at once to row by row.

    Each run empties the table of an earlier one. The lab's topologies are brought up for it and taken down again.

    A sampler runs beside it, except in one round; without --quick it takes about an hour on two cores.

    Exit codes: 0 measured, 2 no such topology or no matplotlib, 4 the plot cannot be written, 6 a foreign
    schema is in the way, 7 the server refused, or rows and commits do not match, 8 a topology could not be brought up.
    """
    from penstock.bench.commits.plan import FULL, QUICK
    from penstock.bench.commits.run import measure_commits
    from penstock.bench.commits.table import as_object, chart
    from penstock.cli.target import open_target
    from penstock.core.plot import check_plot, draw_plot

    if plot is not None:
        check_plot(plot)
    known = _SHAPES if volume is None else _SHAPES_ON_VOLUMES
    default = known if to is None else ()
    shapes = choose_shapes(topology, known, default=default, volume=volume)
    result = measure_commits(
        QUICK if quick else FULL,
        shapes=shapes,
        volume=volume,
        to=None if to is None else open_target({"to": to}),
        say=write_message,
    )
    write_result(as_object(result) if as_json else describe_commits(result))
    if plot is not None:
        draw_plot(plot, chart(result))


def describe_commits(result: CommitsResult) -> list[str]:
    """Return the measurements as lines of text."""
    from penstock.bench.commits.plan import SOURCE
    from penstock.bench.commits.table import MARK, SHARES, describe_rounds

    machine = f"{result.machine.cpu_model}, {result.machine.cpu_count} cores for client, server and receivers"
    lines = [f"{format_count(result.rows)} rows, medians of {describe_rounds(result)}", f"on {machine}"]
    for target in result.targets:
        lines += ["", *_describe_target(target)]
    lines += ["", "Published for Aurora's storage, not measured here:", f"  {SOURCE}."]
    lines.append("bare: the run without a sampler, which median, min and max include.")
    lines.append(
        "busy CPUs: processors of this machine in use while the procedure ran; the article saw 1 of 2 at every length."
    )
    lines.append(f"{SHARES}: per cent of samples that wait for nothing, write WAL, and wait for a commit.")
    if any(run.size.is_scaled for target in result.targets for run in target.sizes):
        lines.append(f"{MARK} extrapolated: fewer rows were inserted, and the seconds scaled up to all.")
    if any(target.name == "quorum" for target in result.targets):
        lines.append("quorum: unlike on Aurora, the primary also flushes its own WAL and writes its own pages.")
    return lines


def _describe_target(target: CommitsTargetResult) -> list[str]:
    from penstock.bench.commits.plan import advise
    from penstock.bench.commits.table import HEADING, rows

    return [
        f"{target.name}, PostgreSQL {target.postgresql}",
        *line_up([HEADING, *rows(target)], align=">" * len(HEADING), indent="  "),
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
