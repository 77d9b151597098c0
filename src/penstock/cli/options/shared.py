"""Arguments and options that several commands share and that are not options of a load."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.options.completion import loads, rejecting_loads, unfinished_loads

LoadId = Annotated[
    str,
    typer.Argument(
        metavar="ID", show_default=False, help="The load's id, or its first characters.", autocompletion=loads
    ),
]
UnfinishedId = Annotated[
    str,
    typer.Argument(
        metavar="ID|latest",
        show_default=False,
        help="The load's id, or its first characters; latest is the newest load that was cut short.",
        autocompletion=unfinished_loads,
    ),
]
RejectingId = Annotated[
    str,
    typer.Argument(
        metavar="ID|latest",
        show_default=False,
        help="The load's id, or its first characters; latest is the newest load with rejected records.",
        autocompletion=rejecting_loads,
    ),
]
Json = Annotated[
    bool,
    typer.Option("--json", help="Print the result as one JSON object on standard output; messages on standard error."),
]
Quiet = Annotated[bool, typer.Option("--quiet", help="Show nothing but warnings and errors, and results as JSON.")]
QuietLoad = Annotated[
    bool,
    typer.Option(
        "--quiet", help="Show nothing but warnings, errors, a line if records were rejected, and results as JSON."
    ),
]
