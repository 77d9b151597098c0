"""Values that describe a server: what SQL shows to one role, and facts of the host if the server is on this machine.

A fact is None if it could not be read; None never means no. `Inspection.unread` and `Rights` say why.
"""

from __future__ import annotations

from typing import Literal

from penstock.core.slotted import slotted
from penstock.core.values.diagnosis import Diagnosis
from penstock.core.values.server import Clock, LedgerRights, PoolerFacts, ServerFacts, Unread
from penstock.core.values.table import TableFacts, TableName

FlavourKind = Literal[
    "postgresql", "rds", "rds-cluster", "aurora", "cloud-sql", "alloydb", "azure", "neon", "supabase", "citus"
]


@slotted
class Flavour:
    """The product of a server, such as Amazon RDS."""

    kind: FlavourKind
    name: str
    # The evidence that shows the product, None for plain PostgreSQL.
    told_by: str | None = None


@slotted
class Manager:
    """Software that also changes the server's settings."""

    name: str
    # The evidence for this software.
    told_by: str
    # How to change a setting with this software.
    change: str


@slotted
class Mark:
    """The row of inspect_marks.sql: an object or setting that exists only with one product or manager."""

    kind: str
    name: str


@slotted
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
    # The role that has logged in.
    session_user: str
    # In how many seconds that role's password expires, negative if it has expired. None if it does not expire.
    password_ends_in_s: float | None


@slotted
class Setting:
    """The row of settings.sql: a setting as pg_settings has it, and whether the role may change it."""

    name: str
    value: str
    unit: str | None
    context: str
    source: str
    # The file that sets the value. None if the role may not see it.
    source_file: str | None
    is_pending_restart: bool
    # Whether the role has the privilege ALTER SYSTEM on the setting. The setting allow_alter_system is not considered.
    may_alter_system: bool


@slotted
class StandbyRow:
    """The row of inspect_standbys.sql: a receiver of this server's WAL, as pg_stat_replication has it.

    All fields but the pid are None if the role may not see them.
    """

    pid: int
    name: str | None
    address: str | None
    state: str | None
    sync_state: str | None
    lag_bytes: int | None
    lag_s: float | None


@slotted
class Slot:
    """The row of inspect_slots.sql: a replication slot, and how much WAL it keeps."""

    name: str
    kind: str
    database: str | None
    is_active: bool
    wal_status: str | None
    # The WAL that is kept for the slot.
    retained_bytes: int | None
    # The WAL that the consumer of a logical slot has not confirmed. None for a physical slot.
    unconfirmed_bytes: int | None
    # How much more WAL can be written before the slot may be lost.
    safe_bytes: int | None


@slotted
class Receiver:
    """The row of receiver.sql: a standby's WAL receiver. A primary has none."""

    status: str | None
    sender_host: str | None
    sender_port: int | None
    lag_bytes: int | None
    # The age of the last replayed transaction. It also grows if the primary is idle.
    delay_s: float | None


@slotted
class Archiver:
    """The row of inspect_archiver.sql: counts of archived and failed WAL segments, and how much WAL is not archived."""

    archived: int
    failed: int
    last_archived_at_s: float | None
    last_failed_at_s: float | None
    last_failed: str | None
    # The WAL since the first segment that is not archived.
    lag_bytes: int | None

    @property
    def is_failing(self) -> bool:
        """Return whether the last attempt to archive a segment failed."""
        return self.last_failed_at_s is not None and self.last_failed_at_s > (self.last_archived_at_s or 0.0)


@slotted
class Connections:
    """How many connections are allowed and used. A limit is None if the server has no such limit."""

    maximum: int
    # superuser_reserved_connections plus reserved_connections.
    reserved: int
    used: int
    role_limit: int | None
    database_limit: int | None


@slotted
class Publication:
    """The row of publications.sql: a publication of this database."""

    name: str
    is_all_tables: bool


@slotted
class Tablespace:
    """The row of tablespaces.sql: a tablespace and its directory."""

    name: str
    # The tablespace's directory, empty for tablespaces in the data directory.
    location: str


@slotted
class LedgerState(LedgerRights):
    """Whether loads can be recorded in a schema."""

    schema: str
    exists: bool
    # If the ledger has an older version: that a load upgrades the ledger, or why a load would be refused.
    upgrade: Diagnosis | None = None
    # Why the ledger would be refused, None if it would not.
    distrust: Diagnosis | None = None
    # Why loads into a table are refused until `penstock repair` has restored it. Only the first such table, and only if
    # no table was asked for.
    unrestored: Diagnosis | None = None


@slotted
class FileSystem:
    """A file system with files of the server."""

    # What is stored there: data, WAL, and so on.
    holds: str
    path: str
    device: str
    size_bytes: int
    # The free space that an unprivileged process may use.
    free_bytes: int


@slotted
class HostFacts:
    """Facts of this machine. The server runs on it, too."""

    cpu_count: int
    memory_bytes: int
    # The file systems of those paths of the server that could be read.
    volumes: tuple[FileSystem, ...]


@slotted
class TableCosts:
    """The row of table.sql: the size of a table, and the indexes, keys and triggers that cost time for each row.

    Indexes and triggers that belong to a partition only are not counted.
    """

    indexes: int
    foreign_keys: int
    insert_triggers: list[str]
    size_bytes: int


@slotted
class TableInspection:
    """A table to load into, and what affects a load into it."""

    asked: TableName
    # The facts of the table, None if the table does not exist.
    facts: TableFacts | None = None
    costs: TableCosts | None = None
    publications: tuple[str, ...] = ()
    # Why COPY cannot load the table, or why a load cannot create it; None if it can.
    refusal: Diagnosis | None = None
    # The indexes and keys that loads have dropped and not rebuilt yet, and the ids of these loads.
    lacking: tuple[str, ...] = ()
    dropped_by: tuple[str, ...] = ()


@slotted
class Encryption:
    """Whether a network connection is encrypted."""

    is_encrypted: bool
    # The value of libpq's parameter.
    sslmode: str


@slotted
class Inspection:
    """All facts about a server. A tuple is None if it could not be read."""

    server: ServerFacts
    flavour: Flavour
    managers: tuple[Manager, ...]
    pooler: PoolerFacts | None
    rights: Rights
    settings: tuple[Setting, ...]
    connections: Connections | None
    standbys: tuple[StandbyRow, ...] | None
    slots: tuple[Slot, ...] | None
    receiver: Receiver | None
    archiver: Archiver | None
    publications: tuple[Publication, ...] | None
    tablespaces: tuple[Tablespace, ...] | None
    autovacuum_workers: int | None
    ledger: LedgerState | None
    clock: Clock | None
    # None for a connection without TLS that goes to this machine (to a Unix socket or a loopback address, which can be
    # the local end of a tunnel) or uses GSSAPI.
    encryption: Encryption | None = None
    unread: tuple[Unread, ...] = ()
    host: HostFacts | None = None
    table: TableInspection | None = None

    def setting(self, name: str) -> Setting | None:
        """Return a setting, or None if it does not exist or may not be read."""
        return next((setting for setting in self.settings if setting.name == name), None)

    def value(self, name: str) -> str | None:
        """Return a setting's value as pg_settings has it, None if the setting does not exist or may not be read."""
        found = self.setting(name)
        return None if found is None else found.value
