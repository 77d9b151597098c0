"""The rule for statements that compute or read for long: their tables lack an index or statistics, or they spill."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from penstock.core.units import MB
from penstock.core.values.names import spell_name
from penstock.diagnose.batches import StatementMeter
from penstock.diagnose.rules.case import LEAST_SHARE, Case, bounded, number
from penstock.watch.holders import read_int
from penstock.watch.risks import is_stale, lacks_statistics
from penstock.watch.waits import CPU, ActivityTally, Moment, is_build, name_statement

if TYPE_CHECKING:
    from penstock.core.values.device import CounterRow
    from penstock.core.values.diagnosis import Diagnosis
    from penstock.watch.risks import RiskMeter
    from penstock.watch.values import Sample

# How many statements are counted separately: those with most of the time. Each of them takes 8 bytes for each sample.
# For other statements, only the time is counted, so that a statement can still become one of those with most of the
# time.
_MOST_STATEMENTS = 30
_MOST_TIMES = 10_000

# A statement replaces the least of those that are kept if it has taken more than so many times as long. Otherwise
# statements that take equally long would replace each other all the time.
_CLEARLY_MORE = 2.0

# A sequential scan is cheap if it reads fewer rows than this in all, or fewer than this for each row that it returns.
_LEAST_ROWS = 10_000
_LEAST_RATIO = 100.0

# A scan of this many rows takes at least ten times as long as a search in an index to find a referring row.
_LEAST_SCAN = 1000

# A statement loops over a table if each call searches its indexes this often, and for at least this part of its rows,
# or if each call reads all of it this often. A hash or a merge would read it once.
_LEAST_LOOPS = 1000
_LOOPED = 0.05
_RESCANS = 5

# Statistics count as stale in a bad plan if this part of the table's rows has changed since.
_STALE = 0.5

# A statement counts as scanning a table itself if the table was scanned at least this often for each call of the
# statement.
_LEAST_SCANS = 0.5

# Compiling a statement takes much if it is at least this part of the statement's time.
_LEAST_COMPILED = 0.3

# If a statement writes fewer bytes to temporary files per second of its time, the files take only a small part of the
# time.
_LEAST_SPILL_BYTES_PER_S = 10 * MB

_TABLES = "pg_stat_user_tables"
_KEYS = ("schemaname", "relname")
_BLOCK_BYTES = 8192

_DELETES = re.compile(r"\bdelete\s+from\s+(?:only\s+)?(?:\S+\.)?\"?(\w+)", re.IGNORECASE)
# A search has a WHERE that may keep few rows. A report by groups, or an export by COPY, is meant to read many rows, and
# the rows that a report returns do not show how many its WHERE keeps.
_SEARCHES = re.compile(r"(?!copy\b)(?!.*\bgroup\s+by\b).*\bwhere\b", re.IGNORECASE | re.DOTALL)
_CHANGES = re.compile(r"\b(insert|update|delete|merge)\b", re.IGNORECASE)
# Statistics decide how a statement finds, joins or groups rows. COPY of a table, INSERT of values, and reading all rows
# have one plan only.
_PLANNED = re.compile(r"\b(where|join|group\s+by)\b", re.IGNORECASE)

# Sessions with these waits work on the statement itself.
_WORKS = (CPU.lower(), "io:datafile", "io:aio", "io:buffile")


class Tallies:
    """Counts moments by statement. Only the statements that take most of the time are counted."""

    def __init__(self) -> None:
        self.by_statement: dict[str, ActivityTally] = {}
        self.query_ids: dict[str, int | None] = {}
        self._seconds: dict[str, float] = {}
        # The time of the least of those that are kept is not below this.
        self._least_s = 0.0

    def add(self, moment: Moment) -> None:
        """Count a moment."""
        statement = name_statement(moment.session)
        if len(self._seconds) >= _MOST_TIMES and statement not in self._seconds:
            return
        self._seconds[statement] = self._seconds.get(statement, 0.0) + moment.weight_s
        if statement not in self.by_statement and len(self.by_statement) >= _MOST_STATEMENTS:
            if self._seconds[statement] <= _CLEARLY_MORE * self._least_s:
                return
            least = min(self.by_statement, key=lambda each: self._seconds[each])
            self._least_s = self._seconds[least]
            if self._seconds[statement] <= _CLEARLY_MORE * self._least_s:
                return
            del self.by_statement[least]
        self.by_statement.setdefault(statement, ActivityTally()).add(moment)
        self.query_ids[statement] = moment.session.query_id

    def naming(self, table: CounterRow) -> ActivityTally:
        """Return the moments of all statements that name a table of tables.sql."""
        found = ActivityTally()
        for statement, tally in self.by_statement.items():
            if names(statement, table):
                found.join(tally)
        return found


def names(statement: str, table: CounterRow) -> bool:
    """Return whether a statement has the name of a table, or of the table whose partition it is."""
    known = [re.escape(str(table[column])) for column in ("relname", "root") if table.get(column)]
    return bool(known) and re.search(rf"\b({'|'.join(known)})\b", statement, re.IGNORECASE) is not None


class SlowStatements:
    """Uses the counters of rows that were read from each table, and pg_stat_statements if the recording has it."""

    def __init__(self, seen: RiskMeter) -> None:
        self._seen = seen
        self._tallies = Tallies()
        self._counted = StatementMeter()

    def see(self, sample: Sample, moments: Sequence[Moment]) -> None:
        for moment in moments:
            if moment.wait.startswith(_WORKS) and not is_build(moment.session):
                self._tallies.add(moment)
        self._counted.see(sample)

    def conclude(self, case: Case) -> list[Diagnosis]:
        """Return one diagnosis of each kind, for the statement that takes most of the time. Returns none for loads."""
        if case.setting is not None:
            return []
        found: dict[str, Diagnosis] = {}
        for statement, part in sorted(self._tallies.by_statement.items(), key=lambda item: -item[1].seconds):
            if case.share(part) >= LEAST_SHARE:
                diagnosis = next(self._explain(case, statement, part), None)
                if diagnosis is not None:
                    found.setdefault(diagnosis.code, diagnosis)
        return list(found.values())

    def _explain(self, case: Case, statement: str, part: ActivityTally) -> Iterator[Diagnosis]:
        """Yield the diagnoses that explain a statement. A diagnosis that may cause the later ones comes first."""
        tables = {_name(row): row for row in self._seen.rows(_TABLES)}
        deletes = _DELETES.search(statement)
        for key in self._seen.rows("unindexed_keys") if deletes else ():
            table, referenced = _name(key), str(key.get("referenced"))
            read, scans = self._reads(tables.get(table, {})), self._scans(tables.get(table, {}))
            if deletes and deletes[1].lower() == referenced.lower() and read >= _LEAST_SCAN * scans > 0:
                evidence = [number(f"rows of {table} read in each scan", read / scans), number("scans", scans)]
                columns = str(key.get("columns"))
                yield case.conclude(
                    "foreign-key-unindexed", part, evidence, table=table, columns=columns, referenced=referenced
                )
        counted = self._counted.rise(self._tallies.query_ids.get(statement))
        calls, returned, spilled, taken_ms, jit_ms = (0, 0, 0, 0, 0) if counted is None else counted
        # Compiling before the first row is not in the time of the statement.
        taken_ms = max(taken_ms, jit_ms)
        if jit_ms >= _LEAST_COMPILED * max(1, taken_ms):
            evidence = [
                number("of the statement's time to compile it", 100 * jit_ms / taken_ms, "%"),
                number("to compile it in a call", jit_ms / calls, "ms"),
            ]
            yield bounded(case.conclude("jit", part, evidence), jit_ms / taken_ms)
        searches = _SEARCHES.match(statement) is not None
        if counted is None and _CHANGES.search(statement):
            # At most so many rows were found and changed by this statement.
            searches = searches and case.changed_rows is not None
            returned = round(case.changed_rows or 0)
        used = [row for row in tables.values() if names(statement, row)]
        if _PLANNED.search(statement):
            yield from self._explain_plan(case, part, used, calls or (case.rates.commits_per_s or 0.0) * case.counted_s)
        if spilled and _BLOCK_BYTES * spilled >= _LEAST_SPILL_BYTES_PER_S * part.seconds:
            evidence = [number("temporary files written in a call", _BLOCK_BYTES * spilled / calls / MB, "MB")]
            yield case.conclude("statement-spills", part, evidence)
        for row in sorted(used, key=self._reads, reverse=True) if searches else ():
            read, scans = self._reads(row), self._scans(row)
            # Skip a table that this statement does not scan often enough: another statement may scan it.
            is_own = scans >= (_LEAST_SCANS * calls if calls else self._searches(row))
            if is_own and read >= max(_LEAST_ROWS * max(1, scans), _LEAST_RATIO * returned):
                evidence = [number("rows read in each scan", read / max(1, scans)), number("scans", scans)]
                evidence += [number("rows read for each row returned", read / returned)] if calls and returned else []
                words = {"table": _name(row), "explain": _explain_by(case), "despite": _despite(row)}
                yield case.conclude("sequential-scan", part, evidence, among=None, **words)

    def _explain_plan(
        self, case: Case, part: ActivityTally, used: Sequence[CounterRow], calls: float
    ) -> Iterator[Diagnosis]:
        """Yield a diagnosis of lacking or stale statistics, if the counters of the statement's tables show a bad plan.

        The proof is a loop: one of the tables is read by its index, or whole, so often in each call that the server
        must have expected far fewer rows of another one.
        """
        loops = []
        for each in used:
            searches, scans = (count(each) / max(1.0, calls) for count in (self._searches, self._scans))
            # A table without an index is read whole with any statistics.
            is_rescan = scans >= _RESCANS and each.get("has_index", True)
            is_loop = searches >= max(_LEAST_LOOPS, _LOOPED * _rows(each)) or is_rescan
            if is_loop and _rows(each) >= _LEAST_SCAN:
                loops.append((each, searches, scans))
        for row in used if loops and len(used) > 1 else ():
            code = "no-statistics" if lacks_statistics(row) else "stale-statistics" if is_stale(row, _STALE) else None
            if code is not None:
                looped, searches, scans = loops[0]
                evidence = [
                    number(f"rows of {row.get('relname')}", read_int(row, "n_live_tup")),
                    number("rows changed since it was analyzed", read_int(row, "n_mod_since_analyze")),
                    number(f"searches in indexes of {looped.get('relname')} in each call", searches),
                    number(f"scans of all of {looped.get('relname')} in each call", scans),
                ]
                yield case.conclude(code, part, evidence, table=_name(row), looped=_name(looped))

    def _reads(self, row: CounterRow) -> float:
        return self._seen.rise(_TABLES, row, "seq_tup_read", *_KEYS)

    def _scans(self, row: CounterRow) -> float:
        return self._seen.rise(_TABLES, row, "seq_scan", *_KEYS)

    def _searches(self, row: CounterRow) -> float:
        """Return how often the table's indexes were searched."""
        return self._seen.rise(_TABLES, row, "idx_scan", *_KEYS)


def _rows(row: CounterRow) -> int:
    return read_int(row, "n_live_tup")


def _name(row: CounterRow) -> str:
    return spell_name(row.get("schemaname"), row.get("relname"))


def _despite(row: CounterRow) -> str:
    """Return why a statement may read a whole table that has indexes; empty if it has none."""
    if not row.get("has_index"):
        return ""
    return (
        "If such an index exists, see why it is not used: a cast or a function around the column (id::text, "
        "lower(name)) needs an index on that expression, or must go; a prepared statement may have a plan for other "
        "values (plan_cache_mode = force_custom_plan for its role)."
    )


def _explain_by(case: Case) -> str:
    """Return the command that shows a plan. From PostgreSQL 16 on, the command needs no values for the parameters."""
    return "EXPLAIN (GENERIC_PLAN)" if case.header.version_num >= 160_000 else "EXPLAIN, with values for its parameters"
