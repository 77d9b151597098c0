"""Names the files of a folder that may be no data, such as a README, if they do not fit to the others. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from penstock.core.errors import DataError, PenstockError, TargetError, UsageError
from penstock.core.values.source import SourceObject

# The endings of names of data files, without those of compression.
_ENDINGS = frozenset(("csv", "tsv", "tab", "psv", "json", "jsonl", "ndjson", "parquet", "arrow", "feather", "dat"))


@contextmanager
def naming_strays(objects: Sequence[SourceObject], *, first: str | None = None) -> Iterator[None]:
    """If the block raises an error, name in its hint the objects that may not be data, if there are any.

    `find_strays` finds them. If `first` is given, the hint is changed only if `first` is the URI of one of them.
    """
    try:
        yield
    except (DataError, TargetError, UsageError) as error:
        _name_strays(error, [each.uri for each in objects], first=first)
        raise


def _name_strays(error: PenstockError, uris: Sequence[str], *, first: str | None) -> None:
    if (strays := find_strays(uris)) and first in (None, *strays):
        folder, _, name = next(uri for uri in uris if uri not in strays).rpartition("/")
        ending = name[name.index(".") :] if name.count(".") == 1 else f".{name.rsplit('.', 1)[1]}"
        others = f"{folder}/*{ending}" if folder else f"*{ending}"
        more = f" and {len(strays) - 1} more" if len(strays) > 1 else ""
        error.hint = f"If {strays[0]}{more} is no data, name the others alone: '{others}'. {error.hint or ''}".strip()


def find_strays(uris: Sequence[str]) -> list[str]:
    """Return the URIs whose names lack the ending of a data file, such as .csv. Return none if all lack it.

    >>> find_strays(["in/README.txt", "in/1.csv.gz", "in/notes"]), find_strays(["1.txt", "2.txt"])
    (['in/README.txt', 'in/notes'], [])
    """
    strays = [uri for uri in uris if _ENDINGS.isdisjoint(uri.rpartition("/")[2].lower().split(".")[1:])]
    return strays if len(strays) < len(uris) else []
