"""Judges the facts of a server about WAL, standbys, slots, disks and the software that manages its settings. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from penstock.model.finding import Finding, note, refusal, warning
from penstock.model.server.names import quote_name
from penstock.units import GIB, MIB, format_bytes, format_duration

if TYPE_CHECKING:
    from penstock.model.server.inspection import Inspection, Slot, Standby

# A standby or the archiver is far behind if it lacks more WAL than this. A standby is also far behind if its delay is
# longer than this.
_LAG_BYTES = GIB
_LAG_S = 60.0

# An unused slot that keeps more WAL than this is reported. Any slot may keep less than this for a short time.
_RETAINED_BYTES = GIB

# A disk with a smaller free share than this is reported as nearly full.
_FREE_SHARE = 0.1

# How settings are changed on managed services, where no role may run ALTER SYSTEM.
_SERVICE_PARAMETERS = {
    "rds": "in the instance's DB parameter group",
    "rds-cluster": "in the DB cluster parameter group",
    "aurora": "in the DB cluster parameter group",
    "cloud-sql": "with gcloud sql instances patch --database-flags",
    "alloydb": "with gcloud alloydb instances update --database-flags",
    "azure": "with az postgres flexible-server parameter set",
}


def find_followers(found: Inspection) -> Iterator[Finding]:
    """Return findings about standbys and replication slots."""
    for standby in found.standbys or ():
        yield from _judge_standby(standby)
    for slot in found.slots or ():
        yield from _judge_slot(slot, is_limited=found.value("max_slot_wal_keep_size") not in (None, "-1"))
    names = found.value("synchronous_standby_names")
    standbys = found.standbys
    if not names or found.server.is_in_recovery or standbys is None:
        return
    states = {standby.sync_state for standby in standbys}
    if None in states:
        return
    if not states & {"sync", "quorum"}:
        yield refusal(
            "standbys",
            f"synchronous_standby_names is '{names}', and no such standby is connected: every commit waits for one",
            "Start a standby with such an application_name, or change the setting: "
            + describe_change(found, "synchronous_standby_names", _quote_text("")),
        )


def _judge_standby(standby: Standby) -> Iterator[Finding]:
    behind = []
    if standby.lag_bytes is not None and standby.lag_bytes > _LAG_BYTES:
        behind.append(format_bytes(standby.lag_bytes))
    if standby.lag_s is not None and standby.lag_s > _LAG_S:
        behind.append(format_duration(standby.lag_s))
    if behind:
        name = standby.name or f"process {standby.pid}"
        text = f"standby {name} is {' and '.join(behind)} behind, and a load writes more WAL"
        yield warning("standbys", text)


def _judge_slot(slot: Slot, *, is_limited: bool) -> Iterator[Finding]:
    name = slot.name
    if slot.wal_status == "lost":
        yield warning(
            "slots",
            f"slot {name} has lost WAL it needs: its consumer must be created again",
            f"SELECT pg_drop_replication_slot({_quote_text(name)});",
        )
    elif not slot.is_active and slot.retained_bytes is not None and slot.retained_bytes > _RETAINED_BYTES:
        end = "until max_slot_wal_keep_size" if is_limited else "until the disk is full"
        yield warning(
            "slots",
            f"slot {name} is not in use and keeps {format_bytes(slot.retained_bytes)} of WAL; a load adds to "
            f"that, {end}",
            f"Start its consumer, or: SELECT pg_drop_replication_slot({_quote_text(name)});",
        )


def find_wal(found: Inspection) -> Iterator[Finding]:
    """Return a finding if WAL archiving fails or is far behind."""
    archiver = found.archiver
    if archiver is None:
        return
    behind = "" if archiver.lag_bytes is None else f"; {format_bytes(archiver.lag_bytes)} of WAL wait"
    if archiver.is_failing:
        yield warning(
            "archiver",
            f"archiving fails, last for {archiver.last_failed}{behind}: WAL stays on the server's disk until it "
            "works, and a load writes more",
            "See the server's log for the output of archive_command or archive_library.",
        )
    elif archiver.lag_bytes is not None and archiver.lag_bytes > _LAG_BYTES:
        yield warning("archiver", f"the archiver does not keep up{behind}")


def find_durability(found: Inspection) -> Iterator[Finding]:
    """Return findings about settings with which the server can lose committed rows, or which harm loaded tables."""
    for name in ("fsync", "full_page_writes"):
        if found.value(name) == "off":
            yield warning(
                "settings",
                f"{name} is off: a crash may lose or corrupt everything, the ledger included",
                describe_change(found, name, "on"),
            )
    if found.value("autovacuum") == "off":
        yield warning(
            "settings",
            "autovacuum is off: loaded tables get no statistics, and transaction numbers are never frozen",
            describe_change(found, "autovacuum", "on"),
        )
    pending = [setting.name for setting in found.settings if setting.is_pending_restart]
    if pending:
        yield note("settings", f"changed, and waiting for a restart of the server: {', '.join(pending)}")


def find_space(found: Inspection) -> Iterator[Finding]:
    """Return findings about nearly full disks, and about the room for max_wal_size on the WAL's disk during a load."""
    if found.host is None:
        return
    largest_wal = found.value("max_wal_size")
    wal_bytes = 0 if largest_wal is None else int(largest_wal) * MIB
    for volume in found.host.volumes:
        is_full = volume.free_bytes < volume.size_bytes * _FREE_SHARE
        if volume.holds == "WAL" and volume.free_bytes < wal_bytes:
            yield warning(
                "disks",
                f"{format_bytes(volume.free_bytes)} are free for WAL on {volume.device}, less than max_wal_size "
                f"({format_bytes(wal_bytes)})",
                "Free or add space there, or lower max_wal_size.",
            )
        elif is_full:
            yield warning(
                "disks",
                f"{format_bytes(volume.free_bytes)} of {format_bytes(volume.size_bytes)} are free on "
                f"{volume.device}, which holds the {volume.holds}",
                "Free or add space there.",
            )


def find_managers(found: Inspection) -> Iterator[Finding]:
    """Return findings about tools that manage the server's settings, and about facts that could not be read."""
    for manager in found.managers:
        yield note(
            "settings",
            f"managed by {manager.name}, recognised by {manager.told_by}: it undoes what ALTER SYSTEM does",
            f"Change settings with {manager.change}.",
        )
    for unread in found.unread:
        text = f"{unread.what} could not be read: {unread.why}"
        yield note("server", text)


def describe_change(found: Inspection, name: str, value: str) -> str:
    """Return how to change a setting of this server: by its manager, by its service, or by ALTER SYSTEM."""
    if found.managers:
        return f"Set {name} = {value} with {found.managers[0].change}."
    if (means := _SERVICE_PARAMETERS.get(found.flavour.kind)) is not None:
        return f"Set {name} = {value} {means}."
    setting = found.setting(name)
    restart = setting is not None and setting.context == "postmaster"
    then = "then restart the server." if restart else "SELECT pg_reload_conf();"
    return f"ALTER SYSTEM SET {quote_name(name)} = {value}; {then}"


def _quote_text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
