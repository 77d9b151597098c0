"""Rules for autovacuum, held rows, and standbys that fall behind, on made-up samples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from penstock.diagnose.examination import diagnose
from support.made_samples import recording_of, sample, session

if TYPE_CHECKING:
    from penstock.core.values.diagnosis import Diagnosis
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


@pytest.mark.parametrize("why", ["", " (to prevent wraparound)"])
def test_autovacuum_of_a_table_whose_name_has_blanks_is_of_this_table(why: str) -> None:
    """The worker shows its name without quotes; a remedy has it as SQL writes it."""
    worker = session(pid=9, backend_type="autovacuum worker", query=f"autovacuum: VACUUM public.Order lines{why}")
    found = found_in(worker, session(query='COPY "Order lines" FROM STDIN'))
    (named,) = [each.claim for each in found if each.code.startswith("autovacuum")]
    assert 'autovacuum on public."Order lines"' in named


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


def vacuuming(wait: str | None = None, *, table: str = "orders", is_forced: bool = True) -> SessionSample:
    """Return a worker of autovacuum, by default one that prevents wraparound."""
    why = " (to prevent wraparound)" if is_forced else ""
    query = f"autovacuum: VACUUM public.{table}{why}"
    return session(wait, pid=9, backend_type="autovacuum worker", application="", query=query)


def vacuum(done: int, *, changed: int = 0) -> dict[str, Any]:
    """Return its progress."""
    ages = {"xid_age": 200_400_000, "mxid_age": 12, "n_tup_changed": changed}
    return {"pid": 9, "phase": "scanning heap", "heap_blks_total": 6000, "heap_blks_scanned": done, **ages}


FREEZES = {"autovacuum_freeze_max_age": "200000000", "autovacuum_multixact_freeze_max_age": "400000000"}


def test_autovacuum_that_prevents_wraparound_must_end_and_not_be_paused() -> None:
    """It sleeps, and an ALTER TABLE waits for its lock: no lock-wait with pg_cancel_backend, nor a larger delay."""
    holders = {"xmin_holders": ({"kind": "slot", "name": "old", "xid_age": 150_000_000, "state": "inactive"},)}
    samples = [
        sample(
            float(t),
            vacuuming("Timeout:VacuumDelay"),
            session("Lock:relation", query="ALTER TABLE orders ADD c int", blocked_by=(9,)),
            counters={"pg_stat_progress_vacuum": (vacuum(20 * t),)} | (holders if t == 0 else {}),
        )
        for t in range(60)
    ]
    (found,) = diagnose(recording_of(samples, settings=FREEZES))
    assert (found.code, found.share) == ("autovacuum-wraparound", 1.0)
    assert "public.orders to prevent wraparound, scanning heap, 20% of 6,000 pages, 4 min 01 s left" in found.claim
    numbers = {each.name: each.value for each in found.evidence}
    assert numbers["age of the table in transactions"] == 200_400_000
    assert numbers["autovacuum_freeze_max_age"] == 200_000_000
    assert "pg_drop_replication_slot('old')" in found.remedy
    assert "--freeze always" in found.remedy
    assert "--autovacuum pause" not in found.remedy
    assert "a larger" not in found.remedy.lower()


def moved(t: int, *, worker: int, client: int) -> tuple[dict[str, Any], ...]:
    """Return pg_stat_io of PostgreSQL 16."""
    rows = (("autovacuum worker", worker), ("client backend", client))
    return tuple({"backend_type": kind, "reads": t * count, "op_bytes": 8192} for kind, count in rows)


@pytest.mark.parametrize(("changed", "remedy"), [(0, "penstock load --freeze"), (7, "autovacuum_vacuum_scale_factor")])
@pytest.mark.parametrize(("worker", "code"), [(900, "autovacuum-io"), (300, None)])
def test_autovacuum_that_moves_more_than_the_sessions_is_named_with_its_table(
    changed: int, remedy: str, worker: int, code: str | None
) -> None:
    """Though no statement names it, if sessions wait for I/O."""
    samples = [
        sample(
            float(t),
            vacuuming("IO:DataFileRead", table="old", is_forced=False),
            session("IO:DataFileRead"),
            counters={
                "pg_stat_io": moved(t, worker=worker, client=400),
                "pg_stat_progress_vacuum": (vacuum(t, changed=changed),),
            },
        )
        for t in range(60)
    ]
    found = [each for each in diagnose(recording_of(samples)) if each.code.startswith("autovacuum")]
    assert [each.code for each in found] == ([] if code is None else [code])
    if code is not None:
        assert "public.old, which reads and writes 2.2 times as much as" in found[0].claim
        assert remedy in found[0].remedy


def queue(dead: int) -> tuple[dict[str, Any], ...]:
    """Return the statistics of a queue's table."""
    return ({"schemaname": "public", "relname": "jobs", "n_live_tup": 100, "n_dead_tup": dead},)


@pytest.mark.parametrize(
    ("holder", "who", "release"),
    [
        (
            {"kind": "backend", "pid": 7, "name": "report", "user_name": "ann", "state": "idle in transaction"},
            "backend 7 (application report, user ann), idle in transaction, 5,000 transactions old",
            "pg_terminate_backend(7)",
        ),
        # Its id is the xmin of all snapshots in this database.
        (
            {"kind": "backend", "pid": 7, "state": "idle in transaction", "datname": "other", "is_owner": True},
            "backend 7",
            "pg_terminate_backend(7)",
        ),
        ({"kind": "slot", "name": "s1", "state": "inactive"}, "slot s1, inactive", "pg_drop_replication_slot('s1')"),
        ({"kind": "prepared", "name": "it's"}, "prepared transaction it's", "ROLLBACK PREPARED 'it''s'"),
        # The server ends a prepared transaction in its own database only.
        (
            {"kind": "prepared", "name": "a", "datname": "shop"},
            "prepared transaction a",
            "ROLLBACK PREPARED 'a' in database shop",
        ),
        ({"kind": "standby", "name": "b1"}, "feedback of standby b1", "hot_standby_feedback"),
        ({"kind": "copy", "name": "sub_1"}, "the copy of a table for subscriber sub_1", "Wait until the first copy"),
        # A role that does not see what a session does is not told to end it.
        ({"kind": "backend", "pid": 7, "user_name": "ann", "state": None}, "backend 7", "pg_read_all_stats"),
        (
            {"kind": "backend", "pid": 7, "user_name": "ann", "state": "active", "wait_event_type": "Lock"},
            "backend 7",
            "End what it waits for: SELECT pg_blocking_pids(7)",
        ),
        ({"kind": "backend", "pid": 7, "state": "active", "is_build": True}, "backend 7", "Wait until it has built"),
        (
            {"kind": "backend", "pid": 7, "state": "active", "wait_event_type": "Client"},
            "backend 7",
            "pg_terminate_backend(7) FROM pg_stat_activity WHERE pid = 7. A cancel waits for the client too.",
        ),
    ],
)
def test_who_keeps_the_dead_rows_of_a_queue_is_named(holder: dict[str, Any], who: str, release: str) -> None:
    """And no remedy for autovacuum, which works in vain."""
    kept = {"xmin_holders": ({"datname": None, **holder, "xid_age": 5000},), "pg_stat_user_tables": queue(90_000)}
    taking = [session(query="SELECT * FROM jobs ORDER BY id LIMIT 1")] * 2
    worker = vacuuming(table="jobs", is_forced=False)
    samples = [sample(float(t), *taking, worker, counters=kept if t == 59 else {}) for t in range(60)]
    found = {each.code: each for each in diagnose(recording_of(samples))}
    assert list(found)[:2] == ["xmin-held", "cpu-bound"]
    assert "public.jobs, whose dead rows" in found["xmin-held"].claim
    assert who in found["xmin-held"].claim
    assert release in found["xmin-held"].remedy
    assert ("_backend(" in found["xmin-held"].remedy) == ("_backend(" in release)
    assert "autovacuum" not in found


@pytest.mark.parametrize(
    ("change", "dead"),
    [({}, 9000), ({"xid_age": 900}, 90_000), ({"datname": "other"}, 90_000), ({"is_catalog": True}, 90_000)],
)
def test_young_transactions_and_snapshots_of_other_databases_keep_no_rows(change: dict[str, Any], dead: int) -> None:
    """Nor is a table bloated with a few dead rows."""
    holder = {"kind": "backend", "pid": 7, "name": "report", "datname": "shop", "xid_age": 5000, **change}
    counters = {"xmin_holders": (holder,), "pg_stat_user_tables": queue(dead)}
    samples = [sample(float(t), session(query="SELECT FROM jobs"), counters=counters) for t in range(60)]
    assert "xmin-held" not in [each.code for each in diagnose(recording_of(samples))]


@pytest.mark.parametrize(
    ("age_s", "vacuumed_s", "is_held"),
    [(3.0, None, False), (3.0, 40.0, False), (3.0, 2.0, True), (700.0, None, True), (None, 40.0, True)],
)
def test_rows_that_no_vacuum_has_seen_yet_are_kept_by_nobody(
    age_s: float | None, vacuumed_s: float | None, is_held: bool
) -> None:
    """A busy queue has many dead rows until autovacuum comes, and always some transaction of a few seconds."""
    holder = {"kind": "backend", "pid": 7, "name": "report", "datname": "shop", "xid_age": 5000, "age_s": age_s}
    (table,) = queue(90_000)
    counters = {"xmin_holders": (holder,), "pg_stat_user_tables": ({**table, "vacuumed_s": vacuumed_s},)}
    # Fifty transactions a second: what is 5,000 of them old began 100 seconds ago.
    samples = [sample(float(t), session(query="SELECT FROM jobs"), xid=50 * t, counters=counters) for t in range(60)]
    assert ("xmin-held" in [each.code for each in diagnose(recording_of(samples))]) == is_held


@pytest.mark.parametrize(
    ("behind", "moves", "codes"), [(64, 1, ["standby-behind"]), (1, 1, ["commit-standby"]), (1, 0, ["standby-behind"])]
)
def test_a_standby_that_does_not_keep_up_is_told_from_one_that_is_far_away(
    behind: int, moves: int, codes: list[str]
) -> None:
    """A commit needs two of three standbys: the second best is MiBs behind, or stalls; the last does not matter."""
    wal = 1 << 32

    def standbys(t: int) -> tuple[dict[str, Any], ...]:
        return tuple(
            {
                "application_name": f"s{number}",
                "state": "streaming",
                "sync_state": "quorum",
                "flush_lsn": f"0/{wal + moves * 1000 * t - lag * 2**20:X}",
                "flush_lag": "00:00:12",
            }
            for number, lag in ((1, 0), (2, behind), (3, 4000))
        )

    samples = [
        sample(
            float(t),
            session("IPC:SyncRep"),
            wal=wal + moves * 1000 * t,
            counters={"pg_stat_replication": standbys(t)},
        )
        for t in range(60)
    ]
    found = diagnose(recording_of(samples, settings={"synchronous_standby_names": "ANY 2 (s1, s2, s3)"}))
    assert [each.code for each in found] == codes
    assert "such as s2 (flush lag 00:00:12)" in found[0].claim or codes == ["commit-standby"]
    assert ("it has stopped" in (found[0].remedy or "")) == (not moves)


def test_standby_that_nobody_waited_for_has_not_stalled() -> None:
    """One commit in five seconds waits for it, and between them there is nothing to flush."""
    samples = [
        sample(
            float(t),
            *([session("IPC:SyncRep")] if t % 5 == 0 else []),
            wal=(1 << 32) + 1000 * (t // 5),
            counters={
                "pg_stat_replication": (
                    {
                        "application_name": "s1",
                        "state": "streaming",
                        "sync_state": "sync",
                        "flush_lsn": f"1/{1000 * ((t - 1) // 5):X}" if t else "1/0",
                    },
                )
            },
        )
        for t in range(200)
    ]
    found = diagnose(recording_of(samples, settings={"synchronous_standby_names": "s1"}))
    assert [each.code for each in found] == ["commit-standby"]


@pytest.mark.parametrize(
    ("wait", "words"),
    [("SubtransBuffer", "savepoints"), ("MultiXactMemberBuffer", "FOR SHARE"), ("BufferContent", "CACHE")],
)
def test_locks_of_other_buffers_are_not_taken_for_those_of_pages(wait: str, words: str) -> None:
    """Their names end alike."""
    (found,) = found_in(session(f"LWLock:{wait}"))
    assert words in found.remedy


def test_who_waits_for_a_commit_that_a_standby_holds_up_waits_for_the_standby() -> None:
    """Three wait for its row; to cancel the holder would leave its commit on this server alone."""
    row = {"application_name": "s1", "state": "streaming", "sync_state": "sync", "flush_lsn": "0/FFFF0000"}
    missing = {"pg_stat_replication": ()}
    for view, code in (({"pg_stat_replication": (row,)}, "standby-behind"), (missing, "standby-missing")):
        samples = [
            sample(
                float(t),
                session("IPC:SyncRep", pid=1, query="END", query_s=t + 2.0, transaction_s=t + 2.0),
                *[session("Lock:transactionid", pid=pid, blocked_by=(1,)) for pid in (2, 3, 4)],
                wal=1 << 32,
                counters=view,
            )
            for t in range(60)
        ]
        (found,) = diagnose(recording_of(samples, settings={"synchronous_standby_names": "s1"}))
        assert (found.code, found.share) == (code, 1.0)
        assert "pg_cancel_backend" not in (found.remedy or "")


def test_standby_that_does_not_replay_is_told_to_go_on_replaying() -> None:
    """It has flushed all WAL: with remote_apply, commits wait until it has replayed it."""
    row = {"application_name": "s1", "state": "streaming", "sync_state": "sync", "flush_lsn": "1/0"}
    samples = [
        sample(
            float(t),
            session("IPC:SyncRep"),
            wal=1 << 32,
            counters={"pg_stat_replication": ({**row, "replay_lsn": "0/FFFF0000"},)},
        )
        for t in range(60)
    ]
    (found,) = diagnose(recording_of(samples, settings={"synchronous_standby_names": "s1"}))
    assert found.code == "standby-behind"
    assert "pg_wal_replay_resume()" in (found.remedy or "")
    assert "it has stopped" not in (found.remedy or "")
