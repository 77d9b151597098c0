"""Restores what loads have left changed in a database and on its server."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from penstock.changes.context import Context, Restored, is_at_table
from penstock.changes.repair import forget_missing, plan_repair, repair
from penstock.changes.store_table import TableStore
from penstock.changes.tables.kinds import KINDS
from penstock.core.catalogue.facts import read_server_facts
from penstock.core.closing import Closing, log_notice
from penstock.core.errors import PenstockError
from penstock.core.frozen import frozen
from penstock.core.values.change import SERVER, RepairStep
from penstock.ledger.upkeep import drop_left_staging, find_left_staging
from penstock.settings.backend import open_backend
from penstock.temp.place.kind import TempPlace

if TYPE_CHECKING:
    from penstock.core.connect.connection import Connection, ConnectionFactory
    from penstock.core.values.server import ServerFacts
    from penstock.ledger.values import LeftStaging
    from penstock.settings.backend import SettingsBackend
    from penstock.settings.lease import SettingsLeases


@dataclass(kw_only=True)
class RepairOutcome(Restored):
    """What a repair has restored of tables and of the server, and which staging tables it has dropped."""

    dropped: list[LeftStaging] = field(default_factory=list)


def _drop_step(left: LeftStaging) -> RepairStep:
    reason = f"load {left.load_id}, which has not ended, reads its files again when it is resumed"
    return RepairStep(table=left.table, kind="staging", name="", owner="", action="drop", reason=reason)


class Repairer(Closing):
    """Finds and restores what loads that no longer run have changed. Close it, or use it as a context manager.

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
        """Close the session that is kept for the next step."""
        self._connect.close()

    def server(self) -> ServerFacts:
        """Return the facts of the server. Raises ServerError."""
        with self._connect.borrow() as connection:
            return replace(read_server_facts(connection), is_embedded=self._connect.is_embedded)

    def plan(self) -> list[RepairStep]:
        """Return what a repair would do. Changes nothing. Raises ServerError, TargetError."""
        with self._connect.borrow() as connection:
            tables = self._context(connection)
            with self._opening_server(_read_notes(tables)) as server:
                steps = plan_repair([*([server.context] if server is not None else []), tables])
            return steps + [_drop_step(left) for left in find_left_staging(connection, self._schema) if left.is_own]

    def run(self) -> RepairOutcome:
        """Restore everything that no running load needs changed.

        The result's `errors` name what could not be restored.

        The server's settings are restored first, because restoring tables may take hours. Raises ServerError, or
        TargetError if the ledger cannot be used.
        """
        with self._connect.borrow() as connection:
            is_local = read_server_facts(connection).is_local
        self._connect.refuse_unwritable("repair")
        outcome = RepairOutcome()
        # Use a separate session, because the repair holds the locks of the tables until its session ends.
        with self._connect.connect(label="repair") as connection:
            tables = self._context(connection, is_local=is_local)
            try:
                self._restore_server(tables, outcome)
            except PenstockError as error:
                outcome.errors.append(error)
            repair(tables, outcome)
            outcome.dropped = drop_left_staging(connection, self._schema)
        return outcome

    def forget_missing(self, names: Sequence[str], *, only_planned: bool = False) -> list[RepairStep]:
        """Forget indexes and keys that tables lack because a rebuild failed. No later repair restores them.

        The reason of each returned step has the statement that would create the index or key. With `only_planned`,
        nothing is removed. Raises TargetError if a name is not missing, if only another role may restore it, or if a
        load of its table is running. Raises ServerError.
        """
        self._connect.refuse_unwritable("repair")
        with self._connect.connect(label="repair") as connection:
            return forget_missing(self._context(connection), names, only_planned=only_planned)

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
        """Provide the server's leases and changes. If that fails and `notes` is empty, report why and provide None.

        If `notes` are given, the error is raised: the server may have changes.
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
        return Context(
            store=TableStore(connection=connection, schema=self._schema),
            kinds=KINDS,
            connect=self._connect,
            notice=self._tell,
            is_local=is_local,
        )


@frozen
class _Server:
    """What is needed to find and restore the changes of a server."""

    backend: SettingsBackend
    leases: SettingsLeases
    context: Context


def _read_notes(tables: Context) -> list[str]:
    """Return the ids of the leases that may have changed the server, as noted in this database's ledger."""
    return [hold.holder_id for hold in tables.store.read_holds(SERVER)] if tables.store.exists() else []
