"""The options that speak of the server's settings: of `penstock load`, and of `penstock settings`."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.errors import UsageError

Settings = Annotated[
    str | None,
    typer.Option(
        "--settings",
        metavar="none|auto|PROFILE",
        help="Settings of the server while the load runs. none, the default, leaves them alone. bulk-load has "
        "fewer checkpoints, under a lease that is put back on every way out, and needs rights that are named where "
        "they lack. auto does that where the rights are there and the load is large enough to gain from it.",
        rich_help_panel="Server",
    ),
]
SharedGroup = Annotated[
    bool,
    typer.Option(
        "--shared-group",
        help="Change a parameter group of Amazon RDS though other instances have it too, and are changed with it.",
        rich_help_panel="Server",
    ),
]
GroupName = Annotated[
    str, typer.Argument(metavar="NAME", show_default=False, help="The name of the parameter group to make.")
]
Wishes = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="PROFILE|NAME=VALUE...",
        show_default=False,
        help="A profile (bulk-load where nothing is given), or settings such as max_wal_size=8GB.",
    ),
]
ExpectWal = Annotated[
    str | None,
    typer.Option("--expect-wal", metavar="SIZE", help="How much WAL is going to be written, as in 20GB."),
]
Lasts = Annotated[
    str,
    typer.Option(
        "--for", metavar="TIME", help="How long the lease stands, as in 6h; then the next penstock that looks ends it."
    ),
]
LeaseId = Annotated[
    str | None,
    typer.Argument(metavar="ID", show_default=False, help="The lease's id, or its beginning. By default all."),
]
Forget = Annotated[
    bool,
    typer.Option(
        "--forget",
        help="Remove the record of leases that were made on another server, before a failover; nothing of them is put "
        "back.",
    ),
]


def parse_settings(text: str | None, *, may_share_group: bool = False, only_checks: bool = False) -> str:
    """Return what becomes of the server's settings, None being none.

    Raises UsageError, also for options that would mean nothing.

    >>> parse_settings("auto")
    'auto'
    """
    if text is None or text == "none":
        if may_share_group:
            raise UsageError("--shared-group needs --settings", hint="Without it no setting is changed.")
        return "none"
    if only_checks:
        raise UsageError("--settings and --check cannot be used together", hint="A check writes nothing.")
    # Not paid for by a load that leaves settings alone.
    from penstock.settings.profiles import PROFILES

    if text not in ("auto", *PROFILES):
        raise UsageError(f'there is no --settings "{text}"', hint=f"Use none, auto or {', '.join(PROFILES)}.")
    return text
