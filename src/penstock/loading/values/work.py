"""Describes one object of a load: its target, its number in the ledger, and which of its bytes are committed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from penstock.core.slotted import slotted
from penstock.core.values.source import SourceObject
from penstock.core.values.table import TableName
from penstock.ledger.values import Coverage, LedgerObject, LedgerUnit
from penstock.loading.files.listing import ctime_ns, lasting_version, recorded_name
from penstock.loading.values.plan import TargetPlan


@slotted
class PlannedObject:
    """One object of a load, with its target and what is committed of it."""

    target: TargetPlan
    source: SourceObject
    # The number of the object in the load, from 0.
    number: int
    # What is committed of the object. Blocks within it are not sent again.
    coverage: Coverage = field(default_factory=Coverage)
    # The index of the target in the job.
    target_index: int = 0
    # The table that COPY fills, if it is not the target's own table or was just created.
    landing: TableName | None = None
    # The present names of a replacing table and of its indexes, each with its final name.
    working_names: tuple[tuple[str, str], ...] = ()

    @property
    def has_positions(self) -> bool:
        """Whether the table that COPY fills stores the position of each record in its object."""
        return self.landing is not None and self.target.is_staged

    @property
    def is_fresh(self) -> bool:
        """Return whether the object is loaded even if an earlier load has loaded it.

        This is so for a pipe, which has no version, and if the mode needs all objects of the sources, such as replace.
        """
        return self.target.landing.is_fresh or self.target.landing.deletes or self.source.is_pipe


def all_objects(targets: Sequence[TargetPlan]) -> list[PlannedObject]:
    """Return every object of a plan's targets, numbered from 0 in the order of the job, as if none were loaded."""
    found = [(index, target, source) for index, target in enumerate(targets) for source in target.objects]
    return [
        PlannedObject(target=target, source=source, number=number, target_index=index)
        for number, (index, target, source) in enumerate(found)
    ]


def ledger_object(
    source: SourceObject, *, number: int, target_oid: int, target: TableName, unit: LedgerUnit = "bytes"
) -> LedgerObject:
    """Return an object as the ledger records it. `number` is its number in the load, `target_oid` the table's OID.

    `unit` is what the ranges of the object count.
    """
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
