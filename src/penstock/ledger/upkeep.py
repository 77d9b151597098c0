"""Removes what the ledger does not need any more: details of complete loads, and abandoned staging tables.

What prevents loading an object twice is kept: the object's row, and one row of its committed ranges.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.core.connect.connection import Connection
from penstock.core.connect.errors import in_transaction, translate_errors
from penstock.core.sql import fetch_rows, run_query
from penstock.ledger.locks import find_workers, try_lock_here
from penstock.ledger.schema import has_ledger
from penstock.ledger.targets import drop_landing, read_landings
from penstock.ledger.values import LeftRejects, LeftStaging, PrunedLoads


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
