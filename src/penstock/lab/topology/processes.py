"""The processes of a lab that are no servers: started detached, known by pid and start time, ended.

LAB/processes/NAME.json   written by launch.py before the program runs
LAB/processes/NAME.log    what it says
"""

from __future__ import annotations

import contextlib
import json
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from penstock.errors import LabError
from penstock.lab import launch, relay
from penstock.lab.programs import log_tail, run_program
from penstock.lab.volumes.find import PACKAGES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from penstock.lab.users import ServerUser

_START_TIMEOUT_S = 60
_END_TIMEOUT_S = 10
_POLL_S = 0.05

# psutil reckons a start from the time of boot, which the kernel corrects with its clock.
_CLOCK_SLACK_S = 2.0

_PROGRAMS = frozenset(("postgres", "initdb", "pg_ctl", "pg_basebackup", "pg_receivewal", "cp", "setpriv", *PACKAGES))
_OWN_SCRIPTS = (launch.__file__, relay.__file__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A process to start: its working directory is `folder`, its account `user` (None: the caller's)."""

    name: str
    argv: Sequence[str]
    folder: Path
    user: ServerUser | None


@dataclass(frozen=True, slots=True)
class Processes:
    """The processes written down below a lab's folder."""

    lab: Path

    @property
    def _records(self) -> Path:
        return self.lab / "processes"

    def start(self, launches: Sequence[Launch]) -> None:
        """Start processes, each written down first. Raises LabError where one cannot be started."""
        self._records.mkdir(mode=0o700, exist_ok=True)
        run_program(
            # Isolated: neither the caller's environment nor the current directory changes what it imports.
            [sys.executable, "-I", launch.__file__],
            purpose=f"start {', '.join(item.name for item in launches)}",
            user=None,
            timeout_s=_START_TIMEOUT_S,
            # What is killed before it is written down is found by its working directory.
            cwd=self.lab,
            stdin=json.dumps([self._describe(item) for item in launches]),
        )

    def find(self, name: str) -> psutil.Process | None:
        """Return the process of that name, None where it does not run."""
        try:
            record = json.loads((self._records / f"{name}.json").read_text(encoding="utf-8"))
            process = psutil.Process(record["pid"])
            is_same = abs(process.create_time() - record["started_s"]) < _CLOCK_SLACK_S
            return process if is_same and process.status() != psutil.STATUS_ZOMBIE else None
        except (FileNotFoundError, psutil.NoSuchProcess):
            return None

    def end(self, names: Iterable[str]) -> None:
        """End processes that run, at once, and forget them: what they know is in their files."""
        chosen = list(names)
        _end_found(lambda: [found for name in chosen if (found := self.find(name))])
        for name in chosen:
            (self._records / f"{name}.json").unlink(missing_ok=True)

    def end_all(self) -> None:
        """End what is written down, and whatever else of ours still works below the lab's folder.

        A command that was killed leaves its initdb, pg_basebackup or launcher.
        """
        self.end([path.stem for path in self._records.glob("*.json")])
        _end_found(lambda: list(_ours_below(self.lab)))

    def check_alive(self, name: str) -> None:
        """Raise LabError where a process has ended, with the end of what it said."""
        if self.find(name) is None:
            raise LabError(f"{name} of the lab has ended", detail=self.last_words([name]) or None)

    def last_words(self, names: Iterable[str]) -> str:
        """Return the last line that each of the processes has said."""
        said = {name: log_tail(self._records / f"{name}.log", line_count=1) for name in names}
        return "\n".join(f"{name}: {line}" for name, line in said.items() if line)

    def _describe(self, item: Launch) -> dict[str, object]:
        return {
            "name": item.name,
            "argv": list(item.argv),
            "folder": str(item.folder),
            "record": str(self._records / f"{item.name}.json"),
            "log": str(self._records / f"{item.name}.log"),
            "uid": None if item.user is None else item.user.uid,
            "gid": None if item.user is None else item.user.gid,
        }


def _end_found(find: Callable[[], list[psutil.Process]]) -> None:
    """End processes until none is found: one that ends may have started another meanwhile."""
    began_s = time.monotonic()
    while processes := find():
        elapsed_s = time.monotonic() - began_s
        if elapsed_s > 2 * _END_TIMEOUT_S:
            raise LabError("a process of the lab did not end", detail=", ".join(map(str, processes)))
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                # A postmaster takes its backends along; SIGKILL would leak its shared memory.
                is_asked = process.name() == "postgres" and elapsed_s < _END_TIMEOUT_S
                process.send_signal(signal.SIGQUIT if is_asked else signal.SIGKILL)
        # Not for their end: one that has ended may stay until its parent asks for it.
        time.sleep(_POLL_S)


def _ours_below(folder: Path) -> Iterator[psutil.Process]:
    """Yield the lab's own processes whose current directory is in a folder: never somebody's shell there."""
    top = folder.resolve()
    for process in psutil.process_iter():
        try:
            if _is_program(process) and Path(process.cwd()).is_relative_to(top):
                yield process
        except psutil.Error:
            # Ended meanwhile, or another account's.
            continue


def _is_program(process: psutil.Process) -> bool:
    name = process.name()
    if name in _PROGRAMS:
        return True
    if name in ("sh", "dash", "bash"):
        # pg_ctl and initdb start the server by a shell.
        return process.terminal() is None and any('exec "' in part or "postgres" in part for part in process.cmdline())
    return name.startswith("python") and any(script in process.cmdline() for script in _OWN_SCRIPTS)
