"""Server settings: what they are, what a profile would change, and the leases under which they are changed.

Numbers are in pg_settings' own unit of the setting (max_wal_size: MB of 2^20 bytes, checkpoint_timeout: seconds).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from datetime import datetime

    from penstock.model.server.inspection import Archiver, Flavour, FlavourKind, Manager, Slot

# `server`: for everybody, under a lease. `session`: in sessions of a load only, and gone with them.
Scope = Literal["server", "session"]

# Who changes a server's settings: ALTER SYSTEM, the parameter group of Amazon RDS, or nobody that penstock could be.
Backend = Literal["alter-system", "parameter-group", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingState:
    """The row of settings_state.sql: one setting as pg_settings has it; `value` is in `unit`.

    `source_file` is None where the role may not see it, and for values from no file. `may_alter_system` is the
    privilege alone.
    """

    name: str
    value: str
    unit: str | None
    context: str
    source: str
    source_file: str | None
    source_line: int | None
    may_alter_system: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileValue:
    """One value of a profile, why it is what it is, and who says so.

    `least` is the value; where `goes_by_wal` it goes by the WAL that is expected, and is at least that. `flavours` are
    those of which it says something.
    """

    name: str
    scope: Scope
    least: float
    text: str
    reason: str
    source: str
    flavours: frozenset[FlavourKind]
    goes_by_wal: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Values that belong together, and what they cost."""

    name: str
    summary: str
    cost: str
    values: tuple[ProfileValue, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerIdentity:
    """The row of lease_server.sql: which server this is, so that a failover is noticed.

    A copy of a server has its system identifier; once it is promoted it has another timeline. `address` is None on a
    Unix socket. `resource_id` is Amazon RDS's own, which says all there.
    """

    system_identifier: int
    timeline: int
    address: str | None
    port: int | None
    resource_id: str | None = None

    def is_same(self, other: ServerIdentity) -> bool:
        """Whether it is the same server: its address may be another by another route."""
        if self.resource_id is not None or other.resource_id is not None:
            return self.resource_id == other.resource_id
        return (self.system_identifier, self.timeline) == (other.system_identifier, other.timeline)

    def __str__(self) -> str:
        if self.resource_id is not None:
            return f"{self.address} of Amazon RDS ({self.resource_id})"
        place = f"{self.address}:{self.port}" if self.address else "a Unix socket"
        return f"the server at {place} (system {self.system_identifier}, timeline {self.timeline})"


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsRights:
    """The row of settings_rights.sql: what the role may do of all that a lease by ALTER SYSTEM needs.

    `allows_alter_system` is the server's setting of that name (PostgreSQL 17), and true before.
    """

    user: str
    is_superuser: bool
    reads_settings: bool
    reads_files: bool
    may_reload: bool
    may_write_leases: bool
    allows_alter_system: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachedGroup:
    """The parameter group that decides the settings of an instance of Amazon RDS, or of a Multi-AZ DB cluster.

    `identifier` and `resource_id` are the instance's or the cluster's. `users` are all that have the group, None where
    that is not known. `free_bytes` is what is free of the storage, None where that is not known.
    """

    name: str
    owner: Literal["instance", "cluster"]
    identifier: str
    resource_id: str
    is_default: bool
    users: tuple[str, ...] | None
    apply_state: str | None
    free_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsFacts:
    """All that is looked at before settings are changed.

    `settings` are as they were before any lease. `expected_wal_bytes` and `wal_free_bytes` (on the WAL's volume) are
    None where they are not known; `archiver` is None where there is nothing to tell. `group` is what AWS tells of a
    server of Amazon RDS; `may_share_group`: others that have it may be changed too.
    """

    version_num: int
    is_in_recovery: bool
    flavour: Flavour
    managers: tuple[Manager, ...]
    rights: SettingsRights
    settings: tuple[SettingState, ...]
    slots: tuple[Slot, ...] = ()
    archiver: Archiver | None = None
    expected_wal_bytes: int | None = None
    wal_free_bytes: int | None = None
    group: AttachedGroup | None = None
    may_share_group: bool = False

    def setting(self, name: str) -> SettingState | None:
        """Return a setting, None where the server has none of that name."""
        return next((setting for setting in self.settings if setting.name == name), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingChange:
    """A setting that is to be another: `value` is the new number, `text` how ALTER SYSTEM has it."""

    name: str
    scope: Scope
    prior: SettingState
    value: float
    text: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingSkip:
    """A setting of a profile that stays as it is, and why."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsDecision:
    """What a profile comes to on one server: made by a pure function, shown by --plan, carried out as it stands.

    `obstacle` is why no setting of the server can be changed, with `remedy`; `changes` then are what would be.
    """

    profile: str
    backend: Backend
    changes: tuple[SettingChange, ...]
    skips: tuple[SettingSkip, ...]
    notes: tuple[str, ...]
    obstacle: str | None = None
    remedy: str | None = None

    @property
    def leased(self) -> tuple[SettingChange, ...]:
        """Return the changes that need a lease."""
        return tuple(change for change in self.changes if change.scope == "server")


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """Settings changed for a while: who, why, until when, on which server.

    `until` is None for one that lasts as long as its holder's session. `holder_pid` is the backend of that session,
    None where it has gone. `wanted` are the values it asked for; of several leases the largest is in force.
    """

    lease_id: str
    owner: str
    client: str
    reason: str
    profile: str
    began_at: datetime
    until: datetime | None
    server: ServerIdentity
    wanted: dict[str, float]
    holder_pid: int | None = None

    def is_over(self, now: datetime) -> bool:
        """Whether nothing holds it any more: its session has gone, or its time is up."""
        if self.holder_pid is not None:
            return False
        return self.until is None or self.until <= now


@dataclass(frozen=True, slots=True, kw_only=True)
class PriorSetting:
    """A setting as it was before the first lease on it.

    `auto_text` is what its line in postgresql.auto.conf said, None without; `auto_line` is that line's number. `ours`
    are all texts that leases have put there since.
    """

    name: str
    value: str
    unit: str | None
    source: str
    source_file: str | None
    auto_text: str | None
    auto_line: int | None
    ours: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingMove:
    """What happens to one leased setting: `text` is its new line in postgresql.auto.conf, None to take the line out.

    `kept` says why it is left as it is; `is_last`: no lease on it remains.
    """

    name: str
    text: str | None = None
    kept: str | None = None
    is_last: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingResult:
    """One setting's value before and after, as SHOW has it, and what was not done about it."""

    name: str
    before: str
    after: str
    note: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseReport:
    """What was done about leases: `results` setting by setting; `warnings` are what somebody has to look at.

    `lease_ids` are the leases that were taken, or that are no more.
    """

    results: tuple[SettingResult, ...] = ()
    warnings: tuple[str, ...] = ()
    lease_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LeasedSetting:
    """What became of one setting that a load had changed, as SHOW has it: `during` the load and `after` it.

    `note` is why it is not as it was before, None where it is.
    """

    name: str
    before: str
    during: str
    after: str
    note: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadSettings:
    """What a load does about the server's settings: `choice` is none, auto or a profile's name.

    `decision` is None where the server was not asked; `reason` is why nothing is changed, None where something is.
    """

    choice: str
    decision: SettingsDecision | None = None
    reason: str | None = None

    @property
    def is_changing(self) -> bool:
        """Whether settings will be others during the load."""
        return self.reason is None

    @property
    def is_refusing(self) -> bool:
        """Whether the load does not begin: a profile that was named must be had."""
        found = self.decision
        return self.choice != "auto" and found is not None and found.obstacle is not None and bool(found.leased)


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsOverview:
    """The settings of profiles as they are, and the leases on them; `as_of` is the time by the server's clock."""

    identity: ServerIdentity
    as_of: datetime
    settings: tuple[SettingState, ...]
    leases: tuple[Lease, ...] = ()
