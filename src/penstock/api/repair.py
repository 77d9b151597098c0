"""Restores what loads have left changed in a database, and of the server's settings."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from penstock.api.closing import Closing
from penstock.api.logs import log_notice
from penstock.api.settings import open_backend
from penstock.changes.context import Context, Restored
from penstock.changes.repair import TableStore, forget_missing, plan_repair, repair
from penstock.errors import PenstockError
from penstock.files import SourceReader
from penstock.loading.context import LoadTools
from penstock.loading.leases.left_leases import end_leases, find_noted, plan_leases
from penstock.loading.warned import WarningLog
from penstock.model.load.shape import RepairStep
from penstock.model.server.settings import LeaseReport
from penstock.server.facts.facts import read_server_facts
from penstock.server.ledger import Ledger
from penstock.server.ledger.upkeep import drop_left_staging, find_left_staging
from penstock.temp.placement.place import PlaceKeeper

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.changes.settings.backend import SettingsBackend
    from penstock.model.load.ledger import LeftStaging
    from penstock.model.server.server import ServerFacts
    from penstock.model.server.settings import SettingsOverview
    from penstock.model.temp.placement import Placement, PlaceReport
    from penstock.server.connect.connection import Connection, ConnectionFactory


@dataclass(kw_only=True)
class RepairOutcome(Restored):
    """What a repair has restored, at tables and of the server's settings, and which staging tables it has dropped.

    `temp_place` is the place for temporary work if placing or removing it was interrupted, and it was undone.
    """

    settings: LeaseReport = field(default_factory=LeaseReport)
    dropped: list[LeftStaging] = field(default_factory=list)
    temp_place: PlaceReport | None = None


def _drop_step(left: LeftStaging) -> RepairStep:
    reason = f"load {left.load_id}, which has not ended, reads its files again when it is resumed"
    return RepairStep(table=left.table, kind="staging", name="", owner="", action="drop", reason=reason)


class Repairer(Closing):
    """Looks at, and restores, what dead loads have changed; close it, or use it as a context manager.

    `on_notice` hears what is to be known beside the result; by default it is logged.
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
        """Let go of the session kept for the next step."""
        self._connect.close()

    def server(self) -> ServerFacts:
        """Return which server this is. Raises ServerError."""
        with self._connect.borrow() as connection:
            return replace(read_server_facts(connection), is_embedded=self._connect.is_embedded)

    def plan(self) -> list[RepairStep]:
        """Return what a repair would do; changes nothing. Raises ServerError, TargetError."""
        with self._connect.borrow() as connection:
            steps = plan_repair(self._stores(connection, RepairOutcome()))
            return steps + [_drop_step(left) for left in find_left_staging(connection, self._schema) if left.is_own]

    def run(self) -> RepairOutcome:
        """Restore everything that no load at work wants changed. What could not be is in the result's errors.

        Raises ServerError, TargetError where the ledger cannot be used.
        """
        with self._connect.borrow() as connection:
            is_local = read_server_facts(connection).is_local
        self._connect.refuse_unwritable("repair")
        outcome = RepairOutcome()
        # A session of its own: it holds the tables' locks until it ends.
        with self._connect.connect(label="repair") as connection:
            repair(self._stores(connection, outcome, is_local=is_local), outcome)
            outcome.dropped = drop_left_staging(connection, self._schema)
        return outcome

    def forget_missing(self, names: Sequence[str], *, only_planned: bool = False) -> list[RepairStep]:
        """Give up for good what tables lack since a rebuild failed; steps tell what would make it by hand.

        Raises TargetError for what is not missing, or is another role's to restore, ServerError.
        """
        self._connect.refuse_unwritable("repair")
        with self._connect.connect(label="repair") as connection:
            return forget_missing(self._context(connection), names, only_planned=only_planned)

    def _stores(
        self, connection: Connection, outcome: RepairOutcome, *, is_local: bool = False
    ) -> tuple[TableStore, _SettingsStore, _PlaceStore]:
        tools = LoadTools(
            connect=self._connect,
            sources=SourceReader(),
            server_major=connection.info.server_version // 10_000,
            ledger=Ledger(self._schema),
            on_notice=self._tell,
            warnings=WarningLog(lambda notice: self._tell(notice.message)),
        )
        return (
            TableStore(self._context(connection, is_local=is_local)),
            _SettingsStore(tools, connection, outcome),
            _PlaceStore(self._connect, self._tell, outcome),
        )

    def _context(self, connection: Connection, *, is_local: bool = False) -> Context:
        return Context(
            connection=connection, connect=self._connect, schema=self._schema, notice=self._tell, is_local=is_local
        )


class _SettingsStore:
    """Leases on the server's settings, which are in another database, or in tags of a parameter group."""

    def __init__(self, tools: LoadTools, connection: Connection, outcome: RepairOutcome) -> None:
        self._tools = tools
        self._connection = connection
        self._outcome = outcome

    def plan(self) -> list[RepairStep]:
        found = self._look(find_noted(self._tools, self._connection))
        if found is None:
            return []
        backend, overview = found
        backend.close()
        return plan_leases(overview)

    def restore(self, done: Restored) -> None:
        try:
            noted = find_noted(self._tools, self._connection)
            found = self._look(noted)
            if found is not None:
                with closing(found[0]) as backend:
                    self._outcome.settings = end_leases(self._tools, self._connection, backend, noted)
        except PenstockError as error:
            done.errors.append(error)

    def _look(self, noted: Sequence[str]) -> tuple[SettingsBackend, SettingsOverview] | None:
        """Look at leases on the server's settings; that these cannot be seen is an error where one is noted."""
        backend: SettingsBackend | None = None
        try:
            backend = open_backend(self._tools.connect)
            return backend, backend.overview()
        except PenstockError as error:
            if backend is not None:
                backend.close()
            if noted:
                raise
            self._tools.notice(f"leases on the server's settings were not checked: {error.message}")
            return None


class _PlaceStore:
    """The place for temporary work; one that was completed is meant to stay."""

    def __init__(self, connect: ConnectionFactory, tell: Callable[[str], None], outcome: RepairOutcome) -> None:
        self._connect = connect
        self._tell = tell
        self._outcome = outcome

    def plan(self) -> list[RepairStep]:
        placement = self._read()
        if placement is None:
            return []
        is_placed = placement.stage == "placed"
        return [
            RepairStep(
                table=placement.location,
                kind="place",
                name=str(placement.scope),
                owner=placement.owner,
                action="keep" if is_placed else "restore",
                reason="it stays until penstock temp remove" if is_placed else "placing or removing it was interrupted",
            )
        ]

    def restore(self, done: Restored) -> None:
        placement = self._read()
        if placement is None or placement.stage == "placed":
            return
        try:
            with closing(PlaceKeeper(self._connect, tell=self._tell)) as keeper:
                self._outcome.temp_place = keeper.clear()
        except PenstockError as error:
            done.errors.append(error)

    def _read(self) -> Placement | None:
        try:
            with closing(PlaceKeeper(self._connect, tell=self._tell)) as keeper:
                return keeper.read()
        except PenstockError as error:
            self._tell(f"the place for temporary work was not checked: {error.message}")
            return None
