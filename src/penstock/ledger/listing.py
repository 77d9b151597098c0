"""Lists loads, their objects, and what is committed of each object, for `penstock loads`; and removes them.

`prune_loads` keeps of an old load its objects, their rejected records, what each table now has, and one row of its
committed ranges. Loads that left staging tables or rejected records are found here too.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

from penstock.core.catalogue.catalog import find_table
from penstock.core.connect.connection import Connection
from penstock.core.connect.errors import in_transaction, translate_errors
from penstock.core.errors import TargetError, UsageError
from penstock.core.sql import fetch_one, fetch_rows, run_query
from penstock.core.units import count_nouns
from penstock.core.values.accounts import UnreadableObject
from penstock.core.values.names import parse_table_name
from penstock.ledger.locks import compose_query, find_lock_holder, find_workers, try_lock_here
from penstock.ledger.rights import Deed, LoadRights, read_rights
from penstock.ledger.schema import find_named_ledger, has_ledger, naming_ledger
from penstock.ledger.targets import drop_landing, keep_truncations, read_landings
from penstock.ledger.values import (
    LeftRejects,
    LeftStaging,
    LoadRecord,
    ObjectRecord,
    PrunedLoads,
    StayingRows,
    TableTotals,
)


def list_loads(
    connection: Connection,
    schema: str,
    *,
    load_id: str | None = None,
    since: datetime | None = None,
    into: str | None = None,
    limit: int | None = None,
) -> list[LoadRecord]:
    """Return the loads of a ledger, the newest last, or only the load `load_id`.

    `since` is the time from which on the loads began. `into` is a table, with or without its schema. If there are more
    than `limit` loads, the newest are returned. Raises TargetError if the table does not exist and no load of the
    ledger has it, ServerError.
    """
    found: list[LoadRecord] = []
    if find_named_ledger(connection, schema):
        names = None if into is None else [into]
        if names:
            # A name may be given as it is shown, which may be none of SQL's, or as SQL has it.
            with suppress(UsageError):
                names.append(str(parse_table_name(names[0])))
        values = {"load": load_id, "since": since, "into": names, "limit": limit}
        with naming_ledger(schema), translate_errors("listing loads"):
            found = fetch_rows(connection, "ledger/loads", _make_record, ledger=schema, **values)
    is_absent = into is not None and not found and find_table(connection, parse_table_name(into)) is None
    if is_absent and (since is None or not list_loads(connection, schema, into=into, limit=1)):
        raise TargetError(f'table "{into}" does not exist, and no load has filled it')
    return found


def _make_record(*, unreadable: str, **fields: Any) -> LoadRecord:
    return LoadRecord(unreadable=tuple(UnreadableObject(**item) for item in json.loads(unreadable)), **fields)


def sum_up_tables(connection: Connection, schema: str) -> list[TableTotals]:
    """Return what the ledger records about each loaded table, ordered by name. Raises ServerError."""
    if not find_named_ledger(connection, schema):
        return []
    with naming_ledger(schema), translate_errors("summing up loads"):
        return fetch_rows(connection, "ledger/table_totals", TableTotals, ledger=schema)


def find_newest(connection: Connection, schema: str, *, resumable: bool = False, removable: bool = False) -> str | None:
    """Return the id of the load that this role began last, None if there is none.

    With `resumable`, only loads that can be resumed count. Without it, raises TargetError if a later load was removed
    from the ledger. Otherwise a command for the latest load would, if run twice, silently use an earlier load. With
    `removable`, also raises TargetError if another login of the role began the load: its row cannot hold the note that
    a later load was removed. Also raises ServerError.
    """
    if not has_ledger(connection, schema):
        return None
    with naming_ledger(schema), translate_errors("looking for the newest load"):
        row = run_query(connection, "ledger/newest", ledger=schema, resumable=resumable).fetchone()
    if row is None:
        return None
    load_id, failed, is_own_login = str(row[0]), row[1], row[2]
    if failed is not None and not resumable:
        raise TargetError(
            f"the newest load, {failed}, is not in the ledger any more",
            detail="It failed before its first commit, or was undone or forgotten.",
            hint=f"The one before is load {load_id}.",
        )
    if removable and not is_own_login:
        raise TargetError(
            f"the newest load of the role, {load_id}, may have been begun by another login",
            hint="If that is the load you mean, name it by its id.",
        )
    return load_id


def list_objects(connection: Connection, schema: str, load_id: str) -> list[ObjectRecord]:
    """Return the objects of a load in the order of the job. Raises ServerError."""
    with translate_errors("listing a load's objects"):
        return fetch_rows(connection, "ledger/objects", ObjectRecord, ledger=schema, load=load_id)


def forget_load(connection: Connection, schema: str, load_id: str, *, keeps_rows: bool = False) -> list[StayingRows]:
    """Remove a load and its staging and replacement tables. Return how many of its rows stay in each table.

    Raises TargetError if the load is running, if rows may stay and `keeps_rows` is false, if it has rejected records,
    or if it is another role's load. Raises ServerError.
    """
    with in_transaction(connection, "removing a load from the ledger"):
        rights = hold_load(connection, schema, load_id, "forget")
        staying = find_staying(connection, schema, load_id)
        if staying and not keeps_rows:
            raise _has_rows(load_id, staying)
        _refuse_rejects(connection, schema, load_id)
        remove_load(connection, schema, rights)
    return staying


def _refuse_rejects(connection: Connection, schema: str, load_id: str) -> None:
    """Raise TargetError if the ledger has rejected records of a load, which of a pipe may be the only copy."""
    query = compose_query("SELECT pg_catalog.count(*) FROM ONLY {rejects} WHERE load = %s", schema)
    with translate_errors("counting rejected records"):
        (count,) = fetch_one(connection, query, [load_id])
    if count:
        raise TargetError(
            f"load {load_id} has {count_nouns(count, 'rejected record')}, which the ledger would lose",
            hint=f"If they are needed, write them to a file with penstock rejects {load_id} --reject-file PATH. "
            f"Then run penstock rejects {load_id} --discard, and forget the load.",
        )


def remove_load(connection: Connection, schema: str, rights: LoadRights) -> None:
    """Remove a load that `hold_load` holds from the ledger, and drop the tables created for it.

    The ledger keeps which tables the load has truncated. Raises ServerError.
    """
    for landing in read_landings(connection, schema, rights.load_id).values():
        drop_landing(connection, schema, landing, load_id=rights.load_id, role=rights.owner)
    delete = "DELETE FROM ONLY {loads} WHERE id = %s RETURNING coalesce(begin_event, event)"
    with translate_errors("removing the load from the ledger"):
        keep_truncations(connection, schema, rights.load_id)
        (event,) = fetch_one(connection, compose_query(delete, schema), [rights.load_id])
        run_query(connection, "ledger/note_removed", ledger=schema, load=rights.load_id, event=event)


def hold_load(connection: Connection, schema: str, load_id: str, what: Deed) -> LoadRights:
    """Keep every process from committing rows of a load until the caller's transaction ends. Return the rights on it.

    `what` is the user's action, for messages. Raises TargetError if the load is running, or if it is another role's
    load. Raises ServerError.
    """
    with translate_errors("locking the load"):
        connection.execute("SET LOCAL lock_timeout = '5s'")
    rights = read_rights(connection, schema, load_id)
    if rights is None:
        raise no_such_load(load_id)
    refuse_at_work(connection, schema, load_id)
    # Lock the load's row, so that the load cannot commit more rows. Row security lets only the load's role lock it.
    held = compose_query("SELECT FROM ONLY {loads} WHERE id = %s FOR UPDATE", schema)
    with translate_errors("locking the load"):
        is_held = connection.execute(held, [load_id]).fetchone() is not None
    if not is_held:
        rights.refuse_other_role(what)
        raise no_such_load(load_id)
    return rights


def _has_rows(load_id: str, staying: Sequence[StayingRows]) -> TargetError:
    places = ", ".join(f'{each.rows:,} in "{each.table}"{each.elsewhere}' for each in staying)
    has = "has" if any(each.rows for each in staying) else "may have"
    return TargetError(
        f"load {load_id} {has} rows in its table",
        detail=f"Committed rows: {places}. Without the ledger the same sources would be loaded a second time.",
        hint=f"penstock undo {load_id} --plan says whether undo removes both. With --keep-rows the rows stay.",
    )


def refuse_at_work(connection: Connection, schema: str, load_id: str) -> None:
    """Raise TargetError if a process runs a load; otherwise keep others from running it until the transaction ends."""
    query = compose_query("SELECT lock_key, state FROM ONLY {loads} WHERE id = %s", schema)
    row = connection.execute(query, [load_id]).fetchone()
    is_locked = row is not None and not try_lock_here(connection, row[0])
    holder = find_lock_holder(connection, row[0]) if row is not None and is_locked else None
    workers = find_workers(connection, load_id)
    if row is not None and row[1] == "complete" and is_locked and not workers:
        raise TargetError(
            f"another process works on load {load_id}, or on a later load of the same command",
            hint="Try again when it has ended.",
        )
    pids = dict.fromkeys([*([] if holder is None else [holder]), *workers])
    if is_locked or pids:
        raise TargetError(
            f"load {load_id} is running",
            detail=f"Its sessions are backends {', '.join(map(str, pids))}." if pids else None,
            hint="Wait for it, or end it first: "
            f"{' '.join(f'SELECT pg_terminate_backend({pid});' for pid in pids) or 'then try again.'}",
        )


def find_staying(connection: Connection, schema: str, load_id: str) -> list[StayingRows]:
    """Return how many rows a load still has in each table, according to the ledger. Raises ServerError.

    Tables of which row triggers skipped records are listed too, as the triggers may have stored them elsewhere.
    Tables that were dropped, or that a later load has truncated, are not listed.
    """
    with translate_errors("counting the load's rows"):
        return fetch_rows(connection, "ledger/staying", StayingRows, ledger=schema, load=load_id)


def no_such_load(load_id: str) -> TargetError:
    """Return the error for an id that the ledger does not have."""
    return TargetError(f"load {load_id} does not exist", hint="See penstock loads.")


def find_left_staging(connection: Connection, schema: str, *, age_s: float | None = None) -> list[LeftStaging]:
    """Return the staging and replacement tables of loads that are not running.

    With `age_s`, only loads that have made no progress for this many seconds count. Raises ServerError, TargetError.
    """
    if not has_ledger(connection, schema):
        return []
    with translate_errors("looking for staging tables"):
        return fetch_rows(connection, "ledger/left_staging", LeftStaging, ledger=schema, age_s=age_s)


def drop_left_staging(connection: Connection, schema: str, *, age_s: float | None = None) -> list[LeftStaging]:
    """Drop the staging and replacement tables that loads of this role have left, and return them.

    With `age_s`, only loads that have made no progress for this many seconds count. If such a load is resumed, it reads
    its files again. Raises ServerError, TargetError.
    """
    dropped = []
    for left in find_left_staging(connection, schema, age_s=age_s):
        if not left.is_own:
            continue
        with in_transaction(connection, f"dropping staging table {left.table}"):
            # Skip the table if another process has just resumed the load.
            if not try_lock_here(connection, left.lock_key) or find_workers(connection, left.load_id):
                continue
            landing = read_landings(connection, schema, left.load_id).get(left.number)
            if landing is not None and drop_landing(connection, schema, landing, load_id=left.load_id):
                dropped.append(left)
    return dropped


def prune_loads(connection: Connection, schema: str, *, age_s: float) -> PrunedLoads:
    """Remove details of this role's loads that have been complete for `age_s` seconds, and staging tables of that age.

    Return what was removed. The details are the job, the members, and which transaction has committed which range of an
    object. Raises ServerError, TargetError.
    """
    if not has_ledger(connection, schema):
        return PrunedLoads(loads=0, size_bytes=0, staging=())
    with in_transaction(connection, "pruning the ledger"):
        old = [load_id for (load_id,) in run_query(connection, "ledger/old_loads", ledger=schema, age_s=age_s)]
        run_query(connection, "ledger/join_ranges", ledger=schema, loads=old)
        size_bytes = sum(
            run_query(connection, query, ledger=schema, loads=old).fetchall()[0][0]
            for query in ("ledger/drop_joined", "ledger/drop_members", "ledger/drop_jobs")
        )
    staging = drop_left_staging(connection, schema, age_s=age_s)
    return PrunedLoads(loads=len(old), size_bytes=size_bytes, staging=tuple(staging))


def find_left_rejects(
    connection: Connection, schema: str, *, oids: Sequence[int], uris: Sequence[str], but_load: str | None
) -> list[LeftRejects]:
    """Return, by load, how many rejected records of some objects are neither loaded nor discarded.

    The objects are given by the oids of their tables and by their URIs. Only loads of this role are counted, except
    `but_load`. Raises ServerError.
    """
    with translate_errors("looking for rejected records"):
        return fetch_rows(
            connection,
            "ledger/left_rejects",
            LeftRejects,
            ledger=schema,
            uris=list(uris),
            oids=list(oids),
            but_load=but_load,
        )
