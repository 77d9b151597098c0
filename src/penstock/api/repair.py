"""Puts back what loads have left changed in a database."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.api.closing import Closing
from penstock.files import SourceReader
from penstock.loading.repair import plan_repair, repair
from penstock.loading.tools import LoadTools
from penstock.server.facts import read_server_facts
from penstock.server.ledger import Ledger

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.loading.rebuild import PutBack
    from penstock.model.shape import RepairStep
    from penstock.server.connection import Connection, ConnectionFactory


class Repairer(Closing):
    """Looks at, and puts back, what loads that are gone have changed; close it, or use it as a context manager."""

    def __init__(self, connect: ConnectionFactory, *, ledger_schema: str = "penstock") -> None:
        self._connect = connect
        self._schema = ledger_schema

    def close(self) -> None:
        """Let go of the session kept for the next step."""
        self._connect.close()

    def plan(self) -> list[RepairStep]:
        """Return what a repair would do; changes nothing. Raises ServerError, TargetError."""
        with self._connect.borrow() as connection:
            return plan_repair(self._tools(connection, None), connection)

    def run(self, *, on_notice: Callable[[str], None] | None = None) -> PutBack:
        """Put back everything that no load at work wants changed. What could not be is in the result's errors.

        Raises ServerError, TargetError where the ledger cannot be used.
        """
        with self._connect.borrow() as connection:
            is_local = read_server_facts(connection).is_local
        self._connect.refuse_pooler("repair")
        # A session of its own: it holds the tables' locks until it ends.
        with self._connect.connect(label="repair") as connection:
            return repair(self._tools(connection, on_notice), connection, is_local=is_local)

    def _tools(self, connection: Connection, on_notice: Callable[[str], None] | None) -> LoadTools:
        return LoadTools(
            connect=self._connect,
            sources=SourceReader(),
            server_major=connection.info.server_version // 10_000,
            ledger=Ledger(self._schema),
            on_notice=on_notice,
        )
