"""What several commands take beside the declared options."""

from __future__ import annotations

from typing import Annotated

import typer

LoadId = Annotated[
    str, typer.Argument(metavar="ID", show_default=False, help="The load's id, or its first characters.")
]
Json = Annotated[
    bool,
    typer.Option("--json", help="Print the result as one JSON object on standard output; messages on standard error."),
]
Quiet = Annotated[bool, typer.Option("--quiet", help="Show nothing but warnings and errors, and results as JSON.")]
