"""How far indexes that are being made are, as the server tells it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.model.load.outcome import StepProgress
from penstock.server.connect.errors import translate_errors
from penstock.server.sql.queries import fetch_rows

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.server.connect.connection import Connection

# The server's phases in one word, as src/backend/catalog/system_views.sql and btree's btbuildphasename have them.
_WORDS = {
    "building index: scanning table": "scanning",
    "building index: performing merge of partitions": "sorting",
    "building index: sorting live tuples": "sorting",
    "building index: sorting dead tuples": "sorting",
    "building index: loading tuples in tree": "writing",
    "building index": "building",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildRow:
    """The row of changes_progress.sql; `total` is 0 where the phase counts nothing."""

    pid: int
    phase: str
    done: int
    total: int


def read_build_progress(connection: Connection, names: Mapping[int, str]) -> tuple[StepProgress, ...]:
    """Return how far builds are; `names` are the indexes', by the backends that make them. Raises ServerError."""
    if not names:
        return ()
    with translate_errors("reading the progress of index builds"):
        rows = fetch_rows(connection, "changes_progress", BuildRow)
    found = {row.pid: row for row in rows}
    return tuple(_describe(name, found.get(pid)) for pid, name in names.items())


def _describe(name: str, row: BuildRow | None) -> StepProgress:
    if row is None:
        return StepProgress(name=name, phase="", fraction=None)
    fraction = min(1.0, row.done / row.total) if row.total > 0 else None
    return StepProgress(name=name, phase=_WORDS.get(row.phase, ""), fraction=fraction)
