"""The options of `penstock load` for triggers and autovacuum while it loads, and for what follows."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.cli.request import Request
    from penstock.model import job

_TABLE = "The table meanwhile"
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


Triggers = Annotated[
    str | None,
    typer.Option(
        "--triggers",
        metavar="keep|disable",
        help="disable switches off the table's own triggers that the load would fire, and puts each back as it was; "
        "meanwhile they do not fire for others either. keep is the default. Needs the table's owner.",
        rich_help_panel=_TABLE,
    ),
]
Autovacuum = Annotated[
    str | None,
    typer.Option(
        "--autovacuum",
        metavar="auto|keep|pause",
        help="auto, the default, leaves autovacuum alone until it is seen at work on the table after ten seconds and "
        "more; then it is paused at that table or partition and its TOAST table until the load ends, if the role owns "
        "them. pause does so from the start, and needs the table's owner. keep never does. Settings come back as they "
        "were.",
        rich_help_panel=_TABLE,
    ),
]

_TRIGGERS: Mapping[str, job.TriggerRule] = {"keep": "keep", "disable": "disable"}
_AUTOVACUUM: Mapping[str, job.AutovacuumRule] = {"auto": "auto", "keep": "keep", "pause": "pause"}


def with_upkeep(
    request: Request, *, vacuum: bool | None, checkpoint: bool | None, triggers: str | None, autovacuum: str | None
) -> Request:
    """Return a request with what was said of the table's switches, and of what follows. Raises UsageError."""
    if (triggers or "keep") not in _TRIGGERS:
        raise UsageError(f'there is no --triggers "{triggers}"', hint="Use --triggers with keep or disable.")
    if (autovacuum or "auto") not in _AUTOVACUUM:
        raise UsageError(
            f'there is no --autovacuum "{autovacuum}"',
            hint="Use --autovacuum with auto, keep or pause: it is paused at the table alone, while it is loaded.",
        )
    rules = replace(
        request.job.rules,
        vacuums=vacuum,
        checkpoints=checkpoint,
        triggers=_TRIGGERS[triggers or "keep"],
        autovacuum=_AUTOVACUUM[autovacuum or "auto"],
    )
    return replace(request, job=replace(request.job, rules=rules))
