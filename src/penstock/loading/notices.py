"""What of a table or its server is worth a warning before a load: rows that would not be safe, or not reach everybody.

Pure; and how often triggers will fire.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.model.dialect import Notice

if TYPE_CHECKING:
    from penstock.model.plan import ObjectSample, TargetPlan
    from penstock.model.server import ServerFacts
    from penstock.model.table import TableFacts

_NAMES_SHOWN = 3


def table_notices(table: TableFacts) -> list[Notice]:
    """Return warnings of a table whose rows a crash takes, or which reach nobody else."""
    notices = []
    if table.is_unlogged:
        notices.append(
            Notice(
                message=f'table "{table.name}" is unlogged',
                hint="Its rows are lost at a crash, and reach no standby and no subscriber.",
            )
        )
    elif table.unlogged_partitions:
        notices.append(
            Notice(
                message=f'partitions of table "{table.name}" are unlogged: {_names(table.unlogged_partitions)}',
                hint="Their rows are lost at a crash, and reach no standby and no subscriber.",
            )
        )
    elif table.unpublished:
        notices.append(
            Notice(
                message=f'table "{table.name}" is not replicated to subscribers',
                hint=f"No publication has its new rows; there is {_names(table.unpublished)}.",
            )
        )
    return notices


def server_notices(server: ServerFacts) -> list[Notice]:
    """Return warnings of a server that replicates nothing."""
    if server.wal_level != "minimal":
        return []
    return [
        Notice(
            message="nothing that is loaded is replicated: wal_level is minimal",
            hint="There can be no standby and no point-in-time recovery; take a base backup after the load.",
        )
    ]


def _names(names: tuple[str, ...]) -> str:
    shown = ", ".join(f'"{name}"' for name in names[:_NAMES_SHOWN])
    more = len(names) - _NAMES_SHOWN
    return f"{shown} and {more:,} more" if more > 0 else shown


def estimate_records(target: TargetPlan, sample: ObjectSample) -> int | None:
    """Return about how many records a target's objects have, None where an object does not tell how large it is."""
    from penstock.loading.space import text_bytes  # noqa: PLC0415 (paid for by who needs it)
    from penstock.loading.work import all_objects  # noqa: PLC0415

    size_bytes = text_bytes(all_objects((target,)), sample)
    lines = sample.head.count(b"\n")
    if size_bytes is None or not lines:
        return None
    headers = len(target.objects) if target.dialect.has_header else 0
    return max(0, round(size_bytes * lines / len(sample.head)) - headers)
