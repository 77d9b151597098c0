"""What made-up samples say of temporary files and the disks below them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from penstock.diagnose.examination import diagnose
from penstock.watch.devices import measure_devices
from support.made_samples import database, recording_of, sample, session

if TYPE_CHECKING:
    from penstock.core.values.diagnosis import Diagnosis
    from penstock.watch.values import Sample

GB = 10**9


def device(at_s: float, *, tablespace: str = "pg_default", busy: float = 1.0, **more: Any) -> dict[str, Any]:
    """Return the counters of a device that writes a thousand pages a second, 2 ms each."""
    counters = {
        "reads": 0, "read_bytes": 0, "read_s": 0.0, "writes": int(1000 * at_s), "write_bytes": int(8_192_000 * at_s),
        "write_s": 2.0 * at_s, "busy_s": busy * at_s, "queue_s": 2.0 * at_s,
    }  # fmt: skip
    space = {"free_bytes": 50 * GB, "size_bytes": 100 * GB}
    return {"tablespace": tablespace, "device": "vdb", "kind": "unknown", "at_s": at_s, **counters, **space, **more}


def spills(tablespace: str = "pg_default", *, pid: int = 1, size_bytes: int = GB) -> dict[str, Any]:
    return {"tablespace": tablespace, "pid": pid, "bytes": size_bytes}


def recorded(*devices: dict[str, Any], files: tuple[dict[str, Any], ...] = (spills(),), wait: str) -> list[Sample]:
    """Return a minute in which one session waits so."""
    return [
        sample(
            float(t),
            session(wait or None),
            counters={"temp_files": files, "host_devices": tuple(device(float(t), **each) for each in devices)},
        )
        for t in range(60)
    ]


def only(samples: list[Sample]) -> Diagnosis:
    (found,) = diagnose(recording_of(samples))
    return found


@pytest.mark.parametrize(
    ("row", "files", "code"),
    [
        ({}, (spills(),), "temp-spill-on-data-volume"),
        ({"busy_s": 0.0}, (spills(),), "temp-spill"),
        ({"tablespace": "fast"}, (spills("fast"),), "temp-disk-slow"),
        ({"tablespace": "fast", "busy": 0.27}, (spills("fast"),), "temp-spill"),
        ({"tablespace": "fast"}, (), "temp-spill"),
    ],
)
def test_waits_for_temporary_files_are_named_by_the_disk_that_has_them(
    row: dict[str, Any], files: tuple[dict[str, Any], ...], code: str
) -> None:
    found = only(recorded(row, files=files, wait="IO:BufFileWrite"))
    assert (found.code, found.share) == (code, 1.0)


def test_the_evidence_has_what_the_device_did() -> None:
    found = only(recorded({}, wait="IO:BuffileRead"))
    numbers = {each.name: (round(each.value, 1), each.unit) for each in found.evidence}
    assert numbers["device vdb: busy"] == (100.0, "%")
    assert numbers["device vdb: reads and writes"] == (1000.0, "/s")
    assert numbers["device vdb: read and written"] == (8.2, "MB/s")
    assert numbers["device vdb: time for a write"] == (2.0, "ms")
    assert numbers["temporary files in tablespace pg_default, at most"] == (1000.0, "MB")


def test_a_server_elsewhere_is_diagnosed_by_its_waits_alone() -> None:
    samples = [sample(float(t), session("IO:BufFileWrite")) for t in range(60)]
    assert only(samples).code == "temp-spill"


def test_few_waits_for_temporary_files_are_nothing() -> None:
    samples = [sample(float(t), session("IO:BufFileRead" if t % 20 == 0 else "Lock:tuple")) for t in range(60)]
    assert [found.code for found in diagnose(recording_of(samples))] == ["lock-wait"]


def test_a_disk_that_runs_full_is_told_with_who_fills_it() -> None:
    space = [{"free_bytes": 60 * GB - t * GB, "tablespace": "fast"} for t in range(60)]
    samples = [
        sample(
            float(t),
            session(None, pid=7, application="report"),
            session("IPC:BgWorkerStartup", pid=8, application="other"),
            counters={"temp_files": (spills("fast", pid=7),), "host_devices": ({**device(float(t)), **space[t]},)},
        )
        for t in range(60)
    ]
    found = only(samples)
    assert (found.code, found.share) == ("temp-space-low", 0.5)
    assert "1.00 GB of 100 GB free at the least, and full in 1.00 s at this rate" in found.claim
    assert any("application report" in each.name for each in found.evidence)


@pytest.mark.parametrize(
    ("limit", "written", "codes"), [("8MB", 8, ["temp-file-limit"]), ("8MB", 2, []), ("-1", 8, []), (None, 8, [])]
)
def test_statements_that_fail_at_the_limit_of_temporary_files_are_named(
    limit: str | None, written: int, codes: list[str]
) -> None:
    """Each of ten a second has written so many MiB, and is rolled back."""
    samples = [
        sample(
            float(t),
            session(None, pid=7),
            counters={"temp_files": (spills(pid=7),), **database(0, 0, 10 * t, temp_bytes=10 * t * written * 2**20)},
        )
        for t in range(60)
    ]
    settings = {} if limit is None else {"temp_file_limit": limit}
    assert [each.code for each in diagnose(recording_of(samples, settings=settings))] == codes


def filling(*free_gb: float) -> list[Sample]:
    """Return a second for each reading of what is free of 100 GB, while one session has temporary files."""
    return [
        sample(
            float(t),
            session(None, pid=7),
            counters={
                "temp_files": (spills("fast", pid=7),),
                "host_devices": ({**device(float(t)), "free_bytes": int(free * GB), "tablespace": "fast"},),
            },
        )
        for t, free in enumerate(free_gb)
    ]


@pytest.mark.parametrize(
    "free",
    [
        # The last reading has less free than the first, at a rate of 10 s until full; and so it was all the time.
        [30, 70, 20, 60, 25, 50, 30, 60, 20, 20],
        # One file grows, and stays.
        [*[90] * 30, 80, 70, 60, *[50] * 27],
        [*[90] * 14, 80, 70, 60, *[50] * 43],
    ],
)
def test_temporary_files_that_come_and_go_or_grow_once_do_not_fill_a_disk(free: list[float]) -> None:
    assert "temp-space-low" not in [found.code for found in diagnose(recording_of(filling(*free)))]


@pytest.mark.parametrize(("least", "code"), [(5, "temp-space-low"), (0.1, "temp-disk-full")])
def test_a_disk_that_was_full_is_told_though_the_last_reading_has_space(least: float, code: str) -> None:
    """The statement that filled it has failed, and its files are gone."""
    (found,) = (
        each for each in diagnose(recording_of(filling(*[60] * 30, 20, least, *[60] * 28))) if "temp" in each.code
    )
    assert found.code == code
    assert {each.name: each.value for each in found.evidence}["least free on device vdb"] == 1000 * least


def test_a_disk_that_was_full_between_two_readings_is_the_first_finding() -> None:
    """No reading has the files, and other sessions wait for the volume for most of the time."""
    samples = [
        sample(
            float(t),
            session("IO:BufFileWrite" if t % 4 == 0 else "IO:DataFileRead"),
            counters={"host_devices": ({**device(float(t)), "least_free_bytes": 0 if t == 30 else 50 * GB},)},
        )
        for t in range(60)
    ]
    first = diagnose(recording_of(samples))[0]
    assert (first.code, first.share) == ("temp-disk-full", 0.25)
    assert "vdb, which was full (100 GB)" in first.claim


def test_a_disk_with_space_that_nobody_fills_is_nothing() -> None:
    assert diagnose(recording_of(recorded({"tablespace": "fast"}, files=(spills("fast"),), wait="Lock:tuple"))) == (
        diagnose(recording_of(recorded(wait="Lock:tuple")))
    )


def test_devices_have_cloudwatchs_names_and_the_data_directory_is_first() -> None:
    samples = [
        sample(
            float(t),
            counters={
                "host_devices": (
                    device(float(t), tablespace="fast", device="nvme1n1"),
                    device(float(t)),
                    device(float(t), tablespace="other"),
                )
            },
        )
        for t in range(3)
    ]
    data, fast = measure_devices(samples)
    assert (data.device, data.tablespaces, data.has_data) == ("vdb", ("pg_default", "other"), True)
    assert (fast.device, fast.tablespaces, fast.has_data) == ("nvme1n1", ("fast",), False)
    assert fast.as_metrics() == {
        "ReadIOPSLocalStorage": 0.0,
        "WriteIOPSLocalStorage": 1000.0,
        "ReadLatencyLocalStorage": None,
        "WriteLatencyLocalStorage": 0.002,
        "ReadThroughputLocalStorage": 0.0,
        "WriteThroughputLocalStorage": 8_192_000.0,
        "FreeLocalStorage": 50 * GB,
    }


def cloudwatch(minute: int, *, free: float, **metrics: float) -> dict[str, object]:
    return {"measured_at": f"2026-11-23T10:{minute:02}:00+00:00", "FreeLocalStorage": free, **metrics}


def recorded_on_rds(rows: list[dict[str, object]], wait: str) -> list[Sample]:
    """Return samples of a server whose devices nobody sees, with a row of CloudWatch's each."""
    return [
        sample(float(t), session(wait), counters={"temp_files": (spills(None),), "rds_local_storage": (row,)})
        for t, row in enumerate(rows)
    ]


def test_waits_for_local_storage_of_rds_are_told_by_cloudwatch() -> None:
    rows = [cloudwatch(1, free=50 * GB, WriteIOPSLocalStorage=9000.0, WriteLatencyLocalStorage=0.004)] * 4
    (found,) = diagnose(recording_of(recorded_on_rds(rows, "IO:BufFileWrite")))
    assert (found.code, "on local storage, a disk of their own" in found.claim) == ("temp-disk-slow", True)
    idle = [{**row, "WriteLatencyLocalStorage": 0.00003} for row in rows]
    assert [each.code for each in diagnose(recording_of(recorded_on_rds(idle, "IO:BufFileWrite")))] == ["temp-spill"]
    assert {each.name: each.value for each in found.evidence}["local storage by CloudWatch: time for a write"] == 4.0


def test_local_storage_of_rds_that_fills_is_told_with_its_end() -> None:
    """By values that CloudWatch has measured, a minute apart; the same one twice says nothing."""
    fills = [cloudwatch(minute // 2, free=(15 - minute // 2 * 3) * GB) for minute in range(8)]
    found = list(diagnose(recording_of(recorded_on_rds(fills, "IO:BufFileWrite"))))
    assert "6.00 GB free at the least, and full in 2 min 00 s" in next(
        x.claim for x in found if x.code == "temp-space-low"
    )
    for rows in (fills[:4], [{**row, "measured_at": "soon"} for row in fills], fills[::-1]):
        assert "temp-space-low" not in [
            each.code for each in diagnose(recording_of(recorded_on_rds(rows, "IO:BufFileWrite")))
        ]


def test_rows_that_no_kernel_has_written_are_left_alone() -> None:
    row = device(1.0, writes="many")
    assert measure_devices([sample(float(t), counters={"host_devices": (row, {})}) for t in range(3)]) == ()
