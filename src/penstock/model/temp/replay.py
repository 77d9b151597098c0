"""A replay: the same statement by many sessions at once, its temporary work in one place and in another. Pure."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from penstock.model.server.device import DeviceRates

VerdictKind = Literal["does not spill", "faster", "slower", "no difference", "was full", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Spill:
    """A node of a plan that used temporary files. `how` is in the server's words, as external merge; None for none.

    `needed_bytes` is an estimate of the memory in which it would not have spilled.
    """

    node: str
    how: str | None
    written_bytes: int
    read_bytes: int
    needed_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One statement by all sessions at once: from the first one's start to the last one's end.

    Bytes and workers are all sessions' together; `local_bytes` are of temporary tables, and `spills` those of one
    session. `device` is what the device below did meanwhile, None where it cannot be seen. `is_elsewhere`: the place
    was full, and the statement ran at the other.
    """

    elapsed_s: float
    session_s: tuple[float, ...]
    written_bytes: int
    read_bytes: int
    local_bytes: int
    workers_planned: int
    workers_launched: int
    spills: tuple[Spill, ...] = ()
    device: DeviceRates | None = None
    is_elsewhere: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """The cheapest remedy, tried once at the first place: more work_mem, in which nothing or less spilled."""

    work_mem_bytes: int
    elapsed_s: float
    written_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A statement at one number of sessions: the runs of both places in their order, and what they come to.

    `began_with` is the place, 1 or 2, that each round began with.
    """

    number: int
    statement: str
    sessions: int
    first: tuple[Run, ...]
    second: tuple[Run, ...]
    began_with: tuple[int, ...] = ()
    trial: Trial | None = None
    failure: str | None = None

    @property
    def first_s(self) -> float:
        """Return the first place's median in seconds."""
        return statistics.median(run.elapsed_s for run in self.first)

    @property
    def second_s(self) -> float:
        """Return the second place's median in seconds."""
        return statistics.median(run.elapsed_s for run in self.second)

    @property
    def speed_up(self) -> float:
        """Return how many times as fast the second place is."""
        return self.first_s / self.second_s

    @property
    def chance(self) -> float:
        """Return how likely all runs of one place are faster than all of the other if the places are equal.

        >>> runs = (Run(elapsed_s=1.0, session_s=(), written_bytes=0, read_bytes=0, local_bytes=0, workers_planned=0,
        ...     workers_launched=0),) * 5
        >>> round(Comparison(number=1, statement="", sessions=1, first=runs, second=runs).chance, 4)
        0.0079
        """
        return min(1.0, 2 / math.comb(len(self.first) + len(self.second), len(self.first)))

    @property
    def verdict(self) -> VerdictKind:
        """Return what the runs say: there is no difference where the places' fastest and slowest runs overlap.

        A second place that was full in any round has shown nothing: the statement ran elsewhere then.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """A statement that was not run, and why."""

    statement: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementTotals:
    """What pg_stat_statements of two servers has of a statement: calls, and total_exec_time of all of them."""

    statement: str
    first_calls: int
    first_ms: float
    second_calls: int
    second_ms: float

    @property
    def speed_up(self) -> float:
        """Return how many times as fast a call is on the second server; 0 where it took no time at all there."""
        return (self.first_ms / self.first_calls) / (self.second_ms / self.second_calls) if self.second_ms else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayResult:
    """All that was compared; places are tablespaces. `totals` are of two servers alone, the longest first.

    `seed` is what the order of the places in each round was drawn with.
    `shared_device` is what both places are on, None for two devices, or where that cannot be seen.
    """

    first_place: str
    second_place: str
    rounds: int
    seed: int
    comparisons: tuple[Comparison, ...]
    skipped: tuple[Skipped, ...] = ()
    totals: tuple[StatementTotals, ...] = ()
    shared_device: str | None = None
    is_interrupted: bool = False
