"""Reads and writes the ledger's table of changes: what loads and commands have changed, and the earlier state."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from psycopg import sql
from psycopg.rows import kwargs_row
from psycopg.types.json import Jsonb

from penstock.core.connect.connection import Connection
from penstock.core.connect.errors import in_transaction, translate_errors
from penstock.core.recorded import to_json
from penstock.core.values.change import Change
from penstock.core.values.table import TableName
from penstock.ledger.committed import BE_DURABLE
from penstock.ledger.locks import compose_query

# The key in a record for the reason why the change could not be restored. Only the record's owner can write a reason.
_FAILURE = "failure"


def write_changes(connection: Connection, schema: str, changes: Sequence[Change]) -> None:
    """Write records of changes, numbered in their order. An older record of the same object is kept.

    Only the older record has the state before all changes. The caller has shape_lock, and commits before it changes
    anything. Only the current role, and members of it, can restore these changes. Raises ServerError, TargetError.
    """
    query = compose_query(
        """
        INSERT INTO {changes}
               (origin, target_oid, number, target_schema, target_table, kind, relation_oid, name, record, load)
        SELECT {origin}, %(target)s, coalesce(max(c.number), 0) + 1, %(schema)s, %(table)s, %(kind)s, %(relation)s,
               %(name)s, %(record)s::jsonb, %(load)s
          FROM ONLY {changes} AS c
         WHERE c.target_oid = %(target)s
        ON CONFLICT (origin, target_oid, kind, relation_oid, name) DO NOTHING
        """,
        schema,
    )
    with in_transaction(connection, "recording changes at a table"), connection.pipeline():
        # A crash must not lose the record and keep the change. Without this, the commit of another session could flush
        # only the change.
        connection.execute(BE_DURABLE)
        for change in changes:
            connection.execute(
                query,
                {
                    "target": change.target_oid,
                    "schema": change.target.schema or "",
                    "table": change.target.name,
                    "kind": change.kind,
                    "relation": change.relation_oid,
                    "name": change.name,
                    "record": Jsonb(dict(change.record), dumps=to_json),
                    "load": change.load_id,
                },
            )


def read_changes(connection: Connection, schema: str, *, target_oid: int | None = None) -> list[Change]:
    """Return the records of changes of one table, or of all tables, in the order of the changes. Raises ServerError."""
    query = compose_query(
        """
        SELECT c.target_oid::bigint, c.number, c.target_schema, c.target_table, c.kind, c.relation_oid::bigint, c.name,
               CASE WHEN pg_catalog.jsonb_typeof(c.record) = 'object' THEN c.record - {failure} ELSE '{{}}' END
               AS record, c.owner, c.load::text AS load_id, c.made_at,
               c.origin <> {origin} AS is_copied, c.record ->> {failure} AS failure
          FROM ONLY {changes} AS c
         WHERE %(target)s::bigint IS NULL OR c.target_oid = %(target)s::bigint::oid
         ORDER BY c.target_oid, c.number
        """,
        schema,
        failure=sql.Literal(_FAILURE),
    )
    with translate_errors("reading changes at tables"):
        cursor = connection.cursor(row_factory=kwargs_row(_make_change))
        return cursor.execute(query, {"target": target_oid}).fetchall()


def _make_change(*, target_schema: str, target_table: str, **fields: Any) -> Change:
    return Change(target=TableName(schema=target_schema or None, name=target_table), **fields)


def find_changed(connection: Connection, schema: str, oids: Sequence[int]) -> set[int]:
    """Return the OIDs of loaded tables with a recorded change of a given table or of a foreign key that refers to it.

    Raises ServerError.
    """
    wanted, changes = set(oids), read_changes(connection, schema)
    return {each.target_oid for each in changes if not each.is_copied and wanted & {each.target_oid, *each.relations}}


def write_failure(connection: Connection, schema: str, change: Change, why: str) -> None:
    """Add to a record why the change cannot be restored. The current role is the record's owner.

    The record is deleted and inserted again, since no role may update records. Raises ServerError, TargetError.
    """
    query = compose_query(
        """
        WITH gone AS (
            DELETE FROM ONLY {changes} WHERE target_oid = %(target)s AND number = %(number)s RETURNING *
        )
        INSERT INTO {changes}
               (origin, target_oid, number, target_schema, target_table, kind, relation_oid, name, record, load,
                made_at)
        SELECT g.origin, g.target_oid, g.number, g.target_schema, g.target_table, g.kind, g.relation_oid, g.name,
               g.record || pg_catalog.jsonb_build_object({failure}, %(why)s::text), g.load, g.made_at
          FROM gone AS g
        """,
        schema,
        failure=sql.Literal(_FAILURE),
    )
    with translate_errors("recording why a change cannot be restored"):
        connection.execute(query, {"target": change.target_oid, "number": change.number, "why": why})


def find_others(connection: Connection, changes: Iterable[Change]) -> set[str]:
    """Return the owners whose recorded changes the current role may not restore. Raises ServerError."""
    query = """
        SELECT o.name
          FROM pg_catalog.unnest(%s::text[]) AS o (name)
          LEFT JOIN pg_catalog.pg_roles AS r ON r.rolname = o.name
         WHERE r.oid IS NULL
            OR NOT pg_catalog.pg_has_role(r.oid, 'MEMBER')
    """
    owners = {change.owner for change in changes if change.number}
    if not owners:
        return set()
    with translate_errors("checking who may restore changes"):
        return {name for (name,) in connection.execute(query, [sorted(owners)])}


def delete_changes(connection: Connection, schema: str, changes: Sequence[Change]) -> int:
    """Remove records, in the transaction that restores their changes. Return how many were removed.

    Only the owner of a record can remove it, but any role can remove the record of a setting. Raises ServerError,
    TargetError.
    """
    query = compose_query(
        "DELETE FROM ONLY {changes} WHERE (target_oid, number) IN (SELECT * FROM unnest(%s::oid[], %s::integer[]))",
        schema,
    )
    with translate_errors("removing the record of a change"):
        return connection.execute(
            query, [[change.target_oid for change in changes], [change.number for change in changes]]
        ).rowcount
