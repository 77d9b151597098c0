"""Profiles: the settings that help a kind of work, with the reason and source of each. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from penstock.errors import UsageError
from penstock.model.server.settings import Profile, ProfileValue

if TYPE_CHECKING:
    from penstock.model.server.inspection import FlavourKind

# Aurora is not in this list: its storage applies WAL, and its instances write no pages at checkpoints.
_WITH_CHECKPOINTS: frozenset[FlavourKind] = frozenset(
    ("postgresql", "rds", "rds-cluster", "cloud-sql", "alloydb", "azure", "neon", "supabase", "citus")
)
_ALL: frozenset[FlavourKind] = _WITH_CHECKPOINTS | {"aurora"}

# pg_settings has max_wal_size in MB of 2^20 bytes.
WAL_UNIT_BYTES = 1024 * 1024

# WAL triggers a checkpoint after max_wal_size / (1 + checkpoint_completion_target): CalculateCheckpointSegments in
# src/backend/access/transam/xlog.c. With a target of 0.9, a load triggers no checkpoint if max_wal_size is this factor
# times its expected WAL.
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
    """Return a profile with these values, which are given by name in pg_settings' units."""
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
