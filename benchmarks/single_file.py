"""One large .gz file into one table: psql, timescaledb-parallel-copy, server-side COPY, penstock.

Each way's settings compete first; the fastest is compared with the others. The bars are issue 2's.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from benchmarks import ways
from benchmarks.data import principals
from benchmarks.record import save, summarize
from benchmarks.rounds import check_contents, choose_best, interleave
from benchmarks.server import Target, bench_server
from penstock_lab.datasets.people import expected_rows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from benchmarks.options import Options
    from benchmarks.ways import Variant


def run(options: Options) -> None:
    """Run it and write the results."""
    path = principals(options.data, options.scale)
    rows = expected_rows("title.principals", options.scale)
    with bench_server(options.data) as server, Target(server.conninfo()) as target:
        ours = ways.penstock(server.conninfo(), path)
        families = [ways.server_side(server, path)]
        if options.tspc is not None:
            families.insert(0, ways.parallel_copy(server, path, options.tspc))
        # Both of psql's: csv stores what the file holds, text is what one types first, and quicker.
        chosen: list[Variant] = [ours, *ways.zcat_psql(server, path)]
        trials: dict[str, Any] = {}
        for family in families:
            best, tried = choose_best(family, target, rows=rows)
            chosen.append(best)
            trials |= {name: [asdict(cost) for cost in costs] for name, costs in tried.items()}
        checksum = check_contents(chosen, target, rows=rows)
        results = {
            name: summarize(costs) for name, costs in interleave(chosen, target, rows=rows, runs=options.runs).items()
        }
        save(
            "single_file",
            options=options,
            postgresql=target.settings(),
            settings={"file_bytes": path.stat().st_size, "rows": rows, "checksum": checksum, "trials": trials},
            results=results,
            table=_table(results, ours.name),
            notes=_notes(options, chosen),
        )


def _table(results: Mapping[str, Any], ours: str) -> Sequence[Sequence[str]]:
    our_s = results[ours]["seconds"]["median"]
    heading = ("way", "median s", "lowest", "highest", "of penstock's time", "client CPU s", "peak MB")
    return [heading, *(_row(name, found, our_s) for name, found in results.items())]


def _row(name: str, found: Mapping[str, Any], our_s: float) -> tuple[str, ...]:
    seconds = found["seconds"]
    return (
        name,
        *(f"{seconds[key]:.2f}" for key in ("median", "lowest", "highest")),
        f"{seconds['median'] / our_s:.2f}",
        f"{found['cpu_s']['median']:.2f}" if "cpu_s" in found else "-",
        f"{found['peak_rss_bytes']['highest'] / 1e6:.0f}" if "peak_rss_bytes" in found else "-",
    )


def _notes(options: Options, chosen: Sequence[Variant]) -> list[str]:
    notes = ["CPU and memory are the client process's, without gzip in front of it. Rows were counted after every run."]
    if options.tspc is None:
        notes.append("timescaledb-parallel-copy was left out: no --tspc.")
    if inexact := [variant.name for variant in chosen if not variant.is_exact]:
        notes.append(f"{', '.join(inexact)} decodes backslashes, so what it stored is not what the file holds.")
    notes.append("The other ways' tables have the same checksum.")
    return notes
