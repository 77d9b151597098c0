"""Describes what keeps dead rows from being removed (xmin_holders.sql, prepared.sql), and how to end it. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from penstock.core.units import count_nouns, format_duration
from penstock.core.values.names import quote_text

if TYPE_CHECKING:
    from datetime import datetime

    from penstock.core.values.device import CounterRow
    from penstock.watch.values import SessionSample

# What to do about a CREATE INDEX CONCURRENTLY. Cancelled, it leaves an invalid index.
AWAIT_BUILD = "Wait until it has built its index (pg_stat_progress_create_index shows how far it is)."
_FEEDBACK = "End the long query on this standby, or turn hot_standby_feedback off there."
# How to end a holder, by its kind. For some kinds, an active holder has an entry of its own.
_WAYS = {
    "backend": "Have this application commit sooner, or, if it is no backup (pg_dump -j), end it now: {terminate}. For "
    "good: idle_in_transaction_session_timeout, or transaction_timeout from PostgreSQL 17 on, for its role.",
    "backend active": "If its statement is not needed: {cancel}. For good: let such statements run on a standby, or "
    "set statement_timeout for its role.",
    "backend unseen": "This role may see no more of it; a member of pg_read_all_stats sees what it does.",
    "backend client": "See why its client does not go on. If its statement is not needed, and no backup: {terminate}. "
    "A cancel waits for the client too.",
    "backend build": AWAIT_BUILD,
    "backend waiting": "It waits for a lock itself. End what it waits for: SELECT pg_blocking_pids({pid}).",
    "copy": "Wait until the first copy of this table for a subscriber ends.",
    "standby": _FEEDBACK,
    "slot": "Start the consumer of this slot. If it is gone for good: SELECT pg_drop_replication_slot({name}).",
    # A standby that uses a slot reports its oldest transaction to it.
    "slot active": _FEEDBACK,
    "prepared": "{end}",
}
_CATALOG = "See why the consumer of this slot confirms nothing: it has a long transaction, or is slow."

# The names that a subscription gives to prepared transactions. Source: src/backend/replication/logical/worker.c
_OF_SUBSCRIPTION = re.compile(r"pg_gid_\d+_\d+")
# What to do about a worker that applies a subscription's changes.
AWAIT_APPLY = (
    "It applies the changes of a subscription: see what it waits for, or end the transaction on the publisher. "
    "Cancelled, it begins again, or the subscription is disabled (disable_on_error)."
)

# A transaction manager ends a prepared transaction within moments. One that is older was probably forgotten.
OLD_PREPARED_S = 5

# The functions that end a backend's statement, and its session.
CANCEL, TERMINATE = "pg_cancel_backend", "pg_terminate_backend"

# If a transaction is older than this part of autovacuum_freeze_max_age, autovacuum can freeze few rows.
_OLD = 0.5


# A backend whose transaction is younger than this holds nothing for long: its snapshot may have an old xmin because the
# transaction that owns this id ended in the same moment. It would end before anybody could cancel it.
_LEAST_AGE_S = 1.0

# Of holders of the same age, the first of these holds, and the others may have its id in their snapshots.
_KINDS = ("prepared", "slot", "standby", "copy", "apply", "backend")


def find_holder(
    rows: Iterable[CounterRow], *, database: str | None = None, with_catalogs: bool = False
) -> CounterRow | None:
    """Return the row of the oldest holder; if `database` is given, of the oldest that keeps rows of its tables.

    A transaction id counts in all databases, as it is the xmin of snapshots there; a snapshot counts in its own. With
    `with_catalogs`, rows of the system's catalogs count too. Of holders of the same age, the one that owns the
    transaction id comes first, then what has no session. Returns None if there is none.
    """

    def holds(row: CounterRow) -> bool:
        is_there = database is None or row.get("datname") in (None, database) or row.get("is_owner") is True
        is_kept = database is None or with_catalogs or not row.get("is_catalog")
        age_s = row.get("age_s")
        is_young = row.get("kind") in ("apply", "backend") and isinstance(age_s, int | float) and age_s < _LEAST_AGE_S
        return is_there and is_kept and not is_young and row.get("kind") in _KINDS and bool(read_int(row, "xid_age"))

    def key(row: CounterRow) -> tuple[int, bool, int, float]:
        age_s = row.get("age_s")
        old = float(age_s) if isinstance(age_s, int | float) else 0.0
        return -read_int(row, "xid_age"), not row.get("is_owner"), _KINDS.index(str(row.get("kind"))), -old

    return min(filter(holds, rows), key=key, default=None)


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
    elif kind == "apply":
        who = f"backend {pid}, which applies a subscription's changes"
    elif kind == "copy":
        who = f"the copy of a table for subscriber {name}"
    else:
        who = f"{'prepared transaction' if kind == 'prepared' else 'slot'} {name}"
    state = row.get("state") if kind in ("backend", "slot") else None
    parts = [who, *([str(state)] if state else []), f"{count_nouns(read_int(row, 'xid_age'), 'transaction')} old"]
    return ", ".join(parts) + (f" ({format_duration(age_s)})" if isinstance(age_s, int | float) else "")


def release_holder(row: CounterRow) -> str:
    """Return how to make a holder release the rows that it keeps."""
    name, kind = str(row.get("name")), str(row.get("kind"))
    is_active = row.get("state") == "active"
    if kind == "apply":
        return AWAIT_APPLY
    if is_active and row.get("is_catalog"):
        return _CATALOG
    way = _WAYS.get(f"{kind} active") if is_active else None
    if kind == "backend" and (case := _name_case(row)) is not None:
        way = _WAYS[f"backend {case}"]
    end, pid = end_prepared({"gid": name, "datname": row.get("datname")}), row.get("pid")
    # A recording of an earlier version does not have the time.
    began = row.get("xact_start")
    same = "" if began is None else f"xact_start = {quote_text(str(began))}"
    cancel, terminate = (end_backend(each, pid, same) for each in (CANCEL, TERMINATE))
    return (way or _WAYS[kind]).format(pid=pid, name=quote_text(name), end=end, cancel=cancel, terminate=terminate)


def is_same(session: SessionSample, seen: datetime) -> str:
    """Return the condition that a backend still does what a sample showed at the time `seen`.

    Its transaction began before then, and it has one at a time. An idle backend has run no statement since.
    """
    column = "query_start" if session.state == "idle" else "xact_start"
    return f"{column} < '{seen.isoformat(sep=' ', timespec='milliseconds')}'"


def end_backend(function: str, pid: object, same: str) -> str:
    """Return the command that ends a backend, or its statement, if the condition `same` still holds for it.

    The recording may be old. The backend may have gone on to other work, or another may have its pid.

    >>> end_backend(CANCEL, 7, "xact_start = '2026-05-01 12:00:00+00'")
    "SELECT pg_cancel_backend(7) FROM pg_stat_activity WHERE pid = 7 AND xact_start = '2026-05-01 12:00:00+00'"
    """
    conditions = " AND ".join(filter(None, (f"pid = {pid}", same)))
    return f"SELECT {function}({pid}) FROM pg_stat_activity WHERE {conditions}"  # noqa: S608 (it is shown, not run)


def _name_case(row: CounterRow) -> str | None:
    """Return which backends are not ended as others are: hidden ones, those that wait, and builds beside writers."""
    if row.get("state") is None:
        return "unseen"
    if row.get("wait_event_type") == "Lock":
        return "waiting"
    if row.get("is_build"):
        return "build"
    return "client" if row.get("state") == "active" and row.get("wait_event_type") == "Client" else None


def describe_prepared(row: CounterRow) -> str:
    """Return a row of prepared.sql as the name of a prepared transaction.

    >>> describe_prepared({"gid": "tx1", "owner": "ann", "datname": "shop", "age_s": 90.0})
    "prepared transaction 'tx1' (owner ann, database shop), prepared 1 min 30 s ago"
    """
    age_s = row.get("age_s")
    since = f", prepared {format_duration(age_s)} ago" if isinstance(age_s, int | float) else ""
    gid = quote_text(str(row.get("gid")))
    return f"prepared transaction {gid} (owner {row.get('owner')}, database {row.get('datname')}){since}"


def end_prepared(row: CounterRow) -> str:
    """Return how to end a prepared transaction. Only its transaction manager knows which of the two ends is right.

    >>> end_prepared({"gid": "pg_gid_16394_759"})
    'It is of a subscription with two_phase: end it on the publisher. Ended here, the subscription stops.'
    """
    if _OF_SUBSCRIPTION.fullmatch(str(row.get("gid"))):
        return "It is of a subscription with two_phase: end it on the publisher. Ended here, the subscription stops."
    gid, where = quote_text(str(row.get("gid"))), f" in database {row['datname']}" if row.get("datname") else ""
    return (
        f"It has no session to end. If its transaction manager does not end it: ROLLBACK PREPARED {gid}{where}, as its "
        f"owner or a superuser, or COMMIT PREPARED {gid} if the other servers of this transaction have committed."
    )


def describe_old_holder(rows: Iterable[CounterRow], freezes_at: int, database: str | None = None) -> str:
    """Return who prevents rows of a database from being frozen, and how to end that. Empty if nobody does."""
    holder = find_holder(rows, database=database, with_catalogs=True)
    if holder is None or read_int(holder, "xid_age") < _OLD * freezes_at:
        return ""
    return f"First end what keeps rows from being frozen: {describe_holder(holder)}. {release_holder(holder)} "


def read_int(row: CounterRow, name: str) -> int:
    """Return a number of a row; 0 if it is missing, because another program may have written the recording."""
    value = row.get(name)
    return int(value) if isinstance(value, int | float) else 0
