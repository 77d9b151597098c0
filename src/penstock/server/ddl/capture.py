"""Reads a table's full definition from the catalog, and finds what prevents its replacement by a new table.

A swap drops the old table without CASCADE. Objects outside of the table that depend on it would make DROP TABLE fail or
would be lost with it. They are found in pg_depend before anything is loaded, and reported in PostgreSQL's own words.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.errors import OtherTableError, TargetError
from penstock.model.server.table import TableName
from penstock.server.connect.connection import Connection
from penstock.server.connect.errors import translate_errors
from penstock.server.ddl.definition import (
    ConstraintRow,
    IndexRow,
    Obstacle,
    PartRow,
    PublicationRow,
    TableDefinition,
    TableRow,
)
from penstock.server.ddl.session import Unread, look_again
from penstock.server.sql.queries import fetch_many, fetch_rows, table_identifier

# The parts of a definition. One query, ddl_PART.sql, describes each.
_PARTS: dict[str, type] = {
    "table": TableRow,
    "indexes": IndexRow,
    "constraints": ConstraintRow,
    "publications": PublicationRow,
    "parts": PartRow,
}


def capture_table(connection: Connection, oid: int, *, name: TableName | None = None) -> TableDefinition:
    """Return the definition of a table.

    Any kind of relation is captured; find_obstacles decides whether it can be replaced. The queries see one state of
    the catalog only if the caller holds a lock on the table. `name` is the table's name when its oid was read; the
    error contains it. Raises TargetError if the table does not exist, and ServerError.
    """
    return look_again(lambda: _capture(connection, oid, name), connection)


def find_obstacles(connection: Connection, definition: TableDefinition) -> tuple[Obstacle, ...]:
    """Return everything that prevents a table's replacement: dependents, its kind, missing privileges.

    Function bodies that are stored as text (PL/pgSQL, SQL in quotes) and prepared statements look up the table by name,
    so they find the new one and do not prevent the replacement. pg_shdepend records nothing that depends on a table.
    Raises ServerError.
    """
    with translate_errors(f"looking for what depends on table {definition.name}"):
        return tuple(fetch_rows(connection, "ddl_obstacles", Obstacle, oid=definition.oid))


def refuse_obstacles(name: TableName, obstacles: Sequence[Obstacle]) -> None:
    """Raise TargetError with all obstacles. Return if there is none."""
    if not obstacles:
        return
    lines = "\n".join(f"{obstacle.kind}: {obstacle.description}" for obstacle in obstacles)
    hint = "Load with --mode truncate, which keeps the table, or drop these first and create them anew after the load."
    if {obstacle.kind for obstacle in obstacles} <= {"view", "materialized view"}:
        views = ", ".join(obstacle.description for obstacle in obstacles)
        hint = (
            f"Drop {views} before the load and create it anew after it; or load with --mode truncate, which keeps it: "
            "readers then see an empty table at first, and with --atomic they wait for most of the load."
        )
    raise TargetError(
        f'cannot replace table "{name}"',
        detail=f"A new table could not take its place because of:\n{lines}",
        hint=hint,
    )


def _capture(connection: Connection, oid: int, name: TableName | None) -> TableDefinition:
    with translate_errors("reading a table's definition"):
        queries = [(f"ddl_{part}", row_type) for part, row_type in _PARTS.items()]
        parts = dict(zip(_PARTS, map(tuple, fetch_many(connection, queries, oid=oid)), strict=True))
        if not parts["table"]:
            raise _gone(connection, oid, name)
    (table,) = parts.pop("table")
    definition = TableDefinition(table=table, **parts)
    constraints = {None, *(constraint.name for constraint in definition.constraints)}
    unread = {part.part for part in definition.parts if part.statement is None}
    unread |= {
        index.name for index in definition.indexes if index.body is None or index.constraint_name not in constraints
    }
    if unread:
        raise Unread(
            f'cannot read the definition of "{definition.name}"',
            detail=f"Not understood: {', '.join(sorted(unread))}.",
            hint="Please report this with the output of pg_dump --schema-only for the table.",
        )
    return definition


def _gone(connection: Connection, oid: int, name: TableName | None) -> TargetError:
    """Return the error for a table whose OID no longer exists. Its name may belong to another table now."""
    if name is None:
        return TargetError("the table is gone", detail=f"There is no relation with oid {oid}.")
    quoted = table_identifier(name).as_string(connection)
    row = connection.execute("SELECT pg_catalog.to_regclass(%s) IS NULL", [quoted]).fetchone()
    is_dropped = row == (True,)
    return OtherTableError(
        f'table "{name}" was {"dropped" if is_dropped else "replaced"} after the load was planned',
        detail=None if is_dropped else "Another load with --mode replace did so, or somebody who created it anew.",
        hint="Create it again, then run the load again."
        if is_dropped
        else "Run the load again, if it is still wanted.",
    )
