"""What a table that replaces a partition needs to be attached in its place."""

from __future__ import annotations

from collections.abc import Sequence

from psycopg import sql

from penstock.changes.tables.definition import local_settings
from penstock.core.connect.connection import Connection
from penstock.core.connect.errors import translate_errors
from penstock.core.slotted import slotted
from penstock.core.sql import fetch_rows

# The name of the CHECK constraint that spares the scan of ATTACH. COPY names it in errors.
BOUNDS = "penstock_bounds"


@slotted
class ReplacedPartition:
    """The row of replaced_partition.sql: a partition, as far as the table that replaces it must be like it."""

    parent_oid: int
    # The parent's qualified name, quoted.
    parent: str
    is_default: bool
    # The default partition of the parent, which DROP TABLE and ATTACH lock.
    default_oid: int | None
    # Whether DETACH ... CONCURRENTLY has begun, and has not ended.
    is_detaching: bool
    # What follows the partition's name in ATTACH: FOR VALUES ...
    bounds: str
    # The condition on all rows, with those of the parent and its ancestors.
    condition: str
    # The actions of ALTER TABLE by which identity columns get the values of the root's sequences.
    defaults: list[str]
    # The statements of the triggers that the partition has of its parent.
    triggers: list[str]

    def attach(self, table: sql.Identifier) -> list[sql.Composed]:
        """Return the statements that attach `table`, which has been prepared by `compose_bounds`."""
        return compose_attach(table, sql.SQL(self.parent), self.bounds, self.defaults)


def find_partition(connection: Connection, oid: int) -> ReplacedPartition | None:
    """Return what makes the table with this OID a partition, or None if it is none. Raises ServerError."""
    # In ISO, dates and times are read again as they were written, whatever the session's DateStyle is.
    with translate_errors("looking up a partition"), local_settings(connection, datestyle="ISO"):
        rows = fetch_rows(connection, "loading/replaced_partition", ReplacedPartition, oid=oid)
    return rows[0] if rows else None


def compose_bounds(table: sql.Identifier, condition: str, defaults: Sequence[str]) -> sql.Composed:
    """Return the statement that prepares a table to be attached: a CHECK of its bounds, and defaults for identities."""
    check = sql.SQL("ADD CONSTRAINT {} CHECK ({})").format(sql.Identifier(BOUNDS), sql.SQL(condition))
    return sql.SQL("ALTER TABLE {} {}").format(table, sql.SQL(", ").join([check, *map(sql.SQL, defaults)]))


def compose_attach(
    table: sql.Identifier, parent: sql.Composable, bounds: str, defaults: Sequence[str]
) -> list[sql.Composed]:
    """Return the statements that attach a table which `compose_bounds` has prepared with the same `defaults`.

    They first drop these defaults, since ATTACH makes the columns identities, and last the CHECK of the bounds.
    """
    actions = [action.rpartition(" SET DEFAULT nextval(")[0] + " DROP DEFAULT" for action in defaults]
    return [
        *(sql.SQL("ALTER TABLE {} {}").format(table, sql.SQL(action)) for action in actions),
        sql.SQL("ALTER TABLE {} ATTACH PARTITION {} {}").format(parent, table, sql.SQL(bounds)),
        sql.SQL("ALTER TABLE {} DROP CONSTRAINT {}").format(table, sql.Identifier(BOUNDS)),
    ]
