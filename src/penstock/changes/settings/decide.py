"""Decides from a profile and the server's facts which settings to change, which to skip, and why. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.changes.settings.profiles import LEAST_WAL_MB, MOST_WAL_MB, WAL_FACTOR, WAL_SHARE_OF_FREE, WAL_UNIT_BYTES
from penstock.changes.settings.values import show, to_text
from penstock.model.server.names import init_command
from penstock.model.server.settings import (
    Backend,
    Profile,
    ProfileValue,
    SettingChange,
    SettingsDecision,
    SettingsFacts,
    SettingSkip,
)
from penstock.units import format_bytes

# Sources that override the server's files, so ALTER SYSTEM has no effect.
_FIXED_SOURCES = {
    "command line": "it is set on the server's command line, which ALTER SYSTEM does not change",
    "environment variable": "it is set in the server's environment, which ALTER SYSTEM does not change",
    "override": "the server computes it",
}

# The default max_wal_size has room for the WAL of a smaller load.
_LEAST_LOAD_BYTES = 256 * 1024 * 1024


def is_too_small(size_bytes: int | None) -> bool:
    """Whether a load is too small to gain from fewer checkpoints.

    `size_bytes` is the size of its stored objects, or None.
    """
    return size_bytes is not None and size_bytes < _LEAST_LOAD_BYTES


def choose_auto(decision: SettingsDecision, facts: SettingsFacts) -> str | None:
    """Return why `--settings auto` changes nothing, None if it changes settings."""
    if not decision.leased:
        return "there is nothing to change"
    if decision.obstacle is not None:
        return decision.obstacle
    if not pays(decision, facts):
        return "the expected WAL triggers no checkpoint, or its size is not known"
    return None


def pays(decision: SettingsDecision, facts: SettingsFacts) -> bool:
    """Whether the WAL of the load would trigger a checkpoint if settings were not changed."""
    change = next((change for change in decision.leased if change.name == "max_wal_size"), None)
    if change is None or facts.expected_wal_bytes is None:
        return False
    return facts.expected_wal_bytes * WAL_FACTOR > float(change.prior.value) * WAL_UNIT_BYTES


def decide(profile: Profile, facts: SettingsFacts) -> SettingsDecision:
    """Return which settings of a profile to change on a server. No setting is lowered."""
    changes: list[SettingChange] = []
    skips: list[SettingSkip] = []
    for value in profile.values:
        decided = _decide_value(value, facts)
        if isinstance(decided, SettingChange):
            changes.append(decided)
        else:
            skips.append(decided)
    leased = [change for change in changes if change.scope == "server"]
    backend, obstacle, remedy = find_obstacle(facts, [change.name for change in leased])
    if obstacle is None and (held := _find_held(leased, facts)) is not None:
        obstacle, remedy = held, "Run it again when that has ended, or ask for the same value."
    return SettingsDecision(
        profile=profile.name,
        backend=backend,
        changes=tuple(changes),
        skips=tuple(skips),
        notes=tuple(_notes(changes, facts)),
        obstacle=obstacle,
        remedy=remedy,
    )


def _decide_value(value: ProfileValue, facts: SettingsFacts) -> SettingChange | SettingSkip:
    current = facts.setting(value.name)
    if facts.flavour.kind not in value.flavours:
        return SettingSkip(name=value.name, reason=f"it has no effect on {facts.flavour.name}")
    if current is None:
        return SettingSkip(name=value.name, reason="the setting does not exist on this server, or is not visible")
    if value.scope == "server" and current.source in _FIXED_SOURCES:
        return SettingSkip(name=value.name, reason=_FIXED_SOURCES[current.source])
    if value.scope == "server" and current.context == "postmaster":
        return SettingSkip(name=value.name, reason="it needs a restart")
    target, reason = value.least, value.reason
    if value.goes_by_wal:
        target, limit = _max_wal_size(facts)
        reason = f"{reason}; {limit}"
    if target <= float(current.value):
        now = show(current.value, current.unit)
        return SettingSkip(name=value.name, reason=f"it is {now}, and settings are not lowered")
    return SettingChange(
        name=value.name,
        scope=value.scope,
        prior=current,
        value=target,
        text=to_text(value.name, target) if value.scope == "server" else value.text,
        reason=reason,
    )


def _find_held(changes: Sequence[SettingChange], facts: SettingsFacts) -> str | None:
    """Return the lease that has set one of the settings to another value, or None. Leases may share equal values."""
    for change in changes:
        value, who = facts.held.get(change.name, (change.value, ""))
        if abs(value - change.value) > 1e-9:
            shown = show(f"{value:g}", change.prior.unit)
            return f"{change.name} is {shown} for {who}, and would be {show(f'{change.value:g}', change.prior.unit)}"
    return None


def _max_wal_size(facts: SettingsFacts) -> tuple[float, str]:
    """Return max_wal_size in MB, and what it was chosen by."""
    if facts.wal_free_bytes is None:
        # The free space is not known, so choose the smallest value that helps.
        return LEAST_WAL_MB, "4GB, as the free space on the WAL's volume is not known"
    room_mb = int(facts.wal_free_bytes * WAL_SHARE_OF_FREE / WAL_UNIT_BYTES)
    free = format_bytes(facts.wal_free_bytes)
    needed_mb = LEAST_WAL_MB
    why = "4GB at least"
    if facts.expected_wal_bytes is not None:
        expected_mb = int(facts.expected_wal_bytes * WAL_FACTOR / WAL_UNIT_BYTES) + 1
        if expected_mb > LEAST_WAL_MB:
            needed_mb = expected_mb
            why = f"{format_bytes(facts.expected_wal_bytes)} of WAL are expected, times {WAL_FACTOR}"
    if needed_mb > min(room_mb, MOST_WAL_MB):
        if room_mb < MOST_WAL_MB:
            return room_mb, f"a quarter of the {free} that are free for WAL"
        return MOST_WAL_MB, "64GB at most"
    return needed_mb, why


def _notes(changes: list[SettingChange], facts: SettingsFacts) -> list[str]:
    """Return notes about raising max_wal_size that the user should read first."""
    change = next((change for change in changes if change.name == "max_wal_size"), None)
    if change is None:
        return []
    before, after = show(change.prior.value, change.prior.unit), show(str(round(change.value)), "MB")
    notes = [f"crash recovery takes longer meanwhile: it replays up to {after} of WAL instead of {before}"]
    notes += [
        f"replication slot {slot.name} has no receiver and keeps {format_bytes(slot.retained_bytes)} of WAL, which "
        "max_wal_size does not bound"
        for slot in facts.slots
        if not slot.is_active and slot.retained_bytes
    ]
    archiver = facts.archiver
    if archiver is not None and archiver.is_failing:
        notes.append(f"archiving WAL fails since {archiver.last_failed}: WAL is kept until it succeeds")
    elif archiver is not None and archiver.lag_bytes and archiver.lag_bytes > 10**9:
        notes.append(f"archiving WAL is {format_bytes(archiver.lag_bytes)} behind: that much more WAL is kept")
    return notes


def find_obstacle(facts: SettingsFacts, names: list[str]) -> tuple[Backend, str | None, str | None]:
    """Return how settings are changed on the server and, if they cannot be changed, why, and the remedy."""
    if has_parameter_group(facts):
        obstacle, remedy = _find_group_obstacle(facts)
        return "parameter-group", obstacle, remedy
    if facts.is_in_recovery:
        return "none", "the server is a standby", "Name the primary."
    managed = _find_manager(facts)
    if managed is not None:
        return "none", *managed
    if missing := missing_grants(facts, names):
        return "alter-system", "the role lacks privileges to change settings", " ".join(missing)
    return "alter-system", None, None


def has_parameter_group(facts: SettingsFacts) -> bool:
    """Whether a server's settings, and the leases on them, are in a parameter group of Amazon RDS."""
    return facts.flavour.kind in ("rds", "rds-cluster", "aurora")


def _find_group_obstacle(facts: SettingsFacts) -> tuple[str | None, str | None]:
    """Return why the parameter group of a server of Amazon RDS is not changed, and what to do about it."""
    group = facts.group
    if group is None:
        return (
            "its settings are in a parameter group, and AWS finds the server only by its endpoint",
            "Name the server by its endpoint of Amazon RDS.",
        )
    if group.is_default:
        return (
            f"parameter group {group.name} is one of AWS's default groups, which cannot be changed",
            f"Create one for {group.identifier}: penstock settings prepare-rds NAME. Attaching it needs a reboot.",
        )
    if group.apply_state not in ("in-sync", None):
        return (
            f"parameter group {group.name} is {group.apply_state}",
            f"Wait until it is applied; if it is pending-reboot, {group.identifier} has to be rebooted first.",
        )
    if not facts.may_share_group and (group.users is None or len(group.users) > 1):
        who = "perhaps other servers" if group.users is None else ", ".join(group.users)
        return (
            f"parameter group {group.name} is shared by {who}",
            "--shared-group changes the settings of all of them; or give this one a group of its own.",
        )
    return None, None


def _find_manager(facts: SettingsFacts) -> tuple[str, str] | None:
    """Return which software manages the server's settings, and how to change them with it."""
    if facts.flavour.kind not in ("postgresql", "citus"):
        return f"{facts.flavour.name} does not allow ALTER SYSTEM", "Change settings with the service's own tools."
    if facts.managers:
        manager = facts.managers[0]
        return f"{manager.name} manages the server's settings", f"Change them there: {manager.change}."
    if not facts.rights.allows_alter_system:
        return "allow_alter_system is off", "Settings are managed by another tool: change them there."
    return None


def missing_grants(facts: SettingsFacts, names: list[str]) -> list[str]:
    """Return the statements that grant the role what it lacks to change settings."""
    rights = facts.rights
    user = _quote(rights.user)
    refused = [name for name in names if (state := facts.setting(name)) is None or not state.may_alter_system]
    grants = []
    if refused and facts.version_num < 150_000:
        # Only superusers may use ALTER SYSTEM.
        return [
            f"Before PostgreSQL 15 only a superuser may use ALTER SYSTEM: run ALTER ROLE {user} SUPERUSER, or as one."
        ]
    if refused:
        grants.append(f"GRANT ALTER SYSTEM ON PARAMETER {', '.join(refused)} TO {user};")
    if not rights.reads_settings:
        grants.append(f"GRANT pg_read_all_settings TO {user};")
    if not rights.reads_files:
        grants.append(f"GRANT SELECT ON pg_catalog.pg_file_settings TO {user};")
        grants.append(f"GRANT EXECUTE ON FUNCTION pg_catalog.pg_show_all_file_settings() TO {user};")
    if not rights.may_reload:
        grants.append(f"GRANT EXECUTE ON FUNCTION pg_catalog.pg_reload_conf() TO {user};")
    if not rights.may_record:
        grants.append(f"In database postgres: {init_command('penstock', rights.user)}")
    return grants


def _quote(name: str) -> str:
    """Return an identifier in double quotes, as in SQL."""
    return '"' + name.replace('"', '""') + '"'
