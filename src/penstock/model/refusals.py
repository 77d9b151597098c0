"""What penstock never does, though it would make loads faster, and why: for options and keys that ask for it. Pure.

README has the same list under "What it will not do".
"""

from __future__ import annotations

from penstock.errors import UsageError

_REASONS = {
    "unlogged": (
        "make tables unlogged",
        "A crash empties them, and standbys and subscribers never get their rows.",
    ),
    "replication": (
        "turn replication off",
        "A standby that misses WAL has to be made anew, and until then a failure of one machine loses data.",
    ),
    "multi_az": ("turn Multi-AZ off", "Until it is on again, a failure of one zone loses the instance."),
    "fsync": ("turn fsync off", "After a crash of the machine every database of the cluster may be corrupt."),
    "full_page_writes": (
        "turn full_page_writes off",
        "A page that was half written at a crash stays half written, and corrupt.",
    ),
    "synchronous_commit": (
        "turn synchronous_commit off beyond its own transactions",
        "Others would lose what was acknowledged. In loading transactions, which the ledger knows, it is off already.",
    ),
    "synchronous_standby_names": (
        "have commits wait for fewer standbys",
        "Acknowledged transactions would be on one machine only, and a failover would lose them.",
    ),
    "autovacuum": (
        "turn autovacuum off beyond the table that is loaded",
        "Every other table would bloat and age towards wraparound.",
    ),
    "wal_level": (
        "set wal_level to minimal",
        "It ends replication and point-in-time recovery, takes two restarts, and needs a new base backup after.",
    ),
}

# Other names for the same.
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
    "autovacuum": "--autovacuum pause keeps it from the table alone, for as long as the load lasts.",
    "unlogged": "Load into a new table with --mode replace, or see penstock load --help for what does help.",
}
_HINT = "No load is worth that; see README, What it will not do."

_PREFIXES = ("no_", "disable_", "skip_", "without_", "make_", "turn_off_")
_SUFFIXES = ("_off", "_disabled", "_minimal")


def explain_refusal(name: str) -> UsageError | None:
    """Return the error for an option or a key that asks for what is never done, None for any other.

    >>> explain_refusal("--no-fsync").message
    'penstock does not turn fsync off'
    >>> explain_refusal("--no-header") is None
    True
    """
    word = name.partition("=")[0].strip().lstrip("-").lower().replace("-", "_")
    subject = next((found for each in _spellings(word) if (found := _ALIASES.get(each, each)) in _REASONS), None)
    if subject is None:
        return None
    what, why = _REASONS[subject]
    return UsageError(f"penstock does not {what}", detail=why, hint=_HINTS.get(subject, _HINT))


def _spellings(word: str) -> list[str]:
    """Return a word, and what is left of it without what says that something is off."""
    bare = next((word.removeprefix(prefix) for prefix in _PREFIXES if word.startswith(prefix)), word)
    return [word, bare, *(bare.removesuffix(suffix) for suffix in _SUFFIXES if bare.endswith(suffix))]
