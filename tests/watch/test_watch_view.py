"""What a screen and a line show of samples."""

from __future__ import annotations

from dataclasses import replace

from penstock.watch.view import View, as_object, describe_line, draw_screen
from support.made_samples import HEADER, sample, session


def test_standby_is_behind_by_what_it_has_not_replayed() -> None:
    """One whose replay is paused has all of the log, and shows old rows; a receiver replays nothing at all."""
    rows = (
        {"application_name": "paused", "sync_state": "async", "flush_lsn": "0/2000", "replay_lsn": "0/1000"},
        {"application_name": "receiver", "sync_state": "async", "flush_lsn": "0/1F00", "replay_lsn": None},
        {"application_name": "hidden", "sync_state": None, "flush_lsn": None, "replay_lsn": None},
    )
    view = View.of(HEADER, [sample(0.0, wal=0x2000, counters={"pg_stat_replication": rows})])
    assert as_object(view)["standbys"] == [
        {"name": "paused", "state": "async", "behind_bytes": 0x1000},
        {"name": "receiver", "state": "async", "behind_bytes": 0x100},
        {"name": "hidden", "state": "hidden", "behind_bytes": None},
    ]
    assert "standbys up to 4.10 kB behind" in describe_line(view)


def test_screen_has_running_statements_once_and_what_is_in_use_on_80_columns() -> None:
    """The longest of each text with its pid; connections, idle transactions, hits, temporary bytes."""
    header = replace(HEADER, settings={"max_connections": "100", "superuser_reserved_connections": "3"})
    scan = {"query": "SELECT * FROM orders WHERE note = ?", "database": "shop", "user": "ann"}
    sessions = (
        session("IO:DataFileRead", pid=7, query_s=12.0, **scan),
        session(pid=8, query_s=15.0, leader_pid=7, backend_type="parallel worker", **scan),
        session(pid=9, query_s=3.0, query="COPY target FROM STDIN"),
        session(pid=10, state="idle in transaction"),
    )
    counted = [
        {"pg_stat_database": ({"datname": "shop", "blks_read": 10 * t, "blks_hit": 90 * t, "temp_bytes": 5000 * t},)}
        for t in (1, 2)
    ]
    counted[1]["connections"] = ({"of_all": 11},)
    view = View.of(header, [sample(float(t), *sessions, counters=counters) for t, counters in enumerate(counted)])
    shown = as_object(view)
    assert [(each["pid"], each["query_s"], each["wait"], each["sessions"]) for each in shown["running"]] == [
        (7, 12.0, "IO:DataFileRead", 2),
        (9, 3.0, "CPU", 1),
    ]
    assert shown["in_use"] == {
        "connections": 12,
        "allowed_connections": 97,
        "idle_in_transaction": 1,
        "cache_hits": 0.9,
        "temp_bytes_per_s": 5000.0,
    }
    lines = [
        "".join(text for text, _ in line) for line in draw_screen(view, width=80, height=24, by_name=False, remark="")
    ]
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
    assert "12 of 97 connections; 1 idle in transaction; 90.0% cache hits; 5.00 kB/s to" in "\n".join(lines)
    (row,) = [line for line in lines if line.startswith("       7 ")]
    assert row.startswith("       7   12.0 s    67%  shop/ann       IO:DataFileRead   (2 sessions) SELECT")
