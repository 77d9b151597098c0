"""Which synchronous standbys there ought to be, and which are missing from a sample."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.model.recording import CounterRow

# FIRST 2 (a, b), ANY 1 (a, b), 2 (a, b), or a, b
_LIST = re.compile(r"\s*(?:(?:(?:first|any)\s+)?(?P<needed>\d+)\s*\((?P<listed>.*)\)|(?P<names>.*))\s*", re.I | re.S)
_NAME = re.compile(r'"(?:[^"]|"")*"|[^\s,"]+')


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What synchronous_standby_names asks for: `needed` of these names; * is any."""

    needed: int
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """Fewer are there than a commit waits for; `names` are those that are not, empty where any would do."""

    needed: int
    present: int
    names: tuple[str, ...]


def parse_standby_names(value: str) -> Wanted | None:
    """Return what the setting asks for, None where it asks for nothing.

    >>> parse_standby_names('ANY 2 (a1, "b-1", *)')
    Wanted(needed=2, names=('a1', 'b-1', '*'))
    >>> parse_standby_names("a, b").needed
    1
    """
    found = _LIST.fullmatch(value)
    assert found is not None
    listed = found["names"] if found["needed"] is None else found["listed"]
    names = [
        name[1:-1].replace('""', '"') if name.startswith('"') else name
        for name in (match[0] for match in _NAME.finditer(listed))
    ]
    return Wanted(needed=int(found["needed"] or 1), names=tuple(names)) if names else None


def find_missing(wanted: Wanted, standbys: Sequence[CounterRow]) -> Missing | None:
    """Return what is missing by the rows of pg_stat_replication; None where enough is there, or rows are hidden."""
    if any(row.get("state") is None for row in standbys):
        return None
    present = [
        str(row.get("application_name")).lower()
        for row in standbys
        if row["state"] == "streaming" and row.get("sync_state") != "async"
    ]
    if len(present) >= wanted.needed:
        return None
    names = tuple(name for name in wanted.names if name != "*" and name.lower() not in present)
    return Missing(needed=wanted.needed, present=len(present), names=names)
