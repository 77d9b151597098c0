"""Creates and drops tables, checks whether they are empty, and finds the table that a name in a COPY command means.

CreatedTable records what was created here, so that penstock never drops another table.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import psycopg
from psycopg import sql

from penstock.core.connect.connection import Connection
from penstock.core.connect.errors import hint_missing_right, in_transaction, translate_errors
from penstock.core.connect.search_path import find_creation_schema, users_settings
from penstock.core.errors import OtherTableError, TableExistsError, TargetError
from penstock.core.slotted import slotted
from penstock.core.sql import fetch_one, list_identifiers, run_query, table_identifier
from penstock.core.values.table import Column, TableName

_log = logging.getLogger(__name__)

# The longest name, NAMEDATALEN - 1. The server truncates a longer name, and a look-up of the full name then fails.
_NAME_BYTES = 63
# How long dropping an empty table waits for sessions that use it. It is short, because a user waits for the error.
_DROP_LOCK_TIMEOUT = "5s"


@slotted
class CreatedTable:
    """A table that `create_table` has created, and whether its schema was created too."""

    oid: int
    name: TableName
    # Whether its schema was created too.
    has_new_schema: bool


# How often the creation of a table is tried again if another session creates one of that name at the same moment.
_RACES = 3


def create_table(
    connection: Connection,
    name: TableName,
    columns: Sequence[str],
    types: Sequence[str] | None = None,
    key: Sequence[str] = (),
) -> CreatedTable:
    """Create a table, and its schema if it does not exist, in one transaction.

    `types` are the columns' types as SQL, by default all text. They must not come from a user. `key` are the columns of
    its primary key. Needs CREATE on the schema, or on the database if the schema does not exist. Raises TargetError for
    names that PostgreSQL cannot store, TableExistsError, ServerError.
    """
    check_names(name, columns)
    try:
        with translate_errors(f"creating table {name}"):
            typed = zip(columns, types or ["pg_catalog.text"] * len(columns), strict=True)
            created = _create_with_schema(connection, name, _compose_columns(typed, key))
    except TargetError as error:
        if isinstance(error.__cause__, psycopg.errors.DuplicateTable):
            raise _already_exists(name) from error.__cause__
        hint = "Have the role granted CREATE on the schema, or on the database if the schema has to be created."
        hint_missing_right(error, hint)
        raise
    _log.info("created table %s with %s columns", created.name, len(columns))
    return created


def drop_created(connection: Connection, created: CreatedTable) -> bool:
    """Drop a table that `create_table` created, and its schema if it was created too. Return whether nothing is left.

    The table is kept if it has rows, if other objects depend on it, if other sessions lock it, or if its name belongs
    to another table now. The schema is kept if it contains other objects. Raises ServerError.
    """
    table = table_identifier(created.name)
    with translate_errors(f"dropping table {created.name}"):
        try:
            with in_transaction(connection):
                is_dropped = _drop_if_untouched(connection, table, created.oid)
        except (
            psycopg.errors.UndefinedTable,
            psycopg.errors.InvalidSchemaName,
            psycopg.errors.DependentObjectsStillExist,
            psycopg.errors.LockNotAvailable,
        ):
            is_dropped = False
        if not (is_dropped and created.has_new_schema):
            return is_dropped
        return _drop_schema_if_empty(connection, created.name)


def is_empty(connection: Connection, oid: int) -> bool:
    """Return whether a table has no rows. True if no relation has this OID, false if the relation is not a table.

    If the role may not read the table, it counts as empty only if it has no pages. Raises ServerError.
    """
    with translate_errors("checking whether the table is empty"):
        row = run_query(connection, "core/emptiness", oid=oid).fetchone()
        if row is None:
            return True
        schema, name, is_table, can_select, tree_bytes, own_bytes = row
        if not is_table:
            return False
        if not (tree_bytes or own_bytes):
            return True
        if not can_select:
            return False
        query = sql.SQL("SELECT FROM {} LIMIT 1").format(sql.Identifier(schema, name))
        # The planner inlines SQL functions of the table's indexes, which may need the user's search_path.
        with users_settings(connection):
            found = connection.execute(query).fetchone()
    return found is None


# How long truncate_empty waits for its lock.
_EMPTYING_PATIENCE_S = 2


def truncate_empty(connection: Connection, table: LoadedTable) -> bool:
    """Truncate a table that has no rows, in the caller's transaction, and return whether it was truncated.

    Other sessions that use the table wait until the transaction ends. The table is not truncated if its lock is not
    granted within 2 s, if its name now belongs to another table, if it has triggers for TRUNCATE, or if the role lacks
    TRUNCATE. Tables that inherit from it are not truncated. Raises ServerError.
    """
    name = table_identifier(table.name)
    with translate_errors(f"locking table {table.name}"):
        try:
            # The lock is requested in a savepoint, so that the transaction can go on if the lock is not granted. While
            # this session waits for the lock, new readers of the table wait too.
            with in_transaction(connection):
                connection.execute(f"SET LOCAL lock_timeout = '{_EMPTYING_PATIENCE_S}s'".encode())
                connection.execute(sql.SQL("LOCK TABLE ONLY {} IN ACCESS EXCLUSIVE MODE").format(name))
                connection.execute("SET LOCAL lock_timeout TO DEFAULT")
        except (psycopg.errors.LockNotAvailable, psycopg.errors.InsufficientPrivilege):
            return False
        found = connection.execute(
            "SELECT %(name)s::pg_catalog.regclass::pg_catalog.oid = %(oid)s"
            " AND pg_catalog.has_table_privilege(%(oid)s::pg_catalog.oid, 'TRUNCATE') AND NOT EXISTS ("
            " SELECT FROM pg_catalog.pg_trigger WHERE tgrelid = %(oid)s AND tgtype & 32 <> 0 AND NOT tgisinternal)",
            {"name": name.as_string(connection), "oid": table.oid},
        ).fetchone()
        if found != (True,) or not is_empty(connection, table.oid):
            return False
        connection.execute(sql.SQL("TRUNCATE ONLY {}").format(name))
    return True


def analyze_table(connection: Connection, name: TableName) -> None:
    """Update the planner's statistics of a table. Raises ServerError.

    The role must own the table or the database, or have MAINTAIN on the table (PostgreSQL 17 and later).
    """
    with translate_errors(f"analyzing table {name}"):
        connection.execute(sql.SQL("ANALYZE {}").format(table_identifier(name)))


def freeze_table(connection: Connection, name: TableName) -> None:
    """Freeze all rows of a table that nobody else uses, and update its statistics. Raises ServerError.

    The role must own the table or the database, or have MAINTAIN on the table (PostgreSQL 17 and later).
    """
    with translate_errors(f"vacuuming table {name}"):
        connection.execute(sql.SQL("VACUUM (FREEZE, ANALYZE) {}").format(table_identifier(name)))


def check_names(name: TableName, columns: Sequence[str]) -> None:
    """Raise TargetError if a name is empty, too long or contains a NUL, or if two columns have the same name."""
    for what, text in (("schema", name.schema), ("table", name.name)):
        if text is not None:
            _check_name(what, text)
    seen: set[str] = set()
    for number, column in enumerate(columns, 1):
        _check_name(f"column {number}", column)
        if column in seen:
            raise TargetError(
                f'cannot create table "{name}": column "{column}" is named twice',
                hint="Name the file's columns with --columns, or skip one with --skip.",
            )
        seen.add(column)


def _check_name(what: str, text: str) -> None:
    if not text:
        raise TargetError(f"the name of {what} is empty", hint="Name the file's columns with --columns.")
    if "\0" in text:
        raise TargetError(f"the name of {what} holds a NUL character")
    if len(text.encode()) > _NAME_BYTES:
        raise TargetError(
            f"the name of {what} is longer than {_NAME_BYTES} bytes",
            detail=f'The name is "{text}".',
            hint="Choose a shorter name; --columns names the file's columns.",
        )


def _compose_columns(typed: Iterable[tuple[str, str]], key: Sequence[str]) -> sql.Composed:
    definitions: list[sql.Composable] = [
        sql.SQL("{} {}").format(sql.Identifier(column), sql.SQL(kind)) for column, kind in typed
    ]
    if key:
        definitions.append(sql.SQL("PRIMARY KEY ({})").format(list_identifiers(key)))
    return sql.SQL(", ").join(definitions)


def _create_with_schema(connection: Connection, name: TableName, columns: sql.Composed) -> CreatedTable:
    for _ in range(_RACES):
        try:
            return _create(connection, name, columns)
        except (psycopg.errors.UniqueViolation, psycopg.errors.DuplicateObject, psycopg.errors.DuplicateSchema):
            # Another session created the schema or table at the same time and has committed, so try again. The error
            # may be about the table's row type: the server looks for the relation's name first and for the type's name
            # later, and the other session may commit between the two.
            continue
    return _create(connection, name, columns)


def _create(connection: Connection, name: TableName, columns: sql.Composed) -> CreatedTable:
    with in_transaction(connection):
        # CREATE SCHEMA IF NOT EXISTS needs CREATE on the database even if the schema exists.
        is_schema_missing = name.schema is not None and not _has_schema(connection, name.schema)
        if is_schema_missing and name.schema is not None:
            connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(name.schema)))
        made = TableName(schema=name.schema or _require_creation_schema(connection, name), name=name.name)
        connection.execute(sql.SQL("CREATE TABLE {} ({})").format(table_identifier(made), columns))
        row = fetch_one(connection, "SELECT %s::regclass::oid", [table_identifier(made).as_string(connection)])
    return CreatedTable(oid=row[0], name=made, has_new_schema=is_schema_missing)


def _require_creation_schema(connection: Connection, name: TableName) -> str:
    schema = find_creation_schema(connection)
    if schema is None:
        raise TargetError(
            f'no schema has been selected to create table "{name}" in',
            detail="The search_path names no schema that exists and that this role may use.",
            hint=f"Name the schema: --into SCHEMA.{name}.",
        )
    return schema


def refuse_creation(connection: Connection, name: TableName) -> None:
    """Raise TargetError if the role may not create a table with this name, or the schema that it names.

    A name without a schema is not checked. Raises ServerError.
    """
    query = """
        SELECT n.nspname IS NOT NULL,
               COALESCE(
                   pg_catalog.has_schema_privilege(n.oid, 'CREATE'),
                   pg_catalog.has_database_privilege(pg_catalog.current_database(), 'CREATE')
               )
          FROM (SELECT) AS one
          LEFT JOIN pg_catalog.pg_namespace AS n ON n.nspname = %s
    """
    if name.schema is None:
        return
    with translate_errors("looking up the right to create a table"):
        has_schema, may_create = fetch_one(connection, query, [name.schema])
    if not may_create:
        what = f'a table in schema "{name.schema}"' if has_schema else f'schema "{name.schema}"'
        raise TargetError(
            f'permission denied to create table "{name}": the role may not create {what}',
            hint="Have the schema's owner grant CREATE on it."
            if has_schema
            else "Have the database's owner create it, and grant CREATE on it.",
            sqlstate="42501",
        )


def _has_schema(connection: Connection, schema: str) -> bool:
    query = "SELECT FROM pg_catalog.pg_namespace WHERE nspname = %s"
    return connection.execute(query, [schema]).fetchone() is not None


def _drop_if_untouched(connection: Connection, table: sql.Identifier, oid: int) -> bool:
    connection.execute(sql.SQL("SET LOCAL lock_timeout = {}").format(sql.Literal(_DROP_LOCK_TIMEOUT)))
    connection.execute(sql.SQL("LOCK TABLE ONLY {} IN ACCESS EXCLUSIVE MODE").format(table))
    # The name is a literal, not a parameter: it may contain a %, which psycopg would read as a placeholder.
    name = sql.Literal(table.as_string(connection))
    is_untouched = connection.execute(
        sql.SQL("SELECT {}::regclass::oid = {} AND NOT EXISTS (SELECT FROM {})").format(name, sql.Literal(oid), table)
    ).fetchone()
    if is_untouched != (True,):
        return False
    connection.execute(sql.SQL("DROP TABLE {}").format(table))
    return True


def _drop_schema_if_empty(connection: Connection, name: TableName) -> bool:
    try:
        connection.execute(sql.SQL("DROP SCHEMA {}").format(sql.Identifier(name.schema or "")))
    except psycopg.errors.DependentObjectsStillExist:
        return False
    except psycopg.errors.InvalidSchemaName:
        return True
    return True


def _already_exists(name: TableName) -> TableExistsError:
    return TableExistsError(
        f'relation "{name}" already exists',
        detail="It was just created by another session, or is not visible to this role.",
        hint="Run the load again: it then uses the table as it is.",
    )


# The query of `compose_look`. It also runs with the user's search_path, so each operator is qualified.
_LOOK = """
    SELECT pg_catalog.to_regclass({table})::pg_catalog.oid,
           pg_catalog.string_agg(
               pg_catalog.concat_ws(' ', a.attnum, a.atttypid::pg_catalog.oid, a.atttypmod), ',' ORDER BY w.position
           )
      FROM pg_catalog.unnest({columns}::pg_catalog.name[]) WITH ORDINALITY AS w (name, position)
      LEFT JOIN pg_catalog.pg_attribute AS a
        ON a.attrelid OPERATOR(pg_catalog.=) pg_catalog.to_regclass({table})::pg_catalog.oid
       AND a.attname OPERATOR(pg_catalog.=) w.name
"""


class LoadedTable(NamedTuple):
    """A table as it was when the load began: its name, OID and columns."""

    # The name with the schema.
    name: TableName
    oid: int
    # The columns. They are set only if others can have altered the table. If empty, columns are not checked.
    columns: tuple[Column, ...] = ()


def compose_look(table: LoadedTable, columns: Sequence[str] = ()) -> sql.Composed:
    """Return a query that finds the table with this name now, and its columns.

    Its row is the input of `check_look`: the table's OID, NULL if no table has the name, and a text with the attnum,
    type OID and type modifier of each of `columns`, separated by commas.
    """
    name = table_identifier(table.name).as_string(None)
    return sql.SQL(_LOOK).format(table=sql.Literal(name), columns=sql.Literal(list(columns)))


def send_check(
    connection: psycopg.Connection[Any], table: LoadedTable, columns: Sequence[str] = ()
) -> Callable[[], None]:
    """Send the query of `compose_look`, and return a function that calls `check_look` with its result.

    In a pipeline, sending does not wait for the server. The caller has written to the table in this transaction, so it
    holds a lock on the table. The returned function raises OtherTableError, ServerError.
    """
    cursor = connection.execute(compose_look(table, columns))

    def check() -> None:
        with translate_errors(f"reading table {table.name}"):
            row = cursor.fetchone()
            assert row is not None
            check_look(connection, table, columns, *row)

    return check


def check_look(
    connection: psycopg.Connection[Any],
    table: LoadedTable,
    columns: Sequence[str],
    oid: int | None,
    found: str | None,
) -> None:
    """Raise OtherTableError if the table's name belongs to another table now, or its columns have changed.

    The comparison is with the beginning of the load. `oid` and `found` are the row that the query of `compose_look`
    returned. Raises psycopg.Error.
    """
    if oid != table.oid:
        raise _other_table(connection, table)
    if not table.columns:
        return
    known = {each.name: f"{each.number} {each.type_oid} {each.type_modifier}" for each in table.columns}
    now = dict(zip(columns, (found or "").split(","), strict=False))
    if changed := [name for name in columns if now.get(name) != known.get(name)]:
        raise OtherTableError(
            f'columns of table "{table.name}" are not those that this load began with',
            detail=f"Renamed or altered since: {', '.join(changed)}.",
            hint="Restore them, or start a new load into the table as it is now.",
        )


def _other_table(connection: psycopg.Connection[Any], table: LoadedTable) -> OtherTableError:
    """Return the error for a name that belongs to another table now. Raises psycopg.Error."""
    row = run_query(connection, "core/relation_name", oid=table.oid).fetchone()
    fate = "was dropped, or replaced by another load" if row is None else f'is now "{row[0]}"'
    return OtherTableError(
        f'table "{table.name}" is not the table that this load began with',
        detail=f"That table (oid {table.oid}) {fate}.",
        hint="Rename the tables back, or start a new load into the one that has the name now.",
    )
