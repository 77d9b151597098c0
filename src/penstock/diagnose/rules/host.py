"""Measures how busy the processors of the server's machine are, and who uses them. Several rules share this."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.watch.holders import read_int
from penstock.watch.values import PROCESSES

if TYPE_CHECKING:
    from penstock.diagnose.rules.case import Case
    from penstock.watch.values import Sample

# If processors are this busy, a session often waits for one.
BUSY = 0.8

# If the server's own processes use less than this part of busy processors, other programs take the processors from the
# server's sessions.
_LEAST_OWN = 0.4


class Host:
    """Sums of processor time. All are unknown if the server is on another machine."""

    def __init__(self) -> None:
        self._busy_s = self._seen_s = 0.0
        # The processor time of the server, the processor time of other programs, and the seconds in which both were
        # measured.
        self._own_s = self._others_s = self._told_s = 0.0
        self._before: tuple[float, float, float] | None = None
        # The most client connections from the server's machine at any reading.
        self._local_clients = 0

    def see(self, sample: Sample) -> None:
        """Add a sample. The rules see it afterwards."""
        for row in sample.counters.get("connections", ())[:1]:
            self._local_clients = max(self._local_clients, read_int(row, "local_of_all"))
        for row in sample.counters.get(PROCESSES, ()):
            self._see_processes(sample.at_s, row.get("server_cpu_s"), row.get("busy_cpu_s"))
        if sample.host_busy_cpus is not None:
            self._busy_s += sample.host_busy_cpus * sample.interval_s
            self._seen_s += sample.interval_s

    def _see_processes(self, at_s: float, own_s: object, all_s: object) -> None:
        if not isinstance(own_s, int | float) or not isinstance(all_s, int | float):
            return
        if self._before is not None and own_s >= self._before[1]:
            added = own_s - self._before[1]
            self._told_s += at_s - self._before[0]
            self._own_s += added
            self._others_s += max(0.0, all_s - self._before[2] - added)
        self._before = at_s, own_s, all_s

    @property
    def busy(self) -> float | None:
        """Return how many processors are busy."""
        return self._busy_s / self._seen_s if self._seen_s else None

    @property
    def own(self) -> float | None:
        """Return how many processors the server uses."""
        return self._own_s / self._told_s if self._told_s else None

    @property
    def others(self) -> float | None:
        """Return how many processors other programs use."""
        return self._others_s / self._told_s if self._told_s else None

    def is_taken(self, case: Case) -> bool:
        """Return whether other programs take the processors from the server's sessions."""
        cpus, own = case.header.cpu_count, self.own
        return cpus is not None and own is not None and own < _LEAST_OWN * cpus

    @property
    def has_clients(self) -> bool:
        """Return whether clients of the server run on its machine, and so are among the other programs."""
        return self._local_clients > 0

    def is_busy(self, case: Case) -> bool:
        """Return whether nearly all processors are known to be busy."""
        return case.header.cpu_count is not None and (self.busy or 0.0) >= BUSY * case.header.cpu_count
