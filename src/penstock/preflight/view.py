"""Describes a server's facts in a few lines, for the screen of doctor. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.core.units import KIB, MIB, count_nouns, format_bytes, format_count, format_duration

if TYPE_CHECKING:
    from penstock.core.values.inspection import FileSystem, Inspection, Setting, Slot, StandbyRow, TableInspection

# How many items of a long list are shown. The number of the other items follows.
_SHOWN = 4

# The units of pg_settings, in bytes and in seconds.
_UNIT_BYTES = {"B": 1, "kB": KIB, "8kB": 8 * KIB, "MB": MIB}
_UNIT_SECONDS = {"ms": 0.001, "s": 1.0, "min": 60.0}

_SETTINGS_SHOWN = (
    *("max_wal_size", "checkpoint_timeout", "wal_level", "effective_wal_level", "synchronous_commit"),
    "maintenance_work_mem",
)

_RIGHTS = {
    "may_create_schema": "create schemas",
    "may_make_temporary": "temporary tables",
    "reads_statistics": "read all statistics",
    "signals_backends": "signal backends",
    "may_checkpoint": "CHECKPOINT",
    "may_reload": "pg_reload_conf()",
    "may_replicate": "replication",
}


def describe_facts(found: Inspection) -> list[tuple[str, str]]:
    """Return the facts of a server for the screen, as pairs of a subject and a line of text about it."""
    facts = [
        ("server", _describe_server(found)),
        ("address", found.server.address),
        ("role", _describe_role(found)),
        ("connections", _describe_connections(found)),
        ("settings", _describe_settings(found)),
        ("standbys", _describe_standbys(found.standbys)),
        ("slots", _describe_slots(found.slots)),
        ("archiver", _describe_archiver(found)),
        ("autovacuum", _describe_autovacuum(found)),
        ("clock", _describe_clock(found)),
        ("host", _describe_host(found)),
    ]
    if found.publications:
        facts.append(("published", _shorten([each.name for each in found.publications])))
    if found.table is not None and found.table.facts is not None:
        facts.append(("table", _describe_table(found.table)))
    return facts


def _describe_server(found: Inspection) -> str:
    name = "" if found.flavour.told_by is None else f" on {found.flavour.name} (detected by {found.flavour.told_by})"
    state = "primary"
    if found.server.is_in_recovery:
        receiver = found.receiver
        state = "standby"
        if receiver is not None:
            following = "" if receiver.sender_host is None else f" of {receiver.sender_host}"
            lag = "" if receiver.lag_bytes is None else f", {format_bytes(receiver.lag_bytes)} not replayed"
            state += f"{following}{lag}"
    managers = "".join(f", managed by {manager.name}" for manager in found.managers)
    return f"PostgreSQL {found.server.version}{name}, {state}{managers}"


def _describe_role(found: Inspection) -> str:
    if found.rights.is_superuser:
        return f"{found.server.user}, a superuser"
    has = [text for name, text in _RIGHTS.items() if getattr(found.rights, name)]
    lacks = [text for name, text in _RIGHTS.items() if not getattr(found.rights, name)]
    alters = [setting.name for setting in found.settings if setting.may_alter_system]
    has += [f"ALTER SYSTEM of {_shorten(alters)}"] if alters else []
    lacks += [] if alters else ["ALTER SYSTEM"]
    return f"{found.server.user}; may: {', '.join(has) or 'none of these'}; may not: {', '.join(lacks) or '-'}"


def _describe_connections(found: Inspection) -> str:
    connections = found.connections
    if connections is None:
        return f"{format_count(found.server.free_connections)} free for this role"
    limits = [
        f"{what} limit {limit}"
        for what, limit in (("role", connections.role_limit), ("database", connections.database_limit))
        if limit is not None
    ]
    return ", ".join(
        [
            f"{format_count(connections.used)} of {format_count(connections.maximum)} used",
            f"{format_count(found.server.free_connections)} free for this role",
            *limits,
        ]
    )


def _describe_settings(found: Inspection) -> str:
    shown = [setting for name in _SETTINGS_SHOWN if (setting := found.setting(name)) is not None]
    if found.value("effective_wal_level") == found.value("wal_level"):
        shown = [setting for setting in shown if setting.name != "effective_wal_level"]
    return ", ".join(f"{setting.name} {describe_value(setting)}" for setting in shown)


def describe_value(setting: Setting) -> str:
    """Return a setting's value and unit as text that is easy to read.

    >>> from penstock.core.values.inspection import Setting
    >>> describe_value(Setting(name="max_wal_size", value="1024", unit="MB", context="", source="", source_file=None,
    ...     is_pending_restart=False, may_alter_system=False))
    '1 GiB'
    """
    if setting.unit in _UNIT_BYTES and setting.value.isdigit():
        size = int(setting.value) * _UNIT_BYTES[setting.unit]
        for name, step in (("GiB", 1024 * MIB), ("MiB", MIB), ("KiB", KIB)):
            if size >= step and size % step == 0:
                return f"{size // step} {name}"
        return format_bytes(size)
    if setting.unit in _UNIT_SECONDS:
        seconds = float(setting.value) * _UNIT_SECONDS[setting.unit]
        return f"{seconds // 60:.0f} min" if seconds >= 60 and seconds % 60 == 0 else format_duration(seconds)
    return setting.value


def _describe_standbys(standbys: Sequence[StandbyRow] | None) -> str:
    if standbys is None:
        return "could not be read"
    hidden = [standby for standby in standbys if standby.state is None]
    if hidden:
        return f"{len(standbys)}, hidden from this role"
    return _shorten([_describe_standby(standby) for standby in standbys]) or "none"


def _describe_standby(standby: StandbyRow) -> str:
    lag = "" if standby.lag_bytes is None else f", {format_bytes(standby.lag_bytes)} behind"
    seconds = "" if standby.lag_s is None else f" ({format_duration(standby.lag_s)})"
    return f"{standby.name} {standby.state} {standby.sync_state}{lag}{seconds}"


def _describe_slots(slots: Sequence[Slot] | None) -> str:
    if slots is None:
        return "could not be read"
    described = []
    for slot in slots:
        kept = "" if slot.retained_bytes is None else f", keeps {format_bytes(slot.retained_bytes)} of WAL"
        described.append(f"{slot.name} {slot.kind} {'in use' if slot.is_active else 'not in use'}{kept}")
    return _shorten(described) or "none"


def _describe_archiver(found: Inspection) -> str:
    archiver = found.archiver
    if archiver is None:
        return "off" if found.value("archive_mode") == "off" else "could not be read"
    behind = "" if archiver.lag_bytes is None else f", {format_bytes(archiver.lag_bytes)} behind"
    state = "failing" if archiver.is_failing else "on"
    return (
        f"{state}, {format_count(archiver.archived)} segments archived, {format_count(archiver.failed)} failed{behind}"
    )


def _describe_autovacuum(found: Inspection) -> str:
    if found.value("autovacuum") == "off":
        return "off"
    most = found.value("autovacuum_max_workers")
    if found.autovacuum_workers is None:
        return f"on; how many of {most} workers are running is hidden from this role"
    return f"on, {found.autovacuum_workers} of {most} workers running"


def _describe_clock(found: Inspection) -> str:
    if found.clock is None:
        return "could not be read"
    side = "ahead of" if found.clock.ahead_s >= 0 else "behind"
    error = f"give or take {max(found.clock.error_s, 0.001):.3f} s"
    return f"{abs(found.clock.ahead_s):.3f} s {side} this host's, {error}"


def _describe_host(found: Inspection) -> str:
    host = found.host
    if host is None:
        return "not known whether it is this machine"
    disks: dict[tuple[str, int], list[FileSystem]] = {}
    for volume in host.volumes:
        disks.setdefault((volume.device, volume.size_bytes), []).append(volume)
    parts = [
        f"{' and '.join(volume.holds for volume in volumes)} on {device}, "
        f"{format_bytes(volumes[0].free_bytes)} of {format_bytes(size)} free"
        for (device, size), volumes in disks.items()
    ]
    parts = parts or ["the data directory is hidden from this role"]
    return f"this machine: {host.cpu_count} CPUs, {format_bytes(host.memory_bytes)} of memory; {'; '.join(parts)}"


def _describe_table(table: TableInspection) -> str:
    facts, costs = table.facts, table.costs
    assert facts is not None
    size = "" if costs is None else f", {format_bytes(costs.size_bytes)} with indexes"
    return f"{facts.name}: {count_nouns(len(facts.columns), 'column')}{size}"


def _shorten(items: Sequence[str]) -> str:
    """Return the first items of a list, and the number of the others, in words.

    >>> _shorten(["a", "b", "c", "d", "e", "f"])
    'a; b; c; d; and 2 more'
    """
    more = [f"and {len(items) - _SHOWN} more"] if len(items) > _SHOWN else []
    return "; ".join([*items[:_SHOWN], *more])
