"""A replay: sessions run a statement with temporary work first in one tablespace, then in another. Pure."""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING, Literal

from penstock.core.slotted import slotted

if TYPE_CHECKING:
    from penstock.core.values.device import DeviceRates
    from penstock.core.values.diagnosis import Diagnosis

VerdictKind = Literal["does not spill", "faster", "slower", "no difference", "was full", "failed"]


@slotted
class Spill:
    """A node of a plan that used temporary files: their bytes, and the memory with which it would not have."""

    node: str
    # How the node spilled, in the server's words, such as "external merge". None if the server does not say.
    how: str | None
    written_bytes: int
    read_bytes: int
    # An estimate of the memory with which the node would not have spilled.
    needed_bytes: int


@slotted
class StatementRun:
    """One run of a statement in all sessions at once.

    `elapsed_s` is the time from the start of the first session to the end of the last, and `session_s` are the times of
    each. Bytes and workers are summed over all sessions.
    """

    elapsed_s: float
    session_s: tuple[float, ...]
    written_bytes: int
    read_bytes: int
    # The bytes that were written in temporary tables.
    local_bytes: int
    workers_planned: int
    workers_launched: int
    # The spills of one session.
    spills: tuple[Spill, ...] = ()
    # The rates of the tablespace's device during the run, None if they are not visible.
    device: DeviceRates | None = None
    # Whether the tablespace was full, so that the statement was run in the default tablespace.
    is_elsewhere: bool = False
    # How many seconds a session waited for reads and writes of temporary files, the mean of all; None if not known.
    wait_s: float | None = None
    # The seconds of processors that all processes of the server used, None if they are not on this machine.
    cpu_s: float | None = None


@slotted
class Trial:
    """One run of a statement in the first tablespace, with a larger work_mem, to show how much less it spills.

    `work_mem_bytes` is what the statement is estimated to need so as not to spill, or less if memory does not suffice.
    """

    work_mem_bytes: int
    elapsed_s: float
    written_bytes: int


@slotted
class Comparison:
    """The runs of a statement in a given number of sessions, in the first and in the second tablespace."""

    number: int
    statement: str
    sessions: int
    first: tuple[StatementRun, ...]
    second: tuple[StatementRun, ...]
    # The tablespace (1 or 2) in which each round began.
    began_with: tuple[int, ...] = ()
    trial: Trial | None = None
    failure: str | None = None

    @property
    def first_s(self) -> float:
        """Return the median time of a run in the first tablespace, in seconds."""
        return statistics.median(run.elapsed_s for run in self.first)

    @property
    def second_s(self) -> float:
        """Return the median time of a run in the second tablespace, in seconds."""
        return statistics.median(run.elapsed_s for run in self.second)

    @property
    def speed_up(self) -> float:
        """Return the median time in the first tablespace as a multiple of that in the second."""
        return self.first_s / self.second_s

    @property
    def first_wait_s(self) -> float | None:
        """Return the median of the seconds that a run in the first tablespace waited for temporary files.

        None if that is not known.
        """
        known = [run.wait_s for run in self.first if run.wait_s is not None]
        return statistics.median(known) if known else None

    @property
    def chance(self) -> float:
        """Return the probability that the times of two equally fast tablespaces do not overlap by chance.

        >>> run = StatementRun(elapsed_s=1.0, session_s=(), written_bytes=0, read_bytes=0, local_bytes=0,
        ...     workers_planned=0, workers_launched=0)
        >>> runs = (run,) * 5
        >>> round(Comparison(number=1, statement="", sessions=1, first=runs, second=runs).chance, 4)
        0.0079
        """
        return min(1.0, 2 / math.comb(len(self.first) + len(self.second), len(self.first)))

    @property
    def verdict(self) -> VerdictKind:
        """Return how the second tablespace compares with the first: "faster", "slower" or "no difference".

        It is "no difference" if the ranges of their times overlap. It is "failed" if a run failed, "does not spill" if
        no run wrote temporary files, and "was full" if the second tablespace was full in any round, because the
        statement then used another tablespace.
        """
        if self.failure is not None or not self.first or not self.second:
            return "failed"
        if not any(run.written_bytes for run in (*self.first, *self.second)):
            return "does not spill"
        if any(run.is_elsewhere for run in self.second):
            return "was full"
        first, second = [run.elapsed_s for run in self.first], [run.elapsed_s for run in self.second]
        if max(second) < min(first):
            return "faster"
        return "slower" if min(second) > max(first) else "no difference"


@slotted
class Skipped:
    """A statement that was not run, and why."""

    statement: str
    why: str


@slotted
class StatementTotals:
    """The calls and the total_exec_time of a statement in pg_stat_statements of two servers."""

    statement: str
    first_calls: int
    first_ms: float
    second_calls: int
    second_ms: float

    @property
    def speed_up(self) -> float:
        """Return a call's mean time on the first server as a multiple of that on the second; 0 if the latter is 0."""
        return (self.first_ms / self.first_calls) / (self.second_ms / self.second_calls) if self.second_ms else 0.0


@slotted
class ReplayResult:
    """The comparisons of all statements, each in two places: a tablespace each, or one on each of two servers."""

    first_place: str
    second_place: str
    rounds: int
    # The order of the places in each round is drawn with this seed.
    seed: int
    comparisons: tuple[Comparison, ...]
    # What makes two servers comparable, or not.
    checks: tuple[Diagnosis, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    # The comparison of two servers, the longest time first.
    totals: tuple[StatementTotals, ...] = ()
    # The device of both places; None if they are on two devices, or if the devices are not visible.
    shared_device: str | None = None
    is_interrupted: bool = False
