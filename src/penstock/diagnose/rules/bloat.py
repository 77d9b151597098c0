"""The rule for statements that read far more pages of a table than its rows fill."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.core.units import format_bytes
from penstock.core.values.names import spell_name
from penstock.diagnose.rules.case import LEAST_SHARE, Case, bounded, number
from penstock.diagnose.rules.statements import Tallies
from penstock.watch.holders import read_int

if TYPE_CHECKING:
    from penstock.core.values.device import CounterRow
    from penstock.core.values.diagnosis import Diagnosis
    from penstock.watch.risks import RiskMeter
    from penstock.watch.values import Sample
    from penstock.watch.waits import Moment

_TABLES = "pg_stat_user_tables"
_KEYS = ("schemaname", "relname")
_PAGE_BYTES = 8192

# A table is bloated if statements read this many times the pages that they need, and at least so many pages in all.
_LEAST_TIMES = 3.0
_LEAST_PAGES = 1000

# A table whose dead rows are below this part of the live ones has been vacuumed: its space is free, but not returned.
_FEW_DEAD = 0.2

# The length of a row if the table has no statistics.
_USUAL_ROW_BYTES = 128.0

# A row that is inserted, updated or deleted reads about so many pages of its table.
_PAGES_PER_CHANGE = 3.0


class Bloat:
    """Compares the pages of a table that statements read with the pages that the rows which they read need."""

    def __init__(self, seen: RiskMeter) -> None:
        self._seen = seen
        self._tallies = Tallies()
        # The tables that autovacuum or VACUUM was seen to work on.
        self._vacuumed: set[str] = set()

    def see(self, sample: Sample, moments: Sequence[Moment]) -> None:
        """Add a sample."""
        self._vacuumed |= {str(row.get("relname")) for row in sample.counters.get("pg_stat_progress_vacuum", ())}
        for moment in moments:
            self._tallies.add(moment)

    def conclude(self, case: Case) -> list[Diagnosis]:
        """Return a diagnosis of the bloated table whose statements take most of the time."""
        found = [(self._tallies.naming(row), row) for row in self._seen.rows(_TABLES) if self._times(row) is not None]
        part, row = max(found, key=lambda each: each[0].seconds, default=(None, None))
        if part is None or row is None or case.share(part) < LEAST_SHARE:
            return []
        times, name = self._times(row) or 1.0, spell_name(row.get("schemaname"), row.get("relname"))
        live, dead = read_int(row, "n_live_tup"), read_int(row, "n_dead_tup")
        evidence = [
            number(f"live rows of {row.get('relname')}", live),
            number(f"dead rows of {row.get('relname')}", dead),
            number(f"pages of {row.get('relname')} at its last VACUUM or ANALYZE", read_int(row, "relpages")),
            number("pages read, for each that the rows fill", times),
        ]
        is_dead = dead >= _FEW_DEAD * live
        words = {
            "table": name,
            "times": f"{times:.0f}",
            "why": f"{dead:,} dead rows beside {live:,}" if is_dead else "VACUUM has removed rows, not their space",
            "plain": f"VACUUM {name} removes dead rows, and locks out neither readers nor writers." if is_dead else "",
            "full": (
                f"To read fewer pages at once: VACUUM FULL {name}, which holds an ACCESS EXCLUSIVE lock while it "
                f"copies {_size_of_rows(row)}, so that nobody reads or writes meanwhile."
            ),
            "keep": _keep_small(case, name, is_vacuumed=str(row.get("relname")) in self._vacuumed),
        }
        return [bounded(case.conclude("bloat", part, evidence, among=None, **words), 1 - 1 / times)]

    def _times(self, row: CounterRow) -> float | None:
        """Return how many times the pages that they need statements read of a table, None if it is not bloated."""
        scanned, fetched, changed, pages = (
            self._seen.rise(_TABLES, row, column, *_KEYS)
            for column in ("seq_tup_read", "idx_tup_fetch", "n_tup_changed", "heap_blks")
        )
        scans = self._seen.rise(_TABLES, row, "seq_scan", *_KEYS)
        needed = scans + scanned * _row_bytes(row) / _filled_bytes(row) + fetched + _PAGES_PER_CHANGE * changed
        # What reads a row may also lock it, or read it again: the table itself must be too large.
        times = min(pages / needed, _excess(row)) if needed else 0.0
        return times if times >= _LEAST_TIMES and pages >= _LEAST_PAGES else None


def _excess(row: CounterRow) -> float:
    """Return how many times the pages of its live rows a table has, by its dead rows or by its size."""
    live = max(1, read_int(row, "n_live_tup"))
    # If the length of a row is not known, its pages tell nothing: the role may not read the table's statistics.
    known = read_int(row, "row_bytes")
    by_size = read_int(row, "relpages") * _filled_bytes(row) / (live * known) if known else 0.0
    return max(1 + read_int(row, "n_dead_tup") / live, by_size)


def _filled_bytes(row: CounterRow) -> float:
    """Return how many bytes of a page VACUUM FULL would fill."""
    return _PAGE_BYTES * (read_int(row, "fillfactor") or 100) / 100


def _size_of_rows(row: CounterRow) -> str:
    known = read_int(row, "row_bytes")
    return format_bytes(read_int(row, "n_live_tup") * known) if known else "its live rows"


def _row_bytes(row: CounterRow) -> float:
    return float(read_int(row, "row_bytes")) or _USUAL_ROW_BYTES


def _keep_small(case: Case, name: str, *, is_vacuumed: bool) -> str:
    if case.header.settings.get("autovacuum") == "off":
        return "For good: autovacuum is off, turn it on."
    if is_vacuumed:
        return (
            f"For good: VACUUM is at work on it and too slow. ALTER TABLE {name} SET (autovacuum_vacuum_cost_delay = "
            "0), or a larger autovacuum_vacuum_cost_limit, has autovacuum pause less."
        )
    return (
        f"For good: ALTER TABLE {name} SET (autovacuum_enabled = on, autovacuum_vacuum_scale_factor = 0.02), so that "
        "autovacuum comes before there are so many."
    )
