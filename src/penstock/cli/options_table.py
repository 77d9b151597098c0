"""The options of `penstock load` for indexes, triggers and autovacuum while it loads, and for what follows."""

from __future__ import annotations

from typing import Annotated

import typer

_TABLE = "The table meanwhile"
_AFTER = "After the load"
_INDEXES = "Indexes and keys"

Indexes = Annotated[
    str | None,
    typer.Option(
        "--indexes",
        metavar="WHAT",
        help="What of the table is parked: taken away while it is loaded, and made again after. auto: of an empty "
        "table and its partitions, if the load is large enough, indexes and foreign keys, but nothing that keeps rows "
        "unique. rebuild: of any table, keys too; meanwhile nothing keeps others from writing what breaks them. keep: "
        "nothing. --plan shows what is parked (default: auto).",
        rich_help_panel=_INDEXES,
    ),
]
NoVacuum = Annotated[
    bool,
    typer.Option(
        "--no-vacuum",
        help="Skip the VACUUM (ANALYZE) that follows, of the tables and partitions that got rows. A table of more than "
        "ten times what was loaded (and more than 64 MiB) is only analyzed.",
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
        metavar="keep|pause",
        help="pause keeps autovacuum from the table, its partitions and their TOAST tables until the load ends, and "
        "needs the table's owner; settings are restored. keep, the default, leaves it alone.",
        rich_help_panel=_TABLE,
    ),
]
