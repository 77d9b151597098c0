"""Two readings of temporary work, and what was done between them. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.model.temp.usage import DatabaseRate, UsageReport

if TYPE_CHECKING:
    from penstock.model.temp.usage import StatementUse, UsageReading


def compare_readings(before: UsageReading, after: UsageReading, *, top: int) -> UsageReport:
    """Return what was done between two readings: the `top` statements by temporary bytes, and databases as rates.

    Counters that were reset meanwhile count from their reset.
    """
    elapsed_s = after.at_s - before.at_s
    earlier = {_key(each): each for each in before.statements}
    statements = [_since(earlier.get(_key(each)), each) for each in after.statements]
    spilled = [each for each in statements if each.temporary_bytes > 0]
    spilled.sort(key=lambda each: each.temporary_bytes, reverse=True)
    counted = {each.name: each for each in before.databases}
    rates = []
    for database in after.databases:
        first = counted.get(database.name)
        is_reset = first is None or database.temp_files < first.temp_files or database.temp_bytes < first.temp_bytes
        files = database.temp_files if first is None or is_reset else database.temp_files - first.temp_files
        length_bytes = database.temp_bytes if first is None or is_reset else database.temp_bytes - first.temp_bytes
        rates.append(
            DatabaseRate(name=database.name, files_per_s=files / elapsed_s, bytes_per_s=length_bytes / elapsed_s)
        )
    return UsageReport(
        elapsed_s=elapsed_s,
        temp_tablespaces=after.temp_tablespaces,
        statements=tuple(spilled[:top]),
        databases=tuple(rates),
        tablespaces=after.tablespaces,
        missing=after.missing,
    )


def _key(use: StatementUse) -> tuple[object, ...]:
    return use.database, use.role, use.queryid, use.query


def _since(before: StatementUse | None, after: StatementUse) -> StatementUse:
    if before is None or after.calls < before.calls:
        return after
    return replace(
        after,
        calls=after.calls - before.calls,
        total_exec_time_ms=after.total_exec_time_ms - before.total_exec_time_ms,
        rows=after.rows - before.rows,
        temp_read_bytes=after.temp_read_bytes - before.temp_read_bytes,
        temp_written_bytes=after.temp_written_bytes - before.temp_written_bytes,
        local_read_bytes=after.local_read_bytes - before.local_read_bytes,
        local_written_bytes=after.local_written_bytes - before.local_written_bytes,
        temp_read_time_ms=_minus(after.temp_read_time_ms, before.temp_read_time_ms),
        temp_write_time_ms=_minus(after.temp_write_time_ms, before.temp_write_time_ms),
    )


def _minus(after: float | None, before: float | None) -> float | None:
    return None if after is None or before is None else after - before
