"""`penstock demo`: a small `penstock bench bulk-load` on the embedded server, which needs no root."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.options.shared import Json  # noqa: TC001 (typer reads annotations)
from penstock.cli.terminal.output import write_message, write_result
from penstock.errors import UsageError

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
    from penstock.bench.bulk_load.plan import Experiment
    from penstock.bench.bulk_load.run import DEMO_DATABASE, embedded_target, measure_bulk_load
    from penstock.bench.bulk_load.table import as_object
    from penstock.cli.commands.bench.bulk_load import describe_bulk_load
    from penstock.lab import default_server

    if not 0 < scale < float("inf"):
        raise UsageError(f"scale must be greater than zero: {scale}", hint="Scale 1 is IMDb's size.")
    server = default_server()
    result = measure_bulk_load(
        Experiment(imdb_scale=scale, rounds=rounds),
        open_target=lambda files: embedded_target(server, files),
        say=write_message,
    )
    kept = [
        "",
        f"query:  penstock server psql {DEMO_DATABASE} -c 'TABLE title_principals LIMIT 5'",
        "stop:   penstock server stop        (the data is kept)",
    ]
    write_result(as_object(result) if as_json else [*describe_bulk_load(result), *kept])
