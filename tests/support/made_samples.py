"""Samples as a recording has them, made up."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock.watch.values import Progress, Recording, RecordingHeader, Sample, SessionSample

if TYPE_CHECKING:
    from collections.abc import Sequence

HEADER = RecordingHeader(
    started_at="2026-01-01T00:00:00.000+00:00",
    clock_ahead_s=0.0,
    interval_s=1.0,
    version="18.4",
    version_num=180_004,
    flavour="postgresql",
    server="host=db1",
    database="shop",
    is_in_recovery=False,
    cpu_count=2,
    has_query_text=False,
)

SESSION = SessionSample(
    pid=1,
    backend_type="client backend",
    leader_pid=None,
    database="shop",
    user="ann",
    application="worker",
    state="active",
    wait_event_type=None,
    wait_event=None,
    query_id=None,
    query="insert into demo values (?, ?)",
    query_s=0.1,
    transaction_s=0.1,
    xid_age=None,
)


def session(wait: str | None = None, **more: Any) -> SessionSample:
    """Return an active session; `wait` is as IO:WalSync."""
    kind, _, event = (wait or "").partition(":")
    return replace(SESSION, wait_event_type=kind or None, wait_event=event or None, **more)


def sample(at_s: float, *sessions: SessionSample, xid: int = 0, wal: int = 0, **more: Any) -> Sample:
    """Return a sample of one second; sessions of one pid get pids of their own."""
    pids = [each.pid for each in sessions]
    apart = (
        replace(each, pid=1000 + number) if each.pid in pids[:number] else each for number, each in enumerate(sessions)
    )
    return Sample(
        at_s=at_s,
        interval_s=more.pop("interval_s", 1.0),
        sessions=tuple(apart),
        progress=Progress(wal_bytes=wal, next_xid=xid),
        **more,
    )


def database(commits: int, rows: int = 0, rollbacks: int = 0, **more: Any) -> dict[str, tuple[dict[str, Any], ...]]:
    """Return the counters of one database."""
    row = {"datname": "shop", "xact_commit": commits, "xact_rollback": rollbacks, "tup_inserted": rows}
    return {"pg_stat_database": ({**row, "tup_updated": 0, "tup_deleted": 0, **more},)}


def recording_of(samples: Sequence[Sample], **header: Any) -> Recording:
    """Return a recording of these samples."""
    return Recording(header=replace(HEADER, **header), samples=tuple(samples), is_whole=True)
