"""A test run leaves no server behind, however it ends."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from support.parts import rest

_PROGRAM = """
import sys
from support.servers import server_pool
with server_pool() as pool:
    print(pool.server(18).data_dir, flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("signal_number", [rest(signal.SIGINT), rest(signal.SIGTERM), signal.SIGKILL])
def test_no_server_survives_its_run(signal_number: signal.Signals) -> None:
    """Interrupted, ended or killed: servers and files are gone soon after."""
    run = subprocess.Popen(
        [sys.executable, "-c", _PROGRAM],
        cwd=Path(__file__).parents[1],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    with run:
        assert run.stdout is not None
        data_dir = Path(run.stdout.readline().strip())
        assert (data_dir / "postmaster.pid").exists()
        run.send_signal(signal_number)
    # Removed after the last server process has ended.
    while data_dir.parents[1].exists():
        time.sleep(0.02)
