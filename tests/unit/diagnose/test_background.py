"""Rules for autovacuum and for standbys that fall behind, on made-up samples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from penstock.diagnose.examination import diagnose
from support.made_samples import recording_of, sample, session

if TYPE_CHECKING:
    from penstock.diagnose.values import Diagnosis
    from penstock.watch.values import SessionSample

WORKER = session(
    pid=9, backend_type="autovacuum worker", application="", query="autovacuum: VACUUM ANALYZE public.orders"
)


def found_in(*sessions: SessionSample, **header: Any) -> list[Diagnosis]:
    """Return what is found in a minute of these sessions."""
    return list(diagnose(recording_of([sample(float(t), *sessions) for t in range(60)], **header)))


@pytest.mark.parametrize("application", [None, "worker"])
def test_autovacuum_of_a_table_in_use_is_named_if_processors_are_short(application: str | None) -> None:
    """Two of two processors are in use, one of them by autovacuum on the table of COPY."""
    copying = session(query="COPY orders FROM STDIN")
    found = {each.code: each for each in found_in(WORKER, copying, application=application)}
    assert found["autovacuum"].share == 0.5
    assert "autovacuum on public.orders" in found["autovacuum"].claim


@pytest.mark.parametrize(
    ("query", "wait", "cpus", "worker"),
    [
        # Nobody uses the table.
        ("COPY order_lines FROM STDIN", None, 2, None),
        # Processors are idle, and nobody waits for I/O.
        ("COPY orders FROM STDIN", "Client:ClientRead", 8, None),
        # The worker sleeps.
        ("COPY orders FROM STDIN", None, 2, "Timeout:VacuumDelay"),
    ],
)
def test_autovacuum_that_takes_nothing_from_others_is_not_named(
    query: str, wait: str | None, cpus: int, worker: str | None
) -> None:
    """Without a proof that it is in the way."""
    kind, _, event = (worker or "").partition(":")
    vacuuming = session(worker, pid=9, backend_type="autovacuum worker", query="autovacuum: VACUUM public.orders")
    assert (vacuuming.wait_event_type, vacuuming.wait_event) == (kind or None, event or None)
    found = found_in(vacuuming, session(wait, query=query), cpu_count=cpus)
    assert "autovacuum" not in [each.code for each in found]


@pytest.mark.parametrize(("behind", "codes"), [(64, ["standby-behind", "commit-standby"]), (1, ["commit-standby"])])
def test_a_standby_that_does_not_keep_up_is_told_from_one_that_is_far_away(behind: int, codes: list[str]) -> None:
    """A commit needs two of three standbys: the second best is MiBs behind, the last does not matter."""
    wal = 1 << 32
    standbys = tuple(
        {
            "application_name": f"s{number}",
            "state": "streaming",
            "sync_state": "quorum",
            "flush_lsn": f"0/{wal - lag * 2**20:X}",
        }
        for number, lag in ((1, 0), (2, behind), (3, 4000))
    )
    samples = [
        sample(float(t), session("IPC:SyncRep"), wal=wal, counters={"pg_stat_replication": standbys}) for t in range(60)
    ]
    found = diagnose(recording_of(samples, settings={"synchronous_standby_names": "ANY 2 (s1, s2, s3)"}))
    assert [each.code for each in found] == codes
    assert "such as s2" in found[0].claim or codes == ["commit-standby"]
