"""The rule for why a statement that computes or reads takes long: what its tables and keys lack."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from penstock.core.units import MB
from penstock.diagnose.rules.case import LEAST_SHARE, Case, Increase, number
from penstock.watch.holders import read_int
from penstock.watch.waits import CPU, ActivityTally, Moment, name_statement

if TYPE_CHECKING:
    from penstock.core.values.device import CounterRow
    from penstock.diagnose.values import Diagnosis
    from penstock.watch.risks import RiskMeter
    from penstock.watch.values import Sample

# How many different statements are kept apart. Each takes 8 bytes for each sample.
_MOST_STATEMENTS = 30

# A scan of fewer rows, or of fewer for each row that is returned, is cheap.
_LEAST_ROWS = 10_000
_LEAST_RATIO = 100.0

# Smaller temporary files of a call cost little.
_LEAST_SPILL_BYTES = MB

_TABLES = "pg_stat_user_tables"
_KEYS = ("schemaname", "relname")
_BLOCK_BYTES = 8192

_CHANGES = re.compile(r"(?:delete\s+from|update)\s+(?:only\s+)?(?:\S+\.)?\"?(\w+)", re.IGNORECASE)
_SEARCHES = re.compile(r"\bwhere\b", re.IGNORECASE)

# Sessions with these waits work on the statement itself.
_WORKS = (CPU.lower(), "io:datafile", "io:aio", "io:buffile")


class Tallies:
    """Counts moments by statement, of the first statements that were seen."""

    def __init__(self) -> None:
        self.by_statement: dict[str, ActivityTally] = {}
        self.query_ids: dict[str, int | None] = {}

    def add(self, moment: Moment) -> None:
        """Count a moment."""
        statement = name_statement(moment.session)
        if statement not in self.by_statement and len(self.by_statement) < _MOST_STATEMENTS:
            self.by_statement[statement] = ActivityTally()
        if statement in self.by_statement:
            self.by_statement[statement].add(moment)
            self.query_ids[statement] = moment.session.query_id

    def naming(self, table: str) -> ActivityTally:
        """Return the moments of all statements that name a table."""
        found = ActivityTally()
        for statement, tally in self.by_statement.items():
            if names(statement, table):
                found.join(tally)
        return found


def names(statement: str, table: object) -> bool:
    """Return whether a statement has the name of a table."""
    return re.search(rf"\b{re.escape(str(table))}\b", statement, re.IGNORECASE) is not None


class SlowStatements:
    """Concludes from the rows that were read of tables, and from what pg_stat_statements has, if it is there."""

    def __init__(self, seen: RiskMeter) -> None:
        self._seen = seen
        self._tallies = Tallies()
        self._counted: dict[object, dict[str, Increase]] = {}
        self._has_first = False

    def see(self, sample: Sample, moments: Sequence[Moment]) -> None:
        for moment in moments:
            if moment.wait.startswith(_WORKS):
                self._tallies.add(moment)
        rows = sample.counters.get("pg_stat_statements")
        for row in rows or ():
            counted = self._counted.setdefault(row.get("queryid"), {})
            for name in ("calls", "rows", "temp_blks_written"):
                if name not in counted:
                    counted[name] = Increase()
                    # The recording has a statement that is first called later from then on.
                    if self._has_first:
                        counted[name].see(0)
                counted[name].see(row.get(name))
        self._has_first = self._has_first or rows is not None

    def conclude(self, case: Case) -> list[Diagnosis]:
        """Return a diagnosis of each kind, for the statement that takes most of the time. Loads have their own."""
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
        """Yield what explains a statement, the cause of others first."""
        tables = {row.get("relname"): row for row in self._seen.rows(_TABLES)}
        changed = _CHANGES.match(statement)
        for key in self._seen.rows("unindexed_keys") if changed else ():
            child = tables.get(key.get("relname"))
            if changed and changed[1].lower() == key.get("referenced") and child and self._reads(child) >= _LEAST_ROWS:
                table = f"{key.get('schemaname')}.{key.get('relname')}"
                evidence = [number(f"rows of {table} read one after the other", self._reads(child))]
                columns, referenced = str(key.get("columns")), str(key.get("referenced"))
                yield case.conclude(
                    "foreign-key-unindexed", part, evidence, table=table, columns=columns, referenced=referenced
                )
        counted = self._counted.get(self._tallies.query_ids.get(statement))
        calls, returned, spilled = (
            0 if counted is None else counted[name].total for name in ("calls", "rows", "temp_blks_written")
        )
        used = [row for row in tables.values() if names(statement, row.get("relname"))]
        for row in used:
            if row.get("reltuples") == -1 and read_int(row, "n_live_tup") >= _LEAST_ROWS and self._is_scanned(row):
                evidence = [number(f"rows of {row.get('relname')}", read_int(row, "n_live_tup"))]
                yield case.conclude("no-statistics", part, evidence, table=_name(row))
        if calls and _BLOCK_BYTES * spilled >= _LEAST_SPILL_BYTES * calls:
            evidence = [number("temporary files written in a call", _BLOCK_BYTES * spilled / calls / MB, "MB")]
            yield case.conclude("statement-spills", part, evidence)
        for row in sorted(used, key=self._reads, reverse=True) if _SEARCHES.search(statement) else ():
            read, scans = self._reads(row), self._seen.rise(_TABLES, row, "seq_scan", *_KEYS)
            if read >= _LEAST_ROWS * max(1, scans) and (counted is None or read >= _LEAST_RATIO * returned):
                evidence = [number("rows read in each scan", read / max(1, scans)), number("scans", scans)]
                evidence += [number("rows read for each row returned", read / returned)] if returned else []
                yield case.conclude("sequential-scan", part, evidence, table=_name(row), explain=_explain_by(case))

    def _reads(self, row: CounterRow) -> float:
        return self._seen.rise(_TABLES, row, "seq_tup_read", *_KEYS)

    def _is_scanned(self, row: CounterRow) -> bool:
        return any(self._seen.rise(_TABLES, row, name, *_KEYS) for name in ("seq_scan", "idx_scan"))


def _name(row: CounterRow) -> str:
    return f"{row.get('schemaname')}.{row.get('relname')}"


def _explain_by(case: Case) -> str:
    """Return the command that shows a plan: from PostgreSQL 16 on also without values for the parameters."""
    return "EXPLAIN (GENERIC_PLAN)" if case.header.version_num >= 160_000 else "EXPLAIN, with values for its parameters"
