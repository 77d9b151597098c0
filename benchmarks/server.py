"""The benchmarks' own embedded server, and the table that is loaded: made anew before each run, untimed."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Self

import psycopg

from penstock.embedded.installations import default_installation
from penstock.embedded.server import EmbeddedServer
from penstock_lab.datasets.people import IMDB_TABLES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from penstock.embedded.installations import Installation

SCHEMA = "staging"
TABLE = "title_principals"
COLUMNS = IMDB_TABLES["title.principals"]
QUALIFIED = f"{SCHEMA}.{TABLE}"

# No checkpoint falls into a run; everything is durable.
SETTINGS = {
    "shared_buffers": "512MB",
    "max_wal_size": "8GB",
    "checkpoint_timeout": "30min",
    "fsync": "on",
}
_SHOWN = ("server_version", *SETTINGS, "synchronous_commit", "wal_level", "full_page_writes", "wal_compression")


@contextmanager
def bench_server(
    data: Path,
    *,
    name: str = "server",
    settings: Mapping[str, str] | None = None,
    installation: Installation | None = None,
) -> Iterator[EmbeddedServer]:
    """Provide a running server of its own below `data`; it is stopped at the end. It is the default installation's."""
    make_open_dir(data)
    server = EmbeddedServer.create(
        data / name, installation or default_installation(), {**SETTINGS, **(settings or {})}, listens_on_tcp=True
    )
    # One that an interrupted benchmark left has perhaps other settings.
    server.stop()
    server.ensure_running()
    try:
        yield server
    finally:
        server.stop()


def make_open_dir(folder: Path) -> None:
    """Make a folder that the server's account can enter, whatever the umask."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)


class Target:
    """The table that the ways load into."""

    def __init__(self, conninfo: str) -> None:
        self._connection = psycopg.connect(conninfo, autocommit=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def renew(self, changes: Sequence[str] = ()) -> None:
        """Drop the table, make it anew, empty and unindexed, alter it, and let the server write what is dirty."""
        columns = ", ".join(f'"{column}" text' for column in COLUMNS)
        self._connection.execute(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}")
        self._connection.execute(f"DROP TABLE IF EXISTS {QUALIFIED}")
        self._connection.execute(f"CREATE TABLE {QUALIFIED} ({columns})")
        for change in changes:
            self._connection.execute(f"ALTER TABLE {QUALIFIED} {change}")
        self._connection.execute("CHECKPOINT")

    def renew_categories(self, names: Sequence[str]) -> None:
        """Make a table anew that a foreign key can refer to, with these keys and no others."""
        self._connection.execute(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}")
        self._connection.execute(f"DROP TABLE IF EXISTS {SCHEMA}.categories CASCADE")
        self._connection.execute(f"CREATE TABLE {SCHEMA}.categories (name text PRIMARY KEY)")
        self._connection.execute(f"INSERT INTO {SCHEMA}.categories SELECT unnest(%s::text[])", [list(names)])

    def count(self) -> int:
        """Return the table's rows."""
        row = self._connection.execute(f"SELECT count(*) FROM {QUALIFIED}").fetchone()
        assert row is not None
        return int(row[0])

    def renew_small(self) -> None:
        """Drop the table of small objects, make it anew, and forget what was loaded into it."""
        self._connection.execute(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}")
        self._connection.execute(f"DROP TABLE IF EXISTS {SCHEMA}.small")
        self._connection.execute("DROP SCHEMA IF EXISTS penstock CASCADE")
        self._connection.execute(f"CREATE TABLE {SCHEMA}.small (a bigint, b text)")
        self._connection.execute("CHECKPOINT")

    def count_small(self) -> int:
        """Return that table's rows."""
        row = self._connection.execute(f"SELECT count(*) FROM {SCHEMA}.small").fetchone()
        assert row is not None
        return int(row[0])

    def wait_alone(self) -> None:
        """Wait until the other sessions' backends have ended."""
        others = (
            "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
        )
        while self._connection.execute(others).fetchone() != (0,):
            time.sleep(0.01)

    def checksum(self) -> str:
        """Return a sum over all rows that does not depend on their order."""
        row = self._connection.execute(f"SELECT sum(hashtextextended(t::text, 0)) FROM {QUALIFIED} AS t").fetchone()
        assert row is not None
        return str(row[0])

    def settings(self) -> dict[str, str]:
        """Return the server's version and the settings that loads depend on."""
        query = "SELECT name, current_setting(name) FROM unnest(%s::text[]) AS name"
        return dict(self._connection.execute(query, [list(_SHOWN)]).fetchall())
