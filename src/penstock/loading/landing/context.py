"""Provides what all landings need: the load, waiting for locks, and the ledger's records of the created tables."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from penstock.errors import TargetError
from penstock.server.ledger.targets import drop_landing, drop_ranges, write_landing
from penstock.server.table.locking import telling_once, with_lock_retries

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from penstock.loading.claim.prepared import TargetLanding
    from penstock.loading.context import LoadTools
    from penstock.model.load.ledger import Claim, LandingRecord
    from penstock.model.load.plan import LoadPlan
    from penstock.model.server.table import TableName
    from penstock.server.connect.connection import Connection

_Result = TypeVar("_Result")


def with_locks(
    act: Callable[[], _Result],
    *,
    plan: LoadPlan,
    tools: LoadTools,
    connection: Connection,
    relations: Sequence[int],
    what: str,
    is_patient: bool = True,
) -> _Result:
    """Retry `act` until it gets its locks, and return its result; show which sessions block it.

    It is retried for --retry-for, or not at all if `is_patient` is false. Raises ServerError, which names the blockers.
    """
    return with_lock_retries(
        connection,
        act,
        relations=relations,
        deadline_s=plan.job.rules.retry_for if is_patient else 0.0,
        on_blocked=telling_once(tools.notice, what),
        clock=tools.clock,
        sleep=tools.sleep,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LandingContext:
    """One load, and the session that holds its lock; `identity` is part of the names of the tables created for it."""

    plan: LoadPlan
    tools: LoadTools
    connection: Connection
    claim: Claim
    identity: str
    loaded: frozenset[int]

    @property
    def schema(self) -> str:
        """Return the ledger's schema."""
        return self.tools.ledger.schema

    def begin_anew(self, landing: TargetLanding) -> None:
        """Delete the ranges of a landing table that was dropped or does not fit: its objects are loaded again."""
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
        """Raise TargetError if a new table would be published, which stops the subscribers because they lack it."""
        names = ", ".join(f'"{name}"' for name in publications)
        if self.tools.is_publishing_allowed or not names:
            return
        raise TargetError(
            "a table that this load creates would stop the subscribers of a publication",
            detail=f"Publication {names} would publish it, and the subscribers lack it. They need: {describe()}",
            hint="Create this table on every subscriber, then use --publish-ledger.",
        )
