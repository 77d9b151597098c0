"""The options of `penstock load` for what follows the load."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from penstock.cli.request import Request

_AFTER = "After the load"

Vacuum = Annotated[
    bool | None,
    typer.Option(
        "--vacuum/--no-vacuum",
        show_default=False,
        help="Whether VACUUM (ANALYZE) follows, of the tables and partitions that got rows. It does where neither is "
        "said, but for what would read more than ten times what was loaded (and more than 64 MiB); --vacuum leaves "
        "nothing out.",
        rich_help_panel=_AFTER,
    ),
]
Checkpoint = Annotated[
    bool | None,
    typer.Option(
        "--checkpoint/--no-checkpoint",
        show_default=False,
        help="Whether a CHECKPOINT follows, which writes all changed pages at once and so slows others. Where neither "
        "is said it does after 1 GiB and more, if the server's settings were changed for the load.",
        rich_help_panel=_AFTER,
    ),
]


def with_upkeep(request: Request, *, vacuum: bool | None, checkpoint: bool | None) -> Request:
    """Return a request with what was said of the time after the load."""
    rules = replace(request.job.rules, vacuums=vacuum, checkpoints=checkpoint)
    return replace(request, job=replace(request.job, rules=rules))
