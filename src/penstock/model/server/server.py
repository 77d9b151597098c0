"""A PostgreSQL server as SQL describes it: what every load reads."""

from __future__ import annotations

from penstock.frozen import frozen


@frozen
class ServerFacts:
    """The facts of a server that a load needs."""

    # server_version_num, such as 180004.
    version_num: int
    version: str
    database: str
    user: str
    server_encoding: str
    # How many more connections this role can open.
    free_connections: int
    # Whether the server runs on this machine (a Unix socket or a loopback address).
    is_local: bool
    is_in_recovery: bool
    address: str
    # Whether the catalog allows this role to run CHECKPOINT.
    may_checkpoint: bool = False
    is_aurora: bool = False
    wal_level: str = "replica"
    # The address of the connection, with the port.
    host: str = ""
    # Whether the server is penstock's own.
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
    """The DateStyle of the sessions."""

    date_style: str = ""
    # Whether the connection sets it, or somebody has set it for the role or the database.
    is_chosen: bool = False


@frozen
class LedgerRights:
    """The row of inspect_ledger.sql: what the current role may do in the ledger's schema."""

    role: str
    # The schema's owner, None if the schema does not exist.
    owner: str | None
    may_create: bool
    # Whether the role may use all tables of the ledger.
    may_write: bool


@frozen
class PoolerFacts:
    """The evidence of a pooler."""

    # The backend pid that libpq received.
    told_pid: int
    # The pid of the backend that answered.
    backend_pid: int
