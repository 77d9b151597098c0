"""Puts back what loads have left changed in a database, and of the server's settings."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from penstock.api.closing import Closing
from penstock.api.logs import log_notice
from penstock.api.settings import open_backend
from penstock.errors import PenstockError
from penstock.files import SourceReader
from penstock.loading.context import LoadTools
from penstock.loading.leases.left_leases import end_leases, find_noted, plan_leases
from penstock.loading.repair import forget_missing, plan_repair, repair
from penstock.loading.shape.rebuild import PutBack
from penstock.loading.warned import WarningLog
from penstock.model.server.settings import LeaseReport
from penstock.server.facts.facts import read_server_facts
from penstock.server.ledger import Ledger

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.model.load.shape import RepairStep
    from penstock.model.server.settings import SettingsOverview
    from penstock.server.connect.connection import Connection, ConnectionFactory
    from penstock.settings.backend import SettingsBackend


@dataclass(kw_only=True)
class RepairOutcome(PutBack):
    """What a repair has put back, at tables and of the server's settings."""

    settings: LeaseReport = field(default_factory=LeaseReport)


class _LeasedSettings(NamedTuple):
    backend: SettingsBackend
    overview: SettingsOverview


class Repairer(Closing):
    """Looks at, and puts back, what loads that are gone have changed; close it, or use it as a context manager.

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

    def plan(self) -> list[RepairStep]:
        """Return what a repair would do; changes nothing. Raises ServerError, TargetError."""
        with self._connect.borrow() as connection:
            tools = self._tools(connection)
            steps = plan_repair(tools, connection)
            noted = find_noted(tools, connection)
        found = self._look_at_settings(noted)
        if found is None:
            return steps
        found.backend.close()
        return steps + plan_leases(found.overview)

    def run(self) -> RepairOutcome:
        """Put back everything that no load at work wants changed. What could not be is in the result's errors.

        Settings first, since tables may take hours. Raises ServerError, TargetError where the ledger cannot be used.
        """
        with self._connect.borrow() as connection:
            is_local = read_server_facts(connection).is_local
        self._connect.refuse_pooler("repair")
        # A session of its own: it holds the tables' locks until it ends.
        with self._connect.connect(label="repair") as connection:
            tools = self._tools(connection)
            settings, errors = LeaseReport(), []
            try:
                settings = self._end_leases(tools, connection)
            except PenstockError as error:
                errors.append(error)
            done = repair(tools, connection, is_local=is_local)
        return RepairOutcome(rebuilt=done.rebuilt, held=done.held, errors=errors + done.errors, settings=settings)

    def forget_missing(self, names: Sequence[str], *, only_planned: bool = False) -> list[RepairStep]:
        """Give up for good what tables lack since a rebuild failed; steps tell what would make it by hand.

        Raises TargetError for what is not missing, or is another role's to put back, ServerError.
        """
        self._connect.refuse_pooler("repair")
        with self._connect.connect(label="repair") as connection:
            return forget_missing(self._tools(connection), connection, names, only_planned=only_planned)

    def _end_leases(self, tools: LoadTools, connection: Connection) -> LeaseReport:
        noted = find_noted(tools, connection)
        found = self._look_at_settings(noted)
        if found is None:
            return LeaseReport()
        try:
            return end_leases(tools, connection, found.backend, noted)
        finally:
            found.backend.close()

    def _look_at_settings(self, noted: Sequence[str]) -> _LeasedSettings | None:
        """Look at leases on the server's settings; that these cannot be seen is an error where one is noted."""
        backend: SettingsBackend | None = None
        try:
            backend = open_backend(self._connect)
            return _LeasedSettings(backend, backend.overview())
        except PenstockError as error:
            if backend is not None:
                backend.close()
            if noted:
                raise
            self._tell(f"leases on the server's settings were not checked: {error.message}")
            return None

    def _tools(self, connection: Connection) -> LoadTools:
        return LoadTools(
            connect=self._connect,
            sources=SourceReader(),
            server_major=connection.info.server_version // 10_000,
            ledger=Ledger(self._schema),
            on_notice=self._tell,
            warnings=WarningLog(lambda notice: self._tell(notice.message)),
        )
