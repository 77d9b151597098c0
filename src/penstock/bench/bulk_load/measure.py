"""Runs one load into new tables.

Samples the server meanwhile, and diagnoses the load by the rules for all recordings.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from statistics import mean
from typing import TYPE_CHECKING

from penstock.bench.bulk_load.plan import PRINCIPALS, Run
from penstock.bench.ways import (
    LoadSetting,
    check_rows,
    import_on_server,
    import_with_settings,
    load_in_parallel,
    load_in_turn,
    load_with_penstock,
    load_with_settings,
    staging_tables,
)
from penstock.diagnose.devices import DATA
from penstock.diagnose.examination import examine
from penstock.diagnose.load import LoadCase, judge_load
from penstock.diagnose.rules.limits import DeviceIntervals
from penstock.model.recording import Recording, RecordingHeader, Sample
from penstock.model.server.device import VolumeLimits, count_bytes, count_ios
from penstock.observe.sampler import Sampler, sampling_beside
from penstock.server.benchmarks.tables import checkpoint, count_rows, make_staging

if TYPE_CHECKING:
    from penstock.bench.bulk_load.published import Load
    from penstock.lab.datasets.datafiles import DataFile
    from penstock.model.diagnosis import Diagnosis
    from penstock.model.load.accounts import LoadCounts

# A quick run of one file takes two seconds.
_SAMPLE_INTERVAL_S, _COUNTERS_EVERY_S = 0.05, 0.5
_WAITS_SHOWN = 3

WAYS: Mapping[Load, Callable[[LoadSetting], LoadCounts | None]] = {
    "aws_s3": import_on_server,
    "one psql": load_in_turn,
    "psql in turn": load_in_turn,
    "psql in parallel": load_in_parallel,
    "aws_s3 with settings": import_with_settings,
    "penstock": load_with_penstock,
    "penstock with settings": load_with_settings,
}


def choose_files(files: Sequence[DataFile], *, is_one: bool) -> tuple[DataFile, ...]:
    """Return the files of a step."""
    return tuple(file for file in files if not is_one or file.table == PRINCIPALS)


def make_tables(setting: LoadSetting) -> None:
    """Create empty tables in place of those of the last run. Flush what that run left unwritten. Raises TargetError."""
    with setting.connect.connect(label="bench") as connection:
        make_staging(connection, setting.schema, staging_tables(setting.files))
        checkpoint(connection)


def measure(
    setting: LoadSetting,
    load: Load,
    *,
    limits: VolumeLimits | None,
    limited: AbstractContextManager[None],
    after: Callable[[], None],
) -> Run:
    """Create the tables, load them within `limited` and call `after` there, then count the rows.

    The seconds are those of the load alone. Raises PenstockError, and LabError if rows are missing.
    """
    make_tables(setting)
    application = "psql" if "psql" in load else "penstock"
    sampler = Sampler(
        setting.connect,
        interval_s=_SAMPLE_INTERVAL_S,
        counters_every_s=_COUNTERS_EVERY_S,
        volume=limits,
        application=application,
    )
    with limited:
        with closing(sampler), sampling_beside(sampler, interval_s=_SAMPLE_INTERVAL_S) as samples:
            began_s = time.monotonic()
            counts = WAYS[load](setting)
            seconds = time.monotonic() - began_s
        after()
    rows = count_loaded(setting, load)
    return summarize(sampler.header, samples, counts, seconds=seconds, rows=rows)


def count_loaded(setting: LoadSetting, what: str) -> int:
    """Return how many rows all tables have. Raises LabError if a table's number of rows differs from its file's."""
    with setting.connect.connect(label="bench") as connection:
        counts = count_rows(connection, setting.schema, list(staging_tables(setting.files)))
    check_rows(what, counts, setting.files)
    return sum(counts.values())


def summarize(
    header: RecordingHeader, samples: Sequence[Sample], counts: LoadCounts | None, *, seconds: float, rows: int
) -> Run:
    """Return what a recording shows about a load. `counts` is what the loader itself counted, None for psql."""
    findings = examine(Recording(header=header, samples=samples, load=counts))
    diagnoses: tuple[Diagnosis, ...] = findings.diagnoses
    if counts is not None:
        diagnoses = judge_load(LoadCase(counts=counts, findings=findings, cpu_count=header.cpu_count))
    first = diagnoses[0] if diagnoses else None
    activity = findings.activity
    device, cpu = _measure_device(samples), _measure_cpu(header, samples)
    return Run(
        seconds=seconds,
        rows=rows,
        samples=activity.samples,
        sessions=activity.sessions,
        waits=tuple((part.name, part.share) for part in activity.waits[:_WAITS_SHOWN]),
        code=None if first is None else first.code,
        claim=None if first is None else first.claim,
        cpu=cpu,
        **device,
    )


def _measure_device(samples: Sequence[Sample]) -> dict[str, float]:
    """Return the rates of the device with the data. The peak of the queue is the mean queue of the worst second."""
    meter = DeviceIntervals()
    for sample in samples:
        meter.see(sample, 0.0)
    seen = [each.rates for each in meter.by_device.get(meter.device_of.get(DATA, ""), [])]
    if not seen:
        return {}
    total_s = sum(each.elapsed_s for each in seen)
    io_bytes = VolumeLimits().io_bytes
    return {
        "peak_queue": max(each.queue for each in seen),
        "mean_queue": sum(each.queue * each.elapsed_s for each in seen) / total_s,
        "ios_per_s": sum(count_ios(each, io_bytes) * each.elapsed_s for each in seen) / total_s,
        "bytes_per_s": sum(count_bytes(each) * each.elapsed_s for each in seen) / total_s,
    }


def _measure_cpu(header: RecordingHeader, samples: Sequence[Sample]) -> float | None:
    busy = [sample.host_busy_cpus for sample in samples[1:] if sample.host_busy_cpus is not None]
    return min(1.0, mean(busy) / header.cpu_count) if busy and header.cpu_count else None
