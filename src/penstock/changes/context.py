"""Defines the context for making and restoring changes, the result of restoring, and the interface of a kind."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Protocol

from penstock.errors import PenstockError, ServerError, TargetError
from penstock.model.load.shape import SERVER, Change, Hold, Rebuilt, RepairAction
from penstock.server.changes.holds import shape_lock
from penstock.server.table.locking import telling_once, with_lock_retries

if TYPE_CHECKING:
    from penstock.changes.store.store import Store
    from penstock.model.load.part import StepProgress
    from penstock.model.server.identity import ServerIdentity
    from penstock.model.server.settings import SettingResult
    from penstock.model.temp.placement import PlaceReport
    from penstock.server.connect.connection import Connection, ConnectionFactory


# How long to try for locks by default; a batch of another load takes about 10 s.
PATIENCE_S = 300.0

_WAITING = "waiting for another process that drops or rebuilds indexes of the table"
_WAITING_SERVER = "waiting for another process that changes the server"


class Report(Protocol):
    """Receives what a load or a repair does after the last row, and the progress of each part of this work."""

    def __call__(self, activity: str, steps: tuple[StepProgress, ...] = ()) -> None:
        """Show or store the activity."""


@dataclass(slots=True, kw_only=True)
class Restored:
    """What was restored, what other loads still need changed, and the errors that occurred.

    `copied` has the errors for records that came with a dump of another database; tables lack nothing because of these
    records. `settings` and `temp_place` are what was restored of the whole server.
    """

    rebuilt: list[Rebuilt] = field(default_factory=list)
    settings: list[SettingResult] = field(default_factory=list)
    temp_place: PlaceReport | None = None
    held: list[str] = field(default_factory=list)
    errors: list[PenstockError] = field(default_factory=list)
    copied: list[PenstockError] = field(default_factory=list)

    def raise_first(self) -> None:
        """Raise the first error, with the number of the others in its detail."""
        if self.errors:
            first = self.errors[0]
            if others := len(self.errors) - 1:
                more = f"{others} more could not be rebuilt: see penstock repair --plan."
                first.detail = f"{first.detail}\n{more}" if first.detail else more
            if isinstance(first, ServerError):
                first.hint = f"{first.hint or ''} Indexes were not rebuilt: run penstock repair.".strip()
            raise first

    def note(self, change: Change, seconds: float, *, name: str | None = None) -> None:
        """Add a restored object. The seconds of one object's steps, or of parts attached to `name`, are added up."""
        found = Rebuilt(kind=change.kind, name=name or change.name, table=str(change.target), seconds=seconds)
        for number, other in enumerate(self.rebuilt):
            if replace(other, seconds=seconds) == found:
                self.rebuilt[number] = replace(other, seconds=other.seconds + seconds)
                return
        self.rebuilt.append(found)


def is_at_table(change: Change) -> bool:
    """Return whether a change is at a table, not of the whole server."""
    return change.target_oid != SERVER


class Kind(Protocol):
    """A kind of change: how it is restored, and how a repair describes it. Methods raise PenstockError."""

    def handles(self, change: Change) -> bool:
        """Return whether a record is of this kind."""

    def restore(self, context: Context, changes: Sequence[Change], done: Restored) -> Sequence[Change]:
        """Restore changes at one table or of the server, under its lock; return those with records left to remove.

        A kind that removes a record in the transaction that restores its change does not return that change.
        """

    def restore_rest(self, context: Context, oids: set[int], done: Restored) -> None:  # noqa: ARG002 (nothing waits)
        """Restore what must wait until all tables are restored; this method takes the locks of the tables itself."""
        return

    def describe(self, context: Context, change: Change) -> tuple[RepairAction, str]:
        """Return what a repair does about a change that no running load needs, and why."""


@dataclass(slots=True, kw_only=True)
class Context:
    """The store of changes, whose session has the locks, the kinds of change in it, and what is needed to restore them.

    `notice` and `report` receive what is done. `connect` opens further sessions. `retry_for_s` is how long to try for
    locks when restoring. `is_local` is whether the server runs on this machine. `held` are the tables that a load must
    restore. `leaving` are the ids of holders that end now. `concerns` selects the changes of the store to restore, by
    default those at tables. `server` is the identity of this server, if holds of another server must be left alone.
    """

    store: Store
    kinds: Sequence[Kind]
    notice: Callable[[str], None]
    connect: ConnectionFactory | None = None
    retry_for_s: float = PATIENCE_S
    is_local: bool = False
    report: Report | None = None
    clock: Callable[[], float] = time.perf_counter
    sleep: Callable[[float], None] = time.sleep
    held: set[int] = field(default_factory=set)
    leaving: Collection[str] = ()
    concerns: Callable[[Change], bool] = is_at_table
    server: ServerIdentity | None = None

    @property
    def connection(self) -> Connection:
        """Return the store's session."""
        return self.store.connection

    @property
    def schema(self) -> str:
        """Return the ledger's schema."""
        return self.store.schema

    def kind_of(self, change: Change) -> Kind:
        """Return the kind of a record. Raises TargetError for a kind that this version does not know."""
        for kind in self.kinds:
            if kind.handles(change):
                return kind
        raise TargetError(
            f'{change.kind} "{change.name}" of table "{change.target}" was changed by another version of penstock',
            detail=f"This one does not know changes of kind {change.kind}.",
            hint="Run penstock repair of the version that changed it.",
        )

    def is_over(self, hold: Hold) -> bool:
        """Return whether a hold has ended; then its changes are restored unless another hold needs them."""
        is_here = self.server is None or hold.is_of(self.server)
        return hold.holder_id in self.leaving or (is_here and not hold.is_alive)

    def lock(self, oid: int) -> AbstractContextManager[None]:
        """Hold the lock for changing a table or the server while the block runs. Raises ServerError."""
        waiting = _WAITING_SERVER if oid == SERVER else _WAITING
        return shape_lock(self.connection, oid, on_wait=partial(self.notice, waiting), sleep=self.sleep)

    def with_locks(
        self,
        act: Callable[[], None],
        *,
        relations: Collection[int],
        what: str,
        deadline_s: float | None = None,
        connection: Connection | None = None,
    ) -> None:
        """Retry `act` until it gets its locks; show once which sessions block it. Raises PenstockError."""
        with_lock_retries(
            self.connection if connection is None else connection,
            act,
            relations=sorted(relations),
            deadline_s=self.retry_for_s if deadline_s is None else deadline_s,
            on_blocked=telling_once(self.notice, what),
            clock=self.clock,
            sleep=self.sleep,
        )

    def is_held(self, oid: int, change: Change, done: Restored) -> bool:
        """Whether a running load needs a table changed; if so, add a message to `done`. The caller has the lock."""
        for hold in self.store.read_holds(oid):
            if not self.is_over(hold):
                done.held.append(describe_held(change, hold))
                return True
        return False

    def say(self, text: str, steps: tuple[StepProgress, ...] = ()) -> None:
        """Report the present activity."""
        if self.report is not None:
            self.report(text, steps)


def describe_held(change: Change, hold: Hold) -> str:
    """Return a message that names the load which needs the changes at a table."""
    return (
        f'table "{change.target}" is being loaded by load {hold.holder_id} (backend {hold.pid}), which rebuilds its '
        "indexes and keys"
    )
