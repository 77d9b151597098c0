"""Restores the changes that ended loads and commands have left in a database and on its server.

Any host can restore the changes. A change that a running load still needs is kept. Each change is restored as the role
that made it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from penstock.changes.context import Context, Report, Restored, is_at_table
from penstock.changes.journal import restore
from penstock.changes.records import TableStore
from penstock.changes.tables.copied import adopt_copied, show_copied
from penstock.changes.tables.kinds import KINDS
from penstock.changes.tables.look import copied_record, group_attached, read_failed
from penstock.changes.tables.parts import check_foreign_key_record, is_foreign_key
from penstock.changes.tables.rebuild import compose_rebuild, drop_records
from penstock.changes.values import SERVER, Change, Hold, RepairAction, RepairStep
from penstock.core.catalogue.catalog import read_facts
from penstock.core.closing import Closing, log_notice
from penstock.core.connect.connection import Connection, ConnectionFactory
from penstock.core.errors import PenstockError, TargetError
from penstock.core.slotted import slotted
from penstock.core.values.accounts import StepProgress
from penstock.core.values.server import ServerFacts
from penstock.ledger.listing import drop_left_staging, find_left_staging
from penstock.ledger.schema import find_named_ledger
from penstock.ledger.values import LeftStaging
from penstock.settings.backend import SettingsBackend, open_backend
from penstock.temp.place.kind import TempPlace

if TYPE_CHECKING:
    from penstock.settings.lease import SettingsLeases

    _Decision = tuple[RepairAction, str]

_GIVEN_UP = "it will not be rebuilt; to create it by hand: "


def plan_repair(contexts: Sequence[Context]) -> list[RepairStep]:
    """Return a step for each recorded change, with what `repair` would do about it. Changes nothing.

    `contexts` are the stores of records to read: of the server, and of this database. An index or key of a partition
    that is attached to a parent's index or key has no step of its own; the parent's step counts it. Raises
    PenstockError.
    """
    steps = []
    for context in contexts:
        if not context.store.exists():
            continue
        changes = show_copied(context.connection, list(filter(context.concerns, context.store.read_changes())))
        holds = [hold for hold in context.store.read_holds() if not context.is_over(hold)]
        found = {(each.target_oid, each.number): _decide_step(context, each, holds) for each in changes}

        def is_alike(one: Change, other: Change, found: dict[tuple[int, int], _Decision] = found) -> bool:
            step = found[one.target_oid, one.number]
            return step == found[other.target_oid, other.number] and step[0] != "refuse"

        steps += [
            replace(_make_step(top, *found[top.target_oid, top.number]), attached=len(attached))
            for top, *attached in group_attached(changes, is_alike=is_alike)
        ]
    return steps


def repair(context: Context, done: Restored) -> None:
    """Restore the changes of ended loads that are recorded in the context's store, and add the results to `done`.

    The ledger may belong to another role, so an older ledger is upgraded only if changes are recorded in it. Raises
    ServerError if the connection is lost.
    """
    context = replace(context, report=_reporting_once(context.notice))
    written = list(filter(context.concerns, context.store.read_changes())) if context.store.exists() else []
    if written:
        context.store.open()
    found = restore(context, {change.target_oid for change in written}) if written else Restored()
    done.rebuilt += found.rebuilt
    done.settings += found.settings
    done.temp_place = found.temp_place or done.temp_place
    done.held += found.held
    done.errors += found.errors + found.copied


def forget_missing(context: Context, names: Sequence[str], *, only_planned: bool) -> list[RepairStep]:
    """Remove the records of indexes and keys that are missing because a rebuild failed, and return a step for each.

    The tables are not changed. `names` are the names of the indexes and keys, as NAME or TABLE.NAME; the latter is
    needed if two tables lack one of the same name. With `only_planned`, nothing is removed. Raises TargetError if an
    index or key is not missing, if only another role may restore it, or if a load of its table is running. Raises
    ServerError.
    """
    connection, schema = context.connection, context.schema
    chosen = _choose_missing(names, read_failed(connection, schema))
    with ExitStack() as locks:
        for oid in sorted({change.target_oid for change in chosen}):
            locks.enter_context(context.lock(oid))
            if holds := [hold for hold in context.store.read_holds(oid) if hold.is_alive]:
                raise TargetError(
                    f"load {holds[0].holder_id} is running (backend {holds[0].pid}), and rebuilds what is missing",
                    hint="Run it again when that load has ended.",
                )
        # Read the records again under the locks, because another process may have restored something.
        found = [family for missing in read_failed(connection, schema) for family in group_attached(missing)]
        families = [family for family in found if family[0] in chosen]
        steps = [_make_step(top, "forget", _GIVEN_UP + compose_rebuild(connection, top)) for top, *_ in families]
        if not only_planned:
            drop_records(connection, schema, [change for family in families for change in family])
    return steps


def _choose_missing(names: Sequence[str], failed: Sequence[Sequence[Change]]) -> list[Change]:
    missing = [family[0] for each in failed for family in group_attached(each)]
    chosen = []
    for name in names:
        found = [change for change in missing if name in (change.name, f"{change.relation}.{change.name}")]
        if len(found) != 1:
            listed = ", ".join(f'"{change.relation}.{change.name}"' for change in missing)
            raise TargetError(
                f'{"several tables lack" if found else "no table lacks"} "{name}" because a rebuild failed',
                detail=f"Missing are {listed}." if missing else "Nothing is missing.",
            )
        chosen += found
    return chosen


def _reporting_once(notice: Callable[[str], None]) -> Report:
    last = ""

    def report(activity: str, steps: tuple[StepProgress, ...] = ()) -> None:  # noqa: ARG001 (no progress bars)
        nonlocal last
        if activity != last:
            last = activity
            notice(activity)

    return report


def _make_step(change: Change, action: RepairAction, reason: str) -> RepairStep:
    return RepairStep(
        table=change.relation, kind=change.kind, name=change.name, owner=change.owner, action=action, reason=reason
    )


def _decide_step(context: Context, change: Change, holds: Sequence[Hold]) -> _Decision:
    if change.is_copied:
        return "refuse", copied_record(change).message
    try:
        is_key = is_foreign_key(change)
        if is_key:
            check_foreign_key_record(change)
        for hold in holds:
            if hold.wants(change) or (is_key and hold.target_oid in change.relations):
                return _decide_held(context, hold)
        return context.kind_of(change).describe(context, change)
    except PenstockError as error:
        return "refuse", error.message


def _decide_held(context: Context, hold: Hold) -> _Decision:
    if context.server is not None and not hold.is_of(context.server):
        return "refuse", f"it was changed on {hold.server}: run penstock settings restore"
    if hold.pid is not None:
        who = hold.reason or f"load {hold.holder_id}"
        return "wait", f"{who} is running (backend {hold.pid}), and restores it"
    if hold.until is not None:
        return "wait", f"its lease lasts until {hold.until:%Y-%m-%d %H:%M:%S} or penstock settings restore"
    return "keep", f"it stays until penstock {hold.reason}"


@dataclass(kw_only=True)
class RepairOutcome(Restored):
    """What a repair has restored in the database and on the server, and which staging tables it has dropped."""

    dropped: list[LeftStaging] = field(default_factory=list)


def _drop_step(left: LeftStaging) -> RepairStep:
    reason = f"load {left.load_id}, which has not ended, reads its files again when it is resumed"
    return RepairStep(table=left.table, kind="staging", name="", owner="", action="drop", reason=reason)


class Repairer(Closing):
    """Finds and restores the changes that ended loads have left. Close it, or use it as a context manager.

    `on_notice` is called with each message that is not part of the result. By default the messages are logged.
    """

    def __init__(
        self,
        connect: ConnectionFactory,
        *,
        ledger_schema: str = "penstock",
        on_notice: Callable[[str], None] | None = None,
    ) -> None:
        self._connect = connect
        self._schema = ledger_schema
        self._tell = on_notice or log_notice

    def close(self) -> None:
        """Close the session that the methods share."""
        self._connect.close()

    def server(self) -> ServerFacts:
        """Return the facts of the server. Raises ServerError."""
        with self._connect.borrow() as connection:
            return read_facts(self._connect, connection)

    def plan(self) -> list[RepairStep]:
        """Return a step for each recorded change and each leftover staging table, with what `run` would do about it.

        Changes nothing. Raises ServerError, TargetError.
        """
        with self._connect.borrow() as connection:
            tables = self._context(connection)
            with self._opening_server(_read_notes(tables)) as server:
                steps = plan_repair([*([server.context] if server is not None else []), tables])
            return steps + [_drop_step(left) for left in find_left_staging(connection, self._schema) if left.is_own]

    def run(self) -> RepairOutcome:
        """Restore all changes except those that a running load still needs, and return what was restored.

        The result's `errors` are the errors of what could not be restored. The server's settings are restored first,
        because restoring tables may take hours. Raises ServerError, or TargetError if the ledger cannot be used.
        """
        with self._connect.borrow() as connection:
            is_local = read_facts(self._connect, connection).is_local
        self._connect.refuse_unwritable("repair")
        outcome = RepairOutcome()
        # Use a separate session, because the repair holds the locks of the tables until its session ends.
        with self._connect.connect(label="repair") as connection:
            tables = self._context(connection, is_local=is_local)
            has_ledger = tables.store.open()
            try:
                self._restore_server(tables, outcome)
            except PenstockError as error:
                outcome.errors.append(error)
            if has_ledger:
                outcome.errors += adopt_copied(connection, self._schema)
            repair(tables, outcome)
            outcome.dropped = drop_left_staging(connection, self._schema)
        return outcome

    def forget_missing(self, names: Sequence[str], *, only_planned: bool = False) -> list[RepairStep]:
        """Forget indexes and keys that tables lack because a rebuild failed, so that no later repair restores them.

        `names` are their names, as NAME or TABLE.NAME. Return a step for each, whose reason has the statement that
        would create it. With `only_planned`, nothing is removed. Raises TargetError if a name is not missing, if only
        another role may restore it, or if a load of its table is running. Raises ServerError.
        """
        self._connect.refuse_unwritable("repair")
        with self._connect.connect(label="repair") as connection:
            context = self._context(connection)
            if not only_planned:
                context.store.open()
            return forget_missing(context, names, only_planned=only_planned)

    def _restore_server(self, tables: Context, outcome: Restored) -> None:
        """Restore what is changed on the server. Remove the database's notes of leases that no longer exist."""
        notes = _read_notes(tables)
        with self._opening_server(notes) as server:
            if server is None:
                return
            repair(server.context, outcome)
            if gone := server.leases.find_gone(notes):
                server.backend.refuse_blindness()
                tables.store.forget(SERVER, [], gone)

    @contextmanager
    def _opening_server(self, notes: Sequence[str]) -> Iterator[_Server | None]:
        """Provide the server's leases and changes.

        `notes` are the leases that this database has noted. If there are any, settings of the server may still be
        changed, so an error is raised if the server cannot be read. If there are none, the error is only reported, and
        None is provided.
        """
        with ExitStack() as stack:
            yield self._open_server(notes, stack)

    def _open_server(self, notes: Sequence[str], stack: ExitStack) -> _Server | None:
        try:
            backend = open_backend(self._connect)
            stack.callback(backend.close)
            leases = backend.leases()
            found = leases.context()
            context = replace(
                found,
                kinds=[*found.kinds, TempPlace()],
                concerns=lambda change: not is_at_table(change),
                connect=self._connect,
                notice=self._tell,
            )
            if context.store.exists():
                context.store.read_changes(SERVER)
            return _Server(backend=backend, leases=leases, context=context)
        except PenstockError as error:
            if notes:
                raise
            self._tell(f"what is changed of the server was not checked: {error.message}")
            return None

    def _context(self, connection: Connection, *, is_local: bool = False) -> Context:
        find_named_ledger(connection, self._schema)
        return Context(
            store=TableStore(connection=connection, schema=self._schema),
            kinds=KINDS,
            connect=self._connect,
            notice=self._tell,
            is_local=is_local,
        )


@slotted
class _Server:
    """The settings of a server, its leases, and the context in which its changes are found and restored."""

    backend: SettingsBackend
    leases: SettingsLeases
    context: Context


def _read_notes(tables: Context) -> list[str]:
    """Return the ids of the leases that may have changed the server, as noted in this database's ledger."""
    return [hold.holder_id for hold in tables.store.read_holds(SERVER)] if tables.store.exists() else []
