"""Which synchronous standbys a server asks for, and which are missing."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.model.recording import CounterRow

# FIRST 2 (a, b), ANY 1 (a, b), 2 (a, b), or a, b: which is 1 (a, b)
_LIST = re.compile(r"\s*(?:(?:(?:FIRST|ANY)\s+)?(\d+)\s*\()?(.*)", re.IGNORECASE | re.DOTALL)
_NAME = re.compile(r'"((?:[^"]|"")*)"|([^\s,"()]+)')


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """Fewer are there than a commit waits for; `names` are those that are not, empty where any would do."""

    needed: int
    present: int
    names: tuple[str, ...]


def find_missing(standby_names: str, standbys: Sequence[CounterRow]) -> Missing | None:
    """Return what is missing by synchronous_standby_names and the rows of pg_stat_replication.

    None where enough is there, where none is asked for, and where the role may not see the rows.
    """
    needed, names = parse_standby_names(standby_names)
    if not names or any(row.get("state") is None for row in standbys):
        return None
    streaming = [row for row in standbys if row["state"] == "streaming" and row.get("sync_state") != "async"]
    if len(streaming) >= needed:
        return None
    present = {str(row.get("application_name")).lower() for row in streaming}
    lost = tuple(name for name in names if name != "*" and name.lower() not in present)
    return Missing(needed=needed, present=len(streaming), names=lost)


def parse_standby_names(value: str) -> tuple[int, tuple[str, ...]]:
    """Return for how many of which standbys a commit waits.

    >>> parse_standby_names('ANY 2 (a1, "b-1", *)')
    (2, ('a1', 'b-1', '*'))
    >>> parse_standby_names("a, b")
    (1, ('a', 'b'))
    """
    found = _LIST.fullmatch(value)
    assert found is not None
    names = tuple((quoted or "").replace('""', '"') or plain for quoted, plain in _NAME.findall(found[2]))
    return int(found[1] or 1), names
