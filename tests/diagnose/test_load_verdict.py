"""What limited a load, by what the loader counted and by samples of the server."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from penstock.core.values.accounts import (
    BackendIo,
    LoadAccounts,
    LoadConditions,
    LoadCounts,
    ReaderSeconds,
    SessionSeconds,
)
from penstock.diagnose.examination import examine
from penstock.diagnose.load import LOAD_ADVICE, OF_STEPS, LoadCase, judge_load
from penstock.loading.steps.changes import Changes
from penstock.loading.steps.upkeep import Upkeep
from support import made_samples

if TYPE_CHECKING:
    from penstock.core.values.diagnosis import Diagnosis

IDLE = LoadAccounts(
    elapsed_s=10.0,
    rows_s=10.0,
    sessions=SessionSeconds(),
    session_count=2,
    readers=ReaderSeconds(reading_s=1.0, queueing_s=9.0),
    reader_count=1,
    client_cpu_s=1.0,
    client_cpus=2,
    bytes_read=10**8,
    bytes_copied=10**8,
    rows=10**6,
)
SENDING = SessionSeconds(sending_s=18.0, encoding_s=2.0)


def judge(
    accounts: LoadAccounts, *, setting: LoadConditions | None = None, wait: str | None = "none", cpus: int = 2
) -> list[str]:
    """Return the codes, first the largest; `wait` is what two sessions wait for in all samples, "none" no samples."""
    return [each.code for each in diagnose(accounts, setting=setting, wait=wait, cpus=cpus)]


def diagnose(
    accounts: LoadAccounts, *, setting: LoadConditions | None = None, wait: str | None = "none", cpus: int = 2
) -> tuple[Diagnosis, ...]:
    """Return the diagnoses; the arguments are those of `judge`."""
    findings = None
    if wait != "none":
        samples = [made_samples.sample(float(n), *[made_samples.session(wait)] * 2) for n in range(60)]
        findings = examine(made_samples.recording_of(samples))
    counts = LoadCounts(accounts=accounts, setting=setting or LoadConditions())
    return judge_load(LoadCase(counts=counts, findings=findings, cpu_count=cpus))


@pytest.mark.parametrize(
    ("readers", "code"),
    [
        (ReaderSeconds(reading_s=9.0, cutting_s=1.0), "load-source"),
        (ReaderSeconds(reading_s=1.0, decompressing_s=9.0), "load-decompression"),
        (ReaderSeconds(reading_s=1.0, cutting_s=9.0), "load-cutting"),
    ],
)
def test_sessions_that_wait_for_blocks_point_to_what_readers_do(readers: ReaderSeconds, code: str) -> None:
    """The reader's longest part is named."""
    waiting = SessionSeconds(waiting_s=16.0, sending_s=4.0)
    assert judge(replace(IDLE, sessions=waiting, readers=readers))[0] == code


def test_sessions_that_encode_point_to_the_client() -> None:
    """Not to the server, which takes what it gets."""
    assert judge(replace(IDLE, sessions=SessionSeconds(encoding_s=15.0, sending_s=5.0)))[0] == "load-encoding"


def test_sessions_in_commit_point_to_commits() -> None:
    """COMMIT is counted, not sampled."""
    assert judge(replace(IDLE, sessions=SessionSeconds(committing_s=15.0, sending_s=5.0)))[0] == "load-commit"


def test_without_samples_the_server_is_named_without_a_reason() -> None:
    """The counts alone say that the sessions wait for the server, not why."""
    assert judge(replace(IDLE, sessions=SENDING)) == ["load-server", "load-encoding"]


def test_sessions_that_compute_on_all_processors_point_to_server_cpu() -> None:
    """Two sessions on two processors; with eight, more sessions would help."""
    assert judge(replace(IDLE, sessions=SENDING), wait=None)[0] == "load-server-cpu"
    assert judge(replace(IDLE, sessions=SENDING), wait=None, cpus=8)[0] == "load-few-sessions"
    imported = LoadConditions(is_import=True)
    assert judge(replace(IDLE, sessions=SENDING), wait=None, cpus=8, setting=imported)[0] == "load-few-sessions"


def test_verdict_says_by_counts_alone_only_if_no_sample_was_used() -> None:
    """Whether sessions compute is seen in samples; that they encode is counted."""
    sampled, counted = diagnose(replace(IDLE, sessions=SENDING), wait=None)
    assert (sampled.code, sampled.verdict) == ("load-server-cpu", sampled.claim)
    assert (counted.code, counted.verdict) == ("load-encoding", f"{counted.claim} (by counts alone)")


def test_server_that_waits_for_its_clients_points_to_the_network() -> None:
    """Sessions send all the time, and the server reads all the time."""
    assert judge(replace(IDLE, sessions=SENDING), wait="Client:ClientRead")[0] == "load-network"


def test_checks_at_the_end_of_copy_point_to_foreign_keys_and_triggers() -> None:
    """They are named, foreign keys first; without any, the end of COPY is the server's time."""
    ending = replace(IDLE, sessions=SessionSeconds(sending_s=4.0, finishing_s=16.0))
    keys, triggers = LoadConditions(foreign_keys=("b_a_fkey",), triggers=("log",)), LoadConditions(triggers=("log",))
    assert judge(ending, setting=keys)[0] == "load-foreign-keys"
    assert judge(ending, setting=triggers)[0] == "load-triggers"
    assert judge(ending)[0] == "load-server"


def test_step_that_takes_most_of_the_time_is_first() -> None:
    """Of twenty seconds, twelve create indexes."""
    accounts = replace(IDLE, elapsed_s=20.0, rows_s=7.0, sessions=SENDING, steps_s={"changes": 12.0, "upkeep": 1.0})
    assert judge(accounts)[0] == "load-indexes"


def test_time_of_a_step_before_the_rows_is_not_taken_for_building_indexes() -> None:
    """A load that waits for a lock before it disables triggers builds nothing."""
    accounts = replace(IDLE, elapsed_s=20.0, rows_s=7.0, sessions=SENDING, steps_s={"changes before": 12.0})
    assert "load-indexes" not in judge(accounts)


def test_steps_with_a_diagnosis_are_steps_of_a_load() -> None:
    """What stores staged rows, and what puts new tables in their places, is no step; its time is counted as one."""
    assert set(OF_STEPS) <= {Changes.name, Upkeep.name, "store", "replace"}
    assert set(OF_STEPS.values()) <= set(LOAD_ADVICE)


def test_counted_io_is_shown_if_no_sample_says_why() -> None:
    """Ten seconds, in which the sessions wrote 100 MB of WAL; the time of I/O is not counted."""
    io = BackendIo(
        is_exact=True, read_bytes=0, write_bytes=10**8, extend_bytes=0, io_s=None, wal_bytes=10**8, wal_images=0
    )
    counts = LoadCounts(accounts=replace(IDLE, sessions=SENDING, io=io), setting=LoadConditions())
    first = judge_load(LoadCase(counts=counts, findings=None, cpu_count=2))[0]
    shown = {each.name: each.value for each in first.evidence}
    assert first.code == "load-server"
    assert shown["WAL"] == pytest.approx(10.0)
    assert shown["written by the sessions"] == pytest.approx(10.0)
    assert not any(each.unit == "s" for each in first.evidence)


def test_waiting_sessions_are_counted() -> None:
    """Two sessions wait for records for all of ten seconds."""
    accounts = replace(IDLE, rows_s=10.0, sessions=SessionSeconds(waiting_s=20.0))
    counts = LoadCounts(accounts=accounts, setting=LoadConditions())
    first = judge_load(LoadCase(counts=counts, findings=None, cpu_count=2))[0]
    shown = {each.name: each.value for each in first.evidence}
    assert shown["sessions that wait for records, on average"] == pytest.approx(2.0)


@pytest.mark.parametrize("cause", ["checkpoints-forced", "index-reads"])
def test_what_fills_the_volume_is_before_the_volume(cause: str) -> None:
    """Both have the same share; a diagnosis of too few samples is behind both, although its share is larger."""
    samples = [made_samples.sample(float(n), made_samples.session("IO:DataFileRead")) for n in range(60)]
    findings = examine(made_samples.recording_of(samples))
    counts = LoadCounts(accounts=replace(IDLE, sessions=SENDING), setting=LoadConditions())
    one = judge_load(LoadCase(counts=counts, findings=None, cpu_count=2))[0]
    found = (
        replace(one, code="lock-wait", share=0.9, confidence="too few samples"),
        replace(one, code="volume-iops", share=0.6, confidence="high"),
        replace(one, code=cause, share=0.6, confidence="high"),
    )
    verdict = judge_load(LoadCase(counts=counts, findings=replace(findings, diagnoses=found), cpu_count=2))
    assert [each.code for each in verdict if each.share > 0.5] == [cause, "volume-iops", "lock-wait"]


def test_empty_load_has_no_verdict() -> None:
    """Nothing was counted."""
    assert judge(replace(IDLE, elapsed_s=0.0, rows_s=0.0)) == []
