"""What a screen and a line show of samples."""

from __future__ import annotations

from penstock.watch.view import View, as_object, describe_line
from support.made_samples import HEADER, sample


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
