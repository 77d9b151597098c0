"""Whether the storage parameter that is switched off while loading is off already."""

from __future__ import annotations

from penstock.changes.tables.kinds import AUTOVACUUM, is_off


def test_off_is_read_as_postgresql_reads_it() -> None:
    """Where it is off already there is nothing to switch, and nothing to restore."""
    assert all(is_off([f"{AUTOVACUUM}={word}"]) for word in ("off", "FALSE", "0", "no", "f"))
    assert not any(is_off([f"{AUTOVACUUM}={word}"]) for word in ("on", "true", "1", "yes", "o"))
