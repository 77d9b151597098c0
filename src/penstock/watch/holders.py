"""Describes the sessions, slots and transactions that keep dead rows from being removed (xmin_holders.sql). Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from penstock.core.units import count_nouns, format_duration

if TYPE_CHECKING:
    from penstock.core.values.device import CounterRow

_FEEDBACK = "End the long query on this standby, or turn hot_standby_feedback off there."
# How to end a holder, by its kind. For some kinds, an active holder has an entry of its own.
_WAYS = {
    "backend": "Have this application commit sooner, or end it now: SELECT pg_terminate_backend({pid}). For good: "
    "idle_in_transaction_session_timeout, or transaction_timeout from PostgreSQL 17 on, for its role.",
    "backend active": "If its statement is not needed: SELECT pg_cancel_backend({pid}). For good: let such statements "
    "run on a standby, or set statement_timeout for its role.",
    "standby": _FEEDBACK,
    "slot": "Start the consumer of this slot, or drop it: SELECT pg_drop_replication_slot('{name}').",
    # A standby that uses a slot reports its oldest transaction to it.
    "slot active": _FEEDBACK,
    "prepared": "End it{where}: COMMIT PREPARED '{name}', or ROLLBACK PREPARED '{name}'.",
}
_CATALOG = "See why the consumer of this slot confirms nothing: it has a long transaction, or is slow."

# If a transaction is older than this part of autovacuum_freeze_max_age, autovacuum can freeze few rows.
_OLD = 0.5


def find_holder(rows: Iterable[CounterRow], *, database: str | None = None) -> CounterRow | None:
    """Return the row of the oldest holder; if `database` is given, of the oldest that keeps rows of its tables.

    Returns None if there is none.
    """
    for row in rows:
        is_there = database is None or (row.get("datname") in (None, database) and not row.get("is_catalog"))
        if is_there and row.get("kind") in _WAYS and isinstance(row.get("xid_age"), int):
            return row
    return None


def describe_holder(row: CounterRow) -> str:
    """Return who the holder is, with its age.

    >>> describe_holder({"kind": "slot", "name": "s1", "state": "inactive", "xid_age": 51_000})
    'slot s1, inactive, 51,000 transactions old'
    """
    kind, pid, name, age_s = row.get("kind"), row.get("pid"), row.get("name"), row.get("age_s")
    if kind == "backend":
        who = f"backend {pid} (application {name or '(no name)'}, user {row.get('user_name')})"
    elif kind == "standby":
        who = f"feedback of standby {name}"
    else:
        who = f"{'prepared transaction' if kind == 'prepared' else 'slot'} {name}"
    state = row.get("state") if kind in ("backend", "slot") else None
    parts = [who, *([str(state)] if state else []), f"{count_nouns(read_int(row, 'xid_age'), 'transaction')} old"]
    return ", ".join(parts) + (f" ({format_duration(age_s)})" if isinstance(age_s, int | float) else "")


def release_holder(row: CounterRow) -> str:
    """Return how to make a holder release the rows that it keeps."""
    name, kind = str(row.get("name")).replace("'", "''"), str(row.get("kind"))
    is_active = row.get("state") == "active"
    if is_active and row.get("is_catalog"):
        return _CATALOG
    way = _WAYS.get(f"{kind} active") if is_active else None
    where = f" in database {row['datname']}" if row.get("datname") else ""
    return (way or _WAYS[kind]).format(pid=row.get("pid"), name=name, where=where)


def describe_old_holder(rows: Iterable[CounterRow], freezes_at: int) -> str:
    """Return who prevents rows from being frozen, and how to end that. Empty if nobody does."""
    holder = find_holder(rows)
    if holder is None or read_int(holder, "xid_age") < _OLD * freezes_at:
        return ""
    return f"First end what keeps rows from being frozen: {describe_holder(holder)}. {release_holder(holder)} "


def read_int(row: CounterRow, name: str) -> int:
    """Return a number of a row; 0 if it is missing, because another program may have written the recording."""
    value = row.get(name)
    return int(value) if isinstance(value, int | float) else 0
