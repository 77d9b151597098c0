"""The real servers of a test run: finds installations, starts each server at its first use, and creates databases."""

from __future__ import annotations

import itertools
import operator
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.sql import SQL, Identifier

from penstock.core.connect.connection import ConnectionFactory
from penstock.embedded.installations import (
    SYSTEM_PATTERNS,
    Installation,
    find_installations,
    installation_at,
    read_version,
)
from penstock.embedded.server import EmbeddedServer
from penstock.embedded.users import is_root
from penstock.ledger.ledger import Ledger
from support import maven

if TYPE_CHECKING:
    from collections.abc import Iterator

# What a test run loses by a crash of the machine is nothing worth waiting for.
TEST_SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "shared_buffers": "64MB",
    "max_wal_size": "1GB",
    "min_wal_size": "80MB",
}

# The version for tests to which it makes no difference: the Python package's server, which every machine has.
USUAL_MAJOR = int(os.environ.get("PENSTOCK_TEST_MAJOR", "18"))

# Versions of newer Debian releases, which .ci/run installs by .ci/install-postgresql, in Debian's layout.
FROM_NEWER_DEBIAN = (17, 19)
_PATTERNS = (*SYSTEM_PATTERNS, "var/cache/penstock-tests/postgresql-*/usr/lib/postgresql/*/bin")

# What databases of tests are copies of, on the servers of a run: without a ledger, and with one.
_TEMPLATES = ("penstock_template", "penstock_template_ledger")

_NEEDED_SPACE_BYTES = 4 * 1024**3

_COMPARISONS = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
}


def satisfies(major: int, requirement: str) -> bool:
    """Return whether a major version meets all parts of a requirement.

    >>> satisfies(16, ">= 15, < 17")
    True
    """
    for part in requirement.split(","):
        comparison, _, number = part.strip().partition(" ")
        if not _COMPARISONS[comparison](major, int(number)):
            return False
    return True


@cache
def installed() -> dict[int, Installation]:
    """Return one installation for each major version that is here, the wheel's before the system's."""
    found: dict[int, Installation] = {}
    for installation in find_installations(patterns=_PATTERNS):
        found.setdefault(installation.major, installation)
    return found


def majors_to_test() -> list[int]:
    """Return the versions to test with, newest first: those installed, and 14, which may be fetched."""
    return sorted({*installed(), 14}, reverse=True)


def describe() -> str:
    """Return the servers that tests run on, for the header of a test run."""
    if "PENSTOCK_TEST_DSN" in os.environ:
        return "the one of PENSTOCK_TEST_DSN"
    here = [f"{read_version(found)} ({found.origin})" for found in installed().values()]
    missing = [f"no {major}: it is not installed (.ci/run)" for major in FROM_NEWER_DEBIAN if major not in installed()]
    return ", ".join([*here, *([] if 14 in installed() else [maven.describe()]), *missing])


@dataclass(frozen=True, slots=True)
class PgServer:
    """A running server as a test sees it. `server` is None for the one of PENSTOCK_TEST_DSN."""

    conninfo: str
    major: int
    server: EmbeddedServer | None
    _databases: list[str] = field(default_factory=list)

    _numbers = itertools.count(1)

    def fresh_database(self, *, has_ledger: bool = False) -> str:
        """Create a database, empty or with an empty ledger, dropped when the test ends; return its conninfo."""
        name = f"penstock_test_{os.getpid()}_{next(self._numbers)}"
        template = "template0" if self.server is None else _TEMPLATES[has_ledger]
        _copy_database(self.conninfo, template, name, major=self.major)
        self._databases.append(name)
        conninfo = make_conninfo(self.conninfo, dbname=name)
        if has_ledger and self.server is None:
            _create_ledger(conninfo)
        return conninfo

    def over_tcp(self, conninfo: str) -> str:
        """Return a conninfo to the same database over TCP."""
        if self.server is None:
            return conninfo
        return make_conninfo(self.server.tcp_conninfo(), dbname=conninfo_to_dict(conninfo)["dbname"])

    def drop_databases(self) -> None:
        """Drop the databases of fresh_database, even if sessions are connected to them."""
        while self._databases:
            self._execute(SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(Identifier(self._databases.pop())))

    def _execute(self, statement: psycopg.sql.Composed) -> None:
        with psycopg.connect(self.conninfo, autocommit=True) as connection:
            connection.execute(statement)


def _make_templates(conninfo: str, *, major: int) -> None:
    """Create the databases that those of tests are copies of.

    The first session in a database writes its cache of the catalogue, which copies have then: it spares the first
    session in each copy 5 of 11 ms. A ledger is created in 34 ms.
    """
    for template, has_ledger in zip(_TEMPLATES, (False, True), strict=True):
        _copy_database(conninfo, "template0", template, major=major)
        own = make_conninfo(conninfo, dbname=template)
        psycopg.connect(own).close()
        if has_ledger:
            _create_ledger(own)
        with psycopg.connect(conninfo, autocommit=True) as connection:
            connection.execute(f"ALTER DATABASE {template} ALLOW_CONNECTIONS false")


def _create_ledger(conninfo: str) -> None:
    with ConnectionFactory(conninfo).connect() as connection:
        Ledger("penstock").ensure(connection)


def _copy_database(conninfo: str, template: str, name: str, *, major: int) -> None:
    """Create a database in UTF-8 as a copy of another one.

    Copied as files it takes 10 ms, and 23 ms by WAL, the default since PostgreSQL 15.
    """
    query = SQL("CREATE DATABASE {} TEMPLATE {} ENCODING 'UTF8'").format(Identifier(name), Identifier(template))
    with psycopg.connect(conninfo, autocommit=True) as connection:
        connection.execute(query + SQL(" STRATEGY file_copy") if major >= 15 else query)


class ServerPool:
    """The embedded servers of one test run, below `directory`, each started when it is first asked for.

    `closed` is a directory on the way to which other users may write to none.
    """

    def __init__(self, directory: Path, closed: Path) -> None:
        self.directory = directory
        self._closed = closed
        self._servers: dict[int, EmbeddedServer] = {}
        self._with_templates: set[int] = set()
        self._missing: dict[int, str] = {}
        self._numbers = itertools.count(1)

    def server(self, major: int) -> EmbeddedServer:
        """Return the running shared server of a version. Raises maven.Unavailable if it cannot be fetched."""
        if major in self._missing:
            raise maven.Unavailable(self._missing[major])
        if major not in self._servers:
            try:
                self._servers[major] = self.new_server(self.installation(major), settings=TEST_SETTINGS)
            except maven.Unavailable as reason:
                self._missing[major] = str(reason)
                raise
        self._servers[major].ensure_running()
        return self._servers[major]

    def pg_server(self, major: int) -> PgServer:
        """Return the shared server of a version for a test. Raises maven.Unavailable if it cannot be fetched."""
        server = self.server(major)
        conninfo = server.conninfo()
        if major not in self._with_templates:
            _make_templates(conninfo, major=major)
            self._with_templates.add(major)
        return PgServer(conninfo, major, server)

    def installation(self, major: int) -> Installation:
        """Return the installation of a version. Raises maven.Unavailable if it cannot be fetched."""
        found = installed().get(major)
        if found is not None:
            return found
        if major == 14:
            return installation_at(maven.fetch_postgres_14())
        raise maven.Unavailable(f"PostgreSQL {major} is not installed")

    def new_home(self) -> Path:
        """Return a path for a server's home, or for PENSTOCK_HOME; nothing is there yet."""
        return self.directory / f"server-{next(self._numbers)}"

    def new_closed_home(self) -> Path:
        """Return such a path that other users cannot replace anything on the way to it, as in /tmp."""
        return self._closed / f"closed-{next(self._numbers)}"

    def new_server(
        self, installation: Installation, *, settings: dict[str, str], home: Path | None = None
    ) -> EmbeddedServer:
        """Return a server of its own, not started, for a test that stops or breaks it."""
        copies = self.directory / "postgresql"
        return EmbeddedServer.create(
            home or self.new_home(), installation, settings, listens_on_tcp=True, copies=copies
        )


@contextmanager
def server_pool() -> Iterator[ServerPool]:
    """Provide a pool in a directory that vanishes with all its servers, also when this process is killed."""
    places = (_choose_place(), Path("/var/lib") if is_root() else Path.home())
    directories = [Path(tempfile.mkdtemp(prefix="penstock-test-", dir=place)) for place in places]
    for directory in directories if is_root() else ():
        # The servers' account must get through.
        directory.chmod(0o755)
    reaper = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("reaper.py")), *map(str, directories)],
        stdin=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        yield ServerPool(*directories)
    finally:
        assert reaper.stdin is not None
        reaper.stdin.close()
        reaper.wait()


def _choose_place() -> Path:
    memory = Path("/dev/shm")  # noqa: S108 (below, a directory of our own is made)
    if memory.is_dir() and shutil.disk_usage(memory).free > _NEEDED_SPACE_BYTES:
        return memory
    # Short, and open to the servers' account, which pytest's own directories are not.
    return Path("/tmp")  # noqa: S108
