"""What makes commits slow, in made-up samples: frequent checkpoints, WAL by volume, short transactions."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.diagnose.examination import diagnose
from support.made_samples import database, recording_of, sample, session

# 20 rows to a commit, as a shop's orders have.
_ROWS = 20


def committing(
    *,
    commits_per_s: int,
    wal_bytes: int,
    images: float = 0.0,
    sessions: int = 2,
    requested: float = 0.0,
    timed: int = 0,
) -> list[Any]:
    """Return a minute in which sessions wait for commits, all but one; `wal_bytes` and others are for each second."""
    waits = [session("LWLock:WALWrite", query_s=0.01, transaction_s=0.02)] * (sessions - 1)
    return [
        sample(
            float(t),
            *waits,
            session(query_s=0.01, transaction_s=0.02),
            xid=commits_per_s * t,
            wal=wal_bytes * t,
            counters={
                **database(commits_per_s * t, _ROWS * commits_per_s * t),
                "pg_stat_checkpointer": ({"num_requested": int(requested * t), "num_timed": timed * t // 30},),
                "pg_stat_wal": ({"wal_fpi": int(images * wal_bytes * t / 8192), "wal_bytes": wal_bytes * t},),
            },
        )
        for t in range(60)
    ]


def codes(samples: list[Any], **settings: str) -> list[str]:
    """Return the codes of what is found on a machine with processors to spare."""
    return [found.code for found in diagnose(recording_of(samples, settings=settings, cpu_count=16))]


def test_checkpoints_by_wal_are_named_before_the_commits_that_wait_for_their_images() -> None:
    """Six checkpoints a minute and 860 full pages a second, in commits of 20 kB."""
    samples = committing(commits_per_s=350, wal_bytes=7_700_000, images=0.92, requested=0.1, sessions=8)
    found = diagnose(recording_of(samples, settings={"max_wal_size": "64MB"}, cpu_count=16))
    assert [each.code for each in found] == ["checkpoints-forced", "commit-local-flush"]
    assert "because WAL reaches max_wal_size (64MB)" in found[0].claim
    assert "ALTER SYSTEM SET max_wal_size = '5GB'" in found[0].remedy
    numbers = {each.name: round(each.value) for each in found[0].evidence}
    assert (numbers["checkpoints requested"], numbers["full-page images"]) == (5, 865)


@pytest.mark.parametrize(
    ("timeout", "images", "expected"),
    [
        ("30s", 0.9, ["checkpoints-timed", "commit-local-flush"]),
        ("5min", 0.9, ["commit-local-flush"]),
        ("30s", 0.3, ["commit-local-flush"]),
    ],
)
def test_short_checkpoint_timeout_is_named_if_most_of_the_wal_is_images(
    timeout: str, images: float, expected: list[str]
) -> None:
    """Rows that are appended leave few images, however often checkpoints come."""
    samples = committing(commits_per_s=350, wal_bytes=7_700_000, images=images, timed=1)
    assert codes(samples, max_wal_size="1GB", checkpoint_timeout=timeout) == expected


def test_wal_by_volume_is_no_matter_of_commits() -> None:
    """31 MB/s in 155 commits a second; at a tenth of that, longer transactions help."""
    assert codes(committing(commits_per_s=155, wal_bytes=31_000_000)) == ["wal-write"]
    assert codes(committing(commits_per_s=155, wal_bytes=3_100_000)) == ["commit-local-flush"]


def test_commits_that_only_lock_rows_do_not_write_much() -> None:
    """SELECT FOR UPDATE takes a number and flushes at its commit, and changes no row: 40 kB/s in 200 commits."""
    waits = [session("LWLock:WALWrite", query_s=0.01, transaction_s=0.02)] * 3
    samples = [sample(float(t), *waits, xid=200 * t, wal=40_000 * t, counters=database(200 * t)) for t in range(60)]
    assert codes(samples) == ["commit-local-flush"]


def test_rows_to_commit_are_where_the_curve_bends() -> None:
    """Seven of eight sessions wait, so a commit takes as long as 140 rows: of 560, twice as many gain a tenth."""
    samples = committing(commits_per_s=200, wal_bytes=400_000, sessions=8)
    (found,) = diagnose(recording_of(samples, cpu_count=16))
    assert "Commit every 560 rows or more (from there, twice as many gain less than a tenth)" in found.remedy
    # Of rows with 8 kB of WAL each, 132 have 1 MiB, whose flush lasts as long as it is written.
    (found,) = diagnose(recording_of(committing(commits_per_s=100, wal_bytes=16_000_000, sessions=8), cpu_count=16))
    assert "Commit every 132 rows or more" in found.remedy


def test_transactions_that_are_each_a_clients_own_are_not_told_to_be_longer_only() -> None:
    """Eight clients commit at the same time; one application in a loop has nobody to share a flush with."""
    many, alone = (
        diagnose(recording_of(committing(commits_per_s=200, wal_bytes=400_000, sessions=count), cpu_count=16))[0]
        for count in (8, 2)
    )
    # A transaction takes 40 ms, 35 ms of it for its commit.
    assert "ALTER SYSTEM SET commit_delay = 10000, and SELECT pg_reload_conf(), unless Patroni" in many.remedy
    assert "a client's own" in many.remedy
    assert "commit_delay" not in alone.remedy
    assert "  " not in alone.remedy
    # commit_delay takes effect if five others are in a transaction.
    (few,) = diagnose(recording_of(committing(commits_per_s=200, wal_bytes=400_000, sessions=5), cpu_count=16))
    assert "a volume with a shorter latency." in few.remedy
    assert "commit_delay" not in few.remedy


def test_settings_of_rds_are_changed_in_its_parameter_group() -> None:
    """No role of RDS may run ALTER SYSTEM."""
    samples = committing(commits_per_s=350, wal_bytes=7_700_000, images=0.92, requested=0.1, sessions=8)
    settings = {"max_wal_size": "64MB", "rds.extensions": "aws_s3"}
    found = diagnose(recording_of(samples, settings=settings, cpu_count=16))
    assert "max_wal_size = 5120 (MB) in the server's parameter group" in found[0].remedy
    assert "commit_delay = 10000 in the server's parameter group" in found[1].remedy
    assert "ALTER SYSTEM" not in "".join(each.remedy for each in found)


@pytest.mark.parametrize(
    ("free_gib", "expected"),
    [(100, "max_wal_size = '5GB'"), (12, "max_wal_size = '3GB'"), (1, "too little room for a larger max_wal_size")],
)
def test_wal_may_take_a_quarter_of_what_is_free_on_its_disk(free_gib: int, expected: str) -> None:
    """5 GB would be needed."""
    numbers = ("at_s", "reads", "read_bytes", "read_s", "writes", "write_bytes", "write_s", "busy_s", "queue_s")
    disk = {"tablespace": "pg_wal", "device": "vdb", "size_bytes": 200 * 2**30, "free_bytes": free_gib * 2**30}
    samples = committing(commits_per_s=350, wal_bytes=7_700_000, images=0.92, requested=0.1, sessions=8)
    samples[0].counters["host_devices"] = ({**dict.fromkeys(numbers, 0), **disk},)
    found = diagnose(recording_of(samples, settings={"max_wal_size": "64MB"}, cpu_count=16))
    assert expected in found[0].remedy


def test_max_wal_size_that_is_reached_is_too_small_for_a_short_checkpoint_timeout_too() -> None:
    """1 GB would do for 15 MB/s of WAL in 30 s, but it is what is there; nothing is known of the disk."""
    samples = committing(commits_per_s=40, wal_bytes=15_000_000, images=0.92, requested=0.06, sessions=8)
    settings = {"max_wal_size": "1GB", "checkpoint_timeout": "30s"}
    found = diagnose(recording_of(samples, settings=settings, cpu_count=16))
    assert found[0].code == "checkpoints-forced"
    assert "max_wal_size = '2GB'" in found[0].remedy


def test_long_transactions_that_wait_for_a_fifth_of_the_time_are_long_enough() -> None:
    """Twice as many rows to a commit would gain less than a tenth."""
    waits = session("LWLock:WALWrite", query_s=0.01, transaction_s=0.02)
    samples = [
        sample(t, *([waits] if t % 6 == 0 else []), session(), xid=t, wal=1000 * t, counters=database(t, 900 * t))
        for t in range(120)
    ]
    assert codes(samples) == []
