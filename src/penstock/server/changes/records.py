"""The ledger's table of changes: what loads have changed at tables, and how it was before."""

from __future__ import annotations

from typing import TYPE_CHECKING

from psycopg import sql
from psycopg.types.json import Jsonb

from penstock.model.jsontext import to_json
from penstock.model.load.shape import Change
from penstock.model.server.table import TableName
from penstock.server.connect.errors import in_transaction, translate_errors

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penstock.server.connect.connection import Connection


# The oid of the ledger's table goes with each record: behind a dump and restore it has another one, as all tables have.
_LEDGER = "ledger"

# And why what it tells of could not be restored: it is the record's owner's, as the record is.
_FAILURE = "failure"

# A crash must not take the record and leave the change: the commit that makes the latter safe may be another's.
_BE_DURABLE = (
    "SELECT pg_catalog.set_config('synchronous_commit', 'on', true)"
    " WHERE pg_catalog.current_setting('synchronous_commit') = 'off'"
)


def write_changes(connection: Connection, schema: str, changes: Sequence[Change]) -> None:
    """Write changes down, numbered in their order; where there is a record of the same thing, the older one stays.

    The older one alone knows how it was before. The caller has shape_lock, and commits before it changes anything. Each
    is the current role's to restore. Raises ServerError, TargetError.
    """
    query = sql.SQL(
        """
        INSERT INTO {changes} (target_oid, number, target_schema, target_table, kind, relation_oid, name, record, load)
        SELECT %(target)s, coalesce(max(c.number), 0) + 1, %(schema)s, %(table)s, %(kind)s, %(relation)s, %(name)s,
               %(record)s::jsonb
               || pg_catalog.jsonb_build_object({key}, {ledger}::pg_catalog.regclass::pg_catalog.oid::pg_catalog.text),
               %(load)s
          FROM {changes} AS c
         WHERE c.target_oid = %(target)s
        ON CONFLICT (target_oid, kind, relation_oid, name) DO NOTHING
        """
    ).format(
        changes=_changes(schema),
        key=sql.Literal(_LEDGER),
        ledger=sql.Literal(_changes(schema).as_string(connection)),
    )
    with in_transaction(connection, "recording changes at a table"), connection.pipeline():
        connection.execute(_BE_DURABLE)
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
    """Return what is changed at a table, or at all tables, in the order in which it was. Raises ServerError."""
    query = sql.SQL(
        """
        SELECT c.target_oid::bigint, c.number, c.target_schema, c.target_table, c.kind, c.relation_oid::bigint, c.name,
               CASE WHEN pg_catalog.jsonb_typeof(c.record) = 'object' THEN c.record - {key} - {failure} ELSE '{{}}' END,
               c.owner, c.load::text, c.made_at, coalesce(c.record ->> {key} <> c.tableoid::text, false),
               c.record ->> {failure}
          FROM {changes} AS c
         WHERE %(target)s::bigint IS NULL OR c.target_oid = %(target)s::bigint::oid
         ORDER BY c.target_oid, c.number
        """
    ).format(changes=_changes(schema), key=sql.Literal(_LEDGER), failure=sql.Literal(_FAILURE))
    with translate_errors("reading changes at tables"):
        rows = connection.execute(query, {"target": target_oid}).fetchall()
    return [
        Change(
            target_oid=oid,
            number=number,
            target=TableName(schema=schema_name or None, name=table),
            kind=kind,
            relation_oid=relation,
            name=name,
            record=record,
            owner=owner,
            load_id=load,
            made_at=made_at,
            is_copied=is_copied,
            failure=failure,
        )
        for oid, number, schema_name, table, kind, relation, name, record, owner, load, made_at, is_copied, failure in (
            rows
        )
    ]


def find_changed(connection: Connection, schema: str, oids: Sequence[int]) -> set[int]:
    """Return the tables whose loads have changed something at, or of, the given ones, or that refers to these.

    Raises ServerError.
    """
    query = sql.SQL(
        """
        SELECT DISTINCT c.target_oid::bigint
          FROM {changes} AS c
         WHERE (
                   c.target_oid = ANY (%(oids)s::oid[])
                OR c.relation_oid = ANY (%(oids)s::oid[])
                OR c.record ->> 'references_oid' = ANY (%(oids)s::oid[]::text[])
               )
           AND coalesce(c.record ->> {key} = c.tableoid::text, true)
        """
    ).format(changes=_changes(schema), key=sql.Literal(_LEDGER))
    with translate_errors("reading changes at tables"):
        return {oid for (oid,) in connection.execute(query, {"oids": list(oids)})}


def find_failed(connection: Connection, schema: str, oids: Sequence[int] | None) -> list[int]:
    """Return the tables whose loads could not restore something, of or at the given ones, or at any.

    What waits for it counts too: a foreign key of another table needs the key that it refers to. Raises ServerError,
    TargetError.
    """
    query = sql.SQL(
        """
        SELECT DISTINCT c.target_oid::bigint
          FROM {changes} AS c
         WHERE c.record ->> {failure} IS NOT NULL
           AND c.record ->> {key} = c.tableoid::text
           AND (
                   %(oids)s::oid[] IS NULL
                OR c.target_oid = ANY (%(oids)s::oid[])
                OR EXISTS (
                       SELECT
                         FROM {changes} AS d
                        WHERE d.target_oid = c.target_oid
                          AND d.relation_oid = ANY (%(oids)s::oid[])
                   )
                OR EXISTS (
                       SELECT
                         FROM pg_catalog.pg_partition_ancestors(c.target_oid) AS a
                        WHERE a.relid = ANY (%(oids)s::oid[])
                   )
               )
         ORDER BY 1
        """
    ).format(changes=_changes(schema), key=sql.Literal(_LEDGER), failure=sql.Literal(_FAILURE))
    with translate_errors("reading what a rebuild has left missing"):
        rows = connection.execute(query, {"oids": None if oids is None else list(oids)}).fetchall()
    return [oid for (oid,) in rows]


def write_failure(connection: Connection, schema: str, change: Change, why: str) -> None:
    """Write down with its record why a change cannot be restored; the current role is the record's owner.

    The record is written anew, as whoever may put it back may: nobody may alter one. Raises ServerError, TargetError.
    """
    query = sql.SQL(
        """
        WITH gone AS (
            DELETE FROM {changes} WHERE target_oid = %(target)s AND number = %(number)s RETURNING *
        )
        INSERT INTO {changes}
               (target_oid, number, target_schema, target_table, kind, relation_oid, name, record, load, made_at)
        SELECT g.target_oid, g.number, g.target_schema, g.target_table, g.kind, g.relation_oid, g.name,
               g.record || pg_catalog.jsonb_build_object({failure}, %(why)s::text), g.load, g.made_at
          FROM gone AS g
        """
    ).format(changes=_changes(schema), failure=sql.Literal(_FAILURE))
    with translate_errors("recording why a change cannot be restored"):
        connection.execute(query, {"target": change.target_oid, "number": change.number, "why": why})


def find_others(connection: Connection, changes: Iterable[Change]) -> set[str]:
    """Return the owners of written changes as whom the current role may not restore them. Raises ServerError."""
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
    """Remove records, in the transaction that restores what they tell of; return how many there were.

    Only the role that a record names sees to it. Raises ServerError, TargetError.
    """
    query = sql.SQL(
        "DELETE FROM {} WHERE (target_oid, number) IN (SELECT * FROM unnest(%s::oid[], %s::integer[]))"
    ).format(_changes(schema))
    with translate_errors("removing the record of a change"):
        return connection.execute(
            query, [[change.target_oid for change in changes], [change.number for change in changes]]
        ).rowcount


def _changes(schema: str) -> sql.Identifier:
    return sql.Identifier(schema, "changes")
