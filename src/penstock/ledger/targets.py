"""Records what a load has done for each target: TRUNCATE, a staging table, a table that replaces it, and the counts.

A row is written in the transaction that does what the row records, so that a resumed load does each thing exactly once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from psycopg import sql
from psycopg.rows import kwargs_row

from penstock.core.catalogue.staging import drop_landing_table
from penstock.core.connect.connection import Connection
from penstock.core.connect.errors import in_transaction, translate_errors
from penstock.core.errors import TargetError
from penstock.core.sql import fetch_as
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
    """Return what a load has created for its targets, by the target's number in the job. Raises ServerError."""
    query = compose_query(
        """
        SELECT t.number, coalesce({target_oid}, 0) AS target_oid, t.target_schema, t.target_table,
               t.truncated_at IS NOT NULL AS is_truncated, t.kind, t.landing_schema AS schema,
               t.landing_table AS "table", {landing_oid} AS oid, t.definition
          FROM ONLY {targets} AS t
         WHERE t.load = %s
         ORDER BY t.number
        """,
        schema,
    )
    with translate_errors("reading the tables that the load created"):
        records = connection.cursor(row_factory=kwargs_row(_make_landing)).execute(query, [load_id]).fetchall()
    return {record.number: record for record in records}


def _make_landing(*, target_schema: str, target_table: str, **fields: Any) -> LandingRecord:
    return LandingRecord(target=TableName(schema=target_schema, name=target_table), **fields)


def find_landings(
    connection: Connection, schema: str, load_id: str, numbers: Sequence[int]
) -> list[tuple[LandingRecord, int]]:
    """Return each of some objects of a load with the landing of its target, if it has one. Raises ServerError."""
    query = compose_query(
        """
        SELECT t.number, o.number
          FROM ONLY {objects} AS o
          JOIN ONLY {targets} AS t ON t.load = o.load AND {target_oid} = {object_oid}
         WHERE o.load = %s
           AND o.number = ANY (%s)
           AND t.kind IS NOT NULL
        """,
        schema,
    )
    with translate_errors("reading the tables that the load created"):
        pairs = connection.execute(query, [load_id, list(numbers)]).fetchall()
    landings = read_landings(connection, schema, load_id)
    return [(landings[target], number) for target, number in pairs]


def write_landing(connection: Connection, schema: str, claim: Claim, landing: LandingRecord) -> None:
    """Record the table that this transaction creates for a target.

    It replaces an earlier record. Raises ServerError.
    """
    query = compose_query(
        """
        INSERT INTO {targets}
               (load, number, origin, target_oid, target_schema, target_table, kind, landing_schema, landing_table,
                landing_oid, definition)
        VALUES (%s, %s, {origin}, %s, %s, %s, %s, %s, %s, %s, %s)
        ON CONFLICT (load, number) DO UPDATE
        SET kind = EXCLUDED.kind,
            landing_schema = EXCLUDED.landing_schema,
            landing_table = EXCLUDED.landing_table,
            landing_oid = EXCLUDED.landing_oid,
            definition = EXCLUDED.definition
        """,
        schema,
    )
    values = [
        claim.load_id,
        landing.number,
        landing.target_oid,
        landing.target.schema,
        landing.target.name,
        landing.kind,
        landing.schema,
        landing.table,
        landing.oid,
        landing.definition,
    ]
    with translate_errors("recording the tables that the load created"):
        connection.execute(query, values)


def note_truncated(connection: Connection, schema: str, claim: Claim, landing: LandingRecord) -> None:
    """Record that this transaction has truncated a target, with an event number greater than those of all ended loads.

    The caller holds the table's lock, and find_unended has found no other load with rows there. Raises ServerError.
    """
    query = compose_query(
        """
        WITH truncation AS (
            UPDATE ONLY {loads} SET event = DEFAULT WHERE id = %(load)s RETURNING event
        )
        INSERT INTO {targets}
               (load, number, origin, target_oid, target_schema, target_table, truncated_at, truncation_event)
        SELECT %(load)s, %(number)s, {origin}, %(oid)s, %(schema)s, %(table)s, pg_catalog.clock_timestamp(), t.event
          FROM truncation AS t
        ON CONFLICT (load, number) DO UPDATE
        SET truncated_at = EXCLUDED.truncated_at,
            truncation_event = EXCLUDED.truncation_event
        """,
        schema,
    )
    values = {
        "load": claim.load_id,
        "number": landing.number,
        "oid": landing.target_oid,
        "schema": landing.target.schema,
        "table": landing.target.name,
    }
    with translate_errors("recording that the table was truncated"):
        connection.execute(query, values)


def write_counts(connection: Connection, schema: str, claim: Claim, counts: Iterable[LandedCounts]) -> None:
    """Record the counts of the targets, and the present oids of their tables; a replacing table has a new oid.

    Raises ServerError.
    """
    query = compose_query(
        """
        WITH landed AS (
            UPDATE ONLY {targets} AS t
               SET staged = %(staged)s,
                   inserted = %(inserted)s,
                   updated = %(updated)s,
                   duplicates = %(duplicates)s,
                   existing = %(existing)s,
                   suppressed = %(suppressed)s,
                   target_oid = %(target_oid)s
              FROM ONLY {targets} AS b
             WHERE t.load = %(load)s
               AND t.number = %(number)s
               AND b.load = t.load
               AND b.number = t.number
            RETURNING b.target_oid AS old_oid
        )
        UPDATE ONLY {objects} AS o
           SET target_oid = %(target_oid)s
          FROM landed AS n
         WHERE o.load = %(load)s
           AND o.target_oid = n.old_oid
           AND n.old_oid <> %(target_oid)s
        """,
        schema,
    )
    with translate_errors("recording what became of the records"):
        for each in counts:
            connection.execute(query, asdict(each) | {"load": claim.load_id})


def read_landed(connection: Connection, schema: str, load_id: str) -> list[LandedTarget]:
    """Return the targets of a load whose records were staged or put into a replacing table. Raises ServerError."""
    query = compose_query(
        """
        SELECT t.number,
               t.kind,
               t.landing_schema,
               t.landing_table,
               coalesce(c.oid, 0)::int8 AS target_oid,
               n.nspname AS schema,
               c.relname AS "table"
          FROM ONLY {targets} AS t
          LEFT JOIN pg_catalog.pg_class AS c ON c.oid = {target_oid}
          LEFT JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
         WHERE t.load = %s
           AND t.kind IS NOT NULL
         ORDER BY t.number
        """,
        schema,
    )
    with translate_errors("reading where records were stored"):
        return fetch_as(connection, LandedTarget, query, [load_id])


def add_counts(connection: Connection, schema: str, load_id: str, counts: LandedCounts) -> None:
    """Add what a retry has stored of a target's rejected records to the counts of its complete load.

    RejectStore.correct counts all staged records as rows of the load. Raises ServerError.
    """
    query = compose_query(
        """
        UPDATE ONLY {targets}
           SET staged = staged + %(staged)s,
               inserted = inserted + %(inserted)s,
               updated = updated + %(updated)s,
               duplicates = duplicates + %(duplicates)s,
               existing = existing + %(existing)s,
               suppressed = suppressed + %(suppressed)s
         WHERE load = %(load)s
           AND number = %(number)s
        """,
        schema,
    )
    total = compose_query(
        "UPDATE ONLY {loads} SET rows = rows + %s, login = CASE WHEN login = SESSION_USER THEN login END WHERE id = %s",
        schema,
    )
    with translate_errors("recording what became of the records"):
        connection.execute(query, asdict(counts) | {"load": load_id})
        connection.execute(total, [counts.inserted + counts.updated - counts.staged, load_id])


def find_filled(connection: Connection, schema: str, load_id: str) -> list[int]:
    """Return the oids of the tables to which a complete load has added rows. Raises ServerError."""
    query = compose_query(
        """
        WITH stored AS (
            SELECT o.target_oid AS oid,
                   r.rows
              FROM ONLY {objects} AS o
              JOIN ONLY {ranges} AS r ON r.load = o.load AND r.object = o.number
             WHERE o.load = %(load)s
               AND NOT EXISTS (
                       SELECT
                         FROM ONLY {targets} AS t
                        WHERE t.load = o.load
                          AND t.target_oid = o.target_oid
                          AND t.kind = 'staging'
                   )
             UNION ALL
            SELECT t.target_oid,
                   t.inserted + t.updated
              FROM ONLY {targets} AS t
             WHERE t.load = %(load)s
               AND t.kind = 'staging'
        )
        SELECT s.oid
          FROM stored AS s
         GROUP BY s.oid
        HAVING sum(s.rows) > 0
         ORDER BY s.oid
        """,
        schema,
    )
    with translate_errors("looking up the tables that the load filled"):
        return [oid for (oid,) in connection.execute(query, {"load": load_id})]


def find_unended(connection: Connection, schema: str, claim: Claim, *, oid: int) -> list[str]:
    """Return the other loads that have not ended, and have rows in a table, its partitions or its parents.

    Raises ServerError.
    """
    query = compose_query(
        """
        SELECT l.id::text
          FROM ONLY {loads} AS l
         WHERE l.state = 'running'
           AND l.id <> %(load)s
           AND EXISTS (
                   SELECT
                     FROM ONLY {objects} AS o
                     JOIN ONLY {ranges} AS r ON r.load = o.load AND r.object = o.number
                    WHERE o.load = l.id
                      AND {object_oid} IN (
                              SELECT %(oid)s::oid
                               UNION ALL
                              SELECT t.relid::oid FROM pg_catalog.pg_partition_tree(%(oid)s) AS t
                               UNION ALL
                              SELECT a.relid::oid FROM pg_catalog.pg_partition_ancestors(%(oid)s) AS a
                          )
                      AND NOT EXISTS (
                              SELECT
                                FROM ONLY {targets} AS t
                               WHERE t.load = l.id
                                 AND t.target_oid = o.target_oid
                                 AND t.kind IS NOT NULL
                          )
               )
         ORDER BY l.began_at
        """,
        schema,
    )
    values = {"load": claim.load_id, "oid": oid}
    with translate_errors("looking for loads that have not ended"):
        return [load_id for (load_id,) in connection.execute(query, values).fetchall()]


def drop_ranges(connection: Connection, schema: str, claim: Claim, numbers: Sequence[int]) -> None:
    """Delete the ranges and the rejects of objects whose landing table was dropped, or whose records are deleted there.

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
    """Drop the table that was created for a target. Return False if it no longer exists or was renamed.

    Raises TargetError if a load of `role` (default: the current role) cannot have created the table, and ServerError.
    """
    if landing.kind is None or landing.schema is None or landing.table is None or landing.oid is None:
        return False
    query = """
        SELECT n.nspname,
               c.relname,
               pg_catalog.pg_get_userbyid(c.relowner)::text,
               c.relkind IN ('r', 'p')
               AND EXISTS (
                       SELECT
                         FROM pg_catalog.pg_roles AS r
                        WHERE r.rolname = coalesce(%s::name, CURRENT_USER)
                          AND pg_catalog.pg_has_role(r.oid, c.relowner, 'MEMBER')
                   ),
               coalesce(
                   (SELECT t.relnamespace = c.relnamespace FROM pg_catalog.pg_class AS t WHERE t.oid = %s), true
               )
          FROM pg_catalog.pg_class AS c
          JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
         WHERE c.oid = %s
    """
    table = TableName(schema=landing.schema, name=landing.table)
    with in_transaction(connection, f"dropping table {table}"):
        row = connection.execute(query, [role, landing.target_oid, landing.oid]).fetchone()
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
