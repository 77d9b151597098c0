"""A PostgreSQL server as SQL describes it: what every load reads."""

from __future__ import annotations

from penstock.frozen import frozen


@frozen
class ServerFacts:
    """The facts of a server that a load needs.

    `version_num` is server_version_num (180004). `free_connections` is how many more connections this role can open.
    `is_local` is whether the server runs on this machine (Unix socket or a loopback address). `may_checkpoint` is
    whether the catalog allows this role to run CHECKPOINT. `host` is the address of the connection, with the port.
    `is_embedded` is whether the server is penstock's own.
    """

    version_num: int
    version: str
    database: str
    user: str
    server_encoding: str
    free_connections: int
    is_local: bool
    is_in_recovery: bool
    address: str
    may_checkpoint: bool = False
    is_aurora: bool = False
    wal_level: str = "replica"
    host: str = ""
    is_embedded: bool = False

    @property
    def major(self) -> int:
        """Return the server's major version: 18 for 180004."""
        return self.version_num // 10_000

    @property
    def name(self) -> str:
        """Return the server's name in results, such as "embedded PostgreSQL 18"."""
        return f"embedded PostgreSQL {self.major}" if self.is_embedded else f"PostgreSQL {self.major} at {self.host}"


@frozen
class DateOrder:
    """The DateStyle of the sessions, and whether it was chosen: by the connection, or for the role or the database."""

    date_style: str = ""
    is_chosen: bool = False


@frozen
class LedgerRights:
    """The row of inspect_ledger.sql: what the current role may do in the ledger's schema.

    `owner` is the schema's owner, None if the schema does not exist. `may_write` is whether the role may use all tables
    of the ledger.
    """

    role: str
    owner: str | None
    may_create: bool
    may_write: bool


@frozen
class PoolerFacts:
    """The evidence of a pooler: the backend pid that libpq received, and the pid of the backend that answered."""

    told_pid: int
    backend_pid: int
