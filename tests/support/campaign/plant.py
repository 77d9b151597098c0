"""What a campaign breaks: servers that lose what they acknowledged, a pair with a standby, a small disk, a store."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from typing import TYPE_CHECKING

import psycopg
from psycopg.conninfo import make_conninfo

from penstock.core.connect.connection import ConnectionFactory
from penstock.embedded.layout import SUPERUSER
from penstock.embedded.server import EmbeddedServer
from penstock.embedded.users import choose_server_user, give_to, is_root
from penstock.ledger.ledger import Ledger
from penstock.settings.backend import ServerSettings
from penstock_lab.topology.parts import copy_primary, promote
from penstock_lab.topology.relay import Relay
from support.campaign.processes import Zygote
from support.campaign.s3 import Store
from support.clock import with_clock
from support.import_server import create_extension, make_import_server
from support.servers import TEST_SETTINGS

if TYPE_CHECKING:
    from pathlib import Path

    from support.servers import ServerPool

# WAL stays in memory until somebody needs it on disk: what was committed with synchronous_commit = off is acknowledged
# for ten seconds before it can survive a crash.
FORGETFUL = {
    **TEST_SETTINGS,
    "wal_writer_delay": "10s",
    "wal_writer_flush_after": "1GB",
    "wal_buffers": "64MB",
    "autovacuum": "off",
    "max_connections": "60",
    "log_checkpoints": "off",
}

_STANDBY = "standby"
_DISK_BYTES = 24 * 1024 * 1024


class Single:
    """One server that is stopped as by a crash and started again."""

    def __init__(self, server: EmbeddedServer) -> None:
        self.server = server
        self.major = server.spec.installation.major
        self.conninfo = server.ensure_running()
        self.log = server.spec.files.log
        _make_ledger(self.conninfo)

    @property
    def socket(self) -> Path:
        """Return the path of the server's socket."""
        return self.server.spec.files.socket_dir / ".s.PGSQL.5432"

    def lose(self) -> None:
        """Stop the server without a checkpoint, and start it again."""
        self.server.stop("immediate")
        self.server.ensure_running()

    def restart(self, *, hours_behind: int) -> None:
        """Stop the server, with a checkpoint, and start it again with a clock that is behind."""
        self.server.stop("fast")
        with_clock(self.server, f"-{hours_behind}h").ensure_running()


class Pair:
    """A primary and its synchronous standby; `fail_over` loses the one and promotes the other."""

    def __init__(self, pool: ServerPool, major: int) -> None:
        self.major = major
        homes = [pool.new_home(), pool.new_home()]
        installation, copies = pool.installation(major), pool.directory / "postgresql"
        self.servers = []
        for number, home in enumerate(homes):
            other = EmbeddedServer.create(homes[1 - number], installation).spec.files.socket_dir
            settings = {
                **FORGETFUL,
                "synchronous_standby_names": _STANDBY,
                "primary_conninfo": f"host={other} port=5432 user={SUPERUSER} application_name={_STANDBY}",
                "wal_retrieve_retry_interval": "100ms",
                "hot_standby": "on",
            }
            self.servers.append(EmbeddedServer.create(home, installation, settings, copies=copies))
        self.primary, self.standby = self.servers
        self.primary.ensure_running()
        self.rebuild()
        _make_ledger(self.conninfo)

    @property
    def conninfo(self) -> str:
        """Return libpq's list of both hosts, the primary wanted."""
        hosts = ",".join(str(server.spec.files.socket_dir) for server in self.servers)
        return f"host={hosts} port=5432,5432 user={SUPERUSER} dbname=postgres target_session_attrs=read-write"

    @property
    def log(self) -> Path:
        """Return the primary's log."""
        return self.primary.spec.files.log

    def cut_off(self) -> None:
        """Let the standby receive nothing more, and commits not wait for it: what follows is lost with the primary."""
        _configure(self.standby.conninfo(), "SET primary_conninfo = ''")
        for server in self.servers:
            _configure(server.conninfo(), "SET synchronous_standby_names = ''")
        with psycopg.connect(self.standby.conninfo(), autocommit=True) as connection:
            while connection.execute("SELECT FROM pg_stat_wal_receiver").fetchone():
                connection.execute("SELECT pg_sleep(0.01)")

    def restore_settings(self, *, forgets: bool) -> None:
        """Restore what ended loads have left of settings; `forgets`: and the leases of a lost server, as a DBA does."""
        with ServerSettings(ConnectionFactory(self.conninfo)) as server:
            server.restore(forgets=forgets)

    def fail_over(self) -> None:
        """Lose the primary as by a crash, and promote the standby; `rebuild` then makes a new standby."""
        self.primary.stop("immediate")
        self.primary, self.standby = self.standby, self.primary
        promote(self.primary)

    def lose(self) -> None:
        """Lose the primary, and go on with the standby and a new one of its own."""
        self.fail_over()
        self.rebuild()

    def rebuild(self) -> None:
        """Make the other server a standby of the primary again, and wait until commits wait for it."""
        _configure(self.primary.conninfo(), "RESET ALL")
        copy_primary(self.standby, self.primary)
        self.standby.ensure_running()
        with psycopg.connect(self.primary.conninfo(), autocommit=True) as connection:
            while not connection.execute("SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'").fetchone():
                connection.execute("SELECT pg_sleep(0.02)")


class Plant:
    """Everything of one campaign, each part made when it is first wanted."""

    def __init__(self, pool: ServerPool) -> None:
        self.pool = pool
        self.zygote = Zygote()
        self._singles: dict[int, Single] = {}
        self._importing: Single | None = None
        self._pair: Pair | None = None
        self._store: Store | None = None
        self._disks: dict[int, Path] = {}
        self.relay: Relay | None = None

    def single(self, major: int) -> Single:
        """Return the server of a version, running."""
        if major not in self._singles:
            home, copies = self.pool.new_home(), self.pool.directory / "postgresql"
            server = EmbeddedServer.create(home, self.pool.installation(major), FORGETFUL, copies=copies)
            self._singles[major] = Single(server)
        self._singles[major].server.ensure_running()
        return self._singles[major]

    def importing(self) -> Single:
        """Return the server of the newest version that imports from the store, running."""
        if self._importing is None:
            home, settings = self.pool.new_home(), FORGETFUL
            server = make_import_server(home, self.pool.installation(18), port=self.store().port, settings=settings)
            self._importing = Single(server)
            create_extension(make_conninfo(self._importing.conninfo, dbname="postgres"))
        self._importing.server.ensure_running()
        return self._importing

    def pair(self) -> Pair:
        """Return the pair."""
        if self._pair is None:
            self._pair = Pair(self.pool, 18)
        return self._pair

    def store(self) -> Store:
        """Return the S3 endpoint and its faulty front."""
        if self._store is None:
            self._store = Store()
        return self._store

    def relay_to(self, single: Single) -> Relay:
        """Return a relay to a server's socket, over TCP; one at a time."""
        if self.relay is not None:
            self.relay.close()
        self.relay = Relay(single.socket)
        return self.relay

    @property
    def can_mount(self) -> bool:
        """Whether a small disk can be had."""
        return is_root() and shutil.which("mount") is not None

    def small_disk(self, single: Single) -> Path:
        """Return the mount point of a small disk with tablespace `small` on it, on a server. Needs root."""
        disk = self._disks.get(single.major)
        if disk is None:
            disk = self.pool.directory / f"disk-{single.major}"
            disk.mkdir()
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={_DISK_BYTES}", "tmpfs", str(disk)], check=True)
            self._disks[single.major] = disk
            space = disk / "space"
            space.mkdir(mode=0o700)
            give_to(space, choose_server_user(single.server.data_dir))
            with psycopg.connect(single.conninfo, autocommit=True) as connection:
                connection.execute(f"CREATE TABLESPACE small LOCATION '{space}'".encode())
        return disk

    def close(self) -> None:
        """End everything; the servers' files are the pool's to remove."""
        self.zygote.close()
        for closing in (self.relay, self._store):
            if closing is not None:
                closing.close()
        for single in filter(None, (self._importing, *self._singles.values())):
            single.server.stop("immediate")
        for disk in self._disks.values():
            with contextlib.suppress(subprocess.CalledProcessError):
                subprocess.run(["umount", "-l", str(disk)], check=True)


def _configure(conninfo: str, change: str) -> None:
    """Run an ALTER SYSTEM, and have the server read its settings."""
    with psycopg.connect(conninfo, autocommit=True) as connection:
        connection.execute(f"ALTER SYSTEM {change}".encode())
        connection.execute("SELECT pg_reload_conf()")


def _make_ledger(conninfo: str) -> None:
    with ConnectionFactory(make_conninfo(conninfo, dbname="postgres")).connect() as connection:
        Ledger().ensure(connection)
