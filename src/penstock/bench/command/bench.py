"""`penstock bench`: repeats published experiments. Each command is a function in another module of this folder."""

from __future__ import annotations

import typer

from penstock.bench.bulk_load.command import bulk_load
from penstock.bench.commits.command import commits
from penstock.bench.optimized_reads.command import optimized_reads

app = typer.Typer(
    help="Repeat published experiments, on this machine's lab or on your own server.",
    no_args_is_help=True,
    add_completion=False,
)
app.command("bulk-load")(bulk_load)
app.command()(commits)
app.command("optimized-reads")(optimized_reads)
