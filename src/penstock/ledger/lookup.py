"""Looks up the records of the ledger that matter for a load that is about to begin, in one round trip.

A load is refused if another ledger of the database has recorded loads of its tables. The load would not see those
records, and could store rows twice.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any, LiteralString

from psycopg import sql

from penstock.core.catalogue.tables import is_empty
from penstock.core.connect.connection import Connection
from penstock.core.connect.errors import in_pipeline, translate_errors
from penstock.core.errors import TargetError
from penstock.core.slotted import slotted
from penstock.core.sql import fetch_as, fetch_rows, run_query, send_query
from penstock.core.values.names import init_command
from penstock.core.values.table import TableName
from penstock.ledger.locks import TABLES, compose_query
from penstock.ledger.schema import (
    OLDEST,
    VERSION,
    LedgerRelation,
    look_for_ledger,
    name_fitting,
    naming_ledger,
    parse_version,
    refuse_foreign,
)
from penstock.ledger.values import KnownObject, LedgerObject, LoadState

# The tables of a load, and its objects with their tables.
_TABLES = """
    ROWS FROM (
        pg_catalog.unnest(%(table_oids)s::oid[]), pg_catalog.unnest(%(table_schemas)s::name[]),
        pg_catalog.unnest(%(table_names)s::name[])
    ) AS w (oid, in_schema, in_table)
"""
_WANTED = """
    ROWS FROM (
        pg_catalog.unnest(%(oids)s::oid[]), pg_catalog.unnest(%(schemas)s::name[]),
        pg_catalog.unnest(%(tables)s::name[]), pg_catalog.unnest(%(uris)s::text[])
    ) AS w (oid, in_schema, in_table, uri)
"""

# Whether a row of a ledger's table objects, of any version, is about table w. Older versions do not record where an oid
# is valid, so the oid or the name is enough.
_IS_SAME = "({o}.target_oid = w.oid OR ({o}.target_schema = w.in_schema AND {o}.target_table = w.in_table))"
_KNOWN_TABLE = "EXISTS (SELECT FROM ONLY {objects} AS k WHERE {is_same})"
_KNOWN_OBJECT = "EXISTS (SELECT FROM ONLY {objects} AS k WHERE k.uri = w.uri AND {is_same})"

# Objects that another ledger has recorded and this one has not: objects of a table that this ledger does not have at
# all, and objects of the load.
_KNOWN_ELSEWHERE = """
    SELECT f.oid, f.uri, f.load_id
      FROM (
               SELECT w.oid, o.uri, o.load::text AS load_id
                 FROM {tables}
                 JOIN ONLY {other} AS o ON {is_same}
                WHERE NOT {known}
               UNION ALL
               SELECT w.oid, o.uri, o.load::text
                 FROM {wanted}
                 JOIN ONLY {other} AS o ON o.uri = w.uri AND {is_same}
                WHERE NOT {known_object}
           ) AS f
     LIMIT 1
"""

# Tables that this ledger does not have and that users of another ledger may have loaded: roles that may write to the
# table and to that ledger, and superusers if a superuser owns that ledger.
_MAYBE_KNOWN = """
    SELECT w.oid,
           CURRENT_USER::text
      FROM {tables}
     WHERE NOT {known}
       AND EXISTS (
               SELECT
                 FROM pg_catalog.pg_class AS c
                 JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
                 JOIN pg_catalog.pg_roles AS r
                   ON CASE
                          WHEN r.rolsuper THEN r.oid = c.relowner
                          -- pg_write_all_data may write to all tables; its members count by themselves.
                          WHEN pg_catalog.starts_with(r.rolname::text, 'pg_') THEN false
                          ELSE pg_catalog.has_table_privilege(r.oid, c.oid, 'INSERT')
                           AND pg_catalog.has_any_column_privilege(r.oid, w.oid, 'INSERT')
                      END
                WHERE n.nspname = %(ledger)s
                  AND c.relname = 'loads'
           )
"""

_MEANT = "If the files are to be loaded whatever it has recorded, use --again or --emptied load."


@slotted
class OtherLedger:
    """The row of other_ledgers.sql: another ledger of the database, and whether the role may read its objects."""

    schema: str
    # The comment on the ledger's table loads.
    comment: str | None
    # The comment on the ledger's table `objects`, which names the penstock that created the ledger.
    creator: str | None
    # Whether this role may read the ledger's table objects.
    may_read: bool


@slotted
class Ledgers:
    """Whether a schema has a ledger, and which other schemas of the database have one."""

    schema: str
    exists: bool
    others: Sequence[OtherLedger]


@slotted
class _KnownTable:
    """An object that another ledger has recorded, of a table of the load."""

    oid: int
    uri: str
    load_id: str


@slotted
class LedgerFindings:
    """What the ledger has recorded that matters for a load that is about to begin."""

    # The id of the load with the same identity that has begun and not ended, None if there is none.
    running: str | None
    # The number of that load's next object.
    next_number: int
    # Whether that load's oids were recorded in another database.
    is_copied: bool
    # The objects of any load with the same URI and table.
    known: Sequence[KnownObject]
    # The loads whose changes to the tables, their partitions or their parents are not restored yet, by the oid of the
    # table that the load filled.
    changed_by: Mapping[int, Collection[str]]
    # The loads that may have changed settings of the server.
    server_holds: Sequence[str]
    # The objects of the load that a complete load, or this one, has loaded into the same table under another name, with
    # the same size and version. By the object's number: the URI of the loaded object, and that load.
    renamed: Mapping[int, tuple[str, str]]


@slotted
class KnownMeaning:
    """The state of a recorded load, and loads.meaning: as JSON, what its job decides about the rows of each table."""

    state: LoadState
    meaning: str


def look_up(
    connection: Connection, schema: str, identity: str, objects: Sequence[LedgerObject], *, lock: str
) -> LedgerFindings:
    """Return what the ledger has recorded of a load that is about to begin, and of its objects in other loads.

    `Ledger.look_up` has the parameters. Raises ServerError, TargetError.
    """
    with naming_ledger(schema), translate_errors("looking up what has been loaded"), in_pipeline(connection):
        arrays = object_arrays(objects)
        running = run_query(connection, "ledger/running", ledger=schema, identity=identity, lock=lock)
        known = send_query(connection, "ledger/known", KnownObject, ledger=schema, **arrays)
        renamed = run_query(connection, "ledger/renamed", ledger=schema, identity=identity, **arrays)
        changes = run_query(connection, "ledger/changed", ledger=schema, oids=arrays["oids"])
        holds = run_query(connection, "ledger/server_holds", ledger=schema)
    row = running.fetchone()
    changed_by: dict[int, set[str]] = {}
    for oid, load_id in changes.fetchall():
        changed_by.setdefault(oid, set()).add(load_id)
    return LedgerFindings(
        running=None if row is None else str(row[0]),
        next_number=0 if row is None else int(row[1]),
        is_copied=row is not None and row[2],
        known=known(),
        changed_by=changed_by,
        server_holds=[holder for (holder,) in holds],
        renamed={number: (uri, load_id) for number, uri, load_id in renamed},
    )


def look_for_ledgers(connection: Connection, schema: str) -> Ledgers:
    """Return whether a schema has a ledger, and the other ledgers of the database, in one round trip.

    Raises TargetError if the schema's ledger cannot be trusted or has another version, ServerError.
    """
    with translate_errors("looking for ledgers"):
        with connection.pipeline():
            find = look_for_ledger(connection, schema)
            fetch = send_query(connection, "ledger/other_ledgers", OtherLedger, schema=schema)
        return Ledgers(schema=schema, exists=find() is not None, others=fetch())


def refuse_known_elsewhere(
    connection: Connection, ledgers: Ledgers, tables: Mapping[int, TableName], objects: Sequence[LedgerObject] = ()
) -> None:
    """Raise TargetError if another ledger has recorded a table or an object that this ledger does not have.

    `tables` are the existing tables of the load, by oid. If another ledger cannot be read, a table that it may know is
    refused too, unless the table is empty. Raises ServerError.
    """
    arrays = object_arrays(objects) | {
        "table_oids": list(tables),
        "table_schemas": [name.schema for name in tables.values()],
        "table_names": [name.name for name in tables.values()],
    }
    for other in ledgers.others if tables else ():
        found = _find_known(connection, ledgers, other, arrays)
        if found:
            raise _known_elsewhere(ledgers.schema, other, found[0], tables[found[0].oid])
        if found is None:
            query = _compose_known(_MAYBE_KNOWN, ledgers)
            with naming_ledger(ledgers.schema), translate_errors("looking for tables that another ledger may know"):
                maybe = connection.execute(query, arrays | {"ledger": other.schema}).fetchall()
            for oid, role in maybe:
                if not is_empty(connection, oid):
                    raise _maybe_known(other, tables[oid], role)


def _find_known(
    connection: Connection, ledgers: Ledgers, other: OtherLedger, arrays: Mapping[str, Any]
) -> list[_KnownTable] | None:
    """Return at most one table of the load that another ledger has recorded; None if that ledger cannot be used."""
    if not can_trust(connection, other):
        return None
    query = _compose_known(_KNOWN_ELSEWHERE, ledgers, other=sql.Identifier(other.schema, "objects"))
    try:
        with translate_errors("looking up what another ledger has recorded"):
            return fetch_as(connection, _KnownTable, query, arrays)
    except TargetError:
        # The other ledger's version has other columns.
        return None


def can_trust(connection: Connection, other: OtherLedger) -> bool:
    """Return whether this role may read another ledger, and trusts its owner. Raises ServerError."""
    if not other.may_read:
        return False
    try:
        with translate_errors("looking for the owner of another ledger"):
            refuse_foreign(
                other.schema,
                fetch_rows(connection, "ledger/state", LedgerRelation, schema=other.schema, tables=sorted(TABLES)),
            )
    except TargetError:
        return False
    return True


def _compose_known(text: LiteralString, ledgers: Ledgers, **parts: sql.Composable) -> sql.Composed:
    """Return a query on the tables and objects of a load; see _KNOWN_ELSEWHERE."""
    schema, is_same = ledgers.schema, sql.SQL(_IS_SAME)
    knows = partial(compose_query, schema=schema, is_same=is_same.format(o=sql.SQL("k")))
    return compose_query(
        text,
        schema,
        is_same=is_same.format(o=sql.SQL("o")),
        tables=sql.SQL(_TABLES),
        wanted=sql.SQL(_WANTED),
        known=knows(_KNOWN_TABLE) if ledgers.exists else sql.SQL("false"),
        known_object=knows(_KNOWN_OBJECT) if ledgers.exists else sql.SQL("false"),
        **parts,
    )


def _known_elsewhere(schema: str, other: OtherLedger, known: _KnownTable, table: TableName) -> TargetError:
    return TargetError(
        f'table "{table}" is known to another ledger, in schema "{other.schema}"',
        detail=f'Load {known.load_id} there has "{known.uri}", which the ledger in schema "{schema}" does not know. '
        "Its rows could be loaded twice.",
        hint=f"{_name_version(other) or f'Use {_option(other)}.'} {_MEANT}",
    )


def _maybe_known(other: OtherLedger, table: TableName, role: str) -> TargetError:
    grant = f"Have the database's owner run {init_command(other.schema, role)}, and use {_option(other)}."
    return TargetError(
        f'table "{table}" may be known to another ledger, in schema "{other.schema}", which cannot be read',
        detail="Rows that it has recorded could be loaded twice.",
        hint=f"{_name_version(other) or grant} {_MEANT}",
    )


def _option(other: OtherLedger) -> str:
    return f"--ledger-schema {shlex.quote(other.schema)}"


def _name_version(other: OtherLedger) -> str | None:
    """Return the hint that names the penstock version for another ledger; None if this penstock can use that ledger."""
    version = parse_version(other.comment)
    if version is None or OLDEST <= version <= VERSION:
        return None
    return name_fitting(version, other.creator)


def read_meaning(connection: Connection, schema: str, load_id: str) -> KnownMeaning | None:
    """Return loads.state and loads.meaning of a load, None if the ledger does not have it. Raises ServerError.

    The meaning is JSON: what the job decides about the rows of each table, such as columns, dialect and mode.
    """
    query = compose_query("SELECT state, meaning::text AS meaning FROM ONLY {loads} WHERE id = %s", schema)
    with translate_errors("looking up the load"):
        return next(iter(fetch_as(connection, KnownMeaning, query, [load_id])), None)


def find_loaded(connection: Connection, schema: str, tables: Sequence[TableName]) -> set[TableName]:
    """Return the tables among `tables` that a complete load has filled. Raises ServerError."""
    names = {"schemas": [table.schema for table in tables], "tables": [table.name for table in tables]}
    with naming_ledger(schema), translate_errors("looking up the tables that were loaded"):
        rows = run_query(connection, "ledger/loaded", ledger=schema, **names)
        return {TableName(schema=in_schema, name=name) for in_schema, name in rows}


def object_arrays(objects: Sequence[LedgerObject]) -> dict[str, Any]:
    """Return the fields of objects as arrays, by the names of the parameters that .sql files pass to unnest."""
    return {
        "numbers": [item.number for item in objects],
        "oids": [item.target_oid for item in objects],
        "schemas": [item.target.schema for item in objects],
        "tables": [item.target.name for item in objects],
        "uris": [item.uri for item in objects],
        "versions": [item.version for item in objects],
        "sizes": [item.size_bytes for item in objects],
        "ctimes": [item.ctime_ns for item in objects],
        "units": [item.unit for item in objects],
    }
