"""Compares two readings of temporary work, and finds why a statement spills. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock.core.units import MIB, format_bytes
from penstock.core.values.device import DeviceRates, rates
from penstock.temp.statements import MEMORY_FACTOR, walk_nodes
from penstock.temp.usage.values import (
    DatabaseRate,
    DeviceNow,
    StatementUse,
    TablespaceDevice,
    UsageReading,
    UsageReport,
    UseCase,
)

if TYPE_CHECKING:
    Plan = dict[str, Any]

# The names of a statement's counters.
_COUNTED = (
    "calls",
    "total_exec_time_ms",
    "rows",
    "temp_read_bytes",
    "temp_written_bytes",
    "local_read_bytes",
    "local_written_bytes",
    "temp_read_time_ms",
    "temp_write_time_ms",
)


def compare_readings(before: UsageReading, after: UsageReading, *, top: int) -> UsageReport:
    """Return what temporary files and tables were written between two readings.

    The report has the `top` statements by bytes, and the rates of each database. A counter that was reset in between
    counts from its reset. If `before` is `after`, statements count from the reset of their statistics, and the report
    has no rates.
    """
    report = UsageReport(
        elapsed_s=None,
        temp_tablespaces=after.temp_tablespaces,
        statements=_join(after.statements)[:top],
        databases=(),
        tablespaces=after.tablespaces,
        missing=after.missing,
        routes=after.routes,
        builds=after.builds,
        devices=tuple(_use(each, None, None) for each in after.devices),
    )
    if before is after:
        return report
    elapsed_s = after.at_s - before.at_s
    missing = list(after.missing)
    earlier = {_key(each): each for each in before.statements}
    if before.statements_reset_at != after.statements_reset_at:
        earlier = {}
        missing.append("statements: their statistics were reset within the interval, and are counted from then")
    statements = [_since(earlier.get(_key(each)), each) for each in after.statements]
    counted = {each.name: each for each in before.databases}
    spilling = []
    for database in after.databases:
        first = counted.get(database.name)
        if first is not None and first.reset_at != database.reset_at:
            missing.append(f"database {database.name}: its statistics were reset within the interval")
            first = None
        files = database.temp_files - (0 if first is None else first.temp_files)
        length_bytes = database.temp_bytes - (0 if first is None else first.temp_bytes)
        spilling.append(
            DatabaseRate(name=database.name, files_per_s=files / elapsed_s, bytes_per_s=length_bytes / elapsed_s)
        )
    return replace(
        report,
        elapsed_s=elapsed_s,
        statements=_join(statements)[:top],
        databases=tuple(spilling),
        missing=tuple(missing),
        devices=tuple(_compare_devices(before, after, sum(rate.bytes_per_s for rate in spilling))),
    )


def _compare_devices(before: UsageReading, after: UsageReading, spilled_per_s: float) -> Iterator[TablespaceDevice]:
    """Yield the use of each device.

    Only one device gets temporary I/O: the device of the first temporary tablespace in penstock's own session. The
    spills of all databases are attributed to it.
    """
    first = {each.tablespace: each for each in before.devices}
    target = after.routes[0].tablespaces[0] if after.routes else None
    for each in after.devices:
        earlier, counters = first.get(each.tablespace), each.counters
        seen = None
        if earlier is not None and earlier.counters is not None and counters is not None:
            seen = rates(earlier.counters, counters)
        yield _use(each, seen, spilled_per_s if each.tablespace == target else None)


def _use(now: DeviceNow, seen: DeviceRates | None, spilled_per_s: float | None) -> TablespaceDevice:
    temporary_iops = None
    if seen is not None and seen.request_bytes and spilled_per_s is not None:
        # The spilled bytes count twice, because a spill is written once and read once. The device may do less, because
        # the operating system's cache may hold spills.
        done = seen.read_iops + seen.write_iops
        temporary_iops = min(done, 2 * spilled_per_s / seen.request_bytes)
    return TablespaceDevice(
        tablespace=now.tablespace,
        device=now.device,
        kind=now.kind,
        free_bytes=now.free_bytes,
        rates=seen,
        temporary_iops=temporary_iops,
    )


def _join(statements: Iterable[StatementUse]) -> tuple[StatementUse, ...]:
    """Return the statements that spill, the one with most bytes first. Statements with the same text are added up.

    One text may have several queryids, because the temporary tables of each session have their own OIDs.
    """
    found: dict[tuple[object, ...], StatementUse] = {}
    for each in sorted(statements, key=lambda each: -each.temporary_bytes):
        if each.temporary_bytes > 0:
            key = each.database, each.role, each.query or each.queryid, each.is_top
            found[key] = _add(found[key], each) if key in found else each
    return tuple(sorted(found.values(), key=lambda each: -each.temporary_bytes))


def _add(one: StatementUse, other: StatementUse, *, sign: int = 1) -> StatementUse:
    """Return `one` with the counters of `other` added, or subtracted if `sign` is -1."""
    counted: dict[str, Any] = {}
    for name in _COUNTED:
        mine, others = getattr(one, name), getattr(other, name)
        counted[name] = None if mine is None or others is None else mine + sign * others
    return replace(one, **counted)


def _key(use: StatementUse) -> tuple[object, ...]:
    return use.database, use.role, use.queryid, use.query, use.is_top


def _since(before: StatementUse | None, after: StatementUse) -> StatementUse:
    if before is None:
        return after
    since = _add(after, before, sign=-1)
    # The counters fell if they were reset, or if pg_stat_statements evicted the statement and it came back.
    is_reset = min(since.calls, since.total_exec_time_ms, since.temp_written_bytes, since.local_written_bytes) < 0
    return after if is_reset else since


# The plan nodes that may use temporary files, with the use case of each.
_NODES = {
    "Sort": "sort",
    "Incremental Sort": "sort",
    "Hash": "hash join",
    "CTE Scan": "CTE",
    "Materialize": "materialise",
    "WindowAgg": "window",
    "Recursive Union": "CTE",
}


# One session is not told to take more than this part of the memory, or this many MiB if it is not known. Several
# sessions may run the statement, and each has several such areas.
_MOST_OF_MEMORY = 16
_MOST_WORK_MEM_MB = 256


def find_use_case(use: StatementUse, plan: Plan, *, memory_bytes: int | None = None) -> UseCase:
    """Return what a statement uses temporary files for, by its plan, and the cheapest remedy.

    `memory_bytes` is the memory of the server's machine, None if it is not known.
    """
    # Without temporary files, no node of the plan has spilled.
    names = list(dict.fromkeys(_read_plan(plan))) if use.temp_written_bytes or use.temp_read_bytes else []
    if (use.local_written_bytes or use.local_read_bytes) and "temporary table" not in names:
        names.append("temporary table")
    keys = [str(key) for node in walk_nodes(plan) for key in node.get("Sort Key", ())]
    # An index could provide the order of columns. A key with a parenthesis is an expression and may be an aggregate,
    # which no index provides. In this case no index is suggested.
    keys = [] if any("(" in key for key in keys) else keys
    return UseCase(names=tuple(names), remedy=_remedy(use, names, keys, memory_bytes))


def _read_plan(plan: Plan) -> Iterator[str]:
    for node in walk_nodes(plan):
        kind = str(node.get("Node Type"))
        if kind == "Aggregate" and node.get("Strategy") in ("Hashed", "Mixed"):
            yield "grouping"
        elif kind == "Unique" or (kind == "Aggregate" and node.get("Strategy") == "Sorted"):
            # The sort below this node spills, and this node groups its rows.
            yield "grouping"
        elif kind in _NODES:
            yield _NODES[kind]


def _remedy(use: StatementUse, names: list[str], keys: list[str], memory_bytes: int | None) -> str:
    if names == ["temporary table"]:
        return "temp_buffers for the session, before its first temporary table; or fewer columns in the table"
    each_bytes = use.temp_written_bytes // max(1, use.calls)
    needed_mb = max(1, round(each_bytes * MEMORY_FACTOR / MIB))
    most_mb = _MOST_WORK_MEM_MB if memory_bytes is None else int(memory_bytes / _MOST_OF_MEMORY / MIB)
    if needed_mb > most_mb:
        of = "" if memory_bytes is None else f", a {_MOST_OF_MEMORY}th of the memory"
        return (
            f"it spills {format_bytes(each_bytes)} each time, and not to spill takes about {needed_mb} MB, more than "
            f"one session should take ({most_mb} MB{of}): give it less to sort, or place temporary work on a fast disk"
        )
    memory = (
        f"SET LOCAL work_mem = '{needed_mb}MB' in its transaction: it spills {format_bytes(each_bytes)} each time, and "
        "every session that runs it takes that memory, each parallel worker too"
    )
    if "sort" in names and keys:
        return f"an index on {', '.join(keys[:3])}, if it is sorted so often; or {memory}"
    if "hash join" in names or "grouping" in names:
        return f"{memory}; or hash_mem_multiplier, for hashes alone"
    return memory
