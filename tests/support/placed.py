"""Servers whose temporary work tests place elsewhere, and all that must be unchanged afterwards."""

from __future__ import annotations

import os
import shutil
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.core.connect.connection import ConnectionFactory
from penstock.core.values.temp_place import parse_scope
from penstock.restore.repair import Repairer
from penstock.temp.place.place import PlaceKeeper, PlaceRequest
from support.changed_server import ChangedServer, make_changed_server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penstock.core.values.temp_place import CheckReport, PlaceReport
    from support.servers import ServerPool

_CATALOGUES = (
    "SELECT setdatabase, setrole, setconfig FROM pg_db_role_setting ORDER BY 1, 2",
    "SELECT oid, spcname, spcacl FROM pg_tablespace ORDER BY 1",
)


@dataclass(frozen=True, slots=True)
class PlacedServer:
    """A server and an empty directory that its account owns."""

    server: ChangedServer
    directory: Path

    def snapshot(self) -> tuple[Any, ...]:
        """Return everything that must be unchanged afterwards."""
        return (self.server.snapshot(), *map(self.server.execute, _CATALOGUES))

    def request(self, scope: str = "server", **more: Any) -> PlaceRequest:
        """Return a request for this directory, which tests have on the data's device."""
        fields = {"directory": str(self.directory), "allows_same_device": True, **more}
        return PlaceRequest(scope=parse_scope(scope), **fields)

    def keeper(self, **access: Any) -> closing[PlaceKeeper]:
        """Return what keeps the place of this server, closed with its block."""
        connect = ConnectionFactory(self.server.conninfo, allows_standby=True, **access)
        return closing(PlaceKeeper(connect, tell=lambda _: None))

    def place(self, scope: str = "server", **more: Any) -> PlaceReport:
        """Place temporary work in the directory."""
        with self.keeper() as keeper:
            return keeper.place(self.request(scope, **more))

    def check(self) -> CheckReport:
        """Return what is wrong with the place, which there is."""
        with self.keeper() as keeper:
            report = keeper.check()
        assert report is not None
        return report

    def remove(self) -> PlaceReport:
        """Undo the place."""
        with self.keeper() as keeper:
            return keeper.remove()

    def repair(self) -> PlaceReport | None:
        """Run a repair; return what it did about the place."""
        with Repairer(ConnectionFactory(self.server.conninfo)) as repairer:
            done = repairer.run()
        done.raise_first()
        return done.temp_place

    def is_placed(self) -> bool | None:
        """Return whether the recorded temp place was completed, None if there is no record."""
        with self.keeper() as keeper:
            placement = keeper.read()
        return None if placement is None else placement.is_placed

    def await_alone(self) -> None:
        """Wait until the backends of a process that was killed are gone."""
        others = "SELECT FROM pg_stat_activity WHERE application_name LIKE 'penstock%'"
        while self.server.execute(others):
            pass


def make_directory(parent: Path, *, like: Path) -> Path:
    """Create a directory as a server's account has it, owned as another one is."""
    directory = parent / "local disk"
    directory.mkdir(mode=0o700)
    owner = like.stat()
    os.chown(directory, owner.st_uid, owner.st_gid)
    return directory


@contextmanager
def placed_server(servers: ServerPool, major: int) -> Iterator[PlacedServer]:
    """Provide a server of a version with a directory; afterwards nothing of any place is left on it."""
    server = make_changed_server(servers, major)
    server.reset()
    parent = servers.new_closed_home()
    parent.mkdir(mode=0o755)
    placed = PlacedServer(server, make_directory(parent, like=server.data_dir))
    try:
        yield placed
        server.execute("SELECT")
    finally:
        server.reset()
        if server.execute("SELECT FROM pg_tablespace WHERE spcname = 'penstock_temp'"):
            server.execute("DROP TABLESPACE penstock_temp")
        shutil.rmtree(parent)
