"""What a server is and may do: all that SQL tells of it to one role, and its host where that is this machine.

None means that it could not be read, by which `Inspection.unread` and `Rights` say why; it never means no.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from penstock.model.server.server import ServerFacts
    from penstock.model.server.table import TableFacts, TableName

FlavourKind = Literal[
    "postgresql", "rds", "rds-cluster", "aurora", "cloud-sql", "alloydb", "azure", "neon", "supabase", "citus"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Flavour:
    """Whose PostgreSQL a server is; `told_by` is what gave it away, None for PostgreSQL itself."""

    kind: FlavourKind
    name: str
    told_by: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Manager:
    """Who else changes this server's settings, and what it was recognised by; `change` says how to change one there."""

    name: str
    told_by: str
    change: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """The row of inspect_marks.sql: something that only a flavour or a manager has."""

    kind: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rights:
    """The row of inspect_rights.sql: what the current role may do, as the server itself decides it.

    `creation_schema` is where an unqualified table would be made.
    """

    is_superuser: bool
    may_create_schema: bool
    may_make_temporary: bool
    creation_schema: str | None
    may_create_table: bool
    reads_statistics: bool
    reads_settings: bool
    signals_backends: bool
    may_checkpoint: bool
    may_reload: bool
    may_replicate: bool
    bypasses_row_security: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The row of inspect_settings.sql: pg_settings' own words.

    `source_file` is None where the role may not see it; `may_alter_system` is the privilege alone.
    """

    name: str
    value: str
    unit: str | None
    context: str
    source: str
    source_file: str | None
    is_pending_restart: bool
    may_alter_system: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Standby:
    """The row of inspect_standbys.sql: who receives WAL now; all but `pid` is None where the role may not see it."""

    pid: int
    name: str | None
    address: str | None
    state: str | None
    sync_state: str | None
    lag_bytes: int | None
    lag_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """The row of inspect_slots.sql: `retained_bytes` is WAL kept for it, `safe_bytes` how much more will be."""

    name: str
    kind: str
    database: str | None
    is_active: bool
    wal_status: str | None
    retained_bytes: int | None
    safe_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Receiver:
    """The row of inspect_receiver.sql: how a standby follows its primary; there is none on a primary.

    `delay_s` is the age of the last transaction replayed, which grows on an idle primary's standby too.
    """

    status: str | None
    sender_host: str | None
    sender_port: int | None
    lag_bytes: int | None
    delay_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Archiver:
    """What becomes of WAL segments: `lag_bytes` is WAL behind the last one that was archived."""

    archived: int
    failed: int
    last_archived_at_s: float | None
    last_failed_at_s: float | None
    last_failed: str | None
    lag_bytes: int | None

    @property
    def is_failing(self) -> bool:
        """Return whether the last attempt failed."""
        return self.last_failed_at_s is not None and self.last_failed_at_s > (self.last_archived_at_s or 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Connections:
    """How many connections there may be and are; a limit is None where there is none."""

    maximum: int
    reserved: int
    used: int
    role_limit: int | None
    database_limit: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """The row of inspect_publications.sql."""

    name: str
    is_all_tables: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Tablespace:
    """The row of inspect_tablespaces.sql; `location` is empty for those in the data directory."""

    name: str
    location: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerState:
    """Whether loads can be written down in a schema.

    `owner` is the schema's, None where there is no schema; `may_write` is true where the role may use all its tables;
    `distrust` says why the ledger would be refused.
    """

    schema: str
    owner: str | None
    exists: bool
    may_create: bool
    may_write: bool
    distrust: str | None = None
    remedy: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """How far the server's clock is ahead of this host's, give or take half a round trip."""

    ahead_s: float
    error_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolerFacts:
    """The backend that libpq was told of, and the one that answered: a pooler is in between."""

    told_pid: int
    backend_pid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Unread:
    """What could not be read, and the server's own words on that."""

    what: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Volume:
    """Where something of the server's lies; `free_bytes` is what an ordinary process may use."""

    holds: str
    path: str
    device: str
    size_bytes: int
    free_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFacts:
    """The machine of a local server; `volumes` only of the places whose paths could be read."""

    cpu_count: int
    memory_bytes: int
    volumes: tuple[Volume, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableCosts:
    """The row of inspect_table.sql: what each row has to pass; partitions' own indexes and triggers are not counted."""

    indexes: int
    foreign_keys: int
    insert_triggers: list[str]
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TableInspection:
    """A table that is to be loaded into: its facts, None where there is none of that name; what loading it means.

    `refusal` is why COPY could not fill it, with the remedy.
    """

    asked: TableName
    facts: TableFacts | None = None
    costs: TableCosts | None = None
    publications: tuple[str, ...] = ()
    refusal: str | None = None
    remedy: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Encryption:
    """How a connection over a network is protected; `sslmode` is libpq's."""

    is_encrypted: bool
    sslmode: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """All of it. What is a tuple where it was read is None where it was not.

    `encryption` is None for a connection that does not leave this machine, or goes into a tunnel here without TLS.
    """

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
    encryption: Encryption | None = None
    unread: tuple[Unread, ...] = ()
    host: HostFacts | None = None
    table: TableInspection | None = None

    def setting(self, name: str) -> Setting | None:
        """Return a setting, None where it does not exist or may not be read."""
        return next((setting for setting in self.settings if setting.name == name), None)

    def value(self, name: str) -> str | None:
        """Return a setting's value."""
        found = self.setting(name)
        return None if found is None else found.value
