"""What an undo reads from the ledger, and what it has removed."""

from __future__ import annotations

from penstock.core.slotted import slotted
from penstock.core.values.table import TableName


@slotted
class UndoTable:
    """A row of undo_tables.sql: a table with rows of a load, and the transactions that stored them."""

    schema: str
    name: str
    # The table's oid in this database, None if the table does not exist any more.
    oid: int | None
    # pg_class.relkind, None if the table does not exist any more.
    kind: str | None
    # Whether the load ran in this database, and not in one of which this is a copy or a restored dump.
    is_here: bool
    # Whether the role has the rights to read and to delete the rows.
    may_delete: bool
    # The foreign keys that refer to the table, each with what it does when rows are deleted.
    referrers: list[str]
    # The rows that the load has stored, by the ledger.
    rows: int
    # Whether the ledger has the transactions of all these rows.
    is_known: bool
    # Whether so many transactions have followed that xmin does not tell the load's rows from others.
    is_old: bool
    # The values of xmin in the load's rows.
    transactions: list[str]

    @property
    def table(self) -> TableName:
        """Return the table's name."""
        return TableName(schema=self.schema, name=self.name)


@slotted
class UndoneTable:
    """The rows that an undo has removed from a table, or would remove."""

    table: str
    # The rows that the load had stored, by the ledger.
    stored: int
    # Those of them that were found as the load had stored them, and were removed.
    rows: int
    # The foreign keys that refer to the table, each with what it does when rows are deleted.
    referrers: tuple[str, ...]


@slotted
class UndoOutcome:
    """The rows that an undo has removed from all tables of a load, or would remove."""

    load_id: str
    server: str
    database: str
    tables: tuple[UndoneTable, ...]
    # How many of the load's files another load has loaded into the same table, too.
    shared: int = 0

    @property
    def rows(self) -> int:
        """Return how many rows were removed from all tables, or would be removed."""
        return sum(each.rows for each in self.tables)
