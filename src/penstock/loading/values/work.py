"""Describes one object of a load: its target, its number in the ledger, and which of its bytes are committed."""

from __future__ import annotations

from dataclasses import field

from penstock.core.files.listing import ctime_ns, lasting_version, recorded_name
from penstock.core.frozen import frozen
from penstock.core.values.source import SourceObject
from penstock.core.values.table import TableName
from penstock.ledger.values import Coverage, LedgerObject, LedgerUnit
from penstock.loading.values.plan import TargetPlan


@frozen
class ObjectWork:
    """An object to load; blocks within `coverage` are not sent again.

    `target_index` is the index of its target in the job. `landing` is the table that COPY fills, if that is not the
    target's own or was just created. `working_names` are the present names of a table that will replace the target's,
    and of its indexes, each with the name that it will have.
    """

    target: TargetPlan
    source: SourceObject
    number: int
    coverage: Coverage = field(default_factory=Coverage)
    target_index: int = 0
    landing: TableName | None = None
    working_names: tuple[tuple[str, str], ...] = ()

    @property
    def has_positions(self) -> bool:
        """Whether the table that COPY fills stores the position of each record in its object."""
        return self.landing is not None and self.target.is_staged

    @property
    def is_fresh(self) -> bool:
        """Whether the object is loaded whatever was loaded before; a pipe has no version to recognize it by."""
        return self.target.landing.is_fresh or self.source.is_pipe


def all_objects(targets: tuple[TargetPlan, ...]) -> list[ObjectWork]:
    """Return every object of a plan, numbered in the order of the job, with nothing committed."""
    found = [(index, target, source) for index, target in enumerate(targets) for source in target.objects]
    return [
        ObjectWork(target=target, source=source, number=number, target_index=index)
        for number, (index, target, source) in enumerate(found)
    ]


def ledger_object(
    source: SourceObject, *, number: int, target_oid: int, target: TableName, unit: LedgerUnit = "bytes"
) -> LedgerObject:
    """Return an object as the ledger records it."""
    return LedgerObject(
        number=number,
        target_oid=target_oid,
        target=target,
        uri=recorded_name(source),
        version=lasting_version(source),
        size_bytes=source.size_bytes,
        ctime_ns=ctime_ns(source),
        unit=unit,
    )
