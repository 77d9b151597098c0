"""The options that every `penstock bench` has, and what they mean."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.core.errors import UsageError

if TYPE_CHECKING:
    from penstock.lab.topology.shapes import Shape

To = Annotated[
    str | None,
    typer.Option("--to", metavar="CONNINFO", help="Measure this server, in a schema that is dropped afterwards."),
]
Plot = Annotated[
    Path | None,
    typer.Option("--plot", metavar="FILE", help="Also draw the times, as SVG or PNG by the file's extension."),
]


def choose_shapes(
    text: str | None, known: Sequence[Shape], *, default: tuple[Shape, ...], volume: str | None
) -> tuple[Shape, ...]:
    """Return the known topologies that a comma-separated list names, in the order of `known`.

    If there is no list, they are `default`. Raises UsageError for an unknown name, and for a volume without a topology.
    """
    names = default if text is None else [name.strip() for name in text.split(",")]
    for name in names:
        if name not in known:
            raise UsageError(f'unknown topology "{name}"', hint=f"Use one of {', '.join(known)}.")
    if volume is not None and not names:
        raise UsageError("--volume needs a topology", hint="Name one with --topology; --to has its own volumes.")
    return tuple(shape for shape in known if shape in names)
