"""What penstock never does to a server, and why. Data. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A value that a setting is never given; `value` is in the server's words."""

    name: str
    value: str
    reason: str


REFUSALS: tuple[Refusal, ...] = (
    Refusal(
        name="fsync",
        value="off",
        reason="after a crash of the machine the whole cluster may be corrupt beyond repair, every database of it",
    ),
    Refusal(
        name="full_page_writes",
        value="off",
        reason="a page that was half written at a crash stays half written, and corrupt",
    ),
    Refusal(
        name="synchronous_commit",
        value="off",
        reason="other sessions would lose transactions that were acknowledged; a load turns it off in its own "
        "transactions, of which its ledger knows what was lost",
    ),
    Refusal(
        name="synchronous_standby_names",
        value="empty",
        reason="acknowledged transactions would be on one machine only, and a failover would lose them",
    ),
    Refusal(
        name="autovacuum",
        value="off",
        reason="every table of the cluster bloats and ages towards wraparound, and nobody notices that it stayed off",
    ),
    Refusal(
        name="wal_level",
        value="minimal",
        reason="it ends replication and point-in-time recovery, and needs two restarts and then a new base backup",
    ),
    Refusal(
        name="archive_mode",
        value="off",
        reason="point-in-time recovery ends where archiving stopped, until a new base backup is taken",
    ),
    Refusal(
        name="max_wal_senders",
        value="0",
        reason="standbys and WAL receivers are disconnected, and fall behind for good",
    ),
)

# No settings, and never done either.
NEVER: tuple[Refusal, ...] = (
    Refusal(name="a table", value="unlogged", reason="a crash empties it, and standbys never have its rows"),
    Refusal(name="replication or Multi-AZ", value="off", reason="the loss of one machine or zone would lose data"),
)

_SPELLINGS = {"off": ("off", "false", "f", "no", "n", "0"), "empty": ("",), "0": ("0", "00"), "minimal": ("minimal",)}


def refuse_value(name: str, value: str) -> None:
    """Raise UsageError, which explains why, where a setting is never given a value.

    >>> refuse_value("max_wal_size", "8GB")
    """
    given = value.strip().strip("'").lower()
    for refusal in REFUSALS:
        if name.lower() == refusal.name and given in _SPELLINGS[refusal.value]:
            raise UsageError(
                f"penstock does not set {refusal.name} to {given or 'nothing'}",
                detail=f"{refusal.reason[:1].upper()}{refusal.reason[1:]}.",
                hint="No load is worth that; penstock settings profiles shows what helps one.",
            )
