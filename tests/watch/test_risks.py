"""What made-up readings say of what will stop a server: only near a limit, with the time until it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from penstock.diagnose.command import describe_risks
from penstock.preflight.findings import describe_verdict
from penstock.watch.holders import find_holder, release_holder
from penstock.watch.risks import RiskMeter, stops_soon
from penstock.watch.view import View, as_object, describe_line
from support.made_samples import HEADER, sample

if TYPE_CHECKING:
    from penstock.core.values.diagnosis import Diagnosis

SETTINGS = {
    "autovacuum_freeze_max_age": "200000000",
    "autovacuum_multixact_freeze_max_age": "400000000",
    "max_connections": "100",
    "superuser_reserved_connections": "3",
    "max_wal_size": "1GB",
    "max_slot_wal_keep_size": "-1",
}
GB = 10**9
STALE = {"seq_scan": 9, "is_analyzed": True, "n_live_tup": 20_000, "n_mod_since_analyze": 40_000}
SPILLED = {"spill_bytes": 0, "total_bytes": 0}


def found_in(view: str, *readings: dict[str, Any], every_s: float = 60.0, **settings: str) -> list[Diagnosis]:
    """Return the risks of a row of a view, read once a minute."""
    meter = RiskMeter({**SETTINGS, **settings})
    for number, row in enumerate(readings):
        meter.see(sample(number * every_s, counters={view: (row,)}))
    return list(meter.result())


def test_numbers_that_grow_for_long_are_named_from_a_tenth_on() -> None:
    """Within a day, but not later."""
    for at_first, codes in ((20_000_000, ["transaction-age"]), (54_000_000, [])):
        found = found_in("database_ages", age(at_first), age(56_000_000), every_s=10_000.0)
        assert [each.code for each in found] == codes


def age(xids: int, mxids: int = 0, **more: Any) -> dict[str, Any]:
    return {"datname": "shop", "xid_age": xids, "mxid_age": mxids, "checksum_failures": 0, **more}


@pytest.mark.parametrize(
    ("readings", "expected"),
    [
        ([age(19_000_000), age(19_900_000)], None),
        ([age(21_000_000), age(21_000_000)], None),
        ([age(30_000_000), age(29_000_000)], None),
        ([age(31_000_000), age(31_060_000)], None),
        # Ten thousand a second in this minute: what goes on for hours is seen in more than a minute.
        ([age(29_400_000), age(30_000_000)], None),
        (
            [age(100_000_000), age(120_000_000)],
            "database shop has 120,000,000 of 200,000,000 transactions (60 %), reached in 4 min 00 s at this rate",
        ),
        ([age(170_000_000)], "transaction-age: database shop has 170,000,000 of 200,000,000 transactions (85 %); then"),
        (
            [age(205_000_000)],
            "transaction-age: database shop has 205,000,000 of 200,000,000 transactions (102 %); then",
        ),
        ([age(429_000_000)], "429,000,000 of 2,144,483,648 transactions (20 %); then no transaction may write"),
        ([age(0, 1_000_000_000)], "multixact-age: database shop has 1,000,000,000 of 2,144,483,648 multixacts (47 %)"),
        ([age(0, checksum_failures=2)], "checksum-failures: database shop has 2 reads of pages with a wrong checksum"),
        # Only its own VACUUM hinders: nobody connects to template0.
        ([age(170_000_000, datallowconn=False)], None),
        ([age(429_000_000, datallowconn=False)], "429,000,000 of 2,144,483,648 transactions (20 %); then no tran"),
    ],
)
def test_ages_are_held_against_autovacuum_and_then_against_the_stop(
    readings: list[dict[str, Any]], expected: str | None
) -> None:
    """Below a tenth nothing is named, nor what does not grow or is far away for what was recorded."""
    found = [each.headline for each in found_in("database_ages", *readings)]
    assert len(found) == (expected is not None)
    assert expected is None or expected in found[0]


@pytest.mark.parametrize(
    ("row", "remedy"),
    [
        (age(170_000_000), "VACUUM (FREEZE) the oldest tables (age(relfrozenxid) in pg_class)"),
        (age(429_000_000), "VACUUM the oldest tables (age(relfrozenxid) in pg_class), without FULL and FREEZE"),
        (age(0, 1_000_000_000), "VACUUM the oldest tables (age(relminmxid) in pg_class), without FULL and FREEZE"),
    ],
)
def test_rows_are_frozen_before_the_limit_and_no_more_than_needed_after_it(row: dict[str, Any], remedy: str) -> None:
    """A holder that is older than half of the limit is named first."""
    holder = {"kind": "slot", "name": "s1", "state": "inactive", "xid_age": 120_000_000}
    meter = RiskMeter(SETTINGS)
    meter.see(sample(0.0, counters={"database_ages": (row,), "xmin_holders": (holder,)}))
    (risk,) = meter.result()
    assert risk.remedy.startswith("First end what keeps rows from being frozen: slot s1, inactive, 120,000,000 tran")
    assert remedy in risk.remedy


@pytest.mark.parametrize(
    ("holder", "expected"),
    [
        ({"kind": "backend", "pid": 7, "state": "idle in transaction"}, "pg_terminate_backend(7)"),
        ({"kind": "backend", "pid": 7, "state": "active"}, "pg_cancel_backend(7)"),
        ({"kind": "slot", "name": "s1", "state": "inactive"}, "pg_drop_replication_slot('s1')"),
        ({"kind": "slot", "name": "s1", "state": "active"}, "End the long query on this standby"),
        ({"kind": "slot", "name": "s1", "state": "active", "is_catalog": True}, "See why the consumer of this slot"),
    ],
)
def test_what_holds_xmin_is_ended_as_its_state_allows(holder: dict[str, Any], expected: str) -> None:
    """A slot that is in use cannot be dropped, and a statement can be cancelled without its session."""
    assert expected in release_holder(holder)


@pytest.mark.parametrize(
    ("row", "is_near"),
    [(age(1_900_000_000), True), (age(429_000_000), False), (age(190_000_000), False), (age(0, 1_900_000_000), True)],
)
def test_server_that_soon_stops_is_told_from_one_that_freezes(row: dict[str, Any], *, is_near: bool) -> None:
    """Doctor does not say that such a server is ready."""
    found = found_in("database_ages", row)
    assert [stops_soon(each) for each in found] == [is_near]
    assert ("first mend what will soon stop the server" in describe_verdict(found)) == is_near


BACKEND = {"kind": "backend", "pid": 7, "state": "active", "xid_age": 1_900_000_000}


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        # A snapshot of the moment has the same xmin as what holds it.
        ([{**BACKEND, "age_s": 0.0}, {**BACKEND, "pid": 8, "age_s": 9000.0}], 8),
        ([{**BACKEND, "age_s": 0.0}], None),
        ([{**BACKEND, "age_s": 9000.0}, {**BACKEND, "pid": 8, "age_s": 30.0, "is_owner": True}], 8),
        ([{**BACKEND, "age_s": 9000.0}, {"kind": "prepared", "name": "a", "xid_age": 1_900_000_000}], None),
        ([{**BACKEND, "age_s": 9000.0}, {"kind": "slot", "name": "s", "xid_age": 1_900_000_000}], None),
    ],
)
def test_of_holders_of_one_age_the_owner_of_the_id_is_named(rows: list[dict[str, Any]], expected: int | None) -> None:
    """A statement that cancels a backend is offered for the holder alone."""
    holder = find_holder(rows)
    assert (None if holder is None else holder.get("pid")) == expected


def slot(kept_mb: int, **more: Any) -> dict[str, Any]:
    return {"name": "it's", "is_active": False, "wal_status": "reserved", "retained_bytes": kept_mb * 10**6, **more}


@pytest.mark.parametrize(
    ("readings", "settings", "expected"),
    [
        ([slot(90), slot(95)], {}, None),
        ([slot(300), slot(300)], {}, None),
        ([slot(300, is_active=True), slot(2100, is_active=True)], {}, None),
        ([slot(300), slot(2100, wal_status="lost")], {}, None),
        ([slot(300), slot(2100)], {}, "not in use, has 2.10 GB; it grows by 30.0 MB/s until the disk is full"),
        ([slot(2100)], {}, "not in use, has 2.10 GB; it grows until the disk is full"),
        ([slot(1050)], {"max_wal_size": "100GB"}, None),
        ([slot(1100)], {"max_wal_size": "100GB"}, "not in use, has 1.10 GB; it grows until the disk is full"),
        (
            [slot(300), slot(2100)],
            {"max_slot_wal_keep_size": "4GB"},
            "has 2.10 GB of 4.29 GB (49 %), reached in 1 min 13 s at this rate; then the slot is lost",
        ),
        # Its consumer calls pg_logical_slot_get_changes again and again, or has not done so.
        ([slot(300, unconfirmed_bytes=0), slot(2100, unconfirmed_bytes=90 * 10**6)], {}, None),
        ([slot(300, unconfirmed_bytes=0), slot(2100, unconfirmed_bytes=1800 * 10**6)], {}, "it grows by 30.0 MB/s"),
        ([slot(4000, is_active=True)], {"max_slot_wal_keep_size": "4GB"}, "in use, has 4.00 GB of 4.29 GB (93 %)"),
    ],
)
def test_slots_that_nobody_uses_keep_wal_until_a_limit(
    readings: list[dict[str, Any]], settings: dict[str, str], expected: str | None
) -> None:
    """One that is used may be behind for a moment."""
    found = found_in("slots", *readings, **settings)
    assert len(found) == (expected is not None)
    assert expected is None or expected in found[0].headline
    for each in found:
        assert ("pg_drop_replication_slot('it''s')" in each.remedy) == ("not in use" in each.claim)


def test_time_until_the_disk_of_the_wal_is_full_counts_its_free_space() -> None:
    """As the device of pg_wal has it."""
    numbers = ("at_s", "reads", "read_bytes", "read_s", "writes", "write_bytes", "write_s", "busy_s", "queue_s")
    device = {"tablespace": "pg_wal", "device": "vdb", "size_bytes": 100 * GB, **dict.fromkeys(numbers, 0)}
    meter = RiskMeter(SETTINGS)
    for at_s, kept_mb, free in ((0.0, 300, 50 * GB), (60.0, 2100, 48 * GB)):
        rows = ({**device, "at_s": at_s, "free_bytes": free},)
        failing = ({"lag_bytes": kept_mb * 10**6, "last_failed_at_s": 2.0, "last_archived_at_s": 1.0},)
        meter.see(sample(at_s, counters={"slots": (slot(kept_mb),), "archiver": failing, "host_devices": rows}))
    for risk in meter.result():
        assert risk.code in {"slot-keeps-wal", "archiver-keeps-wal"}
        assert "has 2.10 GB of 50.1 GB (4 %), reached in 26 min 40 s at this rate" in risk.headline
    assert len(meter.result()) == 2


@pytest.mark.parametrize(
    ("view", "first", "last", "code"),
    [
        ("connections", {"of_all": 70}, {"of_all": 20}, None),
        ("connections", {"of_all": 89}, {"of_all": 20}, "connections"),
        # Workers of autovacuum and of parallel queries take no connections.
        ("pg_stat_database", {"numbackends": 90}, {"numbackends": 90}, None),
        ("sequences", {"last_value": 200_000_000}, {"last_value": 201_000_000}, None),
        ("sequences", {"last_value": 1_000_000_000}, {"last_value": 1_000_000_000}, None),
        ("sequences", {"last_value": 1_000_000_000}, {"last_value": 1_001_000_000}, None),
        ("sequences", {"last_value": 1_000_000_000}, {"last_value": 1_200_000_000}, "sequence-end"),
        # It began there, and was used for the first time.
        ("sequences", {"last_value": None}, {"last_value": 1_200_000_000}, None),
        ("sequences", {"last_value": None}, {"last_value": 2_000_000_000}, "sequence-end"),
        ("pg_stat_slru", {"blks_read": 0, "blks_hit": 0}, {"blks_read": 60_000, "blks_hit": 6_000_000}, None),
        ("pg_stat_slru", {"blks_read": 0, "blks_hit": 0}, {"blks_read": 600, "blks_hit": 0}, None),
        ("pg_stat_slru", {"blks_read": 0, "blks_hit": 0}, {"blks_read": 60_000, "blks_hit": 60_000}, "slru-misses"),
        ("pg_stat_replication_slots", SPILLED, {"spill_bytes": GB, "total_bytes": 99 * GB}, None),
        ("pg_stat_replication_slots", SPILLED, {"spill_bytes": GB, "total_bytes": GB}, "decoding-spills"),
        ("pg_stat_user_tables", {"seq_scan": 1}, {"seq_scan": 1, "is_analyzed": False, "n_live_tup": 20_000}, None),
        ("pg_stat_user_tables", {"seq_scan": 1}, {"seq_scan": 9, "is_analyzed": True, "n_live_tup": 20_000}, None),
        ("pg_stat_user_tables", {"seq_scan": 1}, {"seq_scan": 9, "is_analyzed": False, "n_live_tup": 9000}, None),
        ("pg_stat_user_tables", {"seq_scan": 1}, {**STALE, "analyzed_s": 400.0}, "stale-statistics"),
        # Autovacuum will come; it is changed by half; nobody reads it.
        ("pg_stat_user_tables", {"seq_scan": 1}, {**STALE, "analyzed_s": 40.0}, None),
        ("pg_stat_user_tables", {"seq_scan": 1}, {**STALE, "n_mod_since_analyze": 10_000}, None),
        ("pg_stat_user_tables", {"seq_scan": 9}, {**STALE, "analyzed_s": 400.0}, None),
        (
            "pg_stat_user_tables",
            {"seq_scan": 1},
            {"seq_scan": 9, "is_analyzed": False, "n_live_tup": 20_000},
            "never-analyzed",
        ),
        (
            "pg_stat_user_tables",
            {"seq_scan": 1, "schemaname": "pg_temp_3"},
            {"seq_scan": 9, "schemaname": "pg_temp_3", "is_analyzed": False, "n_live_tup": 20_000},
            None,
        ),
        ("archiver", {}, {"lag_bytes": GB}, None),
        ("archiver", {}, {"lag_bytes": 2 * GB}, "archiver-keeps-wal"),
        ("invalid_indexes", {"indexrelname": "other"}, {"indexrelname": "i"}, None),
        ("invalid_indexes", {"indexrelname": "i"}, {"indexrelname": "i"}, "invalid-index"),
    ],
)
def test_other_risks_are_named_from_a_part_of_their_limits(
    view: str, first: dict[str, Any], last: dict[str, Any], code: str | None
) -> None:
    """Each beside a counterpart that is healthy."""
    more = {"last_possible": 2**31 - 1} if view == "sequences" else {}
    assert [each.code for each in found_in(view, {**first, **more}, {**last, **more})] == (
        [] if code is None else [code]
    )


def test_a_risk_is_shown_in_a_block_a_line_and_an_object() -> None:
    """By `diagnose`, by `watch` without a terminal, and by `watch --json`."""
    (risk,) = found_in("connections", {"of_all": 89})
    assert describe_risks([risk])[1:3] == [
        "Nobody waits for this yet:",
        "   connections  the server has 90 of 97 connections (93 %); then ordinary roles may not connect",
    ]
    assert describe_risks([]) == []
    view = View.of(HEADER, [sample(0.0)], (risk,))
    assert "risks: connections" in describe_line(view)
    (shown,) = as_object(view)["risks"]
    assert isinstance(shown, dict)
    assert (shown["code"], shown["severity"]) == ("connections", "warning")
    assert [(each["name"], each["value"]) for each in shown["evidence"]] == [("now", 90), ("limit", 97)]
