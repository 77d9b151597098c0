"""Starts, kills and interrupts loaders: real processes, so that kill -9 is real."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

_TESTS = Path(__file__).parents[2]

_POLL_S = 0.005


class LoaderProcess:
    """One loader, and what it wrote."""

    def __init__(self, pid: int, name: str, log: Path) -> None:
        self.pid = pid
        self.name = name
        self.log = log
        self.began_s = time.monotonic()
        self._ended = threading.Event()
        self._status = 0

    def note_end(self, status: int) -> None:
        """Keep the wait status of a process that has ended."""
        self._status = status
        self._ended.set()

    def is_running(self) -> bool:
        """Return whether the process exists."""
        return not self._ended.is_set()

    def wait(self, timeout_s: float) -> bool:
        """Wait for the process's end; return whether it has come."""
        return self._ended.wait(timeout_s)

    @property
    def exit_code(self) -> int:
        """Return the exit code, negative for the signal that ended the process; only once it has ended."""
        assert self._ended.is_set()
        return os.waitstatus_to_exitcode(self._status)

    def send(self, number: signal.Signals) -> None:
        """Send a signal, unless the process has ended."""
        if self.is_running():
            # It may have ended just now, and the process that reaps it has not reported that yet.
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill the process as kill -9 does, and wait until it is gone."""
        self.send(signal.SIGKILL)
        self._ended.wait()

    def read_log(self) -> str:
        """Return what the process wrote."""
        return self.log.read_text(encoding="utf-8", errors="replace") if self.log.exists() else ""

    def await_text(self, text: str, timeout_s: float) -> bool:
        """Wait until the process has written something; return False if it ends or time runs out first."""
        until_s = time.monotonic() + timeout_s
        while text not in self.read_log():
            if not self.is_running() or time.monotonic() > until_s:
                return text in self.read_log()
            time.sleep(_POLL_S)
        return True


class Zygote:
    """The process that loaders are forked from. Close it; it ends with us in any case, and all loaders with it."""

    def __init__(self) -> None:
        places = [str(_TESTS), os.environ.get("PYTHONPATH", "")]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, places))}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "support.campaign.loader"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            start_new_session=True,
        )
        self._changed = threading.Condition()
        self._started: list[int] = []
        self._loaders: dict[int, LoaderProcess] = {}
        self._ends: dict[int, int] = {}
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def start(self, request: dict[str, Any]) -> LoaderProcess:
        """Start a loader; `request` is what loader.py takes."""
        assert self._process.stdin is not None
        with self._changed:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
            while not self._started:
                if not self._changed.wait(60):
                    raise RuntimeError("no loader was started")
            pid = self._started.pop()
            loader = LoaderProcess(pid, request["name"], Path(request["log"]))
            if pid in self._ends:
                loader.note_end(self._ends.pop(pid))
            else:
                self._loaders[pid] = loader
            return loader

    def close(self) -> None:
        """End the process and whatever it has forked."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._reader.join()
        self._process.stdout.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            said = json.loads(line)
            with self._changed:
                if "started" in said:
                    self._started.append(said["started"])
                elif (loader := self._loaders.pop(said["ended"], None)) is not None:
                    loader.note_end(said["status"])
                else:
                    self._ends[said["ended"]] = said["status"]
                self._changed.notify_all()
