"""Reading postmaster.pid in all its states."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.embedded.postmaster import Postmaster, await_settled, find_running, parse_postmaster_pid

READY = "4711\n/srv/data\n1767225600\n5432\n/srv/run\nlocalhost\n  1234567     32768\nready   \n"


def test_ready_server_is_read() -> None:
    """All eight lines of a running server."""
    assert parse_postmaster_pid(READY) == Postmaster(
        pid=4711, started_at=1767225600, port=5432, socket_dir=Path("/srv/run"), state="ready"
    )


@pytest.mark.parametrize("line_count", [5, 6, 7])
def test_unfinished_file_means_starting(line_count: int) -> None:
    """The postmaster adds lines as it gets on."""
    parsed = parse_postmaster_pid("".join(READY.splitlines(keepends=True)[:line_count]))
    assert parsed is not None
    assert parsed.state == "starting"


@pytest.mark.parametrize("text", ["", "4711\n", "4711\n/srv/data\n", "x\ny\nz\nw\n"])
def test_half_written_file_says_nothing(text: str) -> None:
    """Neither an error nor a server."""
    assert parse_postmaster_pid(text) is None


def test_missing_socket_means_not_running(tmp_path: Path) -> None:
    """What a crash leaves behind is no server."""
    (tmp_path / "postmaster.pid").write_text(READY.replace("/srv/run", str(tmp_path)))
    assert find_running(tmp_path) is None


def test_remains_of_dead_server_are_removed(tmp_path: Path) -> None:
    """With no server process in the directory its lock files are stale, whoever has its number now."""
    for name in ("postmaster.pid", ".s.PGSQL.5432.lock"):
        (tmp_path / name).write_text(READY.replace("4711", "1"))
        assert await_settled(tmp_path, tmp_path, timeout_s=60) is None
        assert list(tmp_path.iterdir()) == []
