"""Makes warnings about a table or its server before a load: a crash would lose the rows, or they are not replicated.

Also estimates for how many records triggers will fire, and checks that the role may disable them. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.errors import TargetError
from penstock.loading.plan.space import text_bytes
from penstock.loading.work import all_objects
from penstock.model.load.job import LoadRules
from penstock.model.load.plan import TargetPlan
from penstock.model.server.server import ServerFacts
from penstock.model.server.table import TableFacts
from penstock.model.source.dialect import Notice
from penstock.model.source.source import ObjectSample

_NAMES_SHOWN = 3


def table_notices(table: TableFacts) -> list[Notice]:
    """Return warnings about a table that loses its rows in a crash."""
    notices = []
    if table.is_unlogged:
        notices.append(
            Notice(
                code="unlogged",
                message=f'table "{table.name}" is unlogged',
                hint="Its rows are lost in a crash, and are not replicated.",
            )
        )
    elif table.unlogged_partitions:
        notices.append(
            Notice(
                code="unlogged",
                message=f'partitions of table "{table.name}" are unlogged: {list_names(table.unlogged_partitions)}',
                hint="Their rows are lost in a crash, and are not replicated.",
            )
        )
    return notices


def unpublished_notice(table: TableFacts) -> Notice | None:
    """Return a warning about a table that no publication includes although there are publications.

    It is shown for the table's first load only, since this may be intended.
    """
    if not table.unpublished or table.is_unlogged or table.unlogged_partitions:
        return None
    return Notice(
        code="unpublished",
        message=f'table "{table.name}" is not replicated to subscribers',
        hint=f"No publication includes its new rows; existing publications: {list_names(table.unpublished)}.",
    )


def server_notices(server: ServerFacts) -> list[Notice]:
    """Return a warning if wal_level is minimal, so that nothing is replicated."""
    if server.wal_level != "minimal":
        return []
    return [
        Notice(
            code="wal-minimal",
            message="nothing that is loaded is replicated: wal_level is minimal",
            hint="Standbys and point-in-time recovery are not possible; take a base backup after the load.",
        )
    ]


def check_switches(rules: LoadRules, facts: TableFacts | None) -> None:
    """Raise TargetError if triggers or autovacuum of a table are to be disabled and the role does not own it."""
    asked = [f"--triggers {rules.triggers}"] if rules.triggers != "keep" else []
    asked += [f"--autovacuum {rules.autovacuum}"] if rules.autovacuum == "pause" else []
    if not asked or facts is None or facts.is_owner:
        return
    raise TargetError(
        f'{" and ".join(asked)} needs the owner of table "{facts.name}"',
        detail="Only the owner may alter a table.",
        hint="Load as the owner (--role), or do not use the option.",
    )


def list_names(names: Sequence[object]) -> str:
    """Return the first names, quoted, and how many more there are."""
    shown = ", ".join(f'"{name}"' for name in names[:_NAMES_SHOWN])
    more = len(names) - _NAMES_SHOWN
    return f"{shown} and {more:,} more" if more > 0 else shown


def estimate_records(target: TargetPlan, sample: ObjectSample) -> int | None:
    """Return about how many records a target's objects have, or None if the size of an object is not known."""
    size_bytes = text_bytes(all_objects((target,)), sample)
    lines = sample.head.count(b"\n")
    if size_bytes is None or not lines:
        return None
    headers = len(target.objects) if target.dialect.has_header else 0
    return max(0, round(size_bytes * lines / len(sample.head)) - headers)
