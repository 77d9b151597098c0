"""Starts, finds and ends the processes of a lab that are not servers, and the volumes and memory that they use.

LAB/processes/NAME.json   the record, written by launch.py before the program runs
LAB/processes/NAME.log    the program's output
"""

from __future__ import annotations

import contextlib
import json
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from penstock.core.errors import LabError, UsageError
from penstock.core.slotted import slotted
from penstock.embedded.cluster import make_private_dir
from penstock.embedded.programs import log_tail, run_program
from penstock.rds.volumes import parse_volume
from penstock_lab.topology import launch, relay, slow_flush
from penstock_lab.volumes import (
    PACKAGES,
    SLOW_FLUSH_SOCKET,
    VolumeFiles,
    cgroup_of,
    change_throttle,
    check_machine,
    create_cgroup,
    create_image,
    daemon_argv,
    mount_volume,
    release_volumes,
    remove_cgroup,
    split_latency,
)

if TYPE_CHECKING:
    from penstock.embedded.users import ServerUser
    from penstock_lab.topology.state import LabState

_START_TIMEOUT_S = 60
_END_TIMEOUT_S = 10
_POLL_S = 0.05

# How much a process's start time may differ from the recorded one. psutil computes it from the boot time, which changes
# when the kernel's clock is corrected.
_CLOCK_SLACK_S = 2.0

_PROGRAMS = frozenset(("postgres", "initdb", "pg_ctl", "pg_basebackup", "pg_receivewal", "cp", "setpriv", *PACKAGES))
_OWN_SCRIPTS = (launch.__file__, relay.__file__, slow_flush.__file__)


@slotted
class Launch:
    """A process to start: its name and its command."""

    name: str
    argv: Sequence[str]
    # The working directory of the process.
    folder: Path
    # The account of the process, None for the caller's.
    user: ServerUser | None


@dataclass(frozen=True, slots=True)
class Processes:
    """The processes of a lab that are not servers. Each has a record in a file below the lab's directory."""

    lab: Path

    @property
    def _records(self) -> Path:
        return self.lab / "processes"

    def start(self, launches: Sequence[Launch]) -> None:
        """Start processes, each after its record is written. Raises LabError if one cannot be started."""
        self._records.mkdir(mode=0o700, exist_ok=True)
        run_program(
            # With -I, neither the caller's environment nor the current directory changes what Python imports.
            [sys.executable, "-I", launch.__file__],
            purpose=f"start {', '.join(item.name for item in launches)}",
            user=None,
            timeout_s=_START_TIMEOUT_S,
            # If a process is killed before its record is written, `end_all` finds it by its working directory.
            cwd=self.lab,
            stdin=json.dumps([self._describe(item) for item in launches]),
        )

    def find(self, name: str) -> psutil.Process | None:
        """Return the running process with this name, or None if it does not run."""
        try:
            record = json.loads((self._records / f"{name}.json").read_text(encoding="utf-8"))
            process = psutil.Process(record["pid"])
            is_same = abs(process.create_time() - record["started_s"]) < _CLOCK_SLACK_S
            return process if is_same and process.status() != psutil.STATUS_ZOMBIE else None
        except (FileNotFoundError, psutil.NoSuchProcess):
            return None

    def end(self, names: Iterable[str]) -> None:
        """Kill processes and remove their records. No data is lost, because these processes keep data only in files."""
        chosen = list(names)
        _end_found(lambda: [found for name in chosen if (found := self.find(name))])
        for name in chosen:
            (self._records / f"{name}.json").unlink(missing_ok=True)

    def end_all(self) -> None:
        """End all processes with a record, and all other processes of penstock that work below the lab's folder.

        Processes without a record are the initdb, pg_basebackup or launcher of a command that was killed.
        """
        self.end([path.stem for path in self._records.glob("*.json")])
        _end_found(lambda: list(_ours_below(self.lab)))

    def check_alive(self, name: str) -> None:
        """If a process has ended, raise LabError with the process's last line of output."""
        if self.find(name) is None:
            raise LabError(f"{name} of the lab has ended", detail=self.last_words([name]) or None)

    def await_ready(self, name: str, is_ready: Callable[[], bool], *, timeout_s: float, failure: str) -> None:
        """Wait until `is_ready` returns true for a process.

        Raises LabError if the process has ended, or with the message `failure` after `timeout_s` seconds.
        """
        deadline_s = time.monotonic() + timeout_s
        while not is_ready():
            self.check_alive(name)
            if time.monotonic() > deadline_s:
                raise LabError(failure)
            time.sleep(_POLL_S)

    def last_words(self, names: Iterable[str]) -> str:
        """Return the last line of output of each of these processes, as one text."""
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
    """End the processes that `find` returns, until it returns none. Raises LabError after a time limit.

    `find` is called again because a process may start another one before it ends.
    """
    began_s = time.monotonic()
    while processes := find():
        elapsed_s = time.monotonic() - began_s
        if elapsed_s > 2 * _END_TIMEOUT_S:
            raise LabError("a process of the lab did not end", detail=", ".join(map(str, processes)))
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                # On SIGQUIT a postmaster ends its backends too. SIGKILL would leak its shared memory.
                is_asked = process.name() == "postgres" and elapsed_s < _END_TIMEOUT_S
                process.send_signal(signal.SIGQUIT if is_asked else signal.SIGKILL)
        # Do not wait for their exit: an ended process may remain until its parent reaps it.
        time.sleep(_POLL_S)


def _ours_below(folder: Path) -> Iterator[psutil.Process]:
    """Yield the lab's own processes with a working directory below `folder`, but never a user's shell there."""
    top = folder.resolve()
    for process in psutil.process_iter():
        try:
            if _is_program(process) and Path(process.cwd()).is_relative_to(top):
                yield process
        except psutil.Error:
            # The process has ended, or it belongs to another account.
            continue


def _is_program(process: psutil.Process) -> bool:
    name = process.name()
    if name in _PROGRAMS:
        return True
    if name in ("sh", "dash", "bash"):
        # pg_ctl and initdb start the server through a shell.
        return process.terminal() is None and any('exec "' in part or "postgres" in part for part in process.cmdline())
    return name.startswith("python") and any(script in process.cmdline() for script in _OWN_SCRIPTS)


_EXPORT_TIMEOUT_S = 30

# The name of local storage among the volumes. No member has this name.
_LOCAL = "local"


@dataclass(frozen=True, slots=True)
class LabResources:
    """The volumes, the local storage and the control group of a lab, which its state file lists."""

    folder: Path
    state: LabState

    @property
    def cgroup(self) -> Path | None:
        """Return the control group of the lab's servers, or None if their memory is not limited."""
        return None if self.state.memory_bytes is None else cgroup_of(self.folder)

    @property
    def local_storage(self) -> Path | None:
        """Return the directory on local storage that the servers' account owns, or None without local storage."""
        return None if self.state.local_storage_bytes is None else self.folder / _LOCAL / "temp"

    def check(self) -> None:
        """Raise UsageError if a volume is not valid, and LabError if this machine cannot provide a resource."""
        options, programs = [], list[str]()
        if self.state.volume is not None:
            parse_volume(split_latency(self.state.volume)[0])
            options.append("multi-az" if self._is_mirrored else "--volume")
            programs += ["qemu-storage-daemon", "mkfs.ext4", "mount", "umount"]
        if self.state.local_storage_bytes is not None:
            if sum(member.is_server for member in self.state.members) > 1:
                # Two servers cannot share the directory of a tablespace on local storage: it has the same path on each
                # server, and a server that starts removes all temporary files there.
                raise UsageError(
                    f"--local-storage is not possible with {self.state.shape}",
                    detail="Its servers would share one directory, and each that starts delete the others' temporary "
                    "files and tables.",
                    hint="Use single or multi-az.",
                )
            options.append("--local-storage")
            programs += ["mkfs.ext4", "mount", "umount"]
        if self.state.memory_bytes is not None:
            options.append("--memory")
            programs.append("setpriv")
        if options:
            check_machine(" and ".join(options), programs)
        if self.state.memory_bytes is not None:
            cgroup_of(self.folder)

    def create(self, user: ServerUser | None) -> None:
        """Create the resources. Raises LabError; the caller then calls `release`, which removes what was created."""
        if self.cgroup is not None and self.state.memory_bytes is not None:
            create_cgroup(self.cgroup, memory_bytes=self.state.memory_bytes)
        for files in self._volumes():
            self._create_volume(files)
        if self.local_storage is not None and self.state.local_storage_bytes is not None:
            files = VolumeFiles(self.folder, _LOCAL)
            create_image(files, size_bytes=self.state.local_storage_bytes)
            mount_volume(files, files.image)
            make_private_dir(self.local_storage, user)

    def check_present(self) -> None:
        """Raise LabError if a volume is lost."""
        for name in self.find_lost():
            raise LabError(
                f'the volume of {name} of lab "{self.state.name}" is lost',
                hint=f"Remove the lab with penstock lab down {self.state.name}.",
            )

    def change_volumes(self, text: str) -> None:
        """Change the limits of all volumes to those that a text names. Raises UsageError, LabError."""
        (name, latency_s), (old, old_latency_s) = split_latency(text), split_latency(self.state.volume or "unlimited")
        throttle = parse_volume(name).throttle
        if throttle is None or parse_volume(old).throttle is None:
            raise UsageError(f'the volumes of lab "{self.state.name}" cannot change between limited and unlimited')
        if latency_s != old_latency_s:
            raise UsageError(f'the volumes of lab "{self.state.name}" cannot change the latency of their flushes')
        for files in self._volumes():
            change_throttle(files, throttle, is_mirrored=self._is_mirrored)

    def find_lost(self) -> list[str]:
        """Return the members whose volume is gone because the machine restarted or the volume's daemon ended."""
        processes = Processes(self.folder)
        return [
            files.name for files in self._volumes() if not files.is_mounted() or processes.find(_daemon(files)) is None
        ]

    @property
    def _is_mirrored(self) -> bool:
        return self.state.shape == "multi-az"

    def _volumes(self) -> list[VolumeFiles]:
        if self.state.volume is None:
            return []
        return [VolumeFiles(self.folder, member.name) for member in self.state.members if member.is_server]

    def _create_volume(self, files: VolumeFiles) -> None:
        text, latency_s = split_latency(self.state.volume or "")
        volume = parse_volume(text)
        create_image(files, size_bytes=volume.size_bytes, is_mirrored=self._is_mirrored)
        slow_flush_bytes = volume.size_bytes if latency_s else None
        argv = daemon_argv(files, volume.throttle, is_mirrored=self._is_mirrored, slow_flush_bytes=slow_flush_bytes)
        processes, name = Processes(self.folder), _daemon(files)
        launches = [Launch(name=name, argv=argv, folder=files.folder, user=None)]
        if latency_s:
            # It runs as the caller's account, as relays do.
            slow = [sys.executable, "-I", slow_flush.__file__, SLOW_FLUSH_SOCKET]
            slow += [str(volume.size_bytes), repr(latency_s)]
            launches.insert(0, Launch(name=f"flush_{files.name}", argv=slow, folder=files.folder, user=None))
        processes.start(launches)
        failure = f"{name} of the lab exported nothing within {_EXPORT_TIMEOUT_S} s"
        processes.await_ready(name, files.is_exported, timeout_s=_EXPORT_TIMEOUT_S, failure=failure)
        mount_volume(files, files.export)


def release(folder: Path) -> None:
    """Remove a lab's mounts, loop devices and control group. The lab's processes must have ended. Raises LabError."""
    release_volumes(folder)
    try:
        group = cgroup_of(folder)
    except LabError:
        # No control group was created, because the machine has no hierarchy of them.
        return
    remove_cgroup(group)


def _daemon(files: VolumeFiles) -> str:
    return f"volume_{files.name}"
