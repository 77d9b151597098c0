"""Rules for I/O: volumes at their limit, checkpoints forced by WAL, reads of indexes, internal locks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from penstock.diagnose import diagnose
from support.made_samples import recording_of, sample, session

if TYPE_CHECKING:
    from penstock.model.recording import Sample


def device(at_s: float, *, iops: float, size: int = 8192, busy: float = 1.0, queue: float = 6.0) -> dict[str, Any]:
    """Return a reading of the data's device, whose rates have been the same since time 0."""
    return {
        "tablespace": "pg_default",
        "device": "sdb",
        "kind": "ssd",
        "at_s": at_s,
        "reads": 0,
        "read_bytes": 0,
        "read_s": 0.0,
        "writes": int(iops * at_s),
        "write_bytes": int(iops * at_s) * size,
        "write_s": queue * at_s,
        "busy_s": busy * at_s,
        "queue_s": queue * at_s,
        "free_bytes": 10**9,
        "size_bytes": 10**10,
    }


def waiting_for(wait: str, rows: dict[str, Any], **counters: Any) -> list[Sample]:
    """Return a minute in which two sessions wait; `rows` are the arguments of each second's device."""
    return [
        sample(
            float(t),
            *(session(wait, transaction_s=60.0 + t), session(wait, transaction_s=60.0 + t)),
            counters={"host_devices": (device(float(t), **rows),)}
            | {name: (row(t),) for name, row in counters.items()},
        )
        for t in range(60)
    ]


def codes(samples: list[Sample]) -> list[str]:
    """Return the codes of the diagnoses, the largest share first."""
    return [each.code for each in diagnose(recording_of(samples))]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ({"iops": 750}, ["volume-iops"]),
        ({"iops": 1000, "size": 128 * 1024}, ["volume-throughput"]),
        ({"iops": 750, "busy": 0.5}, []),
        ({"iops": 750, "queue": 0.4}, []),
    ],
)
def test_volume_is_named_only_if_it_is_busy_with_a_queue_at_a_steady_rate(
    rows: dict[str, Any], expected: list[str]
) -> None:
    """Small requests are limited by IOPS, large ones by throughput; a device that is idle at times is no limit."""
    assert codes(waiting_for("IO:DataFileExtend", rows)) == expected


def test_unsteady_rates_prove_no_limit() -> None:
    """A device that served 300 and then 3,000 requests per second was not at its limit, busy or not."""
    readings = [
        device(float(t), iops=750) | {"writes": t * t * 50, "write_bytes": t * t * 50 * 8192} for t in range(60)
    ]
    wait = session("IO:DataFileRead", transaction_s=100.0)
    assert codes([sample(float(t), wait, counters={"host_devices": (row,)}) for t, row in enumerate(readings)]) == []


@pytest.mark.parametrize("view", ["pg_stat_checkpointer", "pg_stat_bgwriter"])
def test_checkpoints_requested_often_are_forced_by_wal(view: str) -> None:
    """One each five seconds, while none is timed; the evidence has their number and the share of full-page images."""
    names = (
        ("num_requested", "num_timed") if view == "pg_stat_checkpointer" else ("checkpoints_req", "checkpoints_timed")
    )
    samples = waiting_for(
        "IO:DataFileExtend",
        {"iops": 100, "busy": 0.5},
        **{view: lambda t: {names[0]: 7 + t // 5, names[1]: 3}},
        pg_stat_wal=lambda t: {"wal_fpi": 1000 * t, "wal_bytes": 16_384_000 * t},
    )
    found = diagnose(recording_of(samples))
    assert [each.code for each in found] == ["checkpoints-forced"]
    evidence = {each.name: each.value for each in found[0].evidence}
    assert evidence["checkpoints requested"] == 11
    assert evidence["of the WAL are full-page images, at most"] == pytest.approx(50.0)


def test_one_checkpoint_by_hand_is_not_forced() -> None:
    """A load's own CHECKPOINT at its end is not WAL's."""
    samples = waiting_for(
        "IO:DataFileExtend",
        {"iops": 100, "busy": 0.5},
        pg_stat_checkpointer=lambda t: {"num_requested": t // 50, "num_timed": 0},
    )
    assert codes(samples) == []


def test_index_with_the_most_reads_is_named() -> None:
    """One block for each row; the other index is in memory."""

    def reads(index: str, blocks: int) -> dict[str, Any]:
        return {
            "schemaname": "public",
            "relname": "t",
            "indexrelname": index,
            "idx_blks_hit": 0,
            "idx_blks_read": blocks,
            "n_tup_changed": blocks and 1000,
        }

    wait = session("IO:DataFileRead", transaction_s=100.0)
    first = {"pg_statio_user_indexes": (reads("t_pkey", 0) | {"n_tup_changed": 0}, reads("t_key", 0))}
    last = {
        "pg_statio_user_indexes": (
            reads("t_pkey", 10) | {"n_tup_changed": 1000},
            reads("t_key", 1000) | {"n_tup_changed": 1000},
        )
    }
    samples = [sample(float(t), wait, counters=first if t == 0 else last if t == 59 else {}) for t in range(60)]
    (found,) = diagnose(recording_of(samples))
    assert found.code == "index-reads"
    assert "t_key of public.t" in found.claim
    assert found.evidence[0].value == pytest.approx(1.0)


def test_internal_lock_is_named() -> None:
    """The lock that most of the time is waited for."""
    waits = [session("LWLock:BufferMapping"), session("LWLock:BufferMapping"), session("LWLock:BufferContent")]
    (found,) = diagnose(recording_of([sample(float(t), *waits) for t in range(60)]))
    assert (found.code, round(found.share, 2)) == ("lwlock-contention", 0.67)
    assert "LWLock:BufferMapping" in found.claim
