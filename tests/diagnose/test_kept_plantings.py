"""Recordings of plantings and of healthy workloads: what was found stays found, and no more is."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.diagnose.examination import REMARKS, examine
from penstock.watch.recordings import read_recording

KEPT = Path(__file__).with_name("recordings")

# The first finding, and what its claim or remedy names. For the last ones, the code of a risk.
PLANTED = {
    "row-of-a-prepared-transaction": (
        "lock-wait",
        ["prepared transaction 'order-4711'", "ROLLBACK PREPARED 'order-4711'"],
    ),
    "xmin-of-a-prepared-transaction": ("xmin-held", ["order-4711", "COMMIT PREPARED 'order-4711'"]),
    "ddl-behind-a-report": ("lock-queue", ["ALTER TABLE", "lock_timeout"]),
    "missing-index": ("sequential-scan", ["public.orders"]),
    "stale-statistics": ("stale-statistics", ["ANALYZE public.a,"]),
    "bloat": ("bloat", ["public.hot", "ACCESS EXCLUSIVE"]),
    "copy-pays-for-a-foreign-key": ("row-costs", ["foreign key lines_ref"]),
    "copy-pays-for-a-trigger": ("row-costs", ["trigger audits"]),
    "insert-pays-for-one-of-five-indexes": ("row-costs", ["index l5_id_idx"]),
    "insert-pays-for-a-gin-index": ("row-costs", ["index by_words"]),
    "wal-without-full-page-images": ("wal-write", ["no full-page images, so raising it gains little"]),
    "other-programs": ("other-programs", ["perhaps this server's own clients among them"]),
    "index-does-not-fit-into-memory": ("index-reads", ["by_key of public.wide", "after their WAL"]),
    "temp-file-limit": ("temp-file-limit", ["(8MB)"]),
    "trigger-that-waits-elsewhere": ("outside-wait", ["Timeout:PgSleep"]),
    "standby-that-does-not-replay": ("standby-behind", ["server_b (write lag", "pg_wal_replay_resume()"]),
    "synchronous-standby-stalls": ("standby-behind", ["b1 (write lag", "it has stopped"]),
}
HARM = ("pg_cancel_backend", "pg_terminate_backend", "by more sessions", "rows at a time")
HARMLESS = {"ddl-behind-a-report"}

# What may be found, because it is true: a few short commits on a slow disk.
HEALTHY = {
    "tpcb-at-100-a-second": {"commit-local-flush"},
    "reads-at-300-a-second": set(),
    "create-index": set(),
    "create-index-that-spills": {"wal-write"},
    "report": set(),
    "queue": {"commit-local-flush"},
    "transactions-that-think-briefly": {"commit-local-flush"},
    "autovacuum-in-step": {"commit-local-flush"},
    "two-phase-commits": {"commit-local-flush"},
    "pool-of-forty": set(),
    "rows-locked-briefly": {"commit-local-flush", "lock-wait"},
}


@pytest.mark.parametrize("name", PLANTED)
def test_planted_cause_is_first_and_its_remedy_harms_nobody(name: str) -> None:
    """What is claimed is no more than what the recording bounds."""
    code, named = PLANTED[name]
    first = examine(read_recording(KEPT / "planted" / f"{name}.recording")).diagnoses[0]
    assert first.code == code
    text = f"{first.claim} {first.remedy}"
    assert [each for each in named if each not in text] == []
    assert first.bound is None or first.bound <= first.share
    assert name in HARMLESS or not [each for each in HARM if each in text]


def test_plan_that_is_right_without_statistics_is_a_risk_alone() -> None:
    """A table is read by its primary key, and was never analyzed."""
    found = examine(read_recording(KEPT / "planted" / "never-analyzed-but-the-plan-is-right.recording"))
    assert {each.code for each in found.diagnoses} <= {"cpu-bound", "client-bound", *REMARKS}
    assert "never-analyzed" in {each.code for each in found.risks}


@pytest.mark.parametrize("name", HEALTHY)
def test_nothing_but_facts_is_found_in_a_healthy_workload(name: str) -> None:
    """Other programs are those of the machine that recorded."""
    found = examine(read_recording(KEPT / "healthy" / f"{name}.recording"))
    assert {each.code for each in found.diagnoses} <= HEALTHY[name] | REMARKS
    assert {each.code for each in found.risks} <= {"disk-full"}
