"""Names objects that a load by several hosts leaves out: hosts may list their sources differently. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.errors import LeftOutError

# More names than this make an error that nobody reads.
_NAMED = 10


def name_objects(uris: Sequence[str]) -> str:
    """Return the names of objects as a part of a sentence.

    >>> name_objects(["a.csv"])
    '"a.csv"'
    >>> name_objects([f"{number}.csv" for number in range(12)])[-26:]
    '"9.csv" and 2 more objects'
    """
    named = ", ".join(f'"{uri}"' for uri in uris[:_NAMED])
    more = len(uris) - _NAMED
    return named if more <= 0 else f"{named} and {more:,} more object{'s' if more > 1 else ''}"


def left_out(uris: Sequence[str], load_id: str, *, host: str) -> LeftOutError:
    """Return the error of a host whose load is complete without some of the host's objects."""
    error = LeftOutError(
        f"{name_objects(uris)} {'is' if len(uris) == 1 else 'are'} not loaded: not part of load {load_id}",
        detail=f"Load {load_id} is complete. It has the objects that it began with, and host {host} lists more.",
        hint="Run the same command again, which loads what is left.",
    )
    error.load_id = load_id
    return error


def describe_left(uris: Sequence[str], load_id: str) -> str:
    """Return a sentence for the error of another kind that ends the load of such a host."""
    return f"Not part of load {load_id}, and not loaded: {name_objects(uris)}."
