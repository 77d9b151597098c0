"""Reads what the kernel knows of a process, keeps freed memory, and holds back the interrupts of this process."""

from __future__ import annotations

import ctypes
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from penstock.core.units import MIB


def read_head(path: str) -> bytes:
    """Return the first 4 KiB of a file in /proc or /sys.

    This takes a quarter of the time that Path.read_text takes. It is for files that are read for each sample.
    """
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(file, 4096)
    finally:
        os.close(file)


def process_cpu_s(pid: int) -> float | None:
    """Return the processor time of a process in seconds, or None if it has ended.

    Source: docs.kernel.org/scheduler/sched-stats.html, "/proc/<pid>/schedstat".
    """
    try:
        return int(read_head(f"/proc/{pid}/schedstat").split()[0]) / 1e9
    except OSError:
        return None


def server_cpu_s(backend_pid: int) -> float | None:
    """Return how many seconds of CPU time all processes of a backend's server have used, including ended processes.

    Returns None if the backend is not on this machine, or has another pid there. Processes that have ended count as
    ended children of their parent, the postmaster. Source: man proc_pid_stat, fields 4 and 14 to 17; man
    proc_tid_children.
    """
    try:
        parent = int(_read_status(backend_pid)[1])
        if not (is_named(backend_pid, "postgres") and is_named(parent, "postgres")):
            return None
        ticks = sum(map(int, _read_status(parent)[11:15]))
        children = Path("/proc", str(parent), "task", str(parent), "children").read_text(encoding="ascii").split()
    except OSError:
        return None
    running_s = (process_cpu_s(int(pid)) for pid in children)
    return ticks / os.sysconf("SC_CLK_TCK") + sum(seconds for seconds in running_s if seconds is not None)


def _read_status(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat from the third on. The second, the process's name, may contain blanks."""
    return Path("/proc", str(pid), "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()


def is_named(pid: int, name: str) -> bool:
    """Return whether a process with that pid and name exists.

    A server in a container, which is reached through a socket, reports pids of the container. On this machine, another
    process may have the same pid.
    """
    try:
        return Path("/proc", str(pid), "comm").read_text(encoding="utf-8").strip() == name
    except OSError:
        return False


# Parameters of mallopt, from glibc's malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
# The thresholds that `keep_freed_memory` sets. glibc keeps freed buffers that are smaller than the first, until
# together they exceed the second. Each buffer of a load is smaller than the first, and all buffers in use at a time are
# together smaller than the second.
_MAPPED_BYTES = 8 * MIB
_KEPT_BYTES = 256 * MIB


def keep_freed_memory() -> None:
    """Keep the memory that this process frees for its next buffers, if the C library is glibc.

    By default, glibc returns a freed buffer of 512 KiB to the kernel. Each page of the next buffer then causes a page
    fault. When a compressed file is loaded, these faults take a tenth of the client's CPU time.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _MAPPED_BYTES)
        mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)


_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """Holds back interrupts of this process, such as Ctrl-C, and delivers them later.

    At most `limit` interrupts are held back. The next one is delivered at once.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held: list[Callable[[], object]] = []

    def hold(self, deliver: Callable[[], object]) -> None:
        """Hold back an interrupt. `deliver` calls the handler of its signal.

        If `limit` interrupts are held back already, deliver this one at once, because the main thread may hang.
        """
        if len(self._held) >= self._limit:
            deliver()
        else:
            self._held.append(deliver)

    def deliver(self) -> None:
        """Call the handler of the interrupt that was held back, if there is one. Several interrupts count as one."""
        if self._held:
            deliver = self._held[0]
            self._held.clear()
            deliver()

    def end(self) -> None:
        """Stop holding back interrupts.

        An interrupt that arrives from now on is delivered at once, even if the handler of its signal is not restored
        yet.
        """
        self._limit = 0

    def drop(self) -> None:
        """Forget the interrupts that arrived."""
        self._held.clear()


@contextmanager
def holding_interrupts(*, limit: int = 2) -> Iterator[Interrupts]:
    """Hold back interrupts within the context, until the block calls `deliver` or ends.

    Only signals with a handler in Python are held back, and only in the main thread, because no other thread gets
    signals. Contexts may be nested: the inner one delivers to the outer one.
    """
    interrupts = Interrupts(limit)
    if threading.current_thread() is not threading.main_thread():
        yield interrupts
        return
    handlers = {number: handler for number in _SIGNALS if callable(handler := signal.getsignal(number))}

    def hold(number: int, frame: FrameType | None) -> None:
        interrupts.hold(lambda: handlers[signal.Signals(number)](number, frame))

    try:
        for number in handlers:
            signal.signal(number, hold)
        yield interrupts
    finally:
        interrupts.end()
        for number, handler in handlers.items():
            signal.signal(number, handler)
        interrupts.deliver()
