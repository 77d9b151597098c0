"""What changes are made and restored through, and what came of restoring."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager  # noqa: TC003 (a dataclass's method)
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Protocol

from penstock.errors import PenstockError, ServerError
from penstock.model.load.shape import Rebuilt
from penstock.server.changes.holds import find_other_holds, shape_lock
from penstock.server.table.locking import telling_once, with_lock_retries

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from penstock.model.load.outcome import StepProgress
    from penstock.model.load.shape import Change
    from penstock.server.connect.connection import Connection, ConnectionFactory


# How long locks are tried for where nobody has said: others' batches last ten seconds.
PATIENCE_S = 300.0

_WAITING = "waiting for another process that drops or rebuilds indexes of the table"


class Report(Protocol):
    """Who wants to hear what is done behind the last row, and how far its parts are."""

    def __call__(self, activity: str, steps: tuple[StepProgress, ...] = ()) -> None:
        """Take note of it."""


@dataclass(slots=True, kw_only=True)
class Restored:
    """What was restored, what other loads still want changed, and the errors that were met.

    `copied` are those of records that came with a dump: what they tell of is no loss of these tables.
    """

    rebuilt: list[Rebuilt] = field(default_factory=list)
    held: list[str] = field(default_factory=list)
    errors: list[PenstockError] = field(default_factory=list)
    copied: list[PenstockError] = field(default_factory=list)

    def raise_first(self) -> None:
        """Raise the first error, which tells how many others there are."""
        if self.errors:
            first = self.errors[0]
            if others := len(self.errors) - 1:
                more = f"{others} more could not be rebuilt: see penstock repair --plan."
                first.detail = f"{first.detail}\n{more}" if first.detail else more
            if isinstance(first, ServerError):
                first.hint = f"{first.hint or ''} Indexes were not rebuilt: run penstock repair.".strip()
            raise first

    def note(self, change: Change, seconds: float, *, name: str | None = None) -> None:
        """Add what was restored; two steps of one make one, and so does what is attached to another of that `name`."""
        found = Rebuilt(kind=change.kind, name=name or change.name, table=str(change.target), seconds=seconds)
        for place, other in enumerate(self.rebuilt):
            if replace(other, seconds=seconds) == found:
                self.rebuilt[place] = replace(other, seconds=other.seconds + seconds)
                return
        self.rebuilt.append(found)


@dataclass(slots=True, kw_only=True)
class Context:
    """One session that has the tables' locks, the ledger's schema, and who wants to hear of what is done.

    `connect` makes other sessions as they are needed. `retry_for_s` is how long locks are tried for when restoring.
    `is_local`: the server's processors and memory are this machine's. `held` are the tables that a load has to restore.
    """

    connection: Connection
    connect: ConnectionFactory
    schema: str
    notice: Callable[[str], None]
    retry_for_s: float = PATIENCE_S
    is_local: bool = False
    report: Report | None = None
    clock: Callable[[], float] = time.perf_counter
    sleep: Callable[[float], None] = time.sleep
    held: set[int] = field(default_factory=set)

    def lock(self, oid: int) -> AbstractContextManager[None]:
        """Hold the lock under which a table is changed. Raises ServerError."""
        return shape_lock(self.connection, oid, on_wait=partial(self.notice, _WAITING), sleep=self.sleep)

    def with_locks(
        self,
        act: Callable[[], None],
        *,
        relations: Collection[int],
        what: str,
        deadline_s: float | None = None,
        connection: Connection | None = None,
    ) -> None:
        """Run `act` once it gets its locks; say once who is in the way. Raises PenstockError."""
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
        """Whether a load at work wants a table changed, which is noted; the caller has the table's lock."""
        holds = find_other_holds(self.connection, self.schema, oid)
        if holds:
            done.held.append(
                f'table "{change.target}" is being loaded by load {holds[0].load_id} (backend {holds[0].pid}), which '
                "rebuilds its indexes and keys"
            )
        return bool(holds)

    def say(self, text: str, steps: tuple[StepProgress, ...] = ()) -> None:
        """Report what is done now."""
        if self.report is not None:
            self.report(text, steps)
