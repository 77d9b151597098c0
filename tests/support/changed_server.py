"""Servers whose settings tests change, and all that must be unchanged afterwards."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import psycopg

from penstock.changes.records import TableStore
from penstock.core.connect.connection import ConnectionFactory
from penstock.embedded.server import EmbeddedServer
from penstock.settings.backend import system_leases
from penstock.settings.decide import BULK_LOAD
from penstock.settings.lease import LeaseRequest
from support.results import has_rows
from support.servers import majors_to_test

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.core.catalogue.settings import LeaseReport, SettingsDecision
    from penstock.core.connect.connection import Connection
    from support.servers import ServerPool

# The newest, one between, and the oldest
MAJORS = (majors_to_test()[0], 16, 14)

# And all else at the server's own defaults, as penstock's own servers have it not.
SMALL = {"fsync": "off", "full_page_writes": "off", "shared_buffers": "32MB"}


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a server and their origins, from three sources.

    Lines are compared without their order, because ALTER SYSTEM moves them.
    """

    settings: list[tuple[Any, ...]]
    files: list[tuple[Any, ...]]
    auto_conf: list[str]


class ChangedServer:
    """A server whose settings a test changes; `reset` restores its first state."""

    def __init__(self, conninfo: str, data_dir: Path, major: int) -> None:
        self.conninfo = conninfo
        self.data_dir = data_dir
        self.major = major

    def execute(self, *statements: str) -> list[tuple[Any, ...]]:
        """Run statements as superuser, each by itself, and return the last one's rows."""
        with psycopg.connect(self.conninfo, autocommit=True) as connection:
            for statement in statements:
                cursor = connection.execute(statement)
            return cursor.fetchall() if has_rows(cursor) else []

    def snapshot(self) -> Settings:
        """Return everything that must be unchanged afterwards, as a new session sees it."""
        return Settings(
            settings=self.execute(
                "SELECT name, setting, unit, source, sourcefile, boot_val, reset_val, pending_restart FROM pg_settings"
                " WHERE source NOT IN ('client', 'session') ORDER BY name"
            ),
            files=self.execute(
                "SELECT sourcefile, name, setting, applied, error FROM pg_file_settings ORDER BY 1, 2, 3"
            ),
            auto_conf=sorted((self.data_dir / "postgresql.auto.conf").read_text().splitlines()),
        )

    def show(self, name: str) -> str:
        """Return a setting as a new session has it."""
        return str(self.execute(f"SHOW {name}")[0][0])

    def reset(self) -> None:
        """Take out what tests have left: lines, leases, roles."""
        self.execute("ALTER SYSTEM RESET ALL", "DROP SCHEMA IF EXISTS penstock CASCADE")
        self.reload()

    def reload(self) -> None:
        """Have the server read its files, and see that it has."""
        with psycopg.connect(self.conninfo, autocommit=True) as connection:
            before = connection.execute("SELECT pg_conf_load_time(), pg_reload_conf()").fetchone()
            assert before is not None
            while connection.execute("SELECT pg_conf_load_time()").fetchone() == before[:1]:
                pass

    def connect(self) -> Connection:
        """Return a new session, which the caller closes."""
        return ConnectionFactory(self.conninfo).connect(label="settings")


_made: dict[int, ChangedServer] = {}


def make_changed_server(servers: ServerPool, major: int) -> ChangedServer:
    """Return the server of a version that this run's tests of settings share."""
    if major not in _made:
        server = EmbeddedServer(
            replace(servers.new_server(servers.installation(major), settings={}).spec, settings=SMALL)
        )
        _made[major] = ChangedServer(server.ensure_running(), server.data_dir, major)
    return _made[major]


def request_for(reason: str = "test", **more: Any) -> LeaseRequest:
    """Return a request for profile bulk-load."""
    return LeaseRequest(**{"profile": BULK_LOAD, "client": "test host", "reason": reason, **more})


def take(connection: Connection, request: LeaseRequest) -> tuple[LeaseReport, SettingsDecision]:
    """Change settings by ALTER SYSTEM under a new lease."""
    return system_leases(connection).take(request)


def release(connection: Connection, lease_id: str) -> LeaseReport:
    """End a lease that the session holds."""
    return system_leases(connection).release(lease_id)


def restore(connection: Connection, *, forgets: bool = False) -> LeaseReport:
    """End leases that no session holds."""
    return system_leases(connection).restore(forgets=forgets)


def records(connection: Connection) -> list[object]:
    """Return the recorded changes, and the leases on them."""
    store = TableStore(connection=connection)
    return [*store.read_changes(), *store.read_holds()]
