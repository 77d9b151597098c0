"""Bloat, and what each inserted row pays for, by made-up counters."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from penstock.core.tuning import LoadTuning
from penstock.core.values.accounts import LoadAccounts, LoadConditions, LoadCounts, ReaderSeconds, SessionSeconds
from penstock.diagnose.examination import diagnose, examine
from penstock.diagnose.load import LoadCase, find_verdict, judge_load
from support.made_samples import recording_of, sample, session

if TYPE_CHECKING:
    from penstock.core.values.diagnosis import Diagnosis

NAME = {"schemaname": "public", "relname": "hot"}
SETTINGS = {"autovacuum": "on"}


def found_in(query: str, first: dict[str, Any], last: dict[str, Any], wait: str | None = None) -> list[Diagnosis]:
    """Return the findings of a minute in which one session runs a statement; views have a first and a last reading."""
    samples = [
        sample(float(t), session(wait, query=query), counters=first if t == 0 else last if t == 59 else {})
        for t in range(60)
    ]
    return list(diagnose(recording_of(samples, settings=SETTINGS)))


def hot(pages: int, **more: Any) -> dict[str, Any]:
    """Return a table of 2,000 rows of 128 bytes, of which 100 scans read all, and so many pages."""
    read = {"seq_scan": 100, "seq_tup_read": 200_000, "idx_tup_fetch": 0, "n_tup_changed": 0, "heap_blks": pages}
    live = {"n_live_tup": 2000, "n_dead_tup": 104_000, "row_bytes": 128, "relpages": 1700, "is_analyzed": True}
    return {**NAME, **read, **live, **more}


ZERO = {"seq_scan": 0, "seq_tup_read": 0, "idx_tup_fetch": 0, "n_tup_changed": 0, "heap_blks": 0}
SUM = "SELECT sum(n) FROM hot"


@pytest.mark.parametrize(
    ("table", "times", "words"),
    [
        (hot(161_250), 50, "104,000 dead rows beside 2,000"),
        (hot(161_250, n_dead_tup=0), 50, "VACUUM has removed rows, not their space"),
        # What scans need; what an index search needs; what updates need; a small table.
        (hot(3225), None, ""),
        (hot(161_250, idx_tup_fetch=160_000), None, ""),
        (hot(161_250, n_tup_changed=50_000), None, ""),
        # Rows that are read twice, as they are locked.
        (hot(161_250, n_dead_tup=0, relpages=40), None, ""),
        # Pages that were left empty on purpose.
        (hot(3300 * 5, n_dead_tup=0, relpages=160, fillfactor=20), None, ""),
        # A role without SELECT does not see how long the rows are. Dead rows tell all the same.
        (hot(161_250, n_dead_tup=0, row_bytes=None), None, ""),
        (hot(161_250, row_bytes=None), 50, "104,000 dead rows beside 2,000"),
        (hot(900, seq_scan=1, seq_tup_read=10), None, ""),
    ],
)
def test_pages_that_no_row_fills_are_bloat(table: dict[str, Any], times: int | None, words: str) -> None:
    """Its bound is what the pages are too many; plain VACUUM is offered where it removes something."""
    found = [
        each
        for each in found_in(SUM, {"pg_stat_user_tables": ({**table, **ZERO},)}, {"pg_stat_user_tables": (table,)})
        if each.code == "bloat"
    ]
    assert len(found) == (times is not None)
    for each in found:
        assert f"read {times} times the pages that its rows fill: {words}" in each.claim
        assert each.bound == pytest.approx(1 - 1 / (times or 1), abs=0.01)
        assert ("VACUUM public.hot removes dead rows" in (each.remedy or "")) == ("dead" in words)
        assert "ACCESS EXCLUSIVE" in (each.remedy or "")


def test_vacuum_that_is_too_slow_is_told_to_pause_less() -> None:
    """It is at work on the table, and there are dead rows all the same."""
    table, work = hot(161_250), {"pg_stat_progress_vacuum": ({"pid": 7, "relname": "hot"},)}
    found = found_in(SUM, {"pg_stat_user_tables": ({**table, **ZERO},), **work}, {"pg_stat_user_tables": (table,)})
    assert "autovacuum_vacuum_cost_delay = 0" in (found[0].remedy or "")


COPY = "COPY hot FROM STDIN"


def cost(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {**NAME, "kind": kind, "name": name, "of": "btree", "scans": None, "cost": None, "n_tup_ins": 0, **more}


KEY = cost("foreign key", "hot_ref", of="refs")
TRIGGER = cost("trigger", "audits", of="audit", cost=100)
PLAIN, OTHER = cost("index", "a_idx"), cost("index", "z_idx")
COMPUTED = cost("index", "slow_idx", cost=100)
WORDS = cost("index", "words_idx", of="gin", cost=1)


@pytest.mark.parametrize(
    ("query", "costs", "pages", "first"),
    [
        (COPY, [PLAIN, KEY], {"a_idx": 3}, "foreign key hot_ref, which looks up a row of refs"),
        (COPY, [PLAIN, TRIGGER], {"a_idx": 3}, "trigger audits, which calls audit"),
        (COPY, [PLAIN, OTHER, COMPUTED], {"a_idx": 3, "z_idx": 3, "slow_idx": 3}, "index slow_idx (btree on an expr"),
        (COPY, [PLAIN, WORDS], {"a_idx": 3, "words_idx": 60}, "index words_idx (gin on an expression)"),
        # By pages, and not by name.
        (COPY, [PLAIN, OTHER], {"a_idx": 3, "z_idx": 30}, "index z_idx (btree)"),
        ("INSERT INTO hot SELECT f(?) FROM generate_series(?, ?)", [TRIGGER], {}, "trigger audits"),
        # A key is never to be dropped, and an index of numbers costs little; an upsert looks up its rows.
        (COPY, [{**OTHER, "is_unique": True}], {"z_idx": 30}, None),
        (COPY, [{**OTHER, "is_unique": True}, KEY], {"z_idx": 20}, "foreign key hot_ref"),
        ("INSERT INTO hot SELECT ? FROM generate_series(?, ?) ON CONFLICT (a) DO NOTHING", [TRIGGER], {}, None),
        # What the SELECT takes is not known; a plain table; another statement; another table.
        ("INSERT INTO hot SELECT * FROM orders", [TRIGGER], {}, None),
        # Each row has a statement, which takes longer than its row.
        ("INSERT INTO hot VALUES (?, ?)", [TRIGGER], {}, None),
        (COPY, [], {}, None),
        ("SELECT * FROM hot", [TRIGGER], {}, None),
        ("COPY cold FROM STDIN", [TRIGGER], {}, None),
        ("COPY (SELECT * FROM hot) TO STDOUT", [TRIGGER], {}, None),
    ],
)
def test_what_each_row_pays_most_for_is_named(
    query: str, costs: list[dict[str, Any]], pages: dict[str, int], first: str | None
) -> None:
    """Three million rows in a minute of one session: 20 microseconds each."""
    rows = 3_000_000
    last = [{**each, "n_tup_ins": rows, "scans": rows if each["kind"] == "foreign key" else None} for each in costs]
    before = [{**each, "scans": 0 if each["kind"] == "foreign key" else None} for each in costs]
    indexes = [
        {**NAME, "indexrelname": name, "idx_blks_read": 0, "idx_blks_hit": each * rows, "n_tup_changed": rows}
        for name, each in pages.items()
    ]
    found = found_in(
        query,
        {"write_costs": tuple(before), "pg_statio_user_indexes": ()},
        {"write_costs": tuple(last), "pg_statio_user_indexes": tuple(indexes)},
    )
    paid = [each for each in found if each.code == "row-costs"]
    assert len(paid) == (first is not None)
    for each in paid:
        assert f"each pays most for {first}" in each.claim
        assert each.bound is not None
        assert 0.3 < each.bound < 1
        assert "few-sessions" not in {other.code for other in found}


def test_statement_that_waits_has_no_row_costs() -> None:
    """Its volume or its commits limit it."""
    last = {"write_costs": ({**TRIGGER, "n_tup_ins": 3_000_000},)}
    found = found_in(COPY, {"write_costs": (TRIGGER,)}, last, wait="IO:DataFileExtend")
    assert "row-costs" not in {each.code for each in found}


def test_copy_whose_text_begins_with_other_statements_is_known_by_its_progress() -> None:
    """As the sessions of a load are; a load's remedy is its option, and a short load is told so too."""
    progress = {"pg_stat_progress_copy": ({"pid": 1, "command": "COPY FROM", "relname": "hot"},)}
    samples = [
        sample(
            float(t),
            session(query="BEGIN; SELECT pg_catalog.set_config(?, ?, true); CO"),
            counters={**progress, "write_costs": ({**TRIGGER, "n_tup_ins": 50_000 * t},)},
        )
        for t in range(60)
    ]
    setting = LoadConditions(triggers=("audits",), choices=("disable_triggers",))
    accounts = LoadAccounts(
        elapsed_s=5.0,
        rows_s=5.0,
        sessions=SessionSeconds(sending_s=5.0),
        session_count=1,
        readers=ReaderSeconds(),
        reader_count=1,
        client_cpu_s=1.0,
        client_cpus=2,
        bytes_read=10**6,
        bytes_copied=10**6,
        rows=10**4,
    )
    counts = LoadCounts(accounts=accounts, setting=setting)
    findings = examine(replace(recording_of(samples), load=counts))
    found = judge_load(LoadCase(counts=counts, findings=findings, cpu_count=4))
    (paid,) = find_verdict(found, accounts, LoadTuning())
    assert "each pays most for trigger audits" in paid.claim
    assert paid.remedy == "If the load's rows do not need trigger audits while they are stored: --triggers disable."
    assert "load-few-sessions" not in {each.code for each in found}
