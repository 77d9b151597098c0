"""Defines the profiles, and decides which settings a profile changes on a server and which it skips. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from penstock.core.catalogue.settings import (
    Backend,
    Profile,
    ProfileValue,
    SettingChange,
    SettingsDecision,
    SettingsFacts,
    SettingSkip,
)
from penstock.core.errors import UsageError
from penstock.core.units import format_bytes
from penstock.core.values.names import init_command
from penstock.core.words import hang
from penstock.settings.refusals import refuse_value

if TYPE_CHECKING:
    from penstock.core.values.inspection import FlavourKind

# The products on which checkpoints matter. Aurora is not one of them: its storage applies WAL, and its instances write
# no pages at checkpoints.
_WITH_CHECKPOINTS: frozenset[FlavourKind] = frozenset(
    ("postgresql", "rds", "rds-cluster", "cloud-sql", "alloydb", "azure", "neon", "supabase", "citus")
)
_ALL: frozenset[FlavourKind] = _WITH_CHECKPOINTS | {"aurora"}

# The bytes of a megabyte in max_wal_size: pg_settings has the setting in MB of 2^20 bytes.
WAL_UNIT_BYTES = 1024 * 1024

# max_wal_size must be this many times the expected WAL of a load, so that the load triggers no checkpoint. WAL triggers
# a checkpoint after max_wal_size / (1 + checkpoint_completion_target), and the target is 0.9:
# CalculateCheckpointSegments in src/backend/access/transam/xlog.c.
WAL_FACTOR = 1.9

LEAST_WAL_MB = 4 * 1024
MOST_WAL_MB = 64 * 1024

# max_wal_size may be at most this share of the free space. The rest is for the tables, for other loads, and for the WAL
# that slots and a failing archiver keep.
WAL_SHARE_OF_FREE = 0.25

BULK_LOAD = Profile(
    name="bulk-load",
    summary="few checkpoints while much is written",
    cost="After a crash the server first replays the WAL since the last checkpoint: up to max_wal_size of it, or 30 "
    "minutes' worth, instead of the amount before.",
    values=(
        ProfileValue(
            name="max_wal_size",
            scope="server",
            least=LEAST_WAL_MB,
            text="expected WAL x 1.9, at least 4GB",
            reason="each checkpoint that WAL triggers writes every page that was changed, and makes the next change of "
            "each page write it to WAL in full",
            source="postgresql.org/docs/current/wal-configuration.html",
            flavours=_WITH_CHECKPOINTS,
            goes_by_wal=True,
        ),
        ProfileValue(
            name="checkpoint_timeout",
            scope="server",
            least=30 * 60,
            text="30min",
            reason="checkpoints also start by time, whatever max_wal_size is",
            source="postgresql.org/docs/current/runtime-config-wal.html#GUC-CHECKPOINT-TIMEOUT",
            flavours=_WITH_CHECKPOINTS,
        ),
        ProfileValue(
            name="checkpoint_completion_target",
            scope="server",
            least=0.9,
            text="0.9",
            reason="a checkpoint's writes are spread over its interval instead of in a burst; the default since "
            "PostgreSQL 14",
            source="postgresql.org/docs/current/runtime-config-wal.html#GUC-CHECKPOINT-COMPLETION-TARGET",
            flavours=_WITH_CHECKPOINTS,
        ),
        ProfileValue(
            name="maintenance_work_mem",
            scope="session",
            least=1024 * 1024,
            text="1GB",
            reason="index builds collect entries in memory, except a btree's, which is sorted faster in less; only in "
            "sessions of a load that build indexes",
            source="postgresql.org/docs/current/populate.html#POPULATE-WORK-MEM",
            flavours=_ALL,
        ),
    ),
)

PROFILES: Mapping[str, Profile] = MappingProxyType({BULK_LOAD.name: BULK_LOAD})

# The settings that `penstock settings apply NAME=VALUE` accepts: numbers that a reload changes. None of them is a
# command that the server would run, so a forged record can do no more than change these numbers.
LEASABLE: Mapping[str, str] = MappingProxyType(
    {
        "max_wal_size": "MB",
        "min_wal_size": "MB",
        "checkpoint_timeout": "s",
        "checkpoint_completion_target": "",
    }
)


def find_profile(name: str) -> Profile:
    """Return the profile with this name. Raises UsageError."""
    if name not in PROFILES:
        raise UsageError(f'unknown profile "{name}"', hint=f"Use {', '.join(PROFILES)}.")
    return PROFILES[name]


def make_profile(wanted: Mapping[str, float]) -> Profile:
    """Return a profile with the given settings. `wanted` maps names to numbers in the units of pg_settings."""
    return Profile(
        name="as requested",
        summary="settings given by name",
        cost=BULK_LOAD.cost,
        values=tuple(
            ProfileValue(
                name=name,
                scope="server",
                least=value,
                text=f"{value:g}{LEASABLE[name]}",
                reason="requested",
                source="the command line",
                flavours=_WITH_CHECKPOINTS,
            )
            for name, value in wanted.items()
        ),
    )


# The factors from the units that a user may write to the setting's unit, as in PostgreSQL (memory_unit_conversion_table
# and time_unit_conversion_table in src/backend/utils/misc/guc.c).
_FACTORS = {
    "MB": {"": 1.0, "B": 1 / 1024**2, "kB": 1 / 1024, "MB": 1.0, "GB": 1024.0, "TB": 1024.0 * 1024},
    "s": {"": 1.0, "us": 0.000001, "ms": 0.001, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0},
    "": {"": 1.0},
}

# The least and the greatest value of each setting that the server allows.
_RANGES = {
    "max_wal_size": (2, 2_147_483_647),
    "min_wal_size": (2, 2_147_483_647),
    "checkpoint_timeout": (30, 86400),
    "checkpoint_completion_target": (0, 1),
}

_NUMBER = re.compile(r"(\d+(?:\.\d*)?|\.\d+) *([A-Za-z]*)")


def parse_assignments(texts: Iterable[str]) -> dict[str, float]:
    """Return the settings that words of the form NAME=VALUE give, as numbers in the units of pg_settings.

    Raises UsageError. For a setting that penstock never changes, the error gives the reason.

    >>> parse_assignments(["max_wal_size=8GB", "checkpoint_timeout=30min"])
    {'max_wal_size': 8192.0, 'checkpoint_timeout': 1800.0}
    """
    found: dict[str, float] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        name = name.strip().lower()
        if not equals:
            raise UsageError(f'"{text}" is not a setting', hint="Write NAME=VALUE.")
        refuse_value(name, value)
        if name not in LEASABLE:
            raise UsageError(
                f"penstock does not change {name}",
                detail=f"It changes only these settings, from which a load gains: {', '.join(LEASABLE)}.",
                hint="Change other settings with ALTER SYSTEM or in the server's files.",
            )
        found[name] = parse_value(name, value)
    return found


def parse_value(name: str, text: str) -> float:
    """Return the value of a setting as a number in the unit of pg_settings. `name` is a key of LEASABLE.

    Raises UsageError if the text is not a number with a unit that fits, or if the number is out of range.
    """
    match = _NUMBER.fullmatch(text.strip().strip("'"))
    factors = _FACTORS[LEASABLE[name]]
    if match is None or match[2] not in factors:
        units = ", ".join(unit for unit in factors if unit)
        raise UsageError(
            f'invalid value "{text}" for {name}', hint=f"Write a number{f' and a unit: {units}' if units else ''}."
        )
    value = float(match[1]) * factors[match[2]]
    # Round as the server does.
    value = float(round(value)) if LEASABLE[name] else value
    low, high = _RANGES[name]
    if not low <= value <= high:
        raise UsageError(f"{name} must be from {low} to {high}{LEASABLE[name]}", detail=f'"{text}" was given.')
    return value


def to_text(name: str, value: float) -> str:
    """Return a number in pg_settings' unit as the text that ALTER SYSTEM takes.

    >>> to_text("max_wal_size", 8192), to_text("checkpoint_completion_target", 0.9)
    ('8192MB', '0.9')
    """
    number = f"{value:.10g}" if name == "checkpoint_completion_target" else str(round(value))
    return f"{number}{LEASABLE[name]}"


def write_number(_: str, value: float) -> str:
    """Return a number in pg_settings' unit as the text that a parameter group takes: the number alone.

    >>> write_number("checkpoint_timeout", 1800.0)
    '1800'
    """
    return f"{value:.10g}"


def show(value: str, unit: str | None) -> str:
    """Return a value and unit of pg_settings in the largest unit without a fraction, much as SHOW does.

    >>> show("8192", "MB"), show("1800", "s"), show("16384", "8kB"), show("0.9", None)
    ('8GB', '30min', '128MB', '0.9')
    """
    pages = re.fullmatch(r"(\d*)([kM]B)", unit or "")
    if not re.fullmatch(r"-?\d+", value) or int(value) <= 0 or (unit != "s" and pages is None):
        return f"{value}{unit or ''}"
    number = int(value)
    steps = (("s", 60), ("min", 60), ("h", 24), ("d", None)) if unit == "s" else _MEMORY
    name = "s" if pages is None else pages[2]
    if pages is not None:
        number *= int(pages[1] or 1)
    names = [step for step, _ in steps]
    for step, factor in steps[names.index(name) :]:
        name = step
        if factor is None or number % factor:
            break
        number //= factor
    return f"{number}{name}"


_MEMORY: tuple[tuple[str, int | None], ...] = (("kB", 1024), ("MB", 1024), ("GB", 1024), ("TB", None))


def is_sound(name: str, text: str) -> bool:
    """Return whether a recorded text may be given to ALTER SYSTEM: only a number, for a setting that penstock changes.

    >>> is_sound("max_wal_size", "8GB"), is_sound("archive_command", "/bin/sh"), is_sound("max_wal_size", "x")
    (True, False, False)
    """
    match = _NUMBER.fullmatch(text)
    return name in LEASABLE and match is not None and match[2] in _FACTORS[LEASABLE[name]]


# Sources that override the server's files, so ALTER SYSTEM has no effect.
_FIXED_SOURCES = {
    "command line": "it is set on the server's command line, which ALTER SYSTEM does not change",
    "environment variable": "it is set in the server's environment, which ALTER SYSTEM does not change",
    "override": "the server computes it",
}

# The smallest load that gains from fewer checkpoints. For a smaller load, the default max_wal_size has enough room.
_LEAST_LOAD_BYTES = 256 * 1024 * 1024


def is_too_small(size_bytes: int | None) -> bool:
    """Return whether a load is too small to gain from fewer checkpoints: less than 256 MiB.

    `size_bytes` is the size of its files as they are stored, None if it is not known; such a load is not too small.
    """
    return size_bytes is not None and size_bytes < _LEAST_LOAD_BYTES


def choose_auto(decision: SettingsDecision, facts: SettingsFacts) -> str | None:
    """Return why a load with `--settings auto` changes no setting, None if it changes settings."""
    if not decision.leased:
        return "there is nothing to change"
    if decision.obstacle is not None:
        return decision.obstacle
    if not pays(decision, facts):
        return "the expected WAL triggers no checkpoint, or its size is not known"
    return None


def pays(decision: SettingsDecision, facts: SettingsFacts) -> bool:
    """Return whether the WAL of the load would trigger a checkpoint if settings were not changed.

    Return False if the size of the WAL is not known.
    """
    change = next((change for change in decision.leased if change.name == "max_wal_size"), None)
    if change is None or facts.expected_wal_bytes is None:
        return False
    return facts.expected_wal_bytes * WAL_FACTOR > float(change.prior.value) * WAL_UNIT_BYTES


def decide(profile: Profile, facts: SettingsFacts) -> SettingsDecision:
    """Return which settings of a profile would be changed on a server, and why others would not.

    No setting is lowered.
    """
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
    """Return max_wal_size in MB, and the reason for this value."""
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
    """Return how a server's settings are changed, why those in `names` cannot be changed, and the remedy.

    The last two are None if they can be changed.
    """
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
    """Return whether a server is on Amazon RDS, where a parameter group has its settings and the leases on them."""
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
    """Return the GRANT statements that give the role what it lacks to change the settings named in `names`.

    Those on views and functions hold in the database where they are run, which must be "postgres".
    """
    rights = facts.rights
    user = _quote(rights.user)
    refused = [name for name in names if (state := facts.setting(name)) is None or not state.may_alter_system]
    grants = []
    if refused and facts.version_num < 150_000:
        # The advice is for superusers, because only superusers may use ALTER SYSTEM.
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
        grants.append(init_command("penstock", rights.user))
    return [f"In database postgres: {grants[0]}", *grants[1:]] if grants else []


def _quote(name: str) -> str:
    """Return an identifier in double quotes, as in SQL."""
    return '"' + name.replace('"', '""') + '"'


def describe_decision(decision: SettingsDecision) -> list[str]:
    """Return lines that say what a profile changes on a server, what it does not change, and why."""
    told: list[str] = []
    for change in decision.changes:
        line = f"{change.name} {show(change.prior.value, change.prior.unit)} -> {show_text(change.text)}"
        scope = "" if change.scope == "server" else " (in sessions that build indexes)"
        told += [f"{line}{scope}", *hang("  ", f"{change.reason}.")]
    told += describe_skips(decision)
    told += [f"note: {note}" for note in decision.notes]
    if decision.obstacle is not None and decision.leased:
        told += [f"cannot change settings: {decision.obstacle}"]
        told += [f"  HINT:  {decision.remedy}"] if decision.remedy else []
    return told or ["nothing to change"]


def describe_skips(decision: SettingsDecision) -> list[str]:
    """Return a line for each setting of a profile that is not changed, with the reason."""
    return [f"{skip.name} is not changed: {skip.reason}" for skip in decision.skips]


def show_text(text: str) -> str:
    """Return a value as SHOW prints it. `text` is the value as ALTER SYSTEM takes it.

    >>> show_text("4096MB"), show_text("1800s"), show_text("0.9")
    ('4GB', '30min', '0.9')
    """
    number = text.rstrip("MBs")
    return show(number, text[len(number) :] or None)
