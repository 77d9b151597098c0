"""Values about a server: what a load needs to know of it, its identity and clock, and what could not be read."""

from __future__ import annotations

from typing import Literal, Self

from penstock.core.slotted import slotted

# Aurora DSQL, and Aurora PostgreSQL Limitless Database.
Distributed = Literal["dsql", "limitless"]

DSQL_LOADER = "Use AWS's own loader: github.com/aws-samples/aurora-dsql-loader."


@slotted
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
    # The Aurora that distributes its rows over many servers, None for all other servers.
    distributed: Distributed | None = None
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


@slotted
class DateOrder:
    """The DateStyle of the sessions."""

    date_style: str = ""
    # Whether the connection, the role or the database sets DateStyle. Otherwise it is the server's default.
    is_chosen: bool = False


@slotted
class LedgerRights:
    """The row of ledger.sql: what the current role may do in the ledger's schema."""

    role: str
    # The schema's owner, None if the schema does not exist.
    owner: str | None
    may_create: bool
    # Whether the role may use all tables of the ledger.
    may_write: bool
    # The owner of the ledger's tables, None if they do not exist.
    tables_owner: str | None = None
    # Whether the role is that owner, or a member of it.
    may_upgrade: bool = False


@slotted
class PoolerFacts:
    """The evidence of a connection pooler: the backend that libpq was told of is not the one that answers."""

    # The backend pid that libpq received.
    told_pid: int
    # The pid of the backend that answered.
    backend_pid: int


@slotted
class ServerIdentity:
    """The row of server_identity.sql: the identity of a server, by which a failover is noticed.

    A copy of a server has the same system identifier, but another timeline once it is promoted.
    """

    system_identifier: int
    timeline: int
    # The address of the server, None on a Unix socket.
    address: str | None
    port: int | None
    # The resource id of Amazon RDS. If it is set, it alone identifies the server.
    resource_id: str | None = None

    @classmethod
    def of_resource(cls, resource_id: str | None, *, address: str | None = None) -> Self:
        """Return the identity of a server of Amazon RDS, by its resource id."""
        return cls(system_identifier=0, timeline=0, address=address, port=None, resource_id=resource_id)

    def is_same(self, other: ServerIdentity) -> bool:
        """Return whether both are the same server. The address is not compared, because it may differ by route."""
        if self.resource_id is not None or other.resource_id is not None:
            return self.resource_id == other.resource_id
        return (self.system_identifier, self.timeline) == (other.system_identifier, other.timeline)

    def __str__(self) -> str:
        if self.resource_id is not None:
            return f"{self.address} of Amazon RDS ({self.resource_id})"
        place = f"{self.address}:{self.port}" if self.address else "a Unix socket"
        return f"the server at {place} (system {self.system_identifier}, timeline {self.timeline})"


@slotted
class Clock:
    """How far the server's clock is ahead of this host's clock."""

    ahead_s: float
    # The largest error of `ahead_s`: half a round trip.
    error_s: float


@slotted
class Unread:
    """Something that could not be read, and the server's message."""

    what: str
    why: str


def describe_server(server: str, database: str) -> str:
    """Return " on SERVER, DATABASE" for the end of a result's first line.

    >>> describe_server("embedded PostgreSQL 18", "postgres")
    ' on embedded PostgreSQL 18, database postgres'
    """
    return f" on {server}, database {database}" if server else ""
