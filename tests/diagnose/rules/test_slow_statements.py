"""Why a statement takes long, by made-up samples: its keys, its statistics, its memory, or its search."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from penstock.diagnose.batches import StatementMeter
from penstock.diagnose.examination import diagnose
from penstock.diagnose.rules.statements import Tallies
from penstock.watch.waits import moment_of
from support.made_samples import database, recording_of, sample, session

if TYPE_CHECKING:
    from penstock.core.values.diagnosis import Diagnosis

DATABASES = "pg_stat_database"
SEARCH = "SELECT * FROM orders WHERE customer = ?"
DELETE = "DELETE FROM customers WHERE id = ?"
UPDATE = "UPDATE customers SET name = ? WHERE id = ?"
REPORT = "SELECT day, sum(price) FROM orders WHERE day > ? GROUP BY day"
UPSERT = "INSERT INTO orders VALUES (?) ON CONFLICT (id) DO UPDATE SET n = orders.n + ?"
ARCHIVE = "INSERT INTO attic SELECT * FROM orders WHERE day < ?"


def table(name: str, read: int, scans: int, *, searches: int = 0, is_analyzed: bool = True) -> dict[str, Any]:
    """Return what pg_stat_user_tables has of a table of 50,000 rows."""
    counted = {"seq_scan": scans, "seq_tup_read": read, "idx_scan": searches, "n_live_tup": 50_000, "n_dead_tup": 0}
    return {"schemaname": "public", "relname": name, "is_analyzed": is_analyzed, **counted}


def called(calls: int, rows: int, spilled: int = 0, *, jit_ms: float = 0.0) -> dict[str, Any]:
    """Return what pg_stat_statements has of the statement, whose calls take 100 ms each."""
    times = {"total_exec_time": 100.0 * calls, "jit_generation_time": jit_ms / 4, "jit_emission_time": 3 * jit_ms / 4}
    return {"queryid": 7, "calls": calls, "rows": rows, "temp_blks_written": spilled, **times}


KEY = {"schemaname": "public", "relname": "orders", "columns": "customer", "referenced": "customers"}


def found_in(query: str, last: dict[str, Any], wait: str | None = None, **more: Any) -> list[Diagnosis]:
    """Return the findings of a minute in which two sessions run a statement on two processors.

    `last` is the last reading of the tables; `more` are views, each with a first and a last row.
    """
    first = {**last, "seq_scan": 0, "seq_tup_read": 0, "idx_scan": 0}
    rows = {"pg_stat_user_tables": (first, last), **more}
    samples = [
        sample(
            float(t),
            *[session(wait, query=query, query_id=7)] * 2,
            xid=t,
            counters={name: (each[t > 0],) for name, each in rows.items() if t in (0, 59)},
        )
        for t in range(60)
    ]
    return list(diagnose(recording_of(samples)))


@pytest.mark.parametrize(
    ("query", "last", "more", "expected"),
    [
        (SEARCH, table("orders", 5_000_000, 100), {}, ["sequential-scan", "cpu-bound"]),
        (SEARCH, table("orders", 5_000_000, 100), {"counted": called(100, 100)}, ["sequential-scan", "cpu-bound"]),
        # Most rows that are read are returned.
        (SEARCH, table("orders", 5_000_000, 100), {"counted": called(100, 4_000_000)}, ["cpu-bound"]),
        # A small table; one that is read by an index; one that the statement does not name; a report of all rows.
        (SEARCH, table("orders", 500_000, 10_000), {}, ["cpu-bound"]),
        (SEARCH, table("orders", 0, 0), {}, ["cpu-bound"]),
        (SEARCH, table("order_lines", 5_000_000, 100), {}, ["cpu-bound"]),
        # A partition of the table that the statement names.
        (SEARCH, {**table("orders_2026", 5_000_000, 100), "root": "orders"}, {}, ["sequential-scan", "cpu-bound"]),
        ("SELECT sum(price) FROM orders", table("orders", 5_000_000, 100), {}, ["cpu-bound"]),
        # A report by groups, and an export, read many rows, whatever a report returns.
        (REPORT, table("orders", 5_000_000, 100), {"counted": called(100, 3000)}, ["cpu-bound"]),
        (f"COPY ({SEARCH}) TO STDOUT", table("orders", 5_000_000, 100), {}, ["cpu-bound"]),
        # Without pg_stat_statements, the rows that the server changed show whether most rows were found.
        (ARCHIVE, table("orders", 5_000_000, 100), {"changed": 4_000_000}, ["cpu-bound"]),
        (ARCHIVE, table("orders", 5_000_000, 100), {"changed": 100}, ["sequential-scan", "cpu-bound"]),
        # Nothing is said if the server has counted no commit, because the rows of a commit are not known then.
        (ARCHIVE, table("orders", 5_000_000, 100), {"changed": 4_000_000, "commits": 0}, ["cpu-bound"]),
        # Others search the table by an index, so one of them may be this statement; and it has more calls than scans.
        (SEARCH, table("orders", 5_000_000, 100, searches=9000), {}, ["cpu-bound"]),
        (SEARCH, table("orders", 5_000_000, 100), {"counted": called(9000, 9000)}, ["cpu-bound"]),
        (SEARCH, table("orders", 5_000_000, 100, is_analyzed=False), {}, ["sequential-scan", "cpu-bound"]),
        # Nothing shows that its plan is wrong.
        (REPORT, table("orders", 5_000_000, 100, is_analyzed=False), {}, ["cpu-bound"]),
        (SEARCH, table("orders", 0, 0, is_analyzed=False), {}, ["cpu-bound"]),
        # Each of these has one plan only.
        ("COPY orders TO STDOUT", table("orders", 5_000_000, 100, is_analyzed=False), {}, ["cpu-bound"]),
        (UPSERT, table("orders", 0, 0, searches=9000, is_analyzed=False), {}, ["cpu-bound"]),
        (DELETE, table("orders", 5_000_000, 100), {"unindexed_keys": KEY}, ["foreign-key-unindexed", "cpu-bound"]),
        (
            f"WITH gone AS ({DELETE} RETURNING id) SELECT count(*) FROM gone",
            table("orders", 5_000_000, 100),
            {"unindexed_keys": KEY},
            ["foreign-key-unindexed", "cpu-bound"],
        ),
        (DELETE, table("orders", 0, 0), {"unindexed_keys": KEY}, ["cpu-bound"]),
        (SEARCH, table("orders", 0, 0), {"unindexed_keys": KEY}, ["cpu-bound"]),
        # A table of a hundred rows needs no index; and an UPDATE of other columns does not look for referring rows.
        (DELETE, table("orders", 5_000_000, 50_000), {"unindexed_keys": KEY}, ["cpu-bound"]),
        (UPDATE, table("orders", 5_000_000, 100), {"unindexed_keys": KEY}, ["cpu-bound"]),
        # 34 MB for each second of the statement, and 3.4 MB.
        (SEARCH, table("orders", 0, 0), {"counted": called(10, 10, 500_000)}, ["statement-spills", "cpu-bound"]),
        (SEARCH, table("orders", 0, 0), {"counted": called(10, 10, 50_000)}, ["cpu-bound"]),
        # 80 of 100 ms to compile it, and 20.
        (SEARCH, table("orders", 0, 0), {"counted": called(10, 10, jit_ms=800)}, ["jit", "cpu-bound"]),
        (SEARCH, table("orders", 0, 0), {"counted": called(10, 10, jit_ms=200)}, ["cpu-bound"]),
    ],
)
def test_what_a_statement_lacks_is_named_before_the_processors(
    query: str, last: dict[str, Any], more: dict[str, Any], expected: list[str]
) -> None:
    """Each beside counterparts that are healthy."""
    views = {name: (row, row) for name, row in more.items() if name == "unindexed_keys"}
    if "changed" in more:
        views[DATABASES] = (database(0)[DATABASES][0], database(more.get("commits", 9), more["changed"])[DATABASES][0])
    if "counted" in more:
        views["pg_stat_statements"] = (called(0, 0), more["counted"])
    assert [each.code for each in found_in(query, last, **views)] == expected


def test_the_remedy_names_the_index_and_the_command_that_shows_the_plan() -> None:
    """The statement is in the numbers."""
    (key, _) = found_in(DELETE, table("orders", 5_000_000, 100), unindexed_keys=(KEY, KEY))
    assert key.remedy == "CREATE INDEX CONCURRENTLY ON public.orders (customer)."
    (scan, _) = found_in(SEARCH, table("orders", 5_000_000, 100))
    assert "by EXPLAIN (GENERIC_PLAN)" in scan.remedy
    assert f"of this, statement {SEARCH}" in [each.name for each in scan.evidence]
    assert "a cast or a function" not in scan.remedy
    (scan, _) = found_in(SEARCH, {**table("orders", 5_000_000, 100), "has_index": True})
    assert "a cast or a function around the column" in scan.remedy
    assert "plan_cache_mode" in scan.remedy


def test_what_compiling_takes_is_what_can_be_gained() -> None:
    """Eight tenths of the statement's time."""
    (found, _) = found_in(SEARCH, table("orders", 0, 0), pg_stat_statements=(called(0, 0), called(10, 10, jit_ms=800)))
    assert (found.bound, "SET jit = off" in found.remedy) == (pytest.approx(0.8), True)


JOIN = 'SELECT count(*) FROM "Order lines; x" JOIN items ON items.id = item WHERE day = ?'
LOOPED = ("items", 0, 0)


@pytest.mark.parametrize(
    ("lines", "searches", "code"),
    [
        ({"is_analyzed": False}, 900_000, "no-statistics"),
        ({"is_analyzed": True, "n_mod_since_analyze": 60_000}, 900_000, "stale-statistics"),
        # The planner expects a tenth of the rows; it knows them; it knows them, and they have changed.
        ({"is_analyzed": True, "n_mod_since_analyze": 60_000, "reltuples": 5000}, 900_000, "stale-statistics"),
        ({"is_analyzed": True, "n_mod_since_analyze": 60_000, "reltuples": 50_000}, 900_000, None),
        (
            {"is_analyzed": True, "n_mod_since_analyze": 60_000, "reltuples": 50_000, "n_tup_changed": 60_000},
            900_000,
            "stale-statistics",
        ),
        # Nine searches a call; statistics that are recent; the planner knows.
        ({"is_analyzed": False}, 900, None),
        ({"is_analyzed": True, "n_mod_since_analyze": 60_000}, 900, None),
        ({"is_analyzed": True, "n_mod_since_analyze": 5_000}, 900_000, None),
    ],
)
def test_statistics_are_named_where_the_plan_loops(lines: dict[str, Any], searches: int, code: str | None) -> None:
    """Each call searches another table's index for a tenth of its rows; a name is quoted if it needs it."""
    rows = ({**table("Order lines; x", 0, 0), **lines}, table(*LOOPED, searches=searches, is_analyzed=True))
    first = tuple({**row, "seq_scan": 0, "seq_tup_read": 0, "idx_scan": 0} for row in rows)
    counted = (called(0, 0), called(100, 100))
    samples = [
        sample(
            float(t),
            *[session(query=JOIN, query_id=7)] * 2,
            counters={"pg_stat_user_tables": views, "pg_stat_statements": statements} if views else {},
        )
        for t in range(60)
        for views, statements in [(first, (counted[0],)) if t == 0 else (rows, (counted[1],)) if t == 59 else ((), ())]
    ]
    found = [each for each in diagnose(recording_of(samples)) if each.code.endswith("-statistics")]
    assert [each.code for each in found] == ([] if code is None else [code])
    if code is not None:
        assert "ANALYZE" in (found[0].remedy or "")
        assert 'public."Order lines; x"' in (found[0].remedy or "")
        assert "loops over public.items" in found[0].claim


def test_a_statement_that_begins_late_is_found_beside_many_others() -> None:
    """Forty statements have a sample each before it comes."""
    last = table("orders", 5_000_000, 100)
    views = {0: {**last, "seq_scan": 0, "seq_tup_read": 0}, 99: last}
    samples = [
        sample(
            float(t),
            *[session(query=f"SELECT {t}" if t < 40 else SEARCH)] * 2,
            counters={"pg_stat_user_tables": (views[t],)} if t in views else {},
        )
        for t in range(100)
    ]
    assert diagnose(recording_of(samples))[0].code == "sequential-scan"


def test_statements_that_take_equally_long_do_not_replace_each_other() -> None:
    """Of 200 that take turns, thirty are kept from the first to the last sample."""
    tallies = Tallies()
    for t in range(2000):
        tallies.add(moment_of(session(query=f"SELECT {t % 200}"), t, 1.0))
    assert {tally.count for tally in tallies.by_statement.values()} == {10}
    assert len(tallies.by_statement) == 30


def test_calls_of_several_roles_are_counted_together() -> None:
    """Each role has a row of its own, and their counters are far apart."""
    rows = [({**called(1000 * n, 1000 * n), "userid": 1}, {**called(n, n), "userid": 2}) for n in (7, 8)]
    samples = [sample(float(t), counters={"pg_stat_statements": rows[t]}) for t in (0, 1)]
    meter = StatementMeter()
    for each in samples:
        meter.see(each)
    assert meter.rise(7) == (1001, 1001, 0, 100_100, 0)
    assert meter.rise(None) is None


def test_tables_of_one_name_are_told_apart_by_their_schemas() -> None:
    """The one that is read is not the last of them."""
    old = {**table("orders", 0, 0), "schemaname": "attic"}
    read, unread = table("orders", 5_000_000, 100), table("orders", 0, 0)
    samples = [
        sample(
            float(t),
            *[session(query=SEARCH)] * 2,
            counters={"pg_stat_user_tables": (read if t else unread, old)} if t in (0, 59) else {},
        )
        for t in range(60)
    ]
    first = diagnose(recording_of(samples))[0]
    assert (first.code, "searches public.orders" in first.claim) == ("sequential-scan", True)


def test_statements_that_wait_for_others_are_not_explained_by_their_tables() -> None:
    """Nor is a load by penstock: its statement reads rows that it has just staged."""
    last = table("orders", 5_000_000, 100)
    assert [each.code for each in found_in(SEARCH, last, "Lock:tuple")] == ["lock-wait"]


def test_a_cause_comes_first_where_tables_are_read_from_the_disk() -> None:
    codes = [each.code for each in found_in(SEARCH, table("orders", 5_000_000, 100), "IO:DataFileRead")]
    assert codes == ["sequential-scan", "data-io"]
