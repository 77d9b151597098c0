"""The results of preparing a load: what is left to do, or that nothing is left."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING

from penstock.errors import SourceError
from penstock.frozen import frozen
from penstock.model.server.table import TableFacts, TableName

if TYPE_CHECKING:
    from penstock.loading.claim.membership import Membership
    from penstock.loading.plan.work import ObjectWork
    from penstock.model.load.ledger import Claim, LandingRecord
    from penstock.model.load.plan import TargetPlan
    from penstock.server.ddl.definition import TableDefinition
    from penstock.server.table.identity import LoadedTable
    from penstock.server.table.tables import CreatedTable


@frozen
class TargetLanding:
    """One target that needs more than COPY into its table.

    `facts` are the table's facts, `record` is the landing in the ledger, `objects` are the numbers of the target's
    objects. `definition` is the definition of a table to be replaced.
    """

    target: TargetPlan
    facts: TableFacts
    record: LandingRecord
    objects: tuple[int, ...]
    definition: TableDefinition | None = None

    @property
    def table(self) -> TableName | None:
        """Return the table that COPY fills, or None if that is the target's own table."""
        if self.record.kind is None or self.record.table is None:
            return None
        return TableName(schema=self.record.schema, name=self.record.table)

    @property
    def working_names(self) -> tuple[tuple[str, str], ...]:
        """Return the present names of a replacing table and its indexes, each with the name that it will have."""
        if self.definition is None or self.record.table is None or self.record.oid is None:
            return ()
        indexes = self.definition.name_indexes(self.record.oid)
        return (self.record.table, self.definition.table.name), *((now, name) for name, now in indexes.items())


@frozen
class PreparedLoad:
    """A load that this process has claimed: what is left, what was created for it, and what was done before.

    `work` has the objects that are not complete; `skipped` counts the objects that earlier loads have loaded,
    `rows_before` the rows that this load has already committed to its tables, `rows_committed` also those in landing
    tables. `objects` has each object by its number, including complete ones; `tables` has the table that each name in a
    COPY command stands for. `changed_by` and `server_holds` are from the ledger; see LedgerFindings. `member` claims
    objects for this process if several hosts load, and `leads` is false if another process runs the load's steps.
    `left` are the URIs of this host's objects that are not part of the load, since it began without them.
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
    member: Membership | None = None
    leads: bool = True
    left: tuple[str, ...] = ()

    def find(self, number: int) -> ObjectWork:
        """Return an object of the load. Raises SourceError if this host does not have it."""
        if number not in self.objects:
            load_id = self.claim.load_id
            raise SourceError(
                f"object {number} of load {load_id} is not among the sources of this host",
                hint=f"penstock loads show {load_id} names it. Run the load where the object exists.",
            )
        return self.objects[number]


@frozen
class NothingToDo:
    """Earlier loads have loaded every object: no load was recorded.

    If this process has waited for load `waited_for`, by several hosts, `left` are the URIs of the objects that are not
    loaded, because they are not part of that load.
    """

    skipped: int
    waited_for: str = ""
    left: tuple[str, ...] = ()
    changed_by: Mapping[int, Collection[str]] = field(default_factory=dict)
    server_holds: Sequence[str] = ()
