"""What stands in the way of putting a new table in an old one's place: named, never dropped.

A swap drops the old table without CASCADE. What refers to it from outside would stop that or be lost with it, so it is
found before anything is loaded, by pg_depend, and said in PostgreSQL's own words.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.errors import TargetError
from penstock.server.errors import translate_errors
from penstock.server.queries import fetch_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.model.table import TableName
    from penstock.server.connection import Connection
    from penstock.server.ddl.definition import TableDefinition


@dataclass(frozen=True, slots=True, kw_only=True)
class Obstacle:
    """The row of ddl_dependents.sql and ddl_hindrances.sql: what it is and how PostgreSQL describes it."""

    kind: str
    description: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AllTablesRow:
    """The row of ddl_all_tables.sql."""

    name: str


def find_obstacles(connection: Connection, definition: TableDefinition) -> tuple[Obstacle, ...]:
    """Return all that keeps a table from being replaced: dependents, kinds of table, missing privileges.

    Bodies of functions that are kept as text (PL/pgSQL, SQL in quotes) and prepared statements find the table by its
    name, and so find the new one. pg_shdepend has nothing that depends on a table. Raises ServerError.
    """
    with translate_errors(f"looking for what depends on table {definition.name}"):
        hindrances = fetch_rows(connection, "ddl_hindrances", Obstacle, oid=definition.oid)
        dependents = fetch_rows(connection, "ddl_dependents", Obstacle, oid=definition.oid)
    return (*hindrances, *dependents)


def refuse_obstacles(name: TableName, obstacles: Sequence[Obstacle]) -> None:
    """Raise TargetError that names every obstacle; return where there is none."""
    if not obstacles:
        return
    lines = "\n".join(f"{obstacle.kind}: {obstacle.description}" for obstacle in obstacles)
    raise TargetError(
        f'cannot replace table "{name}"',
        detail=f"A new table could not take its place because of:\n{lines}",
        hint="Load with --mode truncate, which keeps the table, or drop these first and make them anew after the load.",
    )


def find_all_tables_publications(connection: Connection) -> tuple[str, ...]:
    """Return the publications FOR ALL TABLES of this database: a new table stops their subscribers.

    What is loaded into the new table is published under its own name, which no subscriber has: their apply workers
    fail until they have a table of that name. TableDefinition.implicit_publications adds those of the table's schema,
    which do the same. Raises ServerError.
    """
    with translate_errors("looking for publications of all tables"):
        return tuple(row.name for row in fetch_rows(connection, "ddl_all_tables", AllTablesRow))
