"""`penstock temp`: commands for temporary work. Each command is a function in another module of this folder."""

from __future__ import annotations

import typer

from penstock.temp.place.command import check, place, remove
from penstock.temp.replay.command import replay
from penstock.temp.usage.command import usage

app = typer.Typer(
    help="See what queries spill to disk, place that on local disk, and measure what it gains.",
    no_args_is_help=True,
    add_completion=False,
)
app.command()(usage)
app.command()(place)
app.command()(check)
app.command()(remove)
app.command()(replay)
