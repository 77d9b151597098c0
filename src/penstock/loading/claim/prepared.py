"""What preparing a load has found: what is left to do, or that nothing is."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.model.server.table import TableName

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from penstock.loading.plan.work import ObjectWork
    from penstock.model.load.ledger import Claim, LandingRecord
    from penstock.model.load.plan import LoadPlan, TargetPlan
    from penstock.model.server.table import TableFacts
    from penstock.server.ddl.definition import TableDefinition
    from penstock.server.table.identity import LoadedTable
    from penstock.server.table.tables import CreatedTable


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetLanding:
    """One target of a load that does more than COPY into its table.

    `facts` are the table's, `record` is what the ledger has of it, `objects` are its objects' numbers. `definition` is
    that of a table to be replaced.
    """

    target: TargetPlan
    facts: TableFacts
    record: LandingRecord
    objects: tuple[int, ...]
    definition: TableDefinition | None = None

    @property
    def table(self) -> TableName | None:
        """Return the table that COPY fills, None where that is the target's own."""
        if self.record.kind is None or self.record.table is None:
            return None
        return TableName(schema=self.record.schema, name=self.record.table)

    @property
    def working_names(self) -> tuple[tuple[str, str], ...]:
        """Return what a table that replaces another, and its indexes, are called, each with the name that follows."""
        if self.definition is None or self.record.table is None or self.record.oid is None:
            return ()
        indexes = self.definition.name_indexes(self.record.oid)
        return (self.record.table, self.definition.table.name), *((now, name) for name, now in indexes.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedLoad:
    """A load that is ours: what is to be done, what was made for it, and what had been done before.

    `work` leaves out objects that are complete; `skipped` counts those that earlier loads have loaded, `rows_before`
    the rows that this load had committed to its tables, `rows_committed` those in landing tables too. `objects` has
    each object by its number, complete ones too; `tables` has what the names of the tables mean. `changed_by` and
    `server_holds` are the ledger's; see LedgerFindings.
    """

    claim: Claim
    work: tuple[ObjectWork, ...]
    created: tuple[CreatedTable, ...]
    skipped: int
    rows_before: int
    rows_committed: int = 0
    landings: tuple[TargetLanding, ...] = ()
    changed_by: Mapping[int, Collection[str]] = field(default_factory=dict)
    server_holds: Sequence[str] = ()
    objects: Mapping[int, ObjectWork] = field(default_factory=dict)
    tables: Mapping[TableName, LoadedTable] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class NothingToDo:
    """Every object had been loaded by earlier loads: nothing was written down."""

    skipped: int
    changed_by: Mapping[int, Collection[str]] = field(default_factory=dict)
    server_holds: Sequence[str] = ()


def tables_made(plan: LoadPlan, created: Sequence[CreatedTable]) -> dict[TableName, CreatedTable]:
    """Return the tables that were made for a load by the names that its job has for them."""
    wanted = dict.fromkeys(target.table for target in plan.targets if target.create_columns is not None)
    return dict(zip(wanted, created, strict=True))
