"""Server settings: their states, what a profile would change, and the leases under which they are changed.

Numbers are in the setting's unit in pg_settings (max_wal_size: MB of 2^20 bytes, checkpoint_timeout: seconds).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Literal

from penstock.frozen import frozen

if TYPE_CHECKING:
    from penstock.model.server.inspection import Archiver, Flavour, FlavourKind, Manager, Slot

# "server": the value is changed for all sessions, under a lease. "session": it is changed only in the sessions of a
# load, until they end.
Scope = Literal["server", "session"]

# How a server's settings can be changed: by ALTER SYSTEM, or in a parameter group of Amazon RDS. "none": penstock
# cannot change them.
Backend = Literal["alter-system", "parameter-group", "none"]


@frozen
class SettingState:
    """The row of settings_state.sql: one setting as in pg_settings."""

    name: str
    # In the setting's unit.
    value: str
    unit: str | None
    context: str
    source: str
    # None if the role may not see it, and for values that come from no file.
    source_file: str | None
    source_line: int | None
    # Only the role's privilege; the setting allow_alter_system is not considered.
    may_alter_system: bool


@frozen
class ProfileValue:
    """One setting of a profile."""

    name: str
    scope: Scope
    # The value; if it depends on the expected WAL, the minimum.
    least: float
    text: str
    # The reason for the value, for users.
    reason: str
    # The source of the reason.
    source: str
    # The products on which the value is set.
    flavours: frozenset[FlavourKind]
    # Whether the value depends on the expected WAL.
    goes_by_wal: bool = False


@frozen
class Profile:
    """Settings that are changed together."""

    name: str
    summary: str
    # What the changes cost, for users.
    cost: str
    values: tuple[ProfileValue, ...]


@frozen
class SettingsRights:
    """The row of settings_rights.sql: which rights the role has that a lease by ALTER SYSTEM needs."""

    user: str
    is_superuser: bool
    reads_settings: bool
    reads_files: bool
    may_reload: bool
    may_record: bool
    # The server's setting allow_alter_system (PostgreSQL 17 and later); true on older servers.
    allows_alter_system: bool


@frozen
class AttachedGroup:
    """The parameter group that sets the parameters of an instance of Amazon RDS, or of a Multi-AZ DB cluster."""

    name: str
    owner: Literal["instance", "cluster"]
    # The instance's or cluster's identifier.
    identifier: str
    # The instance's or cluster's resource id.
    resource_id: str
    is_default: bool
    # All instances or clusters that use the group, None if they are not known.
    users: tuple[str, ...] | None
    apply_state: str | None
    # The free storage, None if it is not known.
    free_bytes: int | None = None


@frozen
class SettingsFacts:
    """The facts that are read before settings are changed."""

    version_num: int
    is_in_recovery: bool
    flavour: Flavour
    managers: tuple[Manager, ...]
    rights: SettingsRights
    # The states before any lease.
    settings: tuple[SettingState, ...]
    slots: tuple[Slot, ...] = ()
    # None if there is nothing to report.
    archiver: Archiver | None = None
    # None if it is not known.
    expected_wal_bytes: int | None = None
    # Free bytes on the WAL's volume, None if not known.
    wal_free_bytes: int | None = None
    # AWS's description of the parameter group, None if the server is not on Amazon RDS.
    group: AttachedGroup | None = None
    # Whether settings may be changed in a group that other servers use too.
    may_share_group: bool = False
    # The settings that live leases have changed, by name: the value that the lease wants, and the reason of the lease.
    held: Mapping[str, tuple[float, str]] = field(default_factory=dict)

    def setting(self, name: str) -> SettingState | None:
        """Return a setting, or None if the server does not have it."""
        return next((setting for setting in self.settings if setting.name == name), None)


@frozen
class SettingChange:
    """A setting to be changed."""

    name: str
    scope: Scope
    prior: SettingState
    # The new number, in the setting's unit.
    value: float
    # The new value as ALTER SYSTEM writes it.
    text: str
    reason: str


@frozen
class SettingSkip:
    """A setting of a profile that is not changed, and why."""

    name: str
    reason: str


@frozen
class SettingsDecision:
    """What a profile changes on one server. A pure function decides it, --plan shows it, a lease carries it out."""

    profile: str
    backend: Backend
    # If there is an obstacle, the changes that would be made without it.
    changes: tuple[SettingChange, ...]
    skips: tuple[SettingSkip, ...]
    notes: tuple[str, ...]
    # Why no setting of the server can be changed, None if settings can be changed.
    obstacle: str | None = None
    # How to remove the obstacle.
    remedy: str | None = None

    @property
    def leased(self) -> tuple[SettingChange, ...]:
        """Return the changes that need a lease."""
        return tuple(change for change in self.changes if change.scope == "server")


@frozen
class SettingResult:
    """One setting's value before and after, as SHOW prints it."""

    name: str
    before: str
    after: str
    # What was not done, and why.
    note: str | None = None


@frozen
class LeaseReport:
    """The result of taking or ending leases."""

    # One for each setting.
    results: tuple[SettingResult, ...] = ()
    # What needs attention.
    warnings: tuple[str, ...] = ()
    # The leases that were taken, or that have ended.
    lease_ids: tuple[str, ...] = ()


@frozen
class LeasedSetting:
    """The values of one setting that a load changed, before, during and after the load, as SHOW prints them."""

    name: str
    before: str
    during: str
    after: str
    # Why the setting does not have its old value after the load, None if it has.
    note: str | None = None
