"""Splits a file of SQL into statements, decides which may be run, and finds spills in their plans. Pure.

Statements are run in a read-only transaction. Such a transaction still allows COPY TO PROGRAM and SET, so only
statements that begin with SELECT, VALUES, TABLE or WITH are accepted, and EXECUTE of a statement that the set-up has
prepared. The same check rejects text that is not SQL, such as psql's backslash commands. Functions that a query calls
are not checked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from penstock.core.errors import UsageError
from penstock.core.units import KIB, MIB
from penstock.temp.values import Spill, StatementTotals
from penstock.watch.statements import read_tokens

if TYPE_CHECKING:
    Plan = dict[str, Any]

_READING = frozenset(("select", "values", "table", "with", "execute"))
# The number of paired statements to return: as many as a screen shows.
_MOST = 10


def split_statements(text: str) -> list[str]:
    r"""Return the statements of a text without comments and semicolons. Empty statements are skipped.

    Comments that begin with /*+ are kept, because they are hints for pg_hint_plan.

    >>> split_statements("SELECT ';'; -- one;\nTABLE t; /*+ SeqScan(t) */ SELECT 1")
    ["SELECT ';'", 'TABLE t', '/*+ SeqScan(t) */ SELECT 1']
    """
    statements: list[str] = []
    parts: list[str] = []
    for kind, part in read_tokens(text):
        if kind == "other" and part == ";":
            statements.append("".join(parts).strip())
            parts.clear()
        else:
            parts.append(" " if kind == "comment" and not part.startswith("/*+") else part)
    statements.append("".join(parts).strip())
    return list(filter(_has_code, statements))


def _has_code(text: str) -> bool:
    """Return whether a text has more than blanks and comments."""
    return any(kind != "comment" and part.strip() for kind, part in read_tokens(text))


def refuse_unreadable(statement: str, *, source: str) -> None:
    """Raise UsageError if a statement may not be replayed. `source` is the name of the file that has the statement."""
    if why := why_not(statement):
        raise UsageError(
            f"{source}: cannot replay {shorten(statement)}",
            detail=f"{why[0].upper()}{why[1:]}.",
            hint="Name statements that begin with SELECT, VALUES, TABLE, WITH or EXECUTE.",
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
        return "it has parameters, whose values nobody has kept: PREPARE it in --setup, and EXECUTE it in --sql"
    first = _first_word(statement)
    return None if begins_to_read(statement) else f"it begins with {first.upper() or 'nothing'}"


def begins_to_read(statement: str) -> bool:
    """Return whether a statement begins with SELECT, VALUES, TABLE, WITH or EXECUTE."""
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
    own = _own_blocks(plan)
    found = [_describe(node, own[id(node)], block_bytes) for node in walk_nodes(plan)]
    return tuple(
        sorted(
            (spill for spill in found if spill.written_bytes or spill.read_bytes), key=lambda each: -each.written_bytes
        )
    )


_WAIT_FIELDS = ("Temp I/O Read Time", "Temp I/O Write Time")


def find_wait_s(plan: Plan) -> float | None:
    """Return how many seconds of a plan's run were spent in reads and writes of temporary files, None if not known.

    It is known from PostgreSQL 15 on, with track_io_timing. The time of parallel workers is divided among the processes
    that ran the same part of the plan, because they waited at the same time.

    >>> part = {"Node Type": "Sort", "Temp I/O Read Time": 2000.0, "Temp I/O Write Time": 1000.0}
    >>> find_wait_s({**part, "Node Type": "Gather Merge", "Workers Launched": 2, "Plans": [part]})
    1.0
    >>> cte, scan = {**part, "Parent Relationship": "InitPlan"}, {**part, "Node Type": "CTE Scan"}
    >>> find_wait_s({**part, "Node Type": "Aggregate", "Plans": [cte, scan]})
    3.0
    """
    if not any(name in plan for name in _WAIT_FIELDS):
        return None
    return _wait_ms(plan, processes=1) / 1000


def _wait_ms(node: Plan, *, processes: int) -> float:
    below, initial = _split_below(node)
    own = max(0.0, _total_wait_ms(node) - sum(map(_total_wait_ms, below))) / processes
    sharing = processes + int(node.get("Workers Launched", 0))
    waits_ms = own + sum(_wait_ms(each, processes=sharing) for each in below)
    # The node that reads an InitPlan's result has its waits, too.
    return waits_ms + sum(_wait_ms(each, processes=processes) - _total_wait_ms(each) / processes for each in initial)


def _split_below(node: Plan) -> tuple[list[Plan], list[Plan]]:
    """Return the nodes below a node that it reads, and the InitPlans, which it or a node below it reads."""
    below: list[Plan] = []
    initial: list[Plan] = []
    for each in node.get("Plans", ()):
        (initial if each.get("Parent Relationship") == "InitPlan" else below).append(each)
    return below, initial


def _total_wait_ms(node: Plan) -> float:
    return sum(float(node.get(name, 0.0)) for name in _WAIT_FIELDS)


def sum_field(plan: Plan, field: str) -> int:
    """Return the sum of a number, such as "Workers Launched", over all nodes of a plan that have it."""
    return sum(int(node.get(field, 0)) for node in walk_nodes(plan))


def walk_nodes(plan: Plan) -> Iterator[Plan]:
    """Yield a plan's nodes, each node before the nodes below it."""
    yield plan
    for below in plan.get("Plans", ()):
        yield from walk_nodes(below)


def _describe(node: Plan, own: tuple[int, int], block_bytes: int) -> Spill:
    written, read = (blocks * block_bytes for blocks in own)
    disk_bytes = max(written, _disk_bytes(node))
    needed = max(_LEAST_NEEDED, round(disk_bytes * MEMORY_FACTOR))
    return Spill(node=_name(node), how=_how(node), written_bytes=written, read_bytes=read, needed_bytes=needed)


def _own_blocks(plan: Plan) -> dict[int, tuple[int, int]]:
    """Return how many blocks of temporary files each node has written and read itself, by the id of the node.

    The node that reads an InitPlan, such as the first scan of a CTE, has the InitPlan's blocks in its total, too. The
    plan does not say which node that is. So they are subtracted from the node with the fewest blocks that can be it.
    """
    own = {id(node): _less(_blocks(node), map(_blocks, _split_below(node)[0])) for node in walk_nodes(plan)}
    for host in walk_nodes(plan):
        for initial in _split_below(host)[1]:
            written, read = _blocks(initial)
            inside = set(map(id, walk_nodes(initial)))
            readers = [
                id(node)
                for node in walk_nodes(host)
                if id(node) not in inside and own[id(node)][0] >= written and own[id(node)][1] >= read
            ]
            if readers and (written or read):
                reader = min(readers, key=own.__getitem__)
                own[reader] = _less(own[reader], [(written, read)])
    return own


def _blocks(node: Plan) -> tuple[int, int]:
    return int(node.get("Temp Written Blocks", 0)), int(node.get("Temp Read Blocks", 0))


def _less(total: tuple[int, int], parts: Iterable[tuple[int, int]]) -> tuple[int, int]:
    written, read = total
    for part in parts:
        written, read = written - part[0], read - part[1]
    return max(0, written), max(0, read)


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
