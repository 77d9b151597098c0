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

# `server`: the value is changed for all sessions, under a lease. `session`: only in the sessions of a load, until they
# end.
Scope = Literal["server", "session"]

# How a server's settings can be changed: by ALTER SYSTEM, in a parameter group of Amazon RDS, or not at all by
# penstock.
Backend = Literal["alter-system", "parameter-group", "none"]


@frozen
class SettingState:
    """The row of settings_state.sql: one setting as in pg_settings; `value` is in `unit`.

    `source_file` is None if the role may not see it, and for values that come from no file. `may_alter_system` is only
    the role's privilege; the setting allow_alter_system is not considered.
    """

    name: str
    value: str
    unit: str | None
    context: str
    source: str
    source_file: str | None
    source_line: int | None
    may_alter_system: bool


@frozen
class ProfileValue:
    """One setting of a profile: the value, with the reason for it and the source.

    `least` is the value. If `goes_by_wal` is true, the value depends on the expected WAL, and `least` is the minimum.
    The value is set only on the products in `flavours`.
    """

    name: str
    scope: Scope
    least: float
    text: str
    reason: str
    source: str
    flavours: frozenset[FlavourKind]
    goes_by_wal: bool = False


@frozen
class Profile:
    """A profile: settings that are changed together, and what that costs."""

    name: str
    summary: str
    cost: str
    values: tuple[ProfileValue, ...]


@frozen
class SettingsRights:
    """The row of settings_rights.sql: which rights the role has that a lease by ALTER SYSTEM needs.

    `allows_alter_system` is the server's setting allow_alter_system (PostgreSQL 17 and later), and true on older
    servers.
    """

    user: str
    is_superuser: bool
    reads_settings: bool
    reads_files: bool
    may_reload: bool
    may_record: bool
    allows_alter_system: bool


@frozen
class AttachedGroup:
    """The parameter group that sets the parameters of an instance of Amazon RDS, or of a Multi-AZ DB cluster.

    `identifier` and `resource_id` are those of the instance or cluster. `users` are all instances or clusters that use
    the group. `free_bytes` is the free storage. Each of these two is None if it is not known.
    """

    name: str
    owner: Literal["instance", "cluster"]
    identifier: str
    resource_id: str
    is_default: bool
    users: tuple[str, ...] | None
    apply_state: str | None
    free_bytes: int | None = None


@frozen
class SettingsFacts:
    """The facts that are read before settings are changed.

    `settings` are the states before any lease. `held` has, by name, each setting that a live lease has changed: the
    value that the lease wants, and the reason of the lease. `expected_wal_bytes` and `wal_free_bytes` (on the WAL's
    volume) are None if they are not known. `archiver` is None if there is nothing to report. `group` is AWS's
    description of the parameter group of an Amazon RDS server. `may_share_group` is whether settings may be changed in
    a group that other servers use too.
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
    held: Mapping[str, tuple[float, str]] = field(default_factory=dict)

    def setting(self, name: str) -> SettingState | None:
        """Return a setting, or None if the server does not have it."""
        return next((setting for setting in self.settings if setting.name == name), None)


@frozen
class SettingChange:
    """A setting to be changed: `value` is the new number, `text` is how ALTER SYSTEM writes it."""

    name: str
    scope: Scope
    prior: SettingState
    value: float
    text: str
    reason: str


@frozen
class SettingSkip:
    """A setting of a profile that is not changed, and why."""

    name: str
    reason: str


@frozen
class SettingsDecision:
    """What a profile changes on one server: decided by a pure function, shown by --plan, and carried out unchanged.

    `obstacle` is why no setting of the server can be changed, None if settings can be changed; `remedy` says how to
    correct that. With an obstacle, `changes` are those that would be made without it.
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


@frozen
class SettingResult:
    """One setting's value before and after, as SHOW prints it, and a note on what was not done."""

    name: str
    before: str
    after: str
    note: str | None = None


@frozen
class LeaseReport:
    """The result of taking or ending leases: `results` for each setting, and `warnings` that need attention.

    `lease_ids` are the leases that were taken, or that have ended.
    """

    results: tuple[SettingResult, ...] = ()
    warnings: tuple[str, ...] = ()
    lease_ids: tuple[str, ...] = ()


@frozen
class LeasedSetting:
    """The values of one setting that a load changed, as SHOW prints them: `before`, `during` and `after` the load.

    `note` is why the setting does not have its old value after the load, None if it has.
    """

    name: str
    before: str
    during: str
    after: str
    note: str | None = None
