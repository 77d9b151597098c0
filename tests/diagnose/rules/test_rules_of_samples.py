"""What made-up samples are diagnosed as, and what is not said of them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from penstock.diagnose.examination import diagnose
from penstock.diagnose.rules.background import find_missing, parse_standby_names
from support.made_samples import database, recording_of, sample, session

if TYPE_CHECKING:
    from penstock.core.values.diagnosis import Diagnosis
    from penstock.watch.values import Sample, SessionSample


def ticks(count: int, *sessions: SessionSample, xids: int = 100, wal: int = 17_000, **more: Any) -> list[Sample]:
    """Return samples of one second each that all see the same; commits a second, each of one row, unless given."""
    return [
        sample(t, *sessions, xid=xids * t, wal=wal * t, **{"counters": database(xids * t, xids * t), **more})
        for t in range(count)
    ]


def codes(samples: list[Sample], **header: Any) -> list[str]:
    """Return the codes of what is found."""
    return [found.code for found in diagnose(recording_of(samples, **header))]


def only(samples: list[Sample], **header: Any) -> Diagnosis:
    """Return the one thing that is found."""
    (found,) = diagnose(recording_of(samples, **header))
    return found


@pytest.mark.parametrize(
    ("wait", "code"),
    [
        ("IO:WALSync", "commit-local-flush"),
        ("IO:WalSync", "commit-local-flush"),
        ("LWLock:WALWrite", "commit-local-flush"),
        ("IPC:SyncRep", "commit-standby"),
        ("IO:XactSync", "commit-aurora-storage"),
    ],
)
def test_waits_for_commits_are_named_by_what_they_wait_for(wait: str, code: str) -> None:
    """With commits, rows and waiting by numbers, and a batch that would do."""
    found = only(ticks(100, session(wait), session()))
    assert (found.code, found.share, found.samples, found.confidence) == (code, 0.5, 200, "medium")
    numbers = {number.name: number.value for number in found.evidence}
    assert numbers["commits"] == 100
    assert numbers["time for each commit"] == pytest.approx(10, rel=0.02)
    assert numbers["rows per commit, counted"] == 1
    # Half of a row's time is waiting now. Of four rows, 1.25 times a row's time; of eight, 1.125 times.
    assert "Commit every 4 rows or more" in found.remedy


def test_largest_share_is_first() -> None:
    """Whatever order the rules have."""
    sessions = [session("IO:WalSync"), session("IPC:SyncRep"), session("IPC:SyncRep")]
    assert codes(ticks(30, *sessions)) == ["commit-standby", "commit-local-flush"]


def test_few_samples_claim_nothing() -> None:
    """What they hint at is put as a guess."""
    found = only(ticks(19, session("IPC:SyncRep")))
    assert found.confidence == "too few samples"
    assert found.claim.startswith("too few samples (19 of active sessions); perhaps 100 % of")


def test_runs_of_alike_samples_are_less_sure_than_mixed_ones() -> None:
    """Half of each waits; a run of fifty is nearer to one sample than to fifty."""
    waits, works = session("IPC:SyncRep"), session()
    mixed = [tick for t in range(400) for tick in ticks(1, (waits, works)[t % 2])]
    runs = [tick for t in range(400) for tick in ticks(1, (waits, works)[t // 50 % 2])]
    confidences = [diagnose(recording_of(each))[0].confidence for each in (mixed, runs)]
    assert confidences == ["high", "low"]


def test_segments_that_a_bulk_load_flushes_are_not_its_commits() -> None:
    """One transaction a second writes 100 MB of WAL: short as it is, it waits for what it writes."""
    assert codes(ticks(60, session("IO:WalSync"), xids=1, wal=100_000_000)) == ["wal-write"]


def test_a_volume_for_the_wal_is_named_as_rds_has_it() -> None:
    """Only RDS has the dedicated log volume."""
    samples = ticks(60, session("IO:WalSync"), xids=1, wal=100_000_000)
    assert "--dedicated-log-volume" in only(samples, settings={"rds.extensions": "aws_s3"}).remedy
    assert "--dedicated-log-volume" not in only(samples).remedy


@pytest.mark.parametrize(("per_commit", "expected"), [(500_000, "commit-local-flush"), (2_000_000, "wal-write")])
def test_commits_that_write_much_are_not_told_to_write_more(per_commit: int, expected: str) -> None:
    """The flush of 2 MB lasts as long as it is written; one of 0.5 MB is shorter for each row in a larger batch."""
    samples = ticks(60, session("IO:WalSync"), session(), xids=20, wal=20 * per_commit)
    assert codes(samples, cpu_count=4) == [expected]


def bulk(t: int, *, waits_in: int = 2) -> list[SessionSample]:
    """Return four sessions in transactions of a minute, each waiting for a flush in every second sample."""
    waits = ["IO:WalSync" if (t + pid) % waits_in == 0 else None for pid in range(4)]
    return [
        session(wait, pid=10 + pid, application="bulk", query_s=t % 60 + 1.5, transaction_s=t % 60 + 1.5)
        for pid, wait in enumerate(waits)
    ]


def test_bulk_inserts_beside_readers_do_not_wait_for_commits() -> None:
    """Ten SELECTs a second commit, and write nothing: what the inserts wait for ends no transaction."""
    samples = [
        sample(t, *bulk(t), xid=t // 15, wal=100_000_000 * t, counters=database(10 * t, 400_000 * t))
        for t in range(180)
    ]
    assert codes(samples, cpu_count=8) == ["wal-write"]


def test_short_commits_beside_a_bulk_insert_are_judged_by_their_own_transactions() -> None:
    """A thousand rows a second, one to a commit, while a bulk insert writes most of the log."""
    small = session("IO:WalSync", pid=1, application="orders", query_s=0.001, transaction_s=0.001)
    samples = [
        sample(t, *bulk(t)[:2], small, xid=1000 * t, wal=100_000_000 * t, counters=database(1010 * t, 401_000 * t))
        for t in range(180)
    ]
    found = diagnose(recording_of(samples))
    assert [(each.code, round(each.share, 2)) for each in found] == [("commit-local-flush", 0.33), ("wal-write", 0.33)]
    assert "of this, application orders" in [each.name for each in found[0].evidence]


@pytest.mark.parametrize(
    ("method", "expected"), [("open_datasync", ["commit-local-flush"]), ("open_sync", ["commit-local-flush"]),
                             ("fdatasync", []), (None, [])],
)  # fmt: skip
def test_flush_by_a_write_is_the_commits_flush(method: str | None, expected: list[str]) -> None:
    """With wal_sync_method = open_datasync the server shows it as WALWrite."""
    settings = {} if method is None else {"wal_sync_method": method}
    assert codes(ticks(60, session("IO:WALWrite"), session()), settings=settings, cpu_count=4) == expected


def test_autovacuum_does_not_commit_for_clients() -> None:
    """It flushes the log as others do."""
    assert codes(ticks(60, session("IO:WalSync", backend_type="autovacuum worker"))) == []


def test_missing_standbys_are_named_while_they_are_missing() -> None:
    """Until one is lost, commits wait for those that are there."""
    row = {"state": "streaming", "sync_state": "quorum"}
    there = {"pg_stat_replication": ({**row, "application_name": "A1"}, {**row, "application_name": "b1"})}
    lost = {"pg_stat_replication": ({**row, "application_name": "A1"},)}
    waiting = session("IPC:SyncRep")
    # The view is read now and then.
    samples = [
        *ticks(1, waiting, counters=there), *ticks(29, waiting, counters={}),
        *ticks(1, waiting, counters=lost), *ticks(69, waiting, counters={}),
    ]  # fmt: skip
    found = diagnose(recording_of(samples, settings={"synchronous_standby_names": "ANY 2 (a1, b1, c1)"}))
    assert [(each.code, round(each.share, 2)) for each in found] == [("standby-missing", 0.7), ("commit-standby", 0.3)]
    assert "missing: b1, c1" in found[0].claim
    assert "'ANY 2 (a1, b1, c1)'" in found[0].remedy
    assert [number.value for number in found[0].evidence][:2] == [2, 1]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("", (1, ())),
        ("s1", (1, ("s1",))),
        ("s1, s2", (1, ("s1", "s2"))),
        ("2 (s1,s2)", (2, ("s1", "s2"))),
        ("first 2 (s1, s2, *)", (2, ("s1", "s2", "*"))),
        ('ANY 1("my ""a"", b", s2 )', (1, ('my "a", b', "s2"))),
        ("any", (1, ("any",))),
    ],
)
def test_standby_names_are_read_as_the_server_reads_them(value: str, expected: tuple[int, tuple[str, ...]]) -> None:
    """By its documentation of synchronous_standby_names."""
    assert parse_standby_names(value) == expected


def test_hidden_or_unasked_standbys_are_not_missing() -> None:
    """A role without the right sees that they are there, and not in what state."""
    assert find_missing("s1", [{"application_name": "s1", "state": None}]) is None
    assert find_missing("", []) is None
    assert find_missing("2 (A1, b1)", [{"application_name": "a1", "state": "streaming"}]) == (2, 1, ("b1",))
    assert find_missing("*", [{"application_name": "s1", "state": "streaming", "sync_state": "async"}]) == (1, 0, ())


def test_holder_at_the_head_of_a_queue_is_named() -> None:
    """Two wait for the first, and the first for one that does nothing."""
    holder = session(
        "Client:ClientRead", pid=7, state="idle in transaction", application="report", user="bob",
        query="update orders\n set x = ?", query_s=60.0, transaction_s=61.0,
    )  # fmt: skip
    first = session("Lock:transactionid", pid=8, blocked_by=(7,))
    queue = [first, *(session("Lock:tuple", pid=pid, blocked_by=(8,)) for pid in (9, 10))]
    found = only(ticks(30, holder, *queue))
    assert (found.code, found.share) == ("lock-wait", 1.0)
    assert (
        "backend 7 (application report, user bob), idle in transaction, its transaction 1 min 01 s old" in found.claim
    )
    assert "update orders set x = ?" in found.claim
    assert "pg_terminate_backend(7)" in found.remedy


@pytest.mark.parametrize(
    ("state", "held_s", "waits_s", "is_offered"),
    [
        ("active", 60.0, 5.0, True),
        ("active", 0.05, 0.04, False),
        ("active", 2.0, 30.0, False),
        ("idle in transaction", 60.0, 5.0, True),
        ("idle in transaction", 0.05, 0.04, False),
    ],
)
def test_only_a_holder_that_outlasts_who_waits_is_offered_to_be_ended(
    state: str, held_s: float, waits_s: float, *, is_offered: bool
) -> None:
    """A younger one is over by then, and the backend with its pid does something else."""
    holder = session(pid=7, state=state, query_s=held_s, transaction_s=held_s)
    waiting = session("Lock:transactionid", pid=8, blocked_by=(7,), query_s=waits_s)
    found = next(each for each in diagnose(recording_of(ticks(30, holder, waiting))) if each.code == "lock-wait")
    assert ("_backend(7)" in found.remedy) == is_offered


@pytest.mark.parametrize(
    ("blocked_by", "expected"), [((0,), "a prepared transaction"), ((99,), "backend 99"), ((), "one that had ended")]
)
def test_holder_that_no_sample_shows_is_not_made_up(blocked_by: tuple[int, ...], expected: str) -> None:
    """A prepared transaction has no backend."""
    assert expected in only(ticks(30, session("Lock:relation", blocked_by=blocked_by))).claim


def prepared(gid: str, *blocks: int) -> dict[str, Any]:
    return {"gid": gid, "owner": "ann", "datname": "shop", "age_s": 320.0, "xid_age": 9, "blocks": list(blocks)}


@pytest.mark.parametrize(
    ("rows", "named", "others"),
    [
        ([prepared("tx1", 8), prepared("tx2", 90)], ["'tx1'"], ["'tx2'"]),
        # The reading was between two waits.
        ([prepared("tx1")], ["'tx1'"], []),
        ([prepared("tx1"), prepared("tx2")], ["'tx1'", "'tx2'"], []),
    ],
)
def test_prepared_transaction_that_is_waited_for_is_named(
    rows: list[dict[str, Any]], named: list[str], others: list[str]
) -> None:
    """The sessions behind it wait in a chain; no backend is offered to be ended."""
    first, second = session("Lock:transactionid", pid=8, blocked_by=(0,)), session("Lock:tuple", pid=9, blocked_by=(8,))
    samples = [sample(float(t), first, second, counters={"prepared": tuple(rows)}) for t in range(30)]
    found = next(each for each in diagnose(recording_of(samples)) if each.code == "lock-wait")
    assert all(
        f"prepared transaction {gid} (owner ann, database shop), prepared 5 min 20 s ago" in found.claim
        for gid in named
    )
    assert all(f"ROLLBACK PREPARED {gid} in database shop" in found.remedy for gid in named)
    assert all(f"or COMMIT PREPARED {gid}" in found.remedy for gid in named)
    assert not any(gid in found.claim + found.remedy for gid in others)
    assert "_backend(" not in found.remedy


def test_queue_behind_a_prepared_transaction_ends_with_both() -> None:
    """The ALTER TABLE that waits for it is cancelled to let readers pass, and the prepared transaction is ended."""
    gate = session("Lock:relation", pid=8, blocked_by=(0,), query="ALTER TABLE orders ADD c int", query_s=60.0)
    behind = [session("Lock:relation", pid=pid, blocked_by=(8,), query="SELECT FROM orders") for pid in (9, 10, 11)]
    samples = [sample(float(t), gate, *behind, counters={"prepared": (prepared("tx1", 8),)}) for t in range(30)]
    found = next(each for each in diagnose(recording_of(samples)) if each.code == "lock-queue")
    assert "for prepared transaction 'tx1' (owner ann" in found.claim
    assert "pg_cancel_backend(8)" in found.remedy
    assert "ROLLBACK PREPARED 'tx1' in database shop" in found.remedy


def test_of_several_blockers_the_one_that_holds_for_long_is_named() -> None:
    """Not the one before it in the queue, which waits itself."""
    left = session(pid=7, state="idle in transaction", query_s=60.0, transaction_s=60.0)
    young = session(pid=6, query_s=0.1, transaction_s=0.1)
    waiting = [session("Lock:relation", pid=pid, blocked_by=(6, pid - 1, 7)) for pid in (8, 9)]
    assert "backend 7" in only(ticks(30, young, left, *waiting)).claim


def test_holder_that_is_hidden_is_told_as_such() -> None:
    """A role without pg_read_all_stats sees who it is, and not what it does."""
    holder = session(pid=7, state=None, application=None, user="bob", query=None, transaction_s=None)
    claim = only(ticks(30, holder, session("Lock:relation", pid=8, blocked_by=(7,)))).claim
    assert claim.endswith("most of it for backend 7 (user bob), of which this role may see no more")


def test_lock_that_sessions_hold_in_turn_is_no_single_sessions() -> None:
    """Ten sessions update one row: each holds its lock for a moment, and none is waited for most of the time."""
    samples = [
        sample(t, session(pid=20 + t % 10), *(session("Lock:transactionid", pid=pid, blocked_by=(20 + t % 10,))
                                             for pid in (40, 41)))
        for t in range(60)
    ]  # fmt: skip
    found = next(each for each in diagnose(recording_of(samples)) if each.code == "lock-wait")
    assert "which several sessions hold in turn" in found.claim
    assert "backend" not in found.claim
    assert "fewer sessions at a time run the statement that waits" in found.remedy
    numbers = {number.name: number.value for number in found.evidence}
    assert numbers["of this, for the holder that is waited for most"] == pytest.approx(10)


def test_holder_that_lasts_is_named_beside_other_holders() -> None:
    """Three transactions were left open, and each has a row that another session waits for."""
    left = [session(pid=pid, state="idle in transaction", query_s=60.0, transaction_s=60.0) for pid in (7, 8, 9)]
    waiting = [session("Lock:transactionid", pid=pid + 10, blocked_by=(pid,)) for pid in (7, 8, 9)]
    found = only(ticks(30, *left, *waiting))
    assert "the largest part of it for backend 7" in found.claim
    assert "pg_terminate_backend(7)" in found.remedy


def test_idle_session_that_holds_an_advisory_lock_is_told_to_release_it() -> None:
    """Between transactions no other lock can be in the way, and there is no statement to cancel."""
    holder = session("Client:ClientRead", pid=7, state="idle", query_s=60.0, transaction_s=None)
    found = only(ticks(30, holder, session("Lock:advisory", pid=8, blocked_by=(7,), query_s=5.0)))
    assert "backend 7 (application worker, user ann), idle; its statement" in found.claim
    assert "pg_advisory_unlock" in found.remedy
    assert "pg_terminate_backend(7)" in found.remedy


def test_poolers_name_is_told_from_an_applications() -> None:
    """Its clients share it, so that they cannot be told apart."""
    names = [each.name for each in only(ticks(30, session("Lock:extend", application="pgbouncer"))).evidence]
    assert "of this, application pgbouncer (a pooler; its clients have no other name here)" in names


def test_extending_a_table_is_nobodys_lock() -> None:
    """Each that extends it holds that lock for a moment."""
    assert codes(ticks(30, session("Lock:extend"))) == ["relation-extension"]


def test_two_that_wait_for_each_other_end_the_search() -> None:
    """A deadlock, before the server has noticed."""
    pair = [session("Lock:tuple", pid=1, blocked_by=(2,)), session("Lock:tuple", pid=2, blocked_by=(1,))]
    assert codes(ticks(30, *pair)) == ["deadlocks"]


def test_transactions_between_their_statements_are_bound_by_their_client() -> None:
    """As are those that wait in a COPY."""
    between = session("Client:ClientRead", state="idle in transaction", query_s=0.01, transaction_s=0.02)
    found = only(ticks(60, between, session("Client:ClientRead", query="copy t from stdin"), session()))
    assert (found.code, round(found.share, 2), found.samples) == ("client-bound", 0.66, 179)


def test_session_that_uses_a_processor_does_not_wait_for_its_client() -> None:
    """Nine samples of ten show it between two statements, but its backend computes for most of the time."""
    between = session("Client:ClientRead", state="idle in transaction", query_s=0.001, transaction_s=0.002)
    for share, expected in ((0.7, []), (0.2, ["client-bound"])):
        samples = [sample(t, replace(between if t % 10 else session(), cpu_s=share * t)) for t in range(60)]
        assert codes(samples) == expected


@pytest.mark.parametrize(
    ("gap_s", "busy", "own", "expected"),
    [
        (0.001, 1.9, 1.5, []),
        (0.02, 1.9, 1.5, ["client-bound"]),
        (0.001, 1.0, 0.6, ["client-bound"]),
        # Other programs have the processors.
        (0.001, 1.9, 0.3, []),
        (0.02, 1.9, 0.3, ["client-bound", "other-programs"]),
    ],
)
def test_short_gaps_say_nothing_of_clients_while_all_processors_are_busy(
    gap_s: float, busy: float, own: float, expected: list[str]
) -> None:
    """A session whose client has sent the next statement looks so until it gets a processor."""
    between = session("Client:ClientRead", state="idle in transaction", query_s=gap_s / 2, transaction_s=0.1)
    samples = [
        sample(
            t,
            *[between] * 4,
            host_busy_cpus=busy,
            counters={"host_processes": ({"server_cpu_s": own * t, "busy_cpu_s": busy * t},)},
        )
        for t in range(60)
    ]
    assert codes(samples) == expected
    if expected[-1:] == ["other-programs"]:
        rows = ({"of_all": 4, "idle_of_all": 0, "local_of_all": 4},)
        local = [replace(each, counters={**each.counters, "connections": rows}) for each in samples]
        found = [diagnose(recording_of(each))[0] for each in (samples, local)]
        assert [each.confidence for each in found] == ["high", "low"]
        assert ["may wait for a processor" in (each.remedy or "") for each in found] == [False, True]


def test_gaps_between_statements_name_the_network_below_one_active_session() -> None:
    """One session, a transaction a second, 40 ms from one statement to the next: a sample is in the middle of one."""
    between = session("Client:ClientRead", state="idle in transaction", query_s=0.02, transaction_s=0.1)
    found = only(ticks(60, between))
    assert (found.code, found.share) == ("client-bound", 1.0)
    numbers = {each.name: each.value for each in found.evidence}
    assert numbers["from one statement of a transaction to the next, about"] == pytest.approx(40)
    assert "It takes about 40.0 ms" in found.remedy
    assert "it is the network" in found.remedy
    assert "it is the network" not in only(ticks(60, session("Client:ClientRead", query_s=9.0))).remedy


def test_short_statement_that_seems_to_wait_for_its_client_has_ended() -> None:
    """The server reads its state before its wait: on a busy machine it is idle by then."""
    assert codes(ticks(60, session("Client:ClientRead", query_s=0.002))) == []
    assert codes(ticks(60, session("Client:ClientRead", query_s=2.0))) == ["client-bound"]


def test_client_that_reads_slowly_is_not_told_to_send_more() -> None:
    """The server waits until its result is read."""
    found = only(ticks(60, session("Client:ClientWrite", query="COPY t TO STDOUT", query_s=9.0)))
    assert found.code == "client-bound"
    assert "select only the rows and columns" in found.remedy
    assert "send more" not in found.remedy
    sends = only(ticks(60, session("Client:ClientRead", query="COPY t FROM STDIN", query_s=9.0)))
    assert "send more in a statement" in sends.remedy


def test_one_transaction_between_its_statements_is_no_workload() -> None:
    """It is as old as the recording, however it is spent."""
    samples = [
        sample(t, session("Client:ClientRead", state="idle in transaction", transaction_s=t + 1.0)) for t in range(60)
    ]
    assert codes(samples) == []


def test_session_that_was_left_in_a_transaction_is_not_its_clients_work() -> None:
    """It is idle for long: nothing waits for it to be faster."""
    left = session("Client:ClientRead", state="idle in transaction", query_s=600.0, transaction_s=601.0)
    assert codes(ticks(60, left)) == []


def test_sessions_without_waits_on_all_processors_are_bound_by_them() -> None:
    """Unless the host says that it has time."""
    running = [session(), session()]
    assert codes(ticks(60, *running)) == ["cpu-bound"]
    assert codes(ticks(60, *running, host_busy_cpus=1.9)) == ["cpu-bound"]
    assert codes(ticks(60, *running, host_busy_cpus=0.3)) == []
    assert codes(ticks(60, session())) == []
    assert codes(ticks(60, *running), cpu_count=None) == []


def test_waits_that_the_host_contradicts_are_pointed_at_last() -> None:
    """The article's puzzle: three of four samples wait, and a processor is busy all the time."""

    def seen(busy: float) -> list[Sample]:
        waits = ["IO:XactSync", "IO:XactSync", "IO:WALWrite", None]
        return [each for t in range(80) for each in ticks(1, session(waits[t % 4]), host_busy_cpus=busy)]

    assert codes(seen(1.0)) == ["commit-aurora-storage", "waits-disagree-with-cpu"]
    assert codes(seen(0.3)) == ["commit-aurora-storage"]


def under_load(own: float, others: float, *sessions: SessionSample) -> list[Sample]:
    """Return a minute in which the server and other programs use so many of two processors."""
    used = [{"server_cpu_s": own * t, "busy_cpu_s": (own + others) * t} for t in range(60)]
    return [
        sample(
            t, *sessions, host_busy_cpus=own + others, counters={"host_processes": (used[t],)} if t % 10 == 9 else {}
        )
        for t in range(60)
    ]


def test_other_programs_are_named_once_and_last() -> None:
    """Their processors are no waits that disagree."""
    found = diagnose(recording_of(under_load(0.1, 1.4, session("IO:XactSync"))))
    assert [each.code for each in found] == ["commit-aurora-storage", "other-programs"]
    assert found[1].claim == "other programs use 1.4 of 2 processors"
    assert codes(under_load(0.1, 0.4, session("IO:XactSync"))) == ["commit-aurora-storage"]


def test_clients_of_this_server_may_be_the_other_programs() -> None:
    """Its own clients run on its machine: what they use is not known apart."""
    samples = under_load(1.3, 0.7, session("IO:XactSync"))
    rows = ({"of_all": 4, "idle_of_all": 0, "local_of_all": 4},)
    local = [replace(each, counters={**each.counters, "connections": rows}) for each in samples]
    found = [diagnose(recording_of(each))[-1] for each in (samples, local)]
    assert [(each.code, each.confidence) for each in found] == [("other-programs", "high"), ("other-programs", "low")]
    assert found[1].claim.endswith("perhaps this server's own clients among them")


def test_other_programs_alone_are_no_finding() -> None:
    """Nor are waits that disagree with the processors."""
    assert codes(under_load(0.1, 1.4, session())) == []
    assert codes(ticks(60, session("IPC:BgWorkerStartup"), host_busy_cpus=2.0)) == []


def test_sessions_that_others_keep_from_the_processors_are_not_bound_by_their_own_work() -> None:
    """Two light sessions are slowed by other programs; four that compute get their part beside them."""
    assert codes(under_load(0.3, 1.7, session(), session())) == ["other-programs"]
    computing = [session(pid=pid) for pid in range(1, 5)]
    assert codes(under_load(1.3, 0.7, *computing)) == ["cpu-bound", "other-programs"]


def test_what_others_take_can_be_gained_whoever_they_are() -> None:
    """A session gets three tenths of a processor where there are two; its client may be what takes the rest."""
    rows = ({"of_all": 4, "idle_of_all": 0, "local_of_all": 4},)
    local = [replace(each, counters={**each.counters, "connections": rows}) for each in under_load(0.3, 1.7, session())]
    found = only(local)
    assert (found.code, found.confidence, found.bound) == ("other-programs", "low", pytest.approx(0.7))
    # It uses what it is seen to compute: it waits for nobody.
    assert codes(under_load(0.75, 1.25, session())) == []


@pytest.mark.parametrize("wait", ["Extension:DblinkGetResult", "Extension:Extension", "Timeout:PgSleep"])
def test_statements_that_wait_elsewhere_are_named_with_their_wait(wait: str) -> None:
    """Such as a trigger that asks another server."""
    found = only(ticks(60, session(wait), session()), cpu_count=4)
    assert (found.code, found.share) == ("outside-wait", 0.5)
    assert wait in found.claim
    # This sleeps on purpose.
    sleeps = session("Timeout:PgSleep", query="CALL work_and_sleep()")
    assert codes(ticks(60, sleeps, session()), cpu_count=4) == []


def test_nothing_is_found_in_nothing() -> None:
    """No samples, no sessions."""
    assert diagnose(recording_of([])) == ()
    assert codes(ticks(60)) == []


def test_sessions_of_other_applications_do_not_count_but_are_seen_as_holders() -> None:
    """The header names the workload's application: a prefix, because a load numbers its sessions."""
    holder = session(pid=7, application="report", state="idle in transaction", transaction_s=100.0)
    loader = session("Lock:relation", pid=1, application="penstock load 1", blocked_by=(7,))
    others = [session("IPC:SyncRep", pid=20 + each, application="report") for each in range(9)]
    found = only(ticks(30, loader, holder, *others), application="penstock load")
    assert (found.code, found.share, found.samples) == ("lock-wait", 1.0, 30)
    assert "backend 7 (application report" in found.claim


def test_one_copy_that_computes_needs_more_sessions() -> None:
    """It uses one of two processors; with as many as there are processors, these are the limit."""
    copying = session(query="COPY t FROM STDIN")
    assert codes(ticks(60, copying)) == ["few-sessions"]
    # Other programs have the processors that more sessions would use.
    assert codes(under_load(0.3, 1.7, copying)) == ["other-programs"]
    assert codes(ticks(60, copying, copying)) == ["cpu-bound"]
    assert codes(ticks(60, session(query="SELECT sum(n) FROM t"))) == []
    # What reads is no load: penstock load does not help it.
    assert codes(ticks(60, session(query="COPY t TO STDOUT"))) == []
    assert codes(ticks(60, session(query="COPY (SELECT * FROM t) TO STDOUT"))) == []
    assert codes(ticks(60, session(query="COPY t (a, b) FROM STDIN WITH (FORMAT csv)"))) == ["few-sessions"]


def test_copy_whose_text_is_cut_off_before_from_or_to_is_told_by_its_progress() -> None:
    """As that of a table of a hundred columns, by pg_dump or by a load."""
    copying = session(query="COPY t (column_with_number_1, column_with_num")
    for command, expected in (("COPY FROM", ["few-sessions"]), ("COPY TO", [])):
        rows = ({"pid": copying.pid, "command": command},)
        assert codes(ticks(60, copying, counters={"pg_stat_progress_copy": rows})) == expected


@pytest.mark.parametrize("statement", ["CREATE INDEX i ON orders (note)", "reindex table orders", "CLUSTER orders"])
@pytest.mark.parametrize("wait", [None, "IO:BufFileWrite"])
def test_builds_are_told_nothing_about_sort_order_or_work_mem(statement: str, wait: str | None) -> None:
    """They compute and spill once, with maintenance_work_mem."""
    building = [session(wait, pid=pid, query=statement) for pid in (7, 8)]
    assert codes(ticks(60, *building)) == []


def test_clients_that_have_little_to_do_are_no_limit() -> None:
    """A transaction waits for its client in every fifth sample, and nobody else is active."""
    between = [
        session("Client:ClientRead", pid=7, state="idle in transaction", query_s=0.01 * t % 0.2, transaction_s=0.3)
        for t in range(100)
    ]
    samples = [sample(float(t), *([between[t]] if t % 5 == 0 else [])) for t in range(100)]
    assert codes(samples) == []


def test_workers_of_autovacuum_are_no_active_time() -> None:
    """A COPY that waits for its disk waits all the time, whatever a worker beside it does."""
    worker = session("Timeout:VacuumDelay", pid=9, backend_type="autovacuum worker", query="autovacuum: VACUUM a.b")
    found = only(ticks(60, worker, session("IO:WalSync", pid=7)))
    assert (found.code, found.share) == ("commit-local-flush", 1.0)


@pytest.mark.parametrize(
    ("version", "slots"), [(170_002, "before PostgreSQL 18 a session has 16"), (180_004, "a larger max_locks_per_tra")]
)
def test_lock_manager_is_relieved_by_fewer_locks_and_not_by_options_of_a_load(version: int, slots: str) -> None:
    """Sixty-four partitions, of which each statement locks all."""
    found = only(ticks(60, session("LWLock:LockManager")), version_num=version)
    assert "Name the partition key in the WHERE" in (found.remedy or "")
    assert slots in (found.remedy or "")
    assert "--sessions" not in (found.remedy or "")


@pytest.mark.parametrize(
    ("images", "expected", "unsaid"),
    [(0, "9 checkpoints were forced in 59.0 s", "wal_compression"), (3000, "wal_compression makes", "were forced")],
)
def test_wal_write_speaks_of_full_page_images_only_where_there_are_some(
    images: int, expected: str, unsaid: str
) -> None:
    """Without them, larger max_wal_size gains little, which is said."""
    samples = [
        sample(
            float(t),
            session("IO:WalSync", transaction_s=30.0),
            wal=10**8 * t,
            counters={
                "pg_stat_wal": ({"wal_fpi": images * t, "wal_bytes": 10**8 * t},),
                "pg_stat_checkpointer": ({"num_requested": t // 6, "num_timed": 0},),
            },
        )
        for t in range(60)
    ]
    found = diagnose(recording_of(samples, settings={"max_wal_size": "64MB"}))
    remedy = next(each.remedy for each in found if each.code == "wal-write") or ""
    assert expected in remedy
    assert unsaid not in remedy
