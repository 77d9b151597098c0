"""The options of `penstock load` that are about indexes and keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from penstock.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.model import shape

_TABLE = "Indexes and keys"

_INDEXES: Mapping[str, shape.Indexes] = {"auto": "auto", "keep": "keep", "rebuild": "rebuild"}

Indexes = Annotated[
    str | None,
    typer.Option(
        "--indexes",
        metavar="WHAT",
        help="auto (the default) takes indexes, keys and foreign keys of an empty table away while it is loaded, where "
        "the load is large enough, and makes them again after. rebuild does so with any table: meanwhile nothing "
        "keeps others from writing what breaks a key. keep leaves all in place. --plan tells what is parked.",
        rich_help_panel=_TABLE,
    ),
]


def parse_indexes(text: str | None) -> shape.Indexes:
    """Return what becomes of indexes. Raises UsageError."""
    found = _INDEXES.get(text or "auto")
    if found is None:
        raise UsageError(f'there is no --indexes "{text}"', hint="Use --indexes with auto, keep or rebuild.")
    return found
