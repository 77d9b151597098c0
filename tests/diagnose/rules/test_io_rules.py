"""Rules for I/O: volumes at their limit, checkpoints forced by WAL, reads of indexes, internal locks."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from penstock.core.units import format_duration
from penstock.core.values.accounts import (
    BackendIo,
    LoadAccounts,
    LoadConditions,
    LoadCounts,
    ReaderSeconds,
    SessionSeconds,
)
from penstock.core.values.device import VolumeLimits
from penstock.diagnose.examination import Examination, diagnose
from penstock.diagnose.uses import WorkloadIoReader
from penstock.report.looks import look_at
from penstock.report.timeline import Timeline
from penstock.watch.devices import measure_devices
from support.made_samples import HEADER, recording_of, sample, session

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.core.values.diagnosis import Diagnosis
    from penstock.watch.values import Recording, Sample

# The accounts of a minute in which a load's sessions and readers did nothing.
NOTHING = LoadAccounts(
    elapsed_s=60.0,
    rows_s=60.0,
    sessions=SessionSeconds(),
    session_count=1,
    readers=ReaderSeconds(),
    reader_count=1,
    client_cpu_s=0.0,
    client_cpus=1,
    bytes_read=0,
    bytes_copied=0,
    rows=0,
)


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
    """Return the codes of the diagnoses that name a limit, the largest share first."""
    return named(diagnose(recording_of(samples)))


def codes_with(samples: list[Sample], limits: VolumeLimits) -> list[str]:
    """Return the codes of what is found, given the limits of the volume."""
    return named(diagnose(recording_of(samples, volume=limits)))


def named(found: Iterable[Diagnosis]) -> list[str]:
    """Return the codes of those diagnoses that name a limit: data-io names none."""
    return [each.code for each in found if each.code != "data-io"]


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


@pytest.mark.parametrize(
    ("per_commit", "images", "expected"),
    [(10**6, 0.4, ["checkpoints-forced"]), (10**5, 0.4, []), (10**5, 0.9, ["checkpoints-forced"])],
)
def test_forced_checkpoints_delay_commits_that_write_much(per_commit: int, images: float, expected: list[str]) -> None:
    """Sixteen short transactions a second; the flush of 100 kB takes about as long without a few full-page images."""
    wait = session("LWLock:WALWrite", transaction_s=0.02)
    samples = [
        sample(
            float(t), wait, session(), xid=16 * t, wal=16 * per_commit * t,
            counters={
                "pg_stat_database": ({"datname": "shop", "xact_commit": 16 * t, "xact_rollback": 0,
                                      "tup_inserted": 0, "tup_updated": 8000 * t, "tup_deleted": 0},),
                "pg_stat_checkpointer": ({"num_requested": t, "num_timed": 0},),
                "pg_stat_wal": ({"wal_fpi": int(16 * per_commit * t * images / 8192),
                                 "wal_bytes": 16 * per_commit * t},),
            },
        )
        for t in range(60)
    ]  # fmt: skip
    found = [each.code for each in diagnose(recording_of(samples, settings={"max_wal_size": "2MB"}))]
    assert sorted(found) == [*expected, "commit-local-flush"]


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


@pytest.mark.parametrize(
    ("evicted", "codes"), [(900, ["index-reads", "commit-local-flush"]), (9, ["commit-local-flush"])]
)
def test_blocks_that_make_room_wait_for_their_wal(evicted: int, codes: list[str]) -> None:
    """Blocks of the index come from the system's cache without a wait; each row makes a session write another one."""
    index = {"schemaname": "public", "relname": "t", "indexrelname": "t_key", "idx_blks_hit": 0}
    changed = {"idx_blks_read": 1000, "n_tup_changed": 1000}
    writes = {"backend_type": "client backend", "object": "relation", "context": "normal"}
    views = [
        {
            "pg_statio_user_indexes": (index | {name: value * t for name, value in changed.items()},),
            "pg_stat_io": (writes | {"writes": evicted * t}, writes | {"context": "bulkwrite", "writes": 9000 * t}),
        }
        for t in (0, 1)
    ]
    flush = session("IO:WalSync")
    samples = [sample(float(t), flush, counters=views[t > 0] if t in (0, 59) else {}) for t in range(60)]
    found = diagnose(recording_of(samples))
    assert [each.code for each in found] == codes
    assert ("changed blocks must be written, after their WAL" in found[0].claim) == (evicted == 900)


def test_internal_lock_is_named() -> None:
    """The lock that most of the time is waited for."""
    waits = [session("LWLock:BufferMapping"), session("LWLock:BufferMapping"), session("LWLock:BufferContent")]
    (found,) = diagnose(recording_of([sample(float(t), *waits) for t in range(60)]))
    assert (found.code, round(found.share, 2)) == ("lwlock-contention", 0.67)
    assert "LWLock:BufferMapping" in found.claim


def test_locks_on_buffers_count_as_one() -> None:
    """PostgreSQL 19 has a wait for each mode of the lock; a wait for other sessions' pins is another thing."""
    waits = [session(f"Buffer:Buffer{mode}") for mode in ("Shared", "ShareExclusive", "Exclusive", "Cleanup")]
    (found,) = diagnose(recording_of([sample(float(t), *waits, session("LWLock:BufferMapping")) for t in range(60)]))
    assert (found.code, round(found.share, 2)) == ("lwlock-contention", 0.6)
    assert "Buffer (LWLock:BufferContent" in found.claim


def burst(**more: Any) -> VolumeLimits:
    """Return a gp2 volume of 250 GiB."""
    return VolumeLimits(iops=750, bytes_per_s=250 * 2**20, burst_iops=3000, burst_ios=5_400_000, **more)


@pytest.mark.parametrize(
    ("rows", "limits", "expected"),
    [
        ({"iops": 750}, VolumeLimits(iops=750, bytes_per_s=250 * 2**20), ["volume-iops"]),
        ({"iops": 400}, VolumeLimits(iops=750, bytes_per_s=250 * 2**20), []),
        # 150 requests of 1 MiB are 600 I/Os of 256 KiB.
        ({"iops": 150, "size": 2**20}, VolumeLimits(iops=600, bytes_per_s=250 * 2**20), ["volume-iops"]),
        ({"iops": 500, "size": 64 * 1024}, VolumeLimits(iops=3000, bytes_per_s=500 * 65_536), ["volume-throughput"]),
        ({"iops": 2990}, VolumeLimits(iops=3000, instance_iops=3200), ["volume-iops"]),
        ({"iops": 2850}, VolumeLimits(iops=3000, instance_iops=2800), ["instance-limit"]),
        ({"iops": 750}, burst(), ["volume-iops"]),
        ({"iops": 3000}, burst(), ["volume-iops", "volume-balance"]),
        ({"iops": 1500}, burst(), ["volume-balance"]),
    ],
)
def test_known_limits_decide_what_a_volume_is_limited_by(
    rows: dict[str, Any], limits: VolumeLimits, expected: list[str]
) -> None:
    """By I/Os of 256 KiB at most; the lower of two limits; a queue and a steady rate below the limit prove nothing."""
    samples = waiting_for("IO:DataFileExtend", rows)
    assert codes_with(samples, limits) == expected


@pytest.mark.parametrize(("balance", "when"), [(5_400_000, 2341.0), (2_700_000, 1141.0), (None, 2341.0)])
def test_the_end_of_a_burst_balance_is_foretold(balance: float | None, when: float) -> None:
    """A full bucket of 5.4 million I/Os lasts 2,400 s at 3,000 IOPS, of which 59 s are over; it was full at most."""
    samples = waiting_for("IO:DataFileRead", {"iops": 3000})
    found = {each.code: each for each in diagnose(recording_of(samples, volume=burst(balance_ios=balance)))}
    latest = " at the latest" if balance is None else ""
    assert f"is spent in {format_duration(when)}{latest};" in found["volume-balance"].claim


def test_readings_of_one_tick_are_one_reading() -> None:
    """The device of data and WAL is read twice in a tick, some microseconds apart."""
    readings = [(device(float(t), iops=750), device(t + 1e-5, iops=750) | {"tablespace": "pg_wal"}) for t in range(60)]
    wait = session("IO:DataFileRead", transaction_s=100.0)
    samples = [sample(float(t), wait, counters={"host_devices": rows}) for t, rows in enumerate(readings)]
    assert codes(samples) == ["volume-iops"]


@pytest.mark.parametrize(("wal_device", "expected"), [("sdb", ["volume-iops", "wal-write"]), ("sdc", ["wal-write"])])
def test_waits_for_wal_are_the_data_volumes_only_if_wal_is_there(wal_device: str, expected: list[str]) -> None:
    """The data's volume is busy at a steady rate, and sessions wait for WAL alone."""
    of_wal = 750 if wal_device == "sdb" else 300
    readings = [
        (device(float(t), iops=750), device(float(t), iops=of_wal) | {"tablespace": "pg_wal", "device": wal_device})
        for t in range(60)
    ]
    wait = session("IO:WalSync", transaction_s=100.0)
    samples = [sample(float(t), wait, wait, counters={"host_devices": rows}) for t, rows in enumerate(readings)]
    assert [code for code in codes(samples) if code != "commit-local-flush"] == expected


def test_waits_for_wal_on_another_device_do_not_hide_a_volume_at_its_limit() -> None:
    """In three seconds of ten, sessions wait for the data's volume at its limit, and else for WAL on its own device."""
    samples, writes = [], 0
    for t in range(100):
        is_data = t % 10 < 3
        writes += 750 if is_data else 10
        data = device(float(t), iops=0) | {"writes": writes, "write_bytes": 8192 * writes}
        wal = device(float(t), iops=200) | {"tablespace": "pg_wal", "device": "sdc"}
        wait = session("IO:DataFileRead" if is_data else "IO:WalSync", transaction_s=60.0 + t)
        samples.append(sample(float(t), wait, counters={"host_devices": (data, wal)}))
    assert "volume-iops" in codes_with(samples, VolumeLimits(iops=750))


def test_volume_at_its_limit_is_named_before_the_wal_of_short_transactions() -> None:
    """Half of the time a transaction of 2 MB waits for its WAL, which is on the same device, and half for its table."""
    waits = session("IO:WalSync", transaction_s=0.1), session("IO:DataFileExtend", transaction_s=0.1)
    samples = [
        sample(float(t), *waits, xid=10 * t, wal=20_000_000 * t,
               counters={"host_devices": (device(float(t), iops=750),),
                         "pg_stat_database": ({"datname": "shop", "xact_commit": 10 * t, "xact_rollback": 0,
                                               "tup_inserted": 9000 * t, "tup_updated": 0, "tup_deleted": 0},)})
        for t in range(60)
    ]  # fmt: skip
    assert codes(samples) == ["volume-iops", "wal-write"]


@pytest.mark.parametrize(
    ("images", "wal", "settings", "expected"),
    [
        (1000, 16_384_000, {"max_wal_size": "64MB"}, ["checkpoints-forced"]),
        # Rows are appended, so few pages are written whole.
        (100, 16_384_000, {"max_wal_size": "64MB"}, []),
        # Somebody runs CHECKPOINT each five seconds.
        (1000, 16_384_000, {"max_wal_size": "1GB"}, []),
    ],
)
def test_only_wal_with_full_page_images_forces_checkpoints(
    images: int, wal: int, settings: dict[str, str], expected: list[str]
) -> None:
    """80 MB of WAL between two checkpoints are not the 540 MB that 1 GB allows."""
    samples = waiting_for(
        "IO:DataFileExtend",
        {"iops": 100, "busy": 0.5},
        pg_stat_checkpointer=lambda t: {"num_requested": t // 5, "num_timed": 0},
        pg_stat_wal=lambda t: {"wal_fpi": images * t, "wal_bytes": wal * t},
    )
    assert named(diagnose(recording_of(samples, settings=settings))) == expected


@pytest.mark.parametrize(
    ("scans", "all_reads", "expected"),
    [(1000, 1100, ["index-reads", "volume-iops"]), (5000, 1100, ["volume-iops"]), (0, 9000, ["volume-iops"])],
)
def test_index_is_named_before_the_volume_that_its_reads_fill(scans: int, all_reads: int, expected: list[str]) -> None:
    """If it was searched more often than rows changed, or most blocks are of tables, nothing is said of it."""

    def counters(t: int) -> dict[str, Any]:
        index = {"schemaname": "public", "relname": "t", "indexrelname": "t_key", "idx_blks_read": 1000 * t // 59}
        changed = {"n_tup_changed": 1000 * t // 59, "idx_scan": scans * t // 59}
        return {
            "host_devices": (device(float(t), iops=750),),
            "pg_statio_user_indexes": (index | changed,),
            "pg_stat_database": ({"datname": "shop", "blks_read": all_reads * t // 59},),
        }

    wait = session("IO:DataFileRead", transaction_s=100.0)
    assert codes([sample(float(t), wait, counters=counters(t)) for t in range(60)]) == expected


def own_io(**counted: int) -> BackendIo:
    """Return what a load's own sessions did."""
    none = dict.fromkeys(("read_bytes", "write_bytes", "extend_bytes", "wal_bytes", "wal_images"), 0)
    return BackendIo(is_exact=True, io_s=None, **{**none, **counted})


def codes_of_load(samples: list[Sample], io: BackendIo) -> list[str]:
    """Return the codes of the diagnoses of a workload whose own I/O is counted."""
    examination = Examination(HEADER)
    for each in samples:
        examination.see(each)
    load = LoadCounts(accounts=replace(NOTHING, io=io), setting=LoadConditions())
    return named(examination.conclude(load).diagnoses)


def test_full_page_images_of_others_do_not_blame_checkpoints() -> None:
    """Half of the server's WAL are images, but the load's own sessions write none; inexact counts change nothing."""
    samples = waiting_for(
        "IO:DataFileExtend",
        {"iops": 100, "busy": 0.5},
        pg_stat_checkpointer=lambda t: {"num_requested": t // 5, "num_timed": 0},
        pg_stat_wal=lambda t: {"wal_fpi": 1000 * t, "wal_bytes": 16_384_000 * t},
    )
    assert codes(samples) == ["checkpoints-forced"]
    own = own_io(wal_bytes=10**9, wal_images=10)
    assert codes_of_load(samples, own) == []
    assert codes_of_load(samples, replace(own, is_exact=False)) == ["checkpoints-forced"]
    assert codes_of_load(samples, replace(own, wal_images=10**5)) == ["checkpoints-forced"]


def test_counted_bytes_of_images_replace_their_size_in_memory() -> None:
    """PostgreSQL 19 counts them: compressed images are much smaller than 8 KiB."""
    images = {"wal_fpi": 1000, "wal_bytes": 16_384_000}
    samples = {
        share: waiting_for(
            "IO:DataFileExtend",
            {"iops": 100, "busy": 0.5},
            pg_stat_checkpointer=lambda t: {"num_requested": t // 5, "num_timed": 0},
            pg_stat_wal=lambda t, share=share: {  # type: ignore[misc]
                **{name: count * t for name, count in images.items()},
                "wal_fpi_bytes": int(16_384_000 * t * share),
            },
        )
        for share in (0.1, 0.4)
    }
    assert {share: codes(each) for share, each in samples.items()} == {0.1: [], 0.4: ["checkpoints-forced"]}
    own = own_io(wal_bytes=10**9, wal_images=10**5)
    assert codes_of_load(samples[0.4], replace(own, wal_image_bytes=10**8)) == []
    assert codes_of_load(samples[0.4], replace(own, wal_image_bytes=4 * 10**8)) == ["checkpoints-forced"]


def test_report_of_a_load_uses_what_its_own_sessions_did() -> None:
    """Others write the full-page images, so the report blames no checkpoints, as the verdict of the load does not."""
    samples = waiting_for(
        "IO:DataFileExtend",
        {"iops": 100, "busy": 0.5},
        pg_stat_checkpointer=lambda t: {"num_requested": t // 5, "num_timed": 0},
        pg_stat_wal=lambda t: {"wal_fpi": 1000 * t, "wal_bytes": 16_384_000 * t},
    )
    found = {}
    for images in (10, 10**5):
        recording = recording_of(samples)
        io = own_io(wal_bytes=10**9, wal_images=images)
        recording.load = LoadCounts(accounts=replace(NOTHING, io=io), setting=LoadConditions())
        look = look_at(recording, name="load", letter="A")
        found[images] = named(look.findings.diagnoses)
    assert found == {10: [], 10**5: ["checkpoints-forced"]}


def test_reads_of_others_do_not_hide_reads_of_indexes() -> None:
    """Others read ten times as many blocks of tables as the load reads of its index."""
    index = {"schemaname": "public", "relname": "t", "indexrelname": "t_key", "idx_scan": 0}
    samples = waiting_for(
        "IO:DataFileRead",
        {"iops": 100, "busy": 0.5},
        pg_statio_user_indexes=lambda t: {**index, "idx_blks_read": 1000 * t, "n_tup_changed": 1000 * t},
        pg_stat_database=lambda t: {"datname": "shop", "blks_read": 11_000 * t},
    )
    assert codes(samples) == []
    assert codes_of_load(samples, own_io(read_bytes=60_000 * 8192)) == ["index-reads"]
    assert codes_of_load(samples, own_io(read_bytes=600_000 * 8192)) == []


@pytest.mark.parametrize("up_s", [1.0, 5000.0])
def test_restart_of_the_host_begins_the_counters_of_devices_again(up_s: float) -> None:
    """A history goes on after a reboot. What follows is measured, however long the host was up before."""
    before = [device(3000.0 + t, iops=40, busy=0.1, queue=0.1) for t in range(20)]
    after = [device(up_s + t, iops=750) for t in range(60)]
    if up_s > 3000.0:
        # The clock alone does not show it, but the counters began at 0.
        counters = ("reads", "writes", "read_bytes", "write_bytes", "read_s", "write_s", "busy_s", "queue_s")
        after = [{**row, **{name: row[name] - after[0][name] for name in counters}} for row in after]
    wait = session("IO:DataFileExtend", transaction_s=60.0)
    samples = [
        sample(float(t), wait, wait, counters={"host_devices": (row,)}) for t, row in enumerate([*before, *after])
    ]
    assert codes(samples) == ["volume-iops"]
    (use,) = measure_devices(samples)
    assert use.rates.write_iops == pytest.approx(750, rel=0.01)
    reader = WorkloadIoReader(HEADER)
    curves = Timeline()
    for each in samples:
        reader.see(each)
        curves.see(each)
    assert all(each.ios >= 0 for each in reader.uses)
    assert sum(each.elapsed_s for each in reader.uses) == pytest.approx(19 + 59)
    assert min(piece.value for piece in curves.devices["sdb"].iops) >= 0


def rds_metrics(minute: int, *, iops: float, size: int = 16384, **more: Any) -> dict[str, Any]:
    """Return CloudWatch's metrics of a minute after the start of the recording."""
    at = datetime.fromisoformat(HEADER.started_at) + timedelta(minutes=minute)
    return {
        "instance": "orders",
        "measured_at": at.isoformat(),
        "period_s": 60,
        "ReadIOPS": 0.0,
        "WriteIOPS": iops,
        "ReadThroughput": 0.0,
        "WriteThroughput": iops * size,
        "DiskQueueDepth": 30.0,
        **more,
    }


def on_rds(metrics: list[dict[str, Any]], limits: VolumeLimits | None) -> Recording:
    """Return ten minutes in which two sessions wait for data files; CloudWatch's metrics arrive at the end."""
    wait = session("IO:DataFileExtend", transaction_s=60.0)
    samples = [sample(float(t), wait, wait, counters={}) for t in range(600)]
    samples[-1] = replace(samples[-1], counters={"rds_metrics": tuple(metrics)})
    return recording_of(samples, volume=limits)


GP2_250 = VolumeLimits(iops=750, bytes_per_s=250 * 10**6, burst_iops=3000, burst_ios=5_400_000)


@pytest.mark.parametrize(
    ("rows", "limits", "expected"),
    [
        ({"iops": 745}, GP2_250, ["volume-iops"]),
        ({"iops": 2950, "BurstBalance": 90.0}, GP2_250, ["volume-iops", "volume-balance"]),
        ({"iops": 120, "size": 2**21}, GP2_250, ["volume-throughput"]),
        ({"iops": 300}, GP2_250, ["data-io"]),
        ({"iops": 745}, None, ["data-io"]),
    ],
)
def test_volume_of_an_rds_instance_is_judged_by_cloudwatch(
    rows: dict[str, Any], limits: VolumeLimits | None, expected: list[str]
) -> None:
    """The first article's volume, with its bucket spent and while it lasts; without known limits nothing is claimed."""
    found = diagnose(on_rds([rds_metrics(minute, **rows) for minute in range(8)], limits))
    assert [each.code for each in found] == expected
    shown = {each.name: each.value for each in found[0].evidence}
    assert shown["requests in the queue"] == 30.0
    assert ("the instance's storage" in found[0].claim) == (expected != ["data-io"])


def test_metrics_of_another_time_or_shape_prove_nothing() -> None:
    """Minutes before the recording, and rows that another program wrote."""
    odd = [{"measured_at": "yesterday"}, {**rds_metrics(1, iops=745), "measured_at": None}, {}]
    odd += [{**rds_metrics(1, iops=745), "period_s": 0}, {**rds_metrics(-300, iops=745), "period_s": 10**12}]
    (found,) = diagnose(on_rds([*odd, *[rds_metrics(-minute, iops=745) for minute in range(1, 9)]], GP2_250))
    assert found.code == "data-io"


def test_waits_for_a_volume_that_cannot_be_seen_are_reported() -> None:
    """By wait event, with how they could be explained; fewer waits are not worth a word."""
    reading, extending = session("IO:DataFileRead", transaction_s=9.0), session("IO:DataFileExtend", transaction_s=9.0)
    (found,) = diagnose(recording_of([sample(float(t), reading, reading, reading, extending) for t in range(60)]))
    assert (found.code, found.share) == ("data-io", 1.0)
    assert "cannot tell if the volume is at its limit" in found.claim
    assert [each.value for each in found.evidence[:2]] == [75.0, 25.0]
    busy = [session(transaction_s=9.0)] * 9
    assert "data-io" not in codes([sample(float(t), reading, *busy) for t in range(60)])


def test_waits_for_a_volume_below_its_limit_are_its_latency() -> None:
    """A device that is half idle is at no limit."""
    (found,) = diagnose(recording_of(waiting_for("IO:DataFileRead", {"iops": 300, "busy": 0.5, "queue": 0.9})))
    assert found.code == "data-io"
    assert "not seen to be at a limit" in found.claim


def test_waits_that_the_systems_cache_serves_are_no_volumes() -> None:
    """Two sessions wait all the time for blocks that the device is hardly asked for."""
    (found,) = diagnose(recording_of(waiting_for("IO:DataFileRead", {"iops": 5, "busy": 0.01, "queue": 0.01})))
    assert found.code == "data-io"
    assert "the operating system's cache serves most of them" in found.claim
    assert "larger shared_buffers" in found.remedy
    assert "latency" not in found.remedy
