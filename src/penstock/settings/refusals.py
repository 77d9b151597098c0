"""What penstock never does although it would make loads faster, and the errors that explain why. Pure.

README has the same list under "Refused settings".
"""

from __future__ import annotations

from penstock.core.errors import UsageError
from penstock.core.slotted import slotted


@slotted
class Refusal:
    """One thing that penstock never does although it would make loads faster."""

    # The name of the refused setting, or a word for another refused thing.
    name: str
    # The refused action. It completes the message "penstock does not ...".
    deed: str
    # What the refused action would cost.
    reason: str
    # The value that penstock never gives the setting; None if what is refused is not a setting.
    value: str | None = None


REFUSALS: tuple[Refusal, ...] = (
    Refusal(
        name="fsync",
        value="off",
        deed="turn fsync off",
        reason="After a crash of the machine the whole cluster may be corrupt beyond repair, every database of it.",
    ),
    Refusal(
        name="full_page_writes",
        value="off",
        deed="turn full_page_writes off",
        reason="A page that was half written at a crash is corrupt.",
    ),
    Refusal(
        name="synchronous_commit",
        value="off",
        deed="turn synchronous_commit off beyond its own transactions",
        reason="Other sessions could lose acknowledged commits. In the load's own transactions it is off already.",
    ),
    Refusal(
        name="synchronous_standby_names",
        value="empty",
        deed="make commits wait for fewer standbys",
        reason="Acknowledged transactions would be on one machine only, and a failover could lose them.",
    ),
    Refusal(
        name="autovacuum",
        value="off",
        deed="turn autovacuum off beyond the table that is loaded",
        reason="Every table of the cluster bloats and ages towards wraparound, and it may stay off unnoticed.",
    ),
    Refusal(
        name="wal_level",
        value="minimal",
        deed="set wal_level to minimal",
        reason="It ends replication and point-in-time recovery, and needs two restarts and then a new base backup.",
    ),
    Refusal(
        name="archive_mode",
        value="off",
        deed="turn archive_mode off",
        reason="Point-in-time recovery ends where archiving stopped, until a new base backup is taken.",
    ),
    Refusal(
        name="max_wal_senders",
        value="0",
        deed="set max_wal_senders to 0",
        reason="Standbys and WAL receivers are disconnected, and fall behind for good.",
    ),
    Refusal(
        name="unlogged",
        deed="make tables unlogged",
        reason="A crash empties them, and their rows are never replicated.",
    ),
    Refusal(
        name="replication",
        deed="turn replication off",
        reason="A standby that misses WAL must be created again, and until then a failure of one machine loses data.",
    ),
    Refusal(
        name="multi_az",
        deed="turn Multi-AZ off",
        reason="Until it is on again, a failure of one zone loses the instance.",
    ),
)

_BY_NAME = {refusal.name: refusal for refusal in REFUSALS}
_SPELLINGS = {"off": ("off", "false", "f", "no", "n", "0"), "empty": ("",), "0": ("0", "00"), "minimal": ("minimal",)}

# Other names that users give to what penstock refuses, each with its name in REFUSALS.
_ALIASES = {
    "set_unlogged": "unlogged",
    "unlogged_table": "unlogged",
    "unlogged_tables": "unlogged",
    "wal": "wal_level",
    "minimal_wal": "wal_level",
    "wal_level_minimal": "wal_level",
    "standby": "replication",
    "standbys": "replication",
    "logical_replication": "replication",
    "multiaz": "multi_az",
    "sync": "fsync",
    "async_commit": "synchronous_commit",
}

_HINTS = {
    "autovacuum": "--autovacuum pause pauses it for the table, during the load.",
    "unlogged": "Load into a new table with --mode replace, or see penstock load --help.",
}
_HINT = "See README, Refused settings."

_PREFIXES = ("no_", "disable_", "skip_", "without_", "make_", "turn_off_")
_SUFFIXES = ("_off", "_disabled", "_minimal")


def explain_refusal(name: str) -> UsageError | None:
    """Return the error for an option or a key of a job file that asks for what penstock never does.

    Return None for any other name.

    >>> explain_refusal("--no-fsync").message
    'penstock does not turn fsync off'
    >>> explain_refusal("--no-header") is None
    True
    """
    word = name.partition("=")[0].strip().lstrip("-").lower().replace("-", "_")
    if word == "s3":
        return UsageError(
            "--s3 is for labs only",
            detail="Its functions aws_s3 run programs on the server; no other server gets them.",
            hint="Load from S3 with penstock load s3://bucket/key, or bring up penstock lab up single --s3.",
        )
    subject = next((found for each in _spellings(word) if (found := _ALIASES.get(each, each)) in _BY_NAME), None)
    if subject is None:
        return None
    refusal = _BY_NAME[subject]
    return UsageError(f"penstock does not {refusal.deed}", detail=refusal.reason, hint=_HINTS.get(subject, _HINT))


def refuse_value(name: str, value: str) -> None:
    """Raise UsageError if penstock never gives a setting this value. The error explains why.

    >>> refuse_value("max_wal_size", "8GB")
    """
    refusal, given = _BY_NAME.get(name.lower()), value.strip().strip("'").lower()
    if refusal is not None and refusal.value is not None and given in _SPELLINGS[refusal.value]:
        raise UsageError(
            f"penstock does not set {refusal.name} to {given or 'nothing'}",
            detail=refusal.reason,
            hint="penstock settings profiles shows safe settings that help a load.",
        )


def _spellings(word: str) -> list[str]:
    """Return a word, and the same word without prefixes and suffixes such as no_ and _off."""
    bare = next((word.removeprefix(prefix) for prefix in _PREFIXES if word.startswith(prefix)), word)
    return [word, bare, *(bare.removesuffix(suffix) for suffix in _SUFFIXES if bare.endswith(suffix))]
