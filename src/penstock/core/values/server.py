"""A server: who it is, what was read of it and what could not be, and findings about it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Self

from penstock.core.errors import PenstockError, TargetError
from penstock.core.frozen import frozen

if TYPE_CHECKING:
    from penstock.core.values.table import TableFacts, TableName

Severity = Literal["ok", "note", "warning", "refusal"]


@frozen
class Finding:
    """One finding about a server."""

    # "refusal" means that penstock load would be refused, or would wait for ever, for the reason found.
    severity: Severity
    subject: str
    text: str
    # Facts.
    detail: str | None = None
    # The command or the sentence that says how to correct what was found.
    remedy: str | None = None


def ok(subject: str, text: str) -> Finding:
    """Return a finding that needs no action."""
    return Finding(severity="ok", subject=subject, text=text)


def note(subject: str, text: str, remedy: str | None = None) -> Finding:
    """Return a finding that the user should know."""
    return Finding(severity="note", subject=subject, text=text, remedy=remedy)


def warning(subject: str, text: str, remedy: str | None = None) -> Finding:
    """Return a finding that should be corrected, but does not prevent a load."""
    return Finding(severity="warning", subject=subject, text=text, remedy=remedy)


def refusal(subject: str, text: str, remedy: str | None = None, *, detail: str | None = None) -> Finding:
    """Return a finding that prevents a load."""
    return Finding(severity="refusal", subject=subject, text=text, detail=detail, remedy=remedy)


def refusal_of(error: PenstockError, subject: str) -> Finding:
    """Return the finding that a load would be refused with an error."""
    return refusal(subject, error.message, error.hint, detail=error.detail)


def refuse(finding: Finding | None, error: type[PenstockError] = TargetError, *, sqlstate: str | None = None) -> None:
    """Raise a finding as an error of the given class; do nothing if the finding is None."""
    if finding is not None:
        raise error(finding.text, detail=finding.detail, hint=finding.remedy, sqlstate=sqlstate)


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
    """The row of ledger.sql: what the current role may do in the ledger's schema."""

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


@frozen
class ServerIdentity:
    """The row of server_identity.sql: the identity of a server, by which a failover is noticed.

    A copy of a server has the same system identifier, but another timeline once it is promoted.
    """

    system_identifier: int
    timeline: int
    # None on a Unix socket.
    address: str | None
    port: int | None
    # The resource id of Amazon RDS. If it is set, it alone identifies the server.
    resource_id: str | None = None

    @classmethod
    def of_resource(cls, resource_id: str | None, *, address: str | None = None) -> Self:
        """Return the identity of a server that Amazon RDS names."""
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


@frozen
class Clock:
    """How far the server's clock is ahead of this host's clock."""

    ahead_s: float
    # Half a round trip.
    error_s: float


@frozen
class Unread:
    """Something that could not be read, and the server's message."""

    what: str
    why: str


FlavourKind = Literal[
    "postgresql", "rds", "rds-cluster", "aurora", "cloud-sql", "alloydb", "azure", "neon", "supabase", "citus"
]


@frozen
class Flavour:
    """The product that a server is."""

    kind: FlavourKind
    name: str
    # The evidence that shows the product, None for plain PostgreSQL.
    told_by: str | None = None


@frozen
class Manager:
    """Software that also changes the server's settings."""

    name: str
    # The evidence for this software.
    told_by: str
    # How to change a setting with it.
    change: str


@frozen
class Mark:
    """The row of inspect_marks.sql: an object or setting that exists only with one product or manager."""

    kind: str
    name: str


@frozen
class Rights:
    """The row of rights.sql: what the current role may do, by the server's own checks."""

    is_superuser: bool
    may_create_schema: bool
    may_make_temporary: bool
    # The schema in which an unqualified table would be created.
    creation_schema: str | None
    may_create_table: bool
    reads_statistics: bool
    reads_settings: bool
    signals_backends: bool
    may_checkpoint: bool
    may_reload: bool
    may_replicate: bool
    bypasses_row_security: bool


@frozen
class Setting:
    """The row of settings.sql, with the values of pg_settings."""

    name: str
    value: str
    unit: str | None
    context: str
    source: str
    # None if the role may not see it.
    source_file: str | None
    is_pending_restart: bool
    # Only the role's privilege; the setting allow_alter_system is not considered.
    may_alter_system: bool


@frozen
class Standby:
    """The row of inspect_standbys.sql: a WAL receiver. All but the pid are None if the role may not see them."""

    pid: int
    name: str | None
    address: str | None
    state: str | None
    sync_state: str | None
    lag_bytes: int | None
    lag_s: float | None


@frozen
class Slot:
    """The row of inspect_slots.sql, a replication slot."""

    name: str
    kind: str
    database: str | None
    is_active: bool
    wal_status: str | None
    # The WAL that is kept for the slot.
    retained_bytes: int | None
    # How much more WAL can be written before the slot may be lost.
    safe_bytes: int | None


@frozen
class Receiver:
    """The row of receiver.sql: a standby's WAL receiver. A primary has none."""

    status: str | None
    sender_host: str | None
    sender_port: int | None
    lag_bytes: int | None
    # The age of the last replayed transaction. It also grows if the primary is idle.
    delay_s: float | None


@frozen
class Archiver:
    """The row of inspect_archiver.sql."""

    archived: int
    failed: int
    last_archived_at_s: float | None
    last_failed_at_s: float | None
    last_failed: str | None
    # The WAL since the last archived segment.
    lag_bytes: int | None

    @property
    def is_failing(self) -> bool:
        """Return whether the last attempt to archive a segment failed."""
        return self.last_failed_at_s is not None and self.last_failed_at_s > (self.last_archived_at_s or 0.0)


@frozen
class Connections:
    """How many connections are allowed and used. A limit is None if the server has no such limit."""

    maximum: int
    reserved: int
    used: int
    role_limit: int | None
    database_limit: int | None


@frozen
class Publication:
    """The row of publications.sql."""

    name: str
    is_all_tables: bool


@frozen
class Tablespace:
    """The row of tablespaces.sql."""

    name: str
    # Empty for tablespaces in the data directory.
    location: str


@frozen
class LedgerState(LedgerRights):
    """Whether loads can be recorded in a schema."""

    schema: str
    exists: bool
    # Why the ledger would be refused, None if it would not.
    distrust: Finding | None = None


@frozen
class Volume:
    """The file system that has some of the server's files."""

    # Which files these are.
    holds: str
    path: str
    device: str
    size_bytes: int
    # What an unprivileged process may use.
    free_bytes: int


@frozen
class HostFacts:
    """Facts of this machine, if the server runs on it."""

    cpu_count: int
    memory_bytes: int
    # Only the file systems of the paths that could be read.
    volumes: tuple[Volume, ...]


@frozen
class TableCosts:
    """The row of table.sql: the indexes, triggers and so on that cost time for each row.

    Indexes and triggers that belong to a partition only are not counted.
    """

    indexes: int
    foreign_keys: int
    insert_triggers: list[str]
    size_bytes: int


@frozen
class TableInspection:
    """A table to load into, and what affects a load into it."""

    asked: TableName
    # None if the table does not exist.
    facts: TableFacts | None = None
    costs: TableCosts | None = None
    publications: tuple[str, ...] = ()
    # Why COPY cannot load the table, None if it can.
    refusal: Finding | None = None


@frozen
class Encryption:
    """Whether a network connection is encrypted."""

    is_encrypted: bool
    # libpq's parameter.
    sslmode: str


@frozen
class Inspection:
    """All facts about a server. A tuple is None if it could not be read."""

    server: ServerFacts
    flavour: Flavour
    managers: tuple[Manager, ...]
    pooler: PoolerFacts | None
    rights: Rights
    settings: tuple[Setting, ...]
    connections: Connections | None
    standbys: tuple[Standby, ...] | None
    slots: tuple[Slot, ...] | None
    receiver: Receiver | None
    archiver: Archiver | None
    publications: tuple[Publication, ...] | None
    tablespaces: tuple[Tablespace, ...] | None
    autovacuum_workers: int | None
    ledger: LedgerState | None
    clock: Clock | None
    # None if the connection does not use TLS and either goes to this machine (a Unix socket or a loopback address, so
    # also the local end of a tunnel) or uses GSSAPI.
    encryption: Encryption | None = None
    unread: tuple[Unread, ...] = ()
    host: HostFacts | None = None
    table: TableInspection | None = None

    def setting(self, name: str) -> Setting | None:
        """Return a setting, or None if it does not exist or may not be read."""
        return next((setting for setting in self.settings if setting.name == name), None)

    def value(self, name: str) -> str | None:
        """Return a setting's value, or None."""
        found = self.setting(name)
        return None if found is None else found.value
