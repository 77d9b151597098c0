"""The progress of COPY, CREATE INDEX and VACUUM by the server's progress views, and how long they still take."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from penstock.frozen import frozen

if TYPE_CHECKING:
    from penstock.model.recording import Sample
    from penstock.model.server.counters import CounterRow


class _View(NamedTuple):
    """A progress view."""

    # How messages call the view's command.
    command: str
    # Pairs of columns (what is done, what is to do), the preferred pair first, by the beginning of a phase's name. The
    # first name that fits counts, because a view keeps the numbers of earlier phases.
    phases: Mapping[str, tuple[tuple[str, str], ...]]


VIEWS: Mapping[str, _View] = {
    "pg_stat_progress_copy": _View("COPY", {"": (("bytes_processed", "bytes_total"),)}),
    "pg_stat_progress_create_index": _View(
        "CREATE INDEX",
        {
            "waiting": (("lockers_done", "lockers_total"),),
            "": (("tuples_done", "tuples_total"), ("blocks_done", "blocks_total")),
        },
    ),
    # The number of indexes is known since PostgreSQL 17.
    "pg_stat_progress_vacuum": _View(
        "VACUUM",
        {
            "scanning heap": (("heap_blks_scanned", "heap_blks_total"),),
            "vacuuming heap": (("heap_blks_vacuumed", "heap_blks_total"),),
            "": (("indexes_processed", "indexes_total"),),
        },
    ),
}


@frozen
class Work:
    """A command that reports its progress."""

    pid: int
    command: str
    table: str
    phase: str
    # The part of its phase that is done, 0 to 1, None if the server does not know the whole.
    fraction: float | None
    # How long the phase still takes at its present rate, None if that is not known.
    left_s: float | None
    # The rows of a COPY so far.
    rows: int | None


def find_work(samples: Sequence[Sample]) -> tuple[Work, ...]:
    """Return the commands that report progress in the last reading of a run of samples."""
    readings = [sample for sample in samples if any(view in sample.counters for view in VIEWS)]
    if not readings:
        return ()
    last = readings[-1]
    return tuple(_describe(view, row, readings) for view, row in _rows(last))


def _rows(sample: Sample) -> Iterator[tuple[str, CounterRow]]:
    for view in VIEWS:
        for row in sample.counters.get(view, ()):
            if isinstance(row.get("pid"), int):
                yield view, row


def _describe(view: str, row: CounterRow, readings: Sequence[Sample]) -> Work:
    fraction = _fraction(view, row)
    pid, rows = row["pid"], row.get("tuples_processed")
    assert isinstance(pid, int)
    return Work(
        pid=pid,
        command=str(row.get("command") or VIEWS[view].command),
        table=str(row.get("relname") or f"relation {row.get('relid')}"),
        phase=str(row.get("phase") or ""),
        fraction=fraction,
        left_s=None if fraction is None else _left(view, row, fraction, readings),
        rows=rows if isinstance(rows, int) else None,
    )


def _fraction(view: str, row: CounterRow) -> float | None:
    phase = str(row.get("phase") or "")
    parts = next(parts for beginning, parts in VIEWS[view].phases.items() if phase.startswith(beginning))
    for done, total in parts:
        have, whole = row.get(done), row.get(total)
        if isinstance(have, int) and isinstance(whole, int) and whole > 0 and have > 0:
            return min(1.0, have / whole)
    return None


def _left(view: str, row: CounterRow, fraction: float, readings: Sequence[Sample]) -> float | None:
    """Return how long the phase still takes, from its rate since the first reading that shows the phase."""
    for sample in readings[:-1]:
        for other_view, other in _rows(sample):
            is_same = other_view == view and (other["pid"], other.get("phase")) == (row["pid"], row.get("phase"))
            before = _fraction(view, other) if is_same else None
            if before is not None and before < fraction:
                return (1 - fraction) * (readings[-1].at_s - sample.at_s) / (fraction - before)
    return None
