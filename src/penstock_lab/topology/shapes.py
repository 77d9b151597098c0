"""Defines the members of each topology, and the settings of its servers. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from penstock.core.slotted import slotted
from penstock.core.units import MIB
from penstock.embedded.layout import DEFAULT_SETTINGS

Shape = Literal["single", "multi-az", "cluster", "quorum"]
Kind = Literal["primary", "standby", "receiver"]
Parameters = Literal["postgres", "rds", "embedded"]

ZONES = ("a", "b", "c")

# How many receivers must have a commit's WAL: four of six, with two in each zone, are Aurora's write quorum.
_QUORUM = 4
# The limit of the WAL that a replication slot keeps. If a zone is lost and nobody ends the lab, the WAL that its slots
# keep would fill the disk without this limit.
_KEPT_WAL = "8GB"


@slotted
class TopologyMember:
    """One member of a topology: a PostgreSQL server, or a receiver of WAL."""

    # The name of the member, of its replication slot, and in its application_name.
    name: str
    kind: Kind
    # The zone of the member, None in a topology without zones.
    zone: str | None

    @property
    def is_server(self) -> bool:
        """Return whether the member is a PostgreSQL server, which accepts connections."""
        return self.kind != "receiver"


def zones_of(shape: Shape) -> tuple[str, ...]:
    """Return the zones that have members. The shapes single and multi-az have no zones, because they are one server."""
    return () if shape in ("single", "multi-az") else ZONES


def members_of(shape: Shape) -> tuple[TopologyMember, ...]:
    """Return the members of a topology, the primary first."""
    if not zones_of(shape):
        return (TopologyMember(name="primary", kind="primary", zone=None),)
    if shape == "cluster":
        kinds: tuple[Kind, ...] = ("primary", "standby", "standby")
        return tuple(
            TopologyMember(name=f"server_{zone}", kind=kind, zone=zone) for zone, kind in zip(ZONES, kinds, strict=True)
        )
    receivers = (
        TopologyMember(name=f"{zone}{number}", kind="receiver", zone=zone) for zone in ZONES for number in (1, 2)
    )
    return (TopologyMember(name="primary", kind="primary", zone=None), *receivers)


def needed_acknowledgements(shape: Shape) -> int:
    """Return how many other members must acknowledge a commit before it returns."""
    return {"single": 0, "multi-az": 0, "cluster": 1, "quorum": _QUORUM}[shape]


def standby_names(shape: Shape, members: Sequence[TopologyMember], primary: str) -> str:
    """Return the value of synchronous_standby_names for the server whose name is `primary`.

    >>> standby_names("cluster", members_of("cluster"), "server_b")
    'ANY 1 (server_a, server_c)'
    """
    others = ", ".join(member.name for member in members if member.name != primary)
    return f"ANY {needed_acknowledgements(shape)} ({others})" if others else ""


def server_settings(
    shape: Shape, members: Sequence[TopologyMember], member: TopologyMember, *, upstream: str | None
) -> Mapping[str, str]:
    """Return the settings of a member of the topology, by name.

    `upstream` is the connection string from a standby to its primary, None for the primary.
    """
    if not zones_of(shape):
        return {}
    settings = {
        "synchronous_standby_names": standby_names(shape, members, member.name),
        "max_slot_wal_keep_size": _KEPT_WAL,
        "wal_retrieve_retry_interval": "500ms",
    }
    if upstream is not None:
        settings |= {
            "primary_conninfo": f"{upstream} application_name={member.name}",
            "primary_slot_name": member.name,
        }
    return settings


def base_settings(parameters: Parameters, *, memory_bytes: int, has_statements: bool) -> Mapping[str, str]:
    """Return the settings, by name, that one of the sets "postgres", "embedded" and "rds" gives a server.

    `postgres` has initdb's settings, `embedded` those of the embedded server. `rds` has those of an RDS instance with
    this memory: RDS's formulas for shared_buffers and maintenance_work_mem, and the published experiments' values for
    other settings. RDS sets huge_pages to on. The lab sets it to try, because a server on a machine without huge pages
    would not start with on. `has_statements` is whether the installation has pg_stat_statements, which RDS loads.
    """
    if parameters == "postgres":
        return {"log_line_prefix": DEFAULT_SETTINGS["log_line_prefix"]}
    if parameters == "embedded":
        return DEFAULT_SETTINGS
    return {
        "log_line_prefix": DEFAULT_SETTINGS["log_line_prefix"],
        # RDS's default is {DBInstanceClassMemory/32768}, in pages of 8 kB.
        "shared_buffers": f"{max(memory_bytes // 4 // MIB, 16)}MB",
        # RDS's default is GREATEST({DBInstanceClassMemory/63963136*1024},65536), in kB.
        "maintenance_work_mem": f"{max(memory_bytes // 63_963_136 * 1024, 65_536)}kB",
        "checkpoint_timeout": "300s",
        "huge_pages": "try",
        "max_parallel_workers": "8",
        "max_parallel_workers_per_gather": "2",
        "max_wal_size": "2048MB",
        "temp_buffers": "8MB",
        "wal_compression": "on",
        "work_mem": "4096kB",
        **({"shared_preload_libraries": "pg_stat_statements"} if has_statements else {}),
    }
