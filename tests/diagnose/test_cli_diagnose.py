"""`penstock diagnose`: a screen and an object of a recording, and what is none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.core.values.server import Unread
from penstock.watch.recordings import Recorder
from support.made_samples import database, recording_of, sample, session

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from penstock.watch.values import Recording, SessionSample
    from support.command import Finished


def write(path: Path, recorded: Recording) -> str:
    """Write a recording, and return its path."""
    with Recorder(path, recorded.header) as recorder:
        for each in recorded.samples:
            recorder.write(each)
    return str(path)


def recorded(*sessions: SessionSample, count: int = 100, busy: float = 2.0) -> Recording:
    """Return a recording whose samples all see the same."""
    samples = [
        sample(t, *sessions, xid=100 * t, wal=17_000 * t, counters=database(100 * t, 100 * t), host_busy_cpus=busy)
        for t in range(count)
    ]
    return recording_of(samples, unread=(Unread(what="pg_stat_statements", why="not installed"),))


EVERYTHING = [session("IO:WalSync"), session("IPC:SyncRep"), session("Lock:tuple", blocked_by=(9,))]


def test_screen_has_a_block_for_each_finding(penstock: Callable[..., Finished], tmp_path: Path) -> None:
    """The numbers of one line up, and all of it fits a screen."""
    shown = penstock("diagnose", write(tmp_path / "F", recorded(*EVERYTHING, session("IO:XactSync"))))
    assert shown.code == 0
    lines = shown.out.splitlines()
    assert len(lines) <= 60
    assert max(map(len, lines)) <= 110
    assert "Could not be read: pg_stat_statements: not installed" in lines
    assert "1  commit-local-flush, confidence high" in lines
    assert "   25 % of active time waits until the server's own disk has flushed the WAL of commits" in lines
    numbers = lines[6:13]
    assert numbers[1].split() == ["commits", "100.00", "/s"]
    assert len({line.index(".") for line in numbers}) == 1
    assert lines[-1] == "1 more: --json"


def test_object_has_all_findings(penstock: Callable[..., Finished], tmp_path: Path) -> None:
    """With every field of a diagnosis."""
    found = penstock("diagnose", write(tmp_path / "F", recorded(*EVERYTHING)), "--json").object
    assert [each["code"] for each in found["diagnoses"]] == ["commit-local-flush", "commit-standby", "lock-wait"]
    first = found["diagnoses"][0]
    assert set(first) == {
        "code", "claim", "severity", "detail", "share", "bound", "evidence", "samples", "confidence", "remedy", "proof",
        "source",
    }  # fmt: skip
    assert {"name": "commits", "value": 100.0, "unit": "/s"} in first["evidence"]
    assert found["is_whole"] is True
    assert found["unread"] == [{"what": "pg_stat_statements", "why": "not installed"}]


def test_unremarkable_workload_shows_its_waits(penstock: Callable[..., Finished], tmp_path: Path) -> None:
    """There is nothing to remedy."""
    shown = penstock("diagnose", write(tmp_path / "F", recorded(session("IPC:BgWorkerStartup"), busy=0.1)))
    assert "No findings." in shown.out
    assert shown.out.splitlines()[-1].split() == ["IPC:BgWorkerStartup", "1.00", "100", "%"]


def test_idle_server_has_no_table_of_waits(penstock: Callable[..., Finished], tmp_path: Path) -> None:
    """No session was active, so there is nothing below the heading."""
    shown = penstock("diagnose", write(tmp_path / "F", recorded(busy=0.1)))
    assert shown.out.splitlines()[-1] == "No findings."


def test_role_that_sees_itself_only_cannot_tell(penstock: Callable[..., Finished], tmp_path: Path) -> None:
    """Others' sessions are there, and whatever they wait for is hidden: no findings would be a claim."""
    hidden = session(state=None, backend_type=None, transaction_s=None, query_s=None, query=None)
    path = write(tmp_path / "F", recorded(session("IPC:BgWorkerStartup"), hidden, busy=0.1))
    shown = penstock("diagnose", path)
    assert "Cannot tell" in shown.out
    assert "No findings" not in shown.out
    assert penstock("diagnose", path, "--json").object["hides_sessions"] is True


def test_recording_that_was_cut_says_so(penstock: Callable[..., Finished], tmp_path: Path) -> None:
    """Its writer was killed: what is there is diagnosed."""
    with pytest.raises(RuntimeError), Recorder(tmp_path / "F", recorded().header) as recorder:
        for each in recorded(session("IPC:SyncRep")).samples:
            recorder.write(each)
        raise RuntimeError
    shown = penstock("diagnose", str(tmp_path / "F"))
    assert "The end of the recording is missing" in shown.out
    assert "commit-standby" in shown.out


def test_few_samples_are_shown_as_a_guess(penstock: Callable[..., Finished], tmp_path: Path) -> None:
    """Not as a fact with a confidence."""
    shown = penstock("diagnose", write(tmp_path / "F", recorded(session("IPC:SyncRep"), count=10)))
    assert "1  commit-standby\n   too few samples (10 of active sessions); perhaps 100 %" in shown.out


def test_names_of_others_are_made_visible(penstock: Callable[..., Finished], tmp_path: Path) -> None:
    """An application may be called what a terminal obeys."""
    held = session("Lock:tuple", blocked_by=(7,), application="\x1b[2Jx")
    shown = penstock("diagnose", write(tmp_path / "F", recorded(held, session(pid=7, application="a\nb"))))
    assert "\x1b" not in shown.out
    assert "application \\x1b[2Jx" in shown.out


def test_what_is_no_recording_is_refused(penstock: Callable[..., Finished], tmp_path: Path) -> None:
    """By its name, with the exit code of sources."""
    (tmp_path / "F").write_text("no recording")
    failed = penstock("diagnose", str(tmp_path / "F"))
    assert failed.code == 4
    assert f'"{tmp_path / "F"}" is not a recording' in failed.err
    assert penstock("diagnose", str(tmp_path / "G")).code == 4
