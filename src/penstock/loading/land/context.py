"""What all ways of storing records need: the load, waiting for locks, and the ledger's records of created tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, TypeVar

from penstock.core.catalogue.locking import telling_once, with_lock_retries
from penstock.core.errors import SourceError, TargetError
from penstock.core.frozen import frozen
from penstock.core.values.table import TableFacts, TableName
from penstock.ledger.targets import drop_landing, drop_ranges, write_landing
from penstock.loading.values.work import ObjectWork

if TYPE_CHECKING:
    from penstock.core.catalogue.definition import TableDefinition
    from penstock.core.connect.connection import Connection
    from penstock.ledger.values import Claim, LandedCounts, LandingRecord
    from penstock.loading.context import LoadTools
    from penstock.loading.land.locks import LockMode
    from penstock.loading.values.outcome import StatementOutcome
    from penstock.loading.values.plan import LoadPlan, TargetPlan

    # Called with the number of a target that has its own statement, and the statement's report.
    NoteStatement = Callable[[int, StatementOutcome], None]

_Result = TypeVar("_Result")


@frozen
class TargetLanding:
    """One target that needs more than COPY into its table."""

    target: TargetPlan
    # The table's facts.
    facts: TableFacts
    # The landing in the ledger.
    record: LandingRecord
    # The numbers of the target's objects.
    objects: tuple[int, ...]
    # The definition of a table to be replaced.
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
        return ((self.record.table, self.definition.table.name), *((now, name) for name, now in indexes.items()))


@frozen
class LandingContext:
    """One load, and the session that holds its lock."""

    plan: LoadPlan
    tools: LoadTools
    connection: Connection
    claim: Claim
    # The objects of the load that this host has, by number. Records that are rejected at the end are read again from
    # them.
    objects: Mapping[int, ObjectWork] = field(default_factory=dict)

    def find(self, number: int) -> ObjectWork:
        """Return an object of the load. Raises SourceError if this host does not have it."""
        if number not in self.objects:
            load_id = self.claim.load_id
            raise SourceError(
                f"object {number} of load {load_id} is not among the sources of this host",
                hint=f"penstock loads show {load_id} names it. Run the load where the object exists.",
            )
        return self.objects[number]

    @property
    def schema(self) -> str:
        """Return the ledger's schema."""
        return self.tools.ledger.schema

    def with_locks(
        self, act: Callable[[], _Result], *, relations: Sequence[int], what: str, is_patient: bool = True
    ) -> _Result:
        """Retry `act` until it gets its locks, and return its result. Show which sessions block it.

        It is retried for --retry-for, or not at all if `is_patient` is false. Raises ServerError, which names the
        blockers.
        """
        return with_lock_retries(
            self.connection,
            act,
            relations=relations,
            deadline_s=self.plan.job.rules.retry_for if is_patient else 0.0,
            on_blocked=telling_once(self.tools.notice, what),
            clock=self.tools.clock,
            sleep=self.tools.sleep,
        )

    def begin_anew(self, landing: TargetLanding) -> None:
        """Delete the committed ranges of a landing table that was dropped or does not fit.

        Its objects are loaded again.

        Drop the table first. This waits for other hosts that are committing to it, so that their ranges are visible
        here.
        """
        if landing.record.kind is None:
            return
        name = f"{landing.record.schema}.{landing.record.table}"
        self.tools.notice(f'table "{name}" of this load was dropped or changed: its objects are loaded again')
        drop_ranges(self.connection, self.schema, self.claim, landing.objects)

    def note(self, landing: TargetLanding, record: LandingRecord, *, table: TableName, oid: int) -> TargetLanding:
        """Record a created table in the ledger, in the transaction that created it."""
        record = replace(record, schema=table.schema, table=table.name, oid=oid)
        write_landing(self.connection, self.schema, self.claim, record)
        return replace(landing, record=record)

    def drop(self, record: LandingRecord) -> None:
        """Drop a table that was created earlier for this load."""
        drop_landing(self.connection, self.schema, record, load_id=self.claim.load_id)

    def refuse_publications(self, publications: Iterable[str], describe: Callable[[], str]) -> None:
        """Raise TargetError if a new table would be published. Its subscribers lack the table, and would stop."""
        names = ", ".join(f'"{name}"' for name in publications)
        if self.tools.is_publishing_allowed or not names:
            return
        raise TargetError(
            "a table that this load creates would stop the subscribers of a publication",
            detail=f"Publication {names} would publish it, and the subscribers lack it. They need: {describe()}",
            hint="Create this table on every subscriber, then use --publish-ledger.",
        )


class Way:
    """One way in which the records of targets get into their tables.

    `landings` are the targets of the load that go this way. Methods raise PenstockError.
    """

    def __init__(self, context: LandingContext, landings: Sequence[TargetLanding] = ()) -> None:
        self._context = context
        self._plan = context.plan
        self._tools = context.tools
        self._connection = context.connection
        self._landings = landings

    @staticmethod
    def check(target: TargetPlan, connection: Connection, *, ledger_schema: str) -> None:
        """Raise TargetError if the table cannot be filled in this way. Change nothing."""

    def open(self, landing: TargetLanding, suffix: str) -> TargetLanding:  # noqa: ARG002 (for other ways)
        """Return the landing with the table that COPY fills. The table is created in the caller's transaction.

        `suffix` ends the table's name. Raises TargetError or DataError if the statement at the end would fail.
        """
        return landing

    def finish(self) -> None:
        """Do what can be done before the transaction that ends the load."""

    def find_locks(self) -> dict[int, LockMode]:
        """Return the locks that `land` takes, by the oids of the tables."""
        return {}

    def land(self, note_statement: NoteStatement) -> Sequence[LandedCounts]:  # noqa: ARG002 (for other ways)
        """Move the records to the tables, in the transaction that ends the load."""
        return ()
