"""Splits a file of SQL into statements, decides which may be run, and finds spills in their plans. Pure.

The values of a replay are here too: sessions run a statement with temporary work first in one tablespace, then in
another.

Statements are run in a read-only transaction. Such a transaction still allows COPY TO PROGRAM and SET, so only
statements that begin with SELECT, VALUES, TABLE or WITH are accepted. The same check rejects text that is not SQL, such
as psql's backslash commands. Functions that a query calls are not checked.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from penstock.core.errors import UsageError
from penstock.core.slotted import slotted
from penstock.core.units import KIB, MIB
from penstock.core.values.device import DeviceRates
from penstock.watch.statements import read_tokens

if TYPE_CHECKING:
    Plan = dict[str, Any]


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
    skipped: tuple[Skipped, ...] = ()
    # The comparison of two servers, the longest time first.
    totals: tuple[StatementTotals, ...] = ()
    # The device of both places; None if they are on two devices, or if the devices are not visible.
    shared_device: str | None = None
    is_interrupted: bool = False


_READING = frozenset(("select", "values", "table", "with"))
# The number of paired statements to return: as many as a screen shows.
_MOST = 10


def split_statements(text: str) -> list[str]:
    r"""Return the statements of a text without comments and semicolons. Empty statements are skipped.

    >>> split_statements("SELECT ';'; -- one;\nTABLE t;")
    ["SELECT ';'", 'TABLE t']
    """
    statements: list[str] = []
    parts: list[str] = []
    for kind, part in read_tokens(text):
        if kind == "other" and part == ";":
            statements.append("".join(parts).strip())
            parts.clear()
        else:
            parts.append(" " if kind == "comment" else part)
    statements.append("".join(parts).strip())
    return [statement for statement in statements if statement]


def refuse_unreadable(statement: str, *, source: str) -> None:
    """Raise UsageError if a statement may not be replayed. `source` is the name of the file that has the statement."""
    if why := why_not(statement):
        raise UsageError(
            f"{source}: cannot replay {shorten(statement)}",
            detail=f"{why[0].upper()}{why[1:]}.",
            hint="Name statements that begin with SELECT, VALUES, TABLE or WITH.",
        )


def why_not(statement: str) -> str | None:
    """Return why a statement may not be replayed, or None if it may.

    >>> why_not("(SELECT 1)"), why_not("COPY t TO PROGRAM 'rm'")
    (None, 'it begins with COPY')
    """
    words = [(kind, part) for kind, part in read_tokens(statement) if kind != "comment" and not part.isspace()]
    if any(kind == "other" and part == ";" for kind, part in words):
        return "it is more than one statement"
    if any(kind == "parameter" for kind, _ in words):
        return "it has parameters, whose values nobody has kept"
    first = _first_word(statement)
    return None if begins_to_read(statement) else f"it begins with {first.upper() or 'nothing'}"


def begins_to_read(statement: str) -> bool:
    """Return whether a statement begins with SELECT, VALUES, TABLE or WITH."""
    return _first_word(statement).lower() in _READING


def _first_word(statement: str) -> str:
    words = ((kind, part) for kind, part in read_tokens(statement) if kind != "comment" and not part.isspace())
    return next((part for kind, part in words if not (kind == "other" and part == "(")), "")


def shorten(statement: str, *, length: int = 60) -> str:
    """Return a statement on one line, cut at `length` characters."""
    line = " ".join(statement.split())
    return line if len(line) <= length else f"{line[: length - 1]}…"


def check_places(first: Sequence[str], second: Sequence[str]) -> None:
    """Raise UsageError if both lists name the same tablespaces."""
    if set(first) == set(second):
        raise UsageError(
            f"both places are the same: {', '.join(second)}",
            hint="Place temporary work elsewhere with penstock temp place, or name a tablespace with --place.",
        )


def pair_totals(
    first: Mapping[str, tuple[int, float]], second: Mapping[str, tuple[int, float]]
) -> list[StatementTotals]:
    """Return the ten statements that both servers have and that took longest on the first, with both servers' totals.

    `first` and `second` map the text of each statement to its calls and its total_exec_time in milliseconds. Statements
    are paired by text, because their query ids agree only if one server is a copy of the other.
    """
    paired = [
        StatementTotals(
            statement=text,
            first_calls=first[text][0],
            first_ms=first[text][1],
            second_calls=second[text][0],
            second_ms=second[text][1],
        )
        for text in first.keys() & second.keys()
    ]
    return sorted(paired, key=lambda each: (-each.first_ms, each.statement))[:_MOST]


# How many bytes of memory would have held each byte that a sort spilled. A row on disk lacks the tuple header and the
# pointer that it has in memory, so it takes less than half of the space.
MEMORY_FACTOR = 2.5
_LEAST_NEEDED = MIB


def find_spills(plan: Plan, *, block_bytes: int) -> tuple[Spill, ...]:
    """Return the nodes of a plan that used temporary files, the largest files first.

    A node's own files count, not those of the nodes below it. `block_bytes` is the server's block size.
    """
    found = [_describe(node, block_bytes) for node in walk_nodes(plan)]
    return tuple(
        sorted(
            (spill for spill in found if spill.written_bytes or spill.read_bytes), key=lambda each: -each.written_bytes
        )
    )


def sum_field(plan: Plan, field: str) -> int:
    """Return the sum of a number, such as "Workers Launched", over all nodes of a plan that have it."""
    return sum(int(node.get(field, 0)) for node in walk_nodes(plan))


def walk_nodes(plan: Plan) -> Iterator[Plan]:
    """Yield a plan's nodes, each node before the nodes below it."""
    yield plan
    for below in plan.get("Plans", ()):
        yield from walk_nodes(below)


def _describe(node: Plan, block_bytes: int) -> Spill:
    written, read = (_own(node, field) * block_bytes for field in ("Temp Written Blocks", "Temp Read Blocks"))
    disk_bytes = max(written, _disk_bytes(node))
    needed = max(_LEAST_NEEDED, round(disk_bytes * MEMORY_FACTOR))
    return Spill(node=_name(node), how=_how(node), written_bytes=written, read_bytes=read, needed_bytes=needed)


def _own(node: Plan, field: str) -> int:
    below = sum(
        int(each.get(field, 0)) for each in node.get("Plans", ()) if each.get("Parent Relationship") != "InitPlan"
    )
    return max(0, int(node.get(field, 0)) - below)


def _disk_bytes(node: Plan) -> int:
    sort = int(node.get("Sort Space Used", 0)) if node.get("Sort Space Type") == "Disk" else 0
    return KIB * max(sort, int(node.get("Disk Usage", 0)))


def _name(node: Plan) -> str:
    kind = str(node.get("Node Type", "?"))
    strategy = node.get("Strategy")
    if kind == "Aggregate" and strategy in ("Hashed", "Mixed"):
        kind = "HashAggregate"
    if name := node.get("CTE Name") or node.get("Relation Name"):
        kind = f"{kind} on {name}"
    return kind


def _how(node: Plan) -> str | None:
    if node.get("Sort Space Type") == "Disk":
        return str(node.get("Sort Method", "external sort"))
    if int(node.get("Hash Batches", 1)) > 1:
        return f"{node['Hash Batches']} batches"
    if int(node.get("HashAgg Batches", 1)) > 1:
        return f"{node['HashAgg Batches']} batches"
    return None
