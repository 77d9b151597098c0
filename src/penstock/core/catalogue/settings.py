"""Reads a server's settings, and recognizes its product and its manager by marks.

A mark is an object or a setting that exists only with one product or manager. What each mark proves, and the source:

* `rds.extensions` and role `rds_superuser`: Amazon RDS and Aurora (docs.aws.amazon.com, "Understanding the
  rds_superuser role"); `aurora_version()`, or `aurora_stat_utils` in rds.extensions: Aurora (AuroraPgDialect of
  aws/aws-advanced-jdbc-wrapper); if multi_az_db_cluster_source_dbi_resource_id() of rds_tools is not null: a Multi-AZ
  DB cluster (RdsMultiAzDbClusterPgDialect of the same driver).
* Roles `cloudsqlsuperuser`, `alloydbsuperuser`, `azure_pg_admin`, `supabase_admin`: what each service gives its
  customers or keeps for itself (cloud.google.com/sql/docs/postgres/users, cloud.google.com/alloydb/docs/database-users,
  learn.microsoft.com "Manage users in Azure Database for PostgreSQL", supabase.com/docs "Postgres Roles").
* `neon.timeline_id`: Neon (neondatabase/neon, pgxn/neon).
* `cnpg.config_sha256`, or /controller/manager in archive_command: CloudNativePG (cloudnative-pg,
  pkg/postgres/configuration.go).
* `cluster_name` and other settings that are given on the command line: Patroni, which passes them there so that ALTER
  SYSTEM cannot change them (patroni.readthedocs.io, "PostgreSQL parameters controlled by Patroni"). Role `_crunchyrepl`
  is created by Crunchy's operator and by Percona's, which derives from it; role `robot_zmon` by Zalando's Spilo image.
  All of these run Patroni.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field
from typing import Literal

from psycopg import sql

from penstock.core.connect.connection import Connection
from penstock.core.connect.errors import translate_errors
from penstock.core.errors import ServerError
from penstock.core.slotted import slotted
from penstock.core.sql import fetch_many, fetch_one, fetch_rows
from penstock.core.values.inspection import Archiver, Flavour, FlavourKind, Manager, Mark, Slot
from penstock.core.values.server import ServerIdentity

# Each mark with the product that it proves. The order matters: Aurora has RDS's marks too, and Citus runs on any of the
# other products.
_FLAVOURS: tuple[tuple[tuple[str, str], FlavourKind, str], ...] = (
    (("function", "pg_catalog.aurora_version()"), "aurora", "Amazon Aurora"),
    (("setting", "rds.extensions with aurora_stat_utils"), "aurora", "Amazon Aurora"),
    (("cluster", "rds_tools"), "rds-cluster", "Amazon RDS Multi-AZ DB cluster"),
    (("setting", "rds.extensions"), "rds", "Amazon RDS"),
    (("role", "rds_superuser"), "rds", "Amazon RDS"),
    (("role", "alloydbsuperuser"), "alloydb", "Google AlloyDB"),
    (("role", "cloudsqlsuperuser"), "cloud-sql", "Google Cloud SQL"),
    (("setting", "azure.extensions"), "azure", "Azure Database for PostgreSQL"),
    (("role", "azure_pg_admin"), "azure", "Azure Database for PostgreSQL"),
    (("setting", "neon.timeline_id"), "neon", "Neon"),
    (("role", "supabase_admin"), "supabase", "Supabase"),
    (("extension", "citus"), "citus", "Citus"),
)

# The settings that Patroni always passes on the command line. A single one of them may come from any `postgres -c`.
_PATRONI_SETTINGS = {"cluster_name", "hot_standby", "wal_level", "wal_log_hints"}

_PATRONI_CHANGE = "patronictl edit-config"


def recognise_flavour(marks: Collection[Mark], *, is_multi_az_cluster: bool = False) -> Flavour:
    """Return the server's product, as its marks show it.

    `is_multi_az_cluster` says whether the extension rds_tools reports a Multi-AZ DB cluster.

    >>> from penstock.core.values.inspection import Mark
    >>> recognise_flavour([Mark(kind="role", name="rds_superuser")]).name
    'Amazon RDS'
    """
    found = {(mark.kind, mark.name) for mark in marks}
    if is_multi_az_cluster:
        found.add(("cluster", "rds_tools"))
    for mark, kind, name in _FLAVOURS:
        if mark in found:
            return Flavour(kind=kind, name=name, told_by=" ".join(mark))
    return Flavour(kind="postgresql", name="PostgreSQL")


def recognise_managers(marks: Collection[Mark], *, cluster_name: str | None) -> tuple[Manager, ...]:
    """Return the software that also changes the server's settings, such as Patroni, as the server's marks show it.

    Each name includes `cluster_name`, if given.
    """
    found = {(mark.kind, mark.name) for mark in marks}
    scope = f' (cluster "{cluster_name}")' if cluster_name else ""
    managers = [*_kubernetes(found, scope), *_patroni(marks, scope)]
    return tuple(managers)


def _kubernetes(found: set[tuple[str, str]], scope: str) -> Sequence[Manager]:
    commands = sorted(name for kind, name in found if kind == "command")
    if ("setting", "cnpg.config_sha256") in found or commands:
        told_by = ", ".join(commands) or "setting cnpg.config_sha256"
        change = "kubectl edit cluster, under .spec.postgresql.parameters"
        return [Manager(name=f"CloudNativePG{scope}", told_by=told_by, change=change)]
    if ("role", "_crunchyrepl") in found:
        change = "kubectl edit postgrescluster, under .spec.patroni.dynamicConfiguration"
        return [Manager(name=f"Crunchy Postgres for Kubernetes{scope}", told_by="role _crunchyrepl", change=change)]
    if ("role", "robot_zmon") in found:
        change = "kubectl edit postgresql, under .spec.postgresql.parameters"
        return [Manager(name=f"Zalando's operator or Spilo{scope}", told_by="role robot_zmon", change=change)]
    return []


def _patroni(marks: Collection[Mark], scope: str) -> Sequence[Manager]:
    given = {mark.name for mark in marks if mark.kind == "command line"}
    if not given >= _PATRONI_SETTINGS:
        return []
    told_by = f"{', '.join(sorted(given))} given on the server's command line"
    return [Manager(name=f"Patroni{scope}", told_by=told_by, change=_PATRONI_CHANGE)]


# Where a setting is changed. "server": for all sessions, under a lease. "session": only in the sessions of a load,
# until they end.
Scope = Literal["server", "session"]

# How a server's settings can be changed: by ALTER SYSTEM, or in a parameter group of Amazon RDS. "none": penstock
# cannot change them.
Backend = Literal["alter-system", "parameter-group", "none"]


@slotted
class SettingState:
    """The row of settings_state.sql: one setting as in pg_settings."""

    name: str
    # The value as a text, in the setting's unit.
    value: str
    unit: str | None
    context: str
    source: str
    # The file that sets the value. None if the role may not see it, or if the value comes from no file.
    source_file: str | None
    source_line: int | None
    # Whether the role has the privilege ALTER SYSTEM on the setting. The setting allow_alter_system is not considered.
    may_alter_system: bool


@slotted
class ProfileValue:
    """The value of one setting in a profile, and why."""

    name: str
    scope: Scope
    # The value as a number. If the value depends on the expected WAL, this is the minimum.
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


@slotted
class Profile:
    """Settings that are changed together for a kind of work, such as bulk-load."""

    name: str
    summary: str
    # What the changes cost, for users.
    cost: str
    values: tuple[ProfileValue, ...]


@slotted
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


@slotted
class AttachedGroup:
    """The parameter group from which an instance of Amazon RDS, or a Multi-AZ DB cluster, has its settings."""

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


@slotted
class SettingsFacts:
    """What is known of a server before settings are changed: the settings, who manages them, and the role's rights."""

    version_num: int
    is_in_recovery: bool
    flavour: Flavour
    managers: tuple[Manager, ...]
    rights: SettingsRights
    # The settings as they were before any lease.
    settings: tuple[SettingState, ...]
    slots: tuple[Slot, ...] = ()
    # The state of WAL archiving. None if there is nothing to report.
    archiver: Archiver | None = None
    # How many bytes of WAL the load is expected to write. None if it is not known.
    expected_wal_bytes: int | None = None
    # The free bytes on the WAL's volume. None if it is not known.
    wal_free_bytes: int | None = None
    # AWS's description of the parameter group, None if the server is not on Amazon RDS.
    group: AttachedGroup | None = None
    # Whether settings may be changed in a group that other servers use too.
    may_share_group: bool = False
    # The settings that live leases have changed, by name: the value that the lease sets, and the reason of the lease.
    held: Mapping[str, tuple[float, str]] = field(default_factory=dict)

    def setting(self, name: str) -> SettingState | None:
        """Return a setting, or None if the server does not have it."""
        return next((setting for setting in self.settings if setting.name == name), None)


@slotted
class SettingChange:
    """A setting that is to be changed, with its value before and the new one."""

    name: str
    scope: Scope
    prior: SettingState
    # The new number, in the setting's unit.
    value: float
    # The new value as ALTER SYSTEM writes it.
    text: str
    reason: str


@slotted
class SettingSkip:
    """A setting of a profile that is not changed, and why."""

    name: str
    reason: str


@slotted
class SettingsDecision:
    """What a profile changes on one server. A pure function decides it, --plan shows it, a lease carries it out."""

    profile: str
    backend: Backend
    # The changes to make. If there is an obstacle, these are the changes that would be made without it.
    changes: tuple[SettingChange, ...]
    skips: tuple[SettingSkip, ...]
    notes: tuple[str, ...]
    # Why no setting of the server can be changed, None if settings can be changed.
    obstacle: str | None = None
    # How to remove the obstacle.
    remedy: str | None = None

    @property
    def leased(self) -> tuple[SettingChange, ...]:
        """Return the changes for the whole server, which are restored when the lease ends."""
        return tuple(change for change in self.changes if change.scope == "server")


@slotted
class SettingResult:
    """One setting's value before and after, as SHOW prints it."""

    name: str
    before: str
    after: str
    # What was not done, and why.
    note: str | None = None


@slotted
class LeaseReport:
    """The result of taking or ending leases."""

    # One result for each setting.
    results: tuple[SettingResult, ...] = ()
    # What needs attention.
    warnings: tuple[str, ...] = ()
    # The leases that were taken, or that have ended.
    lease_ids: tuple[str, ...] = ()


@slotted
class LeasedSetting:
    """The values of one setting that a load changed, before, during and after the load, as SHOW prints them."""

    name: str
    before: str
    during: str
    after: str
    # Why the setting does not have its old value after the load, None if it has.
    note: str | None = None


# How long to wait for a reload. Even a busy postmaster reloads within milliseconds. If a reload takes longer than this,
# the postmaster has found an error in the files.
_RELOAD_TIMEOUT_S = 10.0
_RELOAD_LOOK_S = 0.01


@slotted
class FileLine:
    """The row of settings_lines.sql: a line of postgresql.auto.conf, or an invalid line of any configuration file."""

    # The setting's name, None for a line with an error.
    name: str | None
    text: str | None
    file: str
    line: int
    error: str | None


def read_facts(connection: Connection) -> SettingsFacts:
    """Return the facts for deciding about settings that the server itself knows. Raises ServerError.

    The fields of SettingsFacts from `expected_wal_bytes` on keep their defaults.
    """
    with translate_errors("reading settings"):
        marks, rights, settings, slots, archivers = fetch_many(
            connection,
            (
                ("core/inspect_marks", Mark),
                ("core/settings_rights", SettingsRights),
                ("core/settings_state", SettingState),
                ("core/inspect_slots", Slot),
                ("core/inspect_archiver", Archiver),
            ),
        )
        is_in_recovery, cluster_name = fetch_one(
            connection, "SELECT pg_catalog.pg_is_in_recovery(), pg_catalog.current_setting('cluster_name')"
        )
    return SettingsFacts(
        version_num=connection.info.server_version,
        is_in_recovery=is_in_recovery,
        flavour=recognise_flavour(marks),
        managers=recognise_managers(marks, cluster_name=cluster_name),
        rights=rights[0],
        settings=tuple(settings),
        slots=tuple(slots),
        archiver=next(iter(archivers), None),
    )


def read_settings(connection: Connection) -> dict[str, SettingState]:
    """Return the settings that profiles may change, by name. Raises ServerError."""
    with translate_errors("reading settings"):
        return {state.name: state for state in fetch_rows(connection, "core/settings_state", SettingState)}


def read_identity(connection: Connection) -> ServerIdentity:
    """Return the server's identity. Raises ServerError."""
    with translate_errors("reading the server's identity"):
        (identity,) = fetch_rows(connection, "core/server_identity", ServerIdentity)
    return identity


def read_lines(connection: Connection) -> dict[str, FileLine]:
    """Return the lines of postgresql.auto.conf for the settings that leases change, by the setting's name.

    The role must be allowed to read pg_file_settings. Raises ServerError, also if a line of the server's configuration
    files is invalid, because a reload would then change nothing.
    """
    with translate_errors("reading postgresql.auto.conf"):
        rows = fetch_rows(connection, "core/settings_lines", FileLine)
    wrong = next((row for row in rows if row.name is None), None)
    if wrong is not None:
        raise ServerError(
            "the server's configuration files have an invalid line",
            detail=f"{wrong.file} line {wrong.line}: {wrong.error}.",
            hint="Correct it: until then a reload changes nothing.",
        )
    return {row.name: row for row in rows if row.name is not None}


def alter_system(connection: Connection, name: str, text: str | None) -> None:
    """Write a setting to postgresql.auto.conf, or remove it if `text` is None. A reload makes the change effective.

    Does not work in a transaction. Needs the privilege ALTER SYSTEM on the setting. Raises TargetError, ServerError.
    """
    if text is None:
        statement = sql.SQL("ALTER SYSTEM RESET {}").format(sql.Identifier(name))
    else:
        statement = sql.SQL("ALTER SYSTEM SET {} = {}").format(sql.Identifier(name), sql.Literal(text))
    with translate_errors(f"changing {name}"):
        connection.execute(statement)


def reload(
    connection: Connection,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Make the server reload its configuration files, and wait until this session has reloaded them.

    Needs EXECUTE on pg_reload_conf(). All processes of the server reload at about the same time. When
    pg_conf_load_time() of this session changes, the files have been read and are valid. Raises ServerError if it does
    not change within 10 s.
    """
    loaded = "SELECT pg_catalog.pg_conf_load_time()"
    with translate_errors("reloading the server's configuration"):
        before = connection.execute(loaded).fetchone()
        connection.execute("SELECT pg_catalog.pg_reload_conf()")
        began_s = clock()
        while connection.execute(loaded).fetchone() == before:
            if clock() - began_s > _RELOAD_TIMEOUT_S:
                raise ServerError(
                    "the server did not reload its configuration files",
                    detail=f"A reload was requested {_RELOAD_TIMEOUT_S:.0f} s ago.",
                    hint="See its log: a line of the files may be wrong.",
                )
            sleep(_RELOAD_LOOK_S)


def find_unchanged(connection: Connection, wanted: Mapping[str, float]) -> list[SettingState]:
    """Return those of the settings `wanted` that have another value. Raises ServerError.

    `wanted` has the settings' numbers, in the units of pg_settings, by name.
    """
    found = read_settings(connection)
    return [found[name] for name, value in wanted.items() if abs(float(found[name].value) - value) > 1e-9]
