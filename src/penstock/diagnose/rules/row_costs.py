"""The rule for COPY and INSERT that compute for keys, triggers and indexes of the table that they fill."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from penstock.core.values.names import spell_name, spell_part
from penstock.diagnose.rules.case import LEAST_SHARE, Case, bounded, number
from penstock.diagnose.rules.statements import Tallies, names
from penstock.diagnose.values import CHOICES
from penstock.watch.holders import read_int
from penstock.watch.rates import Increase
from penstock.watch.waits import CPU, ActivityTally, Moment, name_statement

if TYPE_CHECKING:
    from penstock.core.values.accounts import LoadConditions
    from penstock.core.values.device import CounterRow
    from penstock.core.values.diagnosis import Diagnosis
    from penstock.watch.risks import RiskMeter
    from penstock.watch.values import Sample

# What a row costs, in microseconds of a processor: stored without indexes, for each page of an index that it reads (of
# numbers, and of texts, which take longer to compare), and for each row that a foreign key looks up. A page that is not
# in shared buffers counts as ten. What a statement takes is divided among its rows. Measured on 18.4.
_ROW_US = 1.2
# A narrow row takes no less than this. So much is always left.
_LEAST_ROW_US = 0.6
_PAGE_US = 0.35
_TEXT_US = 1.0
_READ_PAGES = 10
_STATEMENT_US = 100.0
_LOOK_UP_US = 8.0
# A function in C, such as md5, has procost 1 and takes about so long. One in another language takes what it takes.
_CALL_US = 1.0
_CHEAP_COST = 10

# A cost is named if it is at least this part of what a row takes.
_LEAST_PART = 0.15
# An index of numbers is not named below this: a table has some.
_LEAST_US = 3.0
_FEWEST_ROWS = 1000
# Statements that mostly wait have other limits.
_MOSTLY = 0.5
_SHOWN = 4

_STORES = re.compile(r"\s*(?:copy\s(?!\s*\().*\sfrom\s|insert\s+into\s)", re.IGNORECASE | re.DOTALL)
# A list of rows. Each row but the last is followed by another.
_VALUES = re.compile(r"\bvalues\s*\(", re.IGNORECASE)
_NEXT_ROW = re.compile(r"\)\s*,\s*\(")
# Rows that are read from tables have costs of their own, which nothing tells from those of functions.
_READS = re.compile(
    r"\bselect\b.*\bfrom\s+(?!\s*(?:pg_catalog\.)?(?:generate_series|unnest|json\w*)\s*\()", re.IGNORECASE | re.DOTALL
)

# An upsert looks up each row, and changes some.
_UPSERTS = re.compile(r"\bon\s+conflict\b", re.IGNORECASE)

_PLAIN = frozenset(("btree", "hash", "brin"))


_Key: TypeAlias = tuple[object, ...]


# The choice of a load that spares each kind of cost.
_CHOICES = {"foreign key": "rebuild_keys", "trigger": "disable_triggers", "index": "rebuild"}


class _Cost(NamedTuple):
    """What each row pays for a key, a trigger or an index."""

    row: CounterRow
    # In microseconds of a processor, estimated from counters.
    us: float
    # How large its part is of the time that counters do not explain, against others: what functions take.
    weight: float

    @property
    def kind(self) -> str:
        return str(self.row.get("kind"))

    @property
    def name(self) -> str:
        return spell_part(self.row.get("name"))


class RowCosts:
    """Uses the catalogue's keys, triggers and indexes (write_costs.sql), and the pages of each index that were read."""

    def __init__(self, seen: RiskMeter) -> None:
        self._seen = seen
        self._tallies = Tallies()
        # How long each statement was without a wait, and the processor time of its backends, which is known only on the
        # server's machine.
        self._computing_s: dict[str, float] = {}
        self._used_s: dict[str, float] = {}
        self._before_s: dict[int, float] = {}
        self._rows: dict[_Key, Increase] = {}
        self._pages: dict[_Key, Increase] = {}
        self._scans: dict[_Key, Increase] = {}
        # The table that each session fills by COPY, at the last reading.
        self._filled: dict[object, object] = {}
        self._is_read = {"write_costs": False, "pg_statio_user_indexes": False}

    def see(self, sample: Sample, moments: Sequence[Moment]) -> None:
        """Add a sample."""
        for row in sample.counters.get("pg_statio_user_indexes", ()):
            schema = row.get("schemaname")
            pages = _READ_PAGES * read_int(row, "idx_blks_read") + read_int(row, "idx_blks_hit")
            self._count(self._pages, (schema, row.get("indexrelname")), pages, "pg_statio_user_indexes")
            self._count(self._rows, (schema, row.get("relname")), row.get("n_tup_changed"), "pg_statio_user_indexes")
        if (rows := sample.counters.get("pg_stat_progress_copy")) is not None:
            self._filled = {row.get("pid"): row.get("relname") for row in rows if row.get("command") == "COPY FROM"}
        for row in sample.counters.get("write_costs", ()):
            key = (row.get("schemaname"), row.get("relname"), row.get("name"))
            self._count(self._scans, key, row.get("scans"), "write_costs")
            self._count(
                self._rows, (row.get("schemaname"), row.get("relname"), ""), row.get("n_tup_ins"), "write_costs"
            )
        for view in self._is_read:
            self._is_read[view] = self._is_read[view] or view in sample.counters
        for moment in moments:
            stores = self._name_copy(moment)
            query = stores.session.query or ""
            if _STORES.match(query) and not _UPSERTS.search(query):
                self._tallies.add(stores)
                statement = name_statement(stores.session)
                if moment.wait == CPU.lower():
                    self._computing_s[statement] = self._computing_s.get(statement, 0.0) + moment.weight_s
                if (cpu_s := moment.session.cpu_s) is not None:
                    used_s = max(0.0, cpu_s - self._before_s.get(moment.session.pid, cpu_s))
                    self._used_s[statement] = self._used_s.get(statement, 0.0) + used_s
        # A session that was idle at the last sample is not in it: what it has used since it was last seen counts.
        self._before_s |= {each.pid: each.cpu_s for each in sample.sessions if each.cpu_s is not None}

    def _name_copy(self, moment: Moment) -> Moment:
        """Return a moment whose statement names the table that its session fills by COPY, if the server shows that.

        The text of the session may be cut off before COPY, or begin with other statements.
        """
        if (table := self._filled.get(moment.session.pid)) is None or _STORES.match(moment.session.query or ""):
            return moment
        return moment._replace(session=replace(moment.session, query=f"COPY {table} FROM STDIN"))

    def _count(self, counters: dict[_Key, Increase], key: _Key, value: object, view: str) -> None:
        if key not in counters:
            counters[key] = Increase()
            # What a later reading shows first has begun at 0.
            if self._is_read[view]:
                counters[key].see(0)
        counters[key].see(value)

    def conclude(self, case: Case) -> list[Diagnosis]:
        """Return a diagnosis of the statement that takes most of the time, if it is that of a key, trigger or index."""
        for statement, part in sorted(self._tallies.by_statement.items(), key=lambda item: -item[1].seconds):
            computes = self._computing_s.get(statement, 0.0) >= _MOSTLY * part.seconds
            if computes and case.share(part) >= LEAST_SHARE:
                for costs in self._tables(statement):
                    if (found := self._conclude(case, statement, part, costs)) is not None:
                        return [found]
        return []

    def _tables(self, statement: str) -> Iterator[list[CounterRow]]:
        """Yield the costs of each table that a statement names."""
        tables: dict[tuple[object, object], list[CounterRow]] = {}
        for row in self._seen.rows("write_costs"):
            if names(statement, row):
                tables.setdefault((row.get("schemaname"), row.get("relname")), []).append(row)
        yield from tables.values()

    def _conclude(
        self, case: Case, statement: str, part: ActivityTally, rows: Sequence[CounterRow]
    ) -> Diagnosis | None:
        schema, table = rows[0].get("schemaname"), rows[0].get("relname")
        counters = (self._rows.get((schema, table, "")), self._rows.get((schema, table)))
        count = max((each.total for each in counters if each is not None), default=0)
        if count < _FEWEST_ROWS:
            return None
        # On a busy machine, a session without a wait may wait for a processor.
        row_us = 1e6 * (self._used_s.get(statement) or self._computing_s[statement]) / count
        row_us -= _STATEMENT_US / _rows_per_statement(statement, case.rates.rows_per_commit)
        if row_us <= 0:
            return None
        costs = _share_rest([self._measure(row, count) for row in rows], row_us, reads=bool(_READS.search(statement)))
        # A key is not dropped for its cost.
        first = next((each for each in costs if not each.row.get("is_unique")), None)
        if first is None or first.us < max(_LEAST_US if _is_usual(first) else 0.0, _LEAST_PART * row_us):
            return None
        others = [each for each in costs if each is not first]
        evidence = [number("of a processor for each row", row_us, "µs")]
        evidence += [
            number(f"of this, by counters, {each.kind} {each.name}", each.us, "µs")
            for each in (first, *others)[:_SHOWN]
        ]
        more = [each for each in others if each.us >= _LEAST_PART * row_us and not each.row.get("is_unique")]
        rest = "; ".join(f"{each.kind} {each.name}" for each in more[: _SHOWN - 1])
        words = {
            "table": spell_name(schema, table),
            "what": _describe(first),
            "how": _advise(first, spell_name(schema, table), case.setting),
            "rest": f"After it: {rest}." if rest else "",
        }
        found = case.conclude("row-costs", part, evidence, among=None, **words)
        # What the row itself and its other costs take is left. The row may take less than is usual.
        row_itself_us = max(0.0, row_us - sum(each.us for each in costs))
        left_us = max(row_itself_us / 2, row_itself_us - _LEAST_ROW_US) + sum(each.us for each in others)
        return bounded(found, max(0.0, 1 - left_us / row_us))

    def _measure(self, row: CounterRow, count: int) -> _Cost:
        schema, table, name = row.get("schemaname"), row.get("relname"), row.get("name")
        if row.get("kind") == "foreign key":
            scans = self._scans.get((schema, table, name))
            return _Cost(row, _LOOK_UP_US * min(1.0, scans.total / count if scans is not None else 0.0), 0.0)
        if row.get("kind") == "trigger":
            return _Cost(row, 0.0, 1.0)
        pages = self._pages.get((schema, name))
        us = (_TEXT_US if row.get("is_text") else _PAGE_US) * (pages.total / count if pages is not None else 0.0)
        cost = read_int(row, "cost")
        if cost < _CHEAP_COST:
            us, cost = us + _CALL_US * cost, 0
        return _Cost(row, us, cost / 100 + (0.0 if row.get("of") in _PLAIN else 0.2))


def _rows_per_statement(statement: str, rows_per_commit: float | None) -> float:
    """Return how many rows a statement stores: those of its VALUES that its text shows, else those of a commit.

    >>> _rows_per_statement("INSERT INTO t VALUES ($1, $2)", 500.0)
    1.0
    >>> _rows_per_statement("INSERT INTO t VALUES (1, f(2)), (3, f(4))", 500.0)
    2.0
    >>> _rows_per_statement("COPY t FROM STDIN", 500.0)
    500.0
    """
    if (values := _VALUES.search(statement)) is None:
        return rows_per_commit or math.inf
    return 1.0 + len(_NEXT_ROW.findall(statement, values.end()))


def _is_usual(cost: _Cost) -> bool:
    row = cost.row
    return row.get("of") in _PLAIN and row.get("cost") is None and not row.get("is_text")


def _share_rest(costs: Sequence[_Cost], row_us: float, *, reads: bool) -> list[_Cost]:
    """Return the costs, the largest first. What counters do not explain is shared by those that call functions."""
    known = sum(each.us for each in costs) + _ROW_US
    weights = sum(each.weight for each in costs)
    if weights and known < row_us and not reads:
        costs = [each._replace(us=each.us + (row_us - known) * each.weight / weights) for each in costs]
    elif known > row_us or not reads:
        # On a faster machine everything takes less, and on a busy one more.
        costs = [each._replace(us=each.us * row_us / known) for each in costs]
    return sorted(costs, key=lambda each: -each.us)


def _describe(cost: _Cost) -> str:
    what = {
        "foreign key": f"foreign key {cost.name}, which looks up a row of {cost.row.get('of')}",
        "trigger": f"trigger {cost.name}, which calls {cost.row.get('of')}",
    }
    is_expression = " on an expression" if cost.row.get("cost") is not None else ""
    return what.get(cost.kind, f"index {cost.name} ({cost.row.get('of')}{is_expression})")


def _advise(cost: _Cost, table: str, setting: LoadConditions | None) -> str:
    """Return how to spare a cost. `setting` is a penstock load's, or None for another workload."""
    if setting is not None and (choice := _CHOICES[cost.kind]) in setting.choices:
        return f"If the load's rows do not need {cost.kind} {cost.name} while they are stored: {CHOICES[choice]}."
    if cost.kind == "foreign key":
        return (
            f"For a load of many rows: ALTER TABLE {table} DROP CONSTRAINT {cost.name}, and add it again afterwards, "
            "which checks all rows at once; the first locks out readers and writers of both tables for a moment, the "
            "second their writers. More sessions pay the same for each row."
        )
    if cost.kind == "trigger":
        return (
            f"Have the function of trigger {cost.name} do less, or, for a load whose rows do not need it: ALTER TABLE "
            f"{table} DISABLE TRIGGER {cost.name}, and afterwards ENABLE TRIGGER, or ENABLE ALWAYS TRIGGER if \\d "
            "lists it as firing always; both lock out writers. A trigger for each statement, with a transition table, "
            "is called once."
        )
    gin = " (of GIN, fastupdate = on puts the work off)" if cost.row.get("of") == "gin" else ""
    return (
        f"If no query needs index {cost.name}, drop it, which locks out readers and writers for a moment. For a load "
        f"of many rows, drop it first and create it afterwards, which sorts all rows at once{gin}. More sessions pay "
        "the same for each row."
    )
