"""Stops the servers and removes the files of a test run after its end, however it ends.

Run as `reaper.py DIRECTORY ...` with a pipe as standard input: when its other end closes (the run has ended, or
was killed), every server process that works below a DIRECTORY is stopped, and each DIRECTORY is removed.
"""

from __future__ import annotations

import contextlib
import shutil
import signal
import sys
from pathlib import Path

import psutil

_PATIENCE_S = 10

_SERVERS = ("postgres", "pgbouncer", "pg_receivewal")


def main(directories: list[Path]) -> None:
    """Wait for the end of standard input, then clean up."""
    sys.stdin.buffer.read()
    # On SIGQUIT a postmaster takes its backends along and gives back its System V segment; SIGKILL leaks it.
    for signal_number in (signal.SIGQUIT, signal.SIGKILL):
        processes = [process for directory in directories for process in _servers_below(directory)]
        for process in processes:
            _send(process, signal_number)
        psutil.wait_procs(processes, timeout=_PATIENCE_S)
    for directory in directories:
        shutil.rmtree(directory, ignore_errors=True)


def _servers_below(directory: Path) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            is_server = process.name() in _SERVERS or process.name().startswith("python")
            if is_server and directory in Path(process.cwd()).parents:
                found.append(process)
        except psutil.Error:
            continue
    return found


def _send(process: psutil.Process, signal_number: signal.Signals) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        process.send_signal(signal_number)


if __name__ == "__main__":
    main([Path(argument).resolve() for argument in sys.argv[1:]])
