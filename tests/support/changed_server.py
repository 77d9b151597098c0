"""Servers whose settings tests change, and everything that must be as it was afterwards."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import psycopg

from penstock.changes.settings.backend import system_leases
from penstock.changes.settings.leases import LeaseRequest
from penstock.changes.settings.profiles import BULK_LOAD
from penstock.lab import EmbeddedServer
from penstock.server.connect.connection import ConnectionFactory
from penstock.server.leases import LeaseStore
from support.results import has_rows

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.model.server.settings import LeaseReport, SettingsDecision
    from support.servers import ServerPool

MAJORS = (18, 16, 14)

# And all else at the server's own defaults, as penstock's own servers have it not.
SMALL = {"fsync": "off", "full_page_writes": "off", "shared_buffers": "32MB"}


@dataclass(frozen=True, slots=True)
class Settings:
    """What a server's settings are and where they come from, as three sources tell."""

    settings: list[tuple[Any, ...]]
    files: list[tuple[Any, ...]]
    auto_conf: str


class ChangedServer:
    """A server whose settings a test changes; `reset` brings it back to where it began."""

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
        """Return everything that must be as it was; of a new session, which has read what the postmaster has."""
        return Settings(
            settings=self.execute("SELECT * FROM pg_settings WHERE source NOT IN ('client', 'session') ORDER BY name"),
            files=self.execute("SELECT * FROM pg_file_settings ORDER BY seqno"),
            auto_conf=(self.data_dir / "postgresql.auto.conf").read_text(),
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

    def store(self) -> LeaseStore:
        """Return the leases, by a new session, which the caller closes."""
        return LeaseStore(ConnectionFactory(self.conninfo).connect(label="settings"))


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


def take(store: LeaseStore, request: LeaseRequest) -> tuple[LeaseReport, SettingsDecision]:
    """Change settings by ALTER SYSTEM under a new lease."""
    return system_leases(store).take(request)


def release(store: LeaseStore, lease_id: str) -> LeaseReport:
    """End a lease that the store's session holds."""
    return system_leases(store).release(lease_id)


def restore(store: LeaseStore, *, forgets: bool = False) -> LeaseReport:
    """End leases that no session holds."""
    return system_leases(store).restore(forgets=forgets)
