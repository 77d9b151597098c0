"""What is needed to make and restore changes, the interfaces of a kind and of a store, and the result of restoring."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from penstock.changes.records import shape_lock
from penstock.changes.values import SERVER, Change, Hold, Rebuilt, RepairAction
from penstock.core.catalogue.locking import telling_once, with_lock_retries
from penstock.core.connect.connection import Connection, ConnectionFactory
from penstock.core.errors import PenstockError, ServerError, TargetError
from penstock.core.values.accounts import StepProgress
from penstock.core.values.server import ServerIdentity
from penstock.ledger.locks import LockHolder

if TYPE_CHECKING:
    from penstock.core.catalogue.settings import SettingResult
    from penstock.core.values.temp_place import PlaceReport


class Store(Protocol):
    """Where changes and holds are recorded: tables of a ledger, or tags of an AWS resource.

    A change is an object that is to be restored; a hold says which load or command still needs the changes of a table
    or of the server. A write is durable when the method returns. The argument `oid` is a table's OID, or SERVER for the
    whole server. Methods raise ServerError, TargetError, AwsError.
    """

    @property
    def connection(self) -> Connection:
        """Return the session that takes the locks."""

    @property
    def schema(self) -> str:
        """Return the schema of the ledger, empty if the store is not a ledger."""

    def exists(self) -> bool:
        """Return whether the store exists. Raises TargetError if it cannot be trusted."""

    def open(self) -> bool:
        """Return whether the store exists, and upgrade it if an older penstock wrote it.

        Raises TargetError if it cannot be trusted or upgraded.
        """

    def ensure(self) -> None:
        """Create the store if it does not exist, or upgrade it."""

    def read_changes(self, oid: int | None = None) -> list[Change]:
        """Return the recorded changes of a table or of the server; all recorded changes if `oid` is None."""

    def read_holds(self, oid: int | None = None) -> list[Hold]:
        """Return the holds on a table or on the server, the oldest first; all holds if `oid` is None."""

    def write(self, hold: Hold, changes: Sequence[Change], stale: Sequence[Change] = ()) -> None:
        """Write a hold and changes, and remove the `stale` changes. A ledger does this in one transaction."""

    def forget(self, oid: int, changes: Sequence[Change], holders: Sequence[str]) -> None:
        """Remove records of changes that were restored, and the holds on `oid` of the holders with these ids."""


# How long to try for locks by default. A batch of another load may have such locks, and takes about 10 s.
PATIENCE_S = 300.0

_WAITING = "waiting for another process that drops or rebuilds indexes of the table"
_WAITING_SERVER = "waiting for another process that changes the server"


class Report(Protocol):
    """A callback that receives what a load or a repair does after the last row, and the progress of its steps."""

    def __call__(self, activity: str, steps: tuple[StepProgress, ...] = ()) -> None:
        """Show or store the activity."""


@dataclass(slots=True, kw_only=True)
class Restored:
    """The result of restoring changes. The lists grow while objects are restored."""

    rebuilt: list[Rebuilt] = field(default_factory=list)
    # The restored settings of the server, and below the restored temp place of the server.
    settings: list[SettingResult] = field(default_factory=list)
    temp_place: PlaceReport | None = None
    # Messages about changes that are not restored yet, because other loads need them.
    held: list[str] = field(default_factory=list)
    errors: list[PenstockError] = field(default_factory=list)
    # The errors for records that came with a dump of another database. No table lacks anything because of these
    # records.
    copied: list[PenstockError] = field(default_factory=list)

    def raise_first(self) -> None:
        """Raise the first error, with the number of the others in its detail. Do nothing if there is none."""
        if self.errors:
            first = self.errors[0]
            if others := len(self.errors) - 1:
                more = f"{others} more could not be rebuilt: see penstock repair --plan."
                first.detail = f"{first.detail}\n{more}" if first.detail else more
            if isinstance(first, ServerError):
                first.hint = f"{first.hint or ''} Indexes were not rebuilt: run penstock repair.".strip()
            raise first

    def note(self, change: Change, seconds: float) -> None:
        """Add a restored object and how long that took. Seconds of several calls for one object are added up."""
        found = Rebuilt(kind=change.kind, name=change.name, table=str(change.target), seconds=seconds)
        for number, other in enumerate(self.rebuilt):
            if replace(other, seconds=seconds) == found:
                self.rebuilt[number] = replace(other, seconds=other.seconds + seconds)
                return
        self.rebuilt.append(found)


def is_at_table(change: Change) -> bool:
    """Return whether a change belongs to a table, not to the whole server."""
    return change.target_oid != SERVER


class Kind(Protocol):
    """A kind of change: how it is restored, and what a repair does about it. Methods raise PenstockError."""

    def handles(self, change: Change) -> bool:
        """Return whether a record describes a change of this kind."""

    def restore(self, context: Context, changes: Sequence[Change], done: Restored) -> Sequence[Change]:
        """Restore changes of one table or of the server, whose lock the caller has. Add the results to `done`.

        Return those restored changes whose records the caller must remove. Changes whose records were removed in the
        transaction that restored them are not returned.
        """

    def restore_rest(self, context: Context, oids: set[int], done: Restored) -> None:  # noqa: ARG002 (nothing waits)
        """Restore what must wait until all tables are restored. This method takes the locks of the tables itself."""
        return

    def describe(self, context: Context, change: Change) -> tuple[RepairAction, str]:
        """Return what a repair does about a change that no running load needs, and why."""


@dataclass(slots=True, kw_only=True)
class Context:
    """What making and restoring changes needs: the store, the kinds of change, the clock, and who receives messages."""

    # The store of changes. Its session has the locks.
    store: Store
    # The kinds of change in the store.
    kinds: Sequence[Kind]
    # Receives a message about each thing that is done.
    notice: Callable[[str], None]
    # Opens further sessions.
    connect: ConnectionFactory | None = None
    # How long to try for locks when restoring.
    retry_for_s: float = PATIENCE_S
    # Whether the server runs on this machine.
    is_local: bool = False
    report: Report | None = None
    clock: Callable[[], float] = time.perf_counter
    sleep: Callable[[float], None] = time.sleep
    # The tables that a load must restore.
    held: set[int] = field(default_factory=set)
    # The ids of holders that end now.
    leaving: Collection[str] = ()
    # Selects the changes to restore from the store; by default the changes of tables.
    concerns: Callable[[Change], bool] = is_at_table
    # The identity of this server. If it is set, holds whose changes were made on another server are not touched.
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
        """Return the kind of a change. Raises TargetError if this version of penstock does not know it."""
        for kind in self.kinds:
            if kind.handles(change):
                return kind
        raise TargetError(
            f'{change.kind} "{change.name}" of table "{change.target}" was changed by another version of penstock',
            detail=f"This one does not know changes of kind {change.kind}.",
            hint="Run penstock repair of the version that changed it.",
        )

    def is_over(self, hold: Hold) -> bool:
        """Return whether a hold has ended. Its changes are then restored unless another hold needs them."""
        is_here = self.server is None or hold.is_of(self.server)
        return hold.holder_id in self.leaving or (is_here and not hold.is_alive)

    def lock(self, oid: int) -> AbstractContextManager[None]:
        """Hold the lock for changing a table or the server while the block runs. Raises ServerError."""
        waiting = _WAITING_SERVER if oid == SERVER else _WAITING

        def tell(holder: LockHolder) -> None:
            self.notice(f"{waiting} ({holder})")

        return shape_lock(self.connection, oid, schema=self.schema, on_wait=tell, sleep=self.sleep)

    def with_locks(
        self,
        act: Callable[[], None],
        *,
        relations: Collection[int],
        what: str,
        deadline_s: float | None = None,
        connection: Connection | None = None,
    ) -> None:
        """Run `act`, again if it does not get its locks in time. Raises PenstockError.

        `relations` are the OIDs of the tables that `act` locks. `what` is the action as a verb and its object, for the
        message that names, once, each session that blocks it. The attempts end after `deadline_s` seconds, by default
        after `retry_for_s`.
        """
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
        """Return whether a hold keeps a change of a table. The caller has the table's lock.

        If so, add a message that names the load to `done`.
        """
        for hold in self.store.read_holds(oid):
            if not self.is_over(hold):
                done.held.append(describe_held(change, hold))
                return True
        return False

    def say(self, text: str, steps: tuple[StepProgress, ...] = ()) -> None:
        """Report what is being done now, and the progress of its steps, to `report` if it is set."""
        if self.report is not None:
            self.report(text, steps)


def describe_held(change: Change, hold: Hold) -> str:
    """Return a message that names the load that needs the changes of a table."""
    return (
        f'table "{change.target}" is being loaded by load {hold.holder_id} (backend {hold.pid}), which rebuilds its '
        "indexes and keys"
    )
