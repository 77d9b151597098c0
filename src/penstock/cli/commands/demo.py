"""`penstock demo`: loads a small IMDb-like set three ways on the embedded server. The bench room compares them."""

from __future__ import annotations

import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.terminal.columns import line_up
from penstock.cli.terminal.output import write_message, write_result
from penstock.errors import UsageError
from penstock.units import MB, format_bytes, format_count

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.bench.bulk_load import BulkLoadResult, RunStarted, WayResult
    from penstock.lab.datasets.datafiles import TableProgress

app = typer.Typer(add_completion=False)

# 5.6 million rows, 260 MB of text: one load takes seconds, the whole demo about half a minute on 2 fast cores.
_SCALE = 0.03
# The number of rows of IMDb's own files, rounded.
_ROWS_AT_SCALE_1 = 186_000_000
_ROUNDS = 3


@app.command()
def demo(
    scale: Annotated[float, typer.Option("--scale", help="Set the size; 1 is IMDb's (186 million rows).")] = _SCALE,
    rounds: Annotated[
        int, typer.Option("--rounds", min=1, help="Run each method this often and show the median.")
    ] = _ROUNDS,
    schema: Annotated[
        str,
        typer.Option("--schema", help="Create the tables in this schema, replacing only the demo's."),
    ] = "demo",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Load IMDb's seven files three ways on the embedded server and compare.

    The files are generated, with IMDb's columns and skew. They are loaded by one psql per file in turn, by one per file
    in parallel, and by penstock; the rows are counted each time. The tables of the last run are kept.
    """
    from penstock.bench.bulk_load import compare_ways
    from penstock.lab import default_server
    from penstock.lab.datasets.imdb import write_imdb

    if not 0 < scale < float("inf"):
        raise UsageError(f"scale must be greater than zero: {scale}", hint="Scale 1 is IMDb's size.")
    server = default_server()
    write_message("starting the embedded PostgreSQL server")
    server.ensure_running()
    with tempfile.TemporaryDirectory(prefix="penstock-demo-") as folder:
        files = write_imdb(Path(folder), scale=scale, on_progress=_table_reporter())
        result = compare_ways(server, files, schema=schema, rounds=rounds, on_run=_say_run)
    write_result(_as_json(result) if as_json else describe_result(result))


def describe_result(result: BulkLoadResult) -> list[str]:
    """Return the comparison as lines of text."""
    size = f"{format_bytes(result.plain_bytes)} of text ({format_bytes(result.size_bytes)} gzip)"
    machine = f"{result.machine.cpu_model}, {result.machine.cpu_count} cores for client and server"
    rounds = len(result.ways[0].runs_s)
    return [
        f"{len(result.tables)} files, {format_count(result.rows)} rows, {size}",
        f"PostgreSQL {result.postgresql} on {machine}",
        "",
        *_table(result),
        "",
        f"Every method stored {format_count(result.rows)} rows each time, all that the files hold.",
        f"Seconds are medians of {rounds} interleaved run{'' if rounds == 1 else 's'}; MB are of text. What ran:",
        *line_up([(way.name, way.description) for way in result.ways], align="<<", indent="  "),
        "",
        *_explain_published(result),
        "",
        f"query:  penstock server psql -c 'TABLE {result.schema}.title_principals LIMIT 5'",
        "stop:   penstock server stop        (the data is kept)",
    ]


def _explain_published(result: BulkLoadResult) -> list[str]:
    """Return lines that say how the published runs differ from these."""
    times_as_many = round(_ROWS_AT_SCALE_1 / result.rows)
    return [
        f"Published: IMDb's own files, about {times_as_many} times as many rows, from S3 into Amazon",
        "RDS for PostgreSQL 14 with 8 vCPUs of its own (db.r6g.2xlarge) and network storage. Here client and",
        "server share cores and disk: compare the ratios, not the seconds.",
    ]


def _table(result: BulkLoadResult) -> list[str]:
    heading = ("way", "seconds", "MB/s", "times as fast", "published seconds", "times as fast")
    rows = [heading, *(_row(result, way) for way in result.ways)]
    return line_up(rows, align="<>>>>>")


def _row(result: BulkLoadResult, way: WayResult) -> tuple[str, ...]:
    first_s, published_s = result.ways[0].published_s, way.published_s
    published = (
        ("-", "-") if published_s is None or first_s is None else (str(published_s), f"{first_s / published_s:.2f}")
    )
    return (
        way.name,
        f"{way.median_s:.2f}",
        f"{result.plain_bytes / way.median_s / MB:.1f}",
        f"{result.times_as_fast(way):.2f}",
        *published,
    )


def _as_json(result: BulkLoadResult) -> dict[str, object]:
    fields = asdict(result)
    fields["ways"] = [
        {**asdict(way), "median_s": way.median_s, "times_as_fast": result.times_as_fast(way)} for way in result.ways
    ]
    return fields


def _say_run(run: RunStarted) -> None:
    number = "warm-up" if run.round == 0 else f"round {run.round} of {run.rounds}"
    write_message(f"{number}: {run.way}")


def _table_reporter() -> Callable[[TableProgress], None]:
    reported: set[str] = set()

    def report(progress: TableProgress) -> None:
        if progress.table not in reported:
            reported.add(progress.table)
            write_message(f"creating {progress.table}: {format_count(progress.expected_rows)} rows")

    return report
