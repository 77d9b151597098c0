"""Records what a load has done for each target: TRUNCATE, a staging table, a table that replaces it, and the counts.

A row is written in the transaction that does what the row records, so that a resumed load does each thing exactly once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from psycopg import sql

from penstock.core.catalogue.staging import drop_landing_table
from penstock.core.connect.connection import Connection
from penstock.core.connect.errors import in_transaction, translate_errors
from penstock.core.errors import TargetError
from penstock.core.sql import fetch_rows, run_query
from penstock.core.values.table import TableName
from penstock.ledger.locks import compose_query
from penstock.ledger.values import Claim, LandedCounts, LandedTarget, LandingRecord

# Patterns for the names of the tables that loads create. A name contains the beginning of the load's identity and the
# target's number.
_MADE_NAMES = {
    "staging": re.compile(r"staging_[0-9a-f]{16}_\d+"),
    "replacement": re.compile(r"penstock_[0-9a-f]{16}_\d+"),
}


def read_landings(connection: Connection, schema: str, load_id: str) -> dict[int, LandingRecord]:
    """Return which targets of a load were truncated or got a staging or replacement table, by their number in the job.

    Raises ServerError.
    """
    with translate_errors("reading the tables that the load created"):
        records = fetch_rows(connection, "ledger/landings", _make_landing, ledger=schema, load=load_id)
    return {record.number: record for record in records}


def _make_landing(*, target_schema: str, target_table: str, **fields: Any) -> LandingRecord:
    return LandingRecord(target=TableName(schema=target_schema, name=target_table), **fields)


def find_landings(
    connection: Connection, schema: str, load_id: str, numbers: Sequence[int]
) -> list[tuple[LandingRecord, int]]:
    """Return the record of the staging or replacement table of each of the objects `numbers`, with the object's number.

    Objects whose target has no such table are skipped. Raises ServerError.
    """
    with translate_errors("reading the tables that the load created"):
        pairs = run_query(
            connection, "ledger/landings_of_objects", ledger=schema, load=load_id, numbers=list(numbers)
        ).fetchall()
    landings = read_landings(connection, schema, load_id)
    return [(landings[target], number) for target, number in pairs]


def write_landing(connection: Connection, schema: str, claim: Claim, landing: LandingRecord) -> None:
    """Record the staging or replacement table that this transaction creates for a target.

    The record replaces an earlier one. Raises ServerError.
    """
    with translate_errors("recording the tables that the load created"):
        run_query(
            connection,
            "ledger/write_landing",
            ledger=schema,
            load=claim.load_id,
            number=landing.number,
            oid=landing.target_oid,
            schema=landing.target.schema,
            table=landing.target.name,
            kind=landing.kind,
            landing_schema=landing.schema,
            landing_table=landing.table,
            landing_oid=landing.oid,
            definition=landing.definition,
        )


def note_truncated(connection: Connection, schema: str, claim: Claim, landing: LandingRecord) -> None:
    """Record that this transaction has truncated a target.

    The record has an event number that is greater than those of all ended loads. The caller holds the table's lock, and
    find_unended has found no other load with rows there. Raises ServerError.
    """
    with translate_errors("recording that the table was truncated"):
        run_query(
            connection,
            "ledger/note_truncated",
            ledger=schema,
            load=claim.load_id,
            number=landing.number,
            oid=landing.target_oid,
            schema=landing.target.schema,
            table=landing.target.name,
        )


def keep_truncations(connection: Connection, schema: str, load_id: str) -> None:
    """Keep in the ledger which tables a load has truncated, although the load is about to be removed from it.

    Files that were loaded before would otherwise count as loaded again. Raises ServerError.
    """
    with translate_errors("keeping the record that a table was truncated"):
        kept = run_query(connection, "ledger/keep_truncations", ledger=schema, load=load_id).fetchone()
        if kept is not None:
            run_query(connection, "ledger/move_truncations", ledger=schema, load=load_id, kept=kept[0])


def write_counts(connection: Connection, schema: str, claim: Claim, counts: Iterable[LandedCounts]) -> None:
    """Record the counts of the targets, and the present OIDs of their tables. A table that was replaced has a new OID.

    Raises ServerError.
    """
    with translate_errors("recording what became of the records"):
        for each in counts:
            run_query(connection, "ledger/write_counts", ledger=schema, load=claim.load_id, **asdict(each))


def note_transaction(connection: Connection, schema: str, load_id: str, number: int) -> None:
    """Record the id of the open transaction, or of its innermost savepoint, as the one that stored a target's rows.

    `number` is the target's number in the job. `penstock undo` finds the rows by this id. Raises ServerError.
    """
    update = compose_query("UPDATE ONLY {targets} SET transaction = %s::xid8 WHERE load = %s AND number = %s", schema)
    with translate_errors("recording the transaction of the rows"):
        (transaction,) = run_query(
            connection, "ledger/subtransaction", ledger=schema, load=load_id, number=number
        ).fetchall()[0]
        connection.execute(update, [transaction, load_id, number])


def read_landed(connection: Connection, schema: str, load_id: str) -> list[LandedTarget]:
    """Return the targets of a load that have a staging or replacement table. Raises ServerError."""
    with translate_errors("reading where records were stored"):
        return fetch_rows(connection, "ledger/landed", LandedTarget, ledger=schema, load=load_id)


def add_counts(connection: Connection, schema: str, load_id: str, counts: LandedCounts) -> None:
    """Add what a retry has stored of a target's rejected records to the counts of its complete load.

    The load's row count is corrected too, because RejectStore.correct has counted all staged records as rows. Raises
    ServerError.
    """
    total = compose_query(
        "UPDATE ONLY {loads} SET rows = rows + %s, login = CASE WHEN login = SESSION_USER THEN login END WHERE id = %s",
        schema,
    )
    with translate_errors("recording what became of the records"):
        run_query(connection, "ledger/add_counts", ledger=schema, load=load_id, **asdict(counts))
        connection.execute(total, [counts.inserted + counts.updated - counts.staged, load_id])


def find_filled(connection: Connection, schema: str, load_id: str) -> list[int]:
    """Return the oids of the tables to which a complete load has added rows. Raises ServerError."""
    with translate_errors("looking up the tables that the load filled"):
        return [oid for (oid,) in run_query(connection, "ledger/filled", ledger=schema, load=load_id)]


def find_unended(connection: Connection, schema: str, claim: Claim, *, oid: int) -> list[str]:
    """Return the ids of other loads that have not ended, and have rows in a table, its partitions or its parents.

    Raises ServerError.
    """
    with translate_errors("looking for loads that have not ended"):
        rows = run_query(connection, "ledger/unended", ledger=schema, load=claim.load_id, oid=oid)
        return [load_id for (load_id,) in rows]


def drop_ranges(connection: Connection, schema: str, claim: Claim, numbers: Sequence[int]) -> None:
    """Delete the ranges and the rejected records of objects from the ledger, because their staged records are deleted.

    Raises ServerError.
    """
    ranges = compose_query("DELETE FROM ONLY {ranges} WHERE load = %s AND object = ANY (%s)", schema)
    rejects = compose_query("DELETE FROM ONLY {rejects} WHERE load = %s AND object = ANY (%s)", schema)
    with translate_errors("starting objects again"):
        for query in (ranges, rejects):
            connection.execute(query, [claim.load_id, list(numbers)])


def drop_landing(
    connection: Connection, schema: str, landing: LandingRecord, *, load_id: str, role: str | None = None
) -> bool:
    """Drop a target's staging or replacement table. Return False if it no longer exists or was renamed.

    Raises TargetError if a load of `role` (default: the current role) cannot have created the table, and ServerError.
    """
    if landing.kind is None or landing.schema is None or landing.table is None or landing.oid is None:
        return False
    table = TableName(schema=landing.schema, name=landing.table)
    with in_transaction(connection, f"dropping table {table}"):
        row = run_query(
            connection, "ledger/made_table", role=role, target=landing.target_oid, oid=landing.oid
        ).fetchone()
        if row is None or row[:2] != (landing.schema, landing.table):
            return False
        owner, is_own, is_beside_target = row[2:]
        is_in_place = landing.schema == schema if landing.kind == "staging" else is_beside_target
        if not (is_own and is_in_place and _MADE_NAMES[landing.kind].fullmatch(landing.table)):
            raise _not_made(schema, landing, table, load_id=load_id, owner=owner)
        return drop_landing_table(connection, schema=landing.schema, name=landing.table, oid=landing.oid)


def _not_made(schema: str, landing: LandingRecord, table: TableName, *, load_id: str, owner: str) -> TargetError:
    delete = compose_query(
        "DELETE FROM ONLY {targets} WHERE load = {load} AND number = {number};",
        schema,
        load=sql.Literal(load_id),
        number=sql.Literal(landing.number),
    )
    return TargetError(
        f'table "{table}" is not dropped: load {load_id} cannot have created it',
        detail=f"Row {landing.number} of the load in {schema}.targets names it as a {landing.kind} table; its owner is "
        f'"{owner}".',
        hint=f"Find out who wrote that row, and remove it: {delete.as_string(None)}",
    )
