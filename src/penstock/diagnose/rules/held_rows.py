"""The rule for statements on a table whose dead rows cannot be removed, because a transaction holds back xmin."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.diagnose.rules.case import LEAST_SHARE, Case, number
from penstock.diagnose.rules.statements import Tallies
from penstock.watch.holders import describe_holder, find_holder, read_int, release_holder

if TYPE_CHECKING:
    from penstock.core.values.device import CounterRow
    from penstock.core.values.diagnosis import Diagnosis
    from penstock.watch.risks import RiskMeter
    from penstock.watch.values import Sample
    from penstock.watch.waits import Moment

# A table is bloated if it has at least this many dead rows, and more dead rows than live ones.
_LEAST_DEAD = 10_000

# How many transactions must have begun since a transaction began. A younger transaction keeps few dead rows.
_LEAST_AGE = 1000

# If no VACUUM of the table has ended since the transaction began, the rows may be dead only because no VACUUM has come
# yet. If the transaction is older than this, a VACUUM would have come.
_LEAST_AGE_S = 600.0


class HeldRows:
    """Uses two facts of the last reading: who holds back xmin, and how many dead rows the tables have."""

    def __init__(self, seen: RiskMeter) -> None:
        self._seen = seen
        self._tallies = Tallies()

    def see(self, sample: Sample, moments: Sequence[Moment]) -> None:  # noqa: ARG002 (a rule's signature)
        for moment in moments:
            self._tallies.add(moment)

    def conclude(self, case: Case) -> list[Diagnosis]:
        """Return a diagnosis for the bloated table whose statements take most of the time, and name the holder."""
        holder = find_holder(self._seen.rows("xmin_holders"), database=case.header.database)
        if holder is None or read_int(holder, "xid_age") < _LEAST_AGE:
            return []
        age_s = _read_age(holder, case)
        rows = [row for row in self._seen.rows("pg_stat_user_tables") if _is_bloated(row) and _is_kept(row, age_s)]
        parts = [(self._tallies.naming(row), row) for row in rows]
        if not parts:
            return []
        part, row = max(parts, key=lambda each: each[0].seconds)
        if case.share(part) < LEAST_SHARE:
            return []
        evidence = [
            number(f"dead rows of {row.get('relname')} that are kept", read_int(row, "n_dead_tup")),
            number(f"live rows of {row.get('relname')}", read_int(row, "n_live_tup")),
            number("age of what holds xmin, in transactions", read_int(holder, "xid_age")),
        ]
        table, release = f"{row.get('schemaname')}.{row.get('relname')}", release_holder(holder)
        return [
            case.conclude("xmin-held", part, evidence, table=table, holder=describe_holder(holder), release=release)
        ]


def _read_age(holder: CounterRow, case: Case) -> float:
    """Return the age of the holder of xmin in seconds. A slot's is estimated from the rate of transactions."""
    age_s, writes_per_s = holder.get("age_s"), case.rates.writes_per_s
    if isinstance(age_s, int | float):
        return age_s
    return read_int(holder, "xid_age") / writes_per_s if writes_per_s else math.inf


def _is_kept(row: CounterRow, age_s: float) -> bool:
    """Return whether a VACUUM since the transaction began has kept the table's dead rows, or would have kept them."""
    vacuumed_s = row.get("vacuumed_s")
    return age_s >= min(_LEAST_AGE_S, vacuumed_s if isinstance(vacuumed_s, int | float) else _LEAST_AGE_S)


def _is_bloated(row: CounterRow) -> bool:
    return read_int(row, "n_dead_tup") >= max(_LEAST_DEAD, read_int(row, "n_live_tup"))
