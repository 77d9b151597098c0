"""What is known and found of a load that is verified. Pure."""

from __future__ import annotations

from penstock.core.frozen import frozen
from penstock.core.values.table import TableName


@frozen
class Problem:
    """Something that is not as the load left it, or not as the files have it."""

    # The object's URI, or the table's name.
    where: str
    message: str
    # The line on which the record begins; None of a row.
    line: int | None = None
    # The first characters of the record, or of the row as text.
    record: str | None = None


@frozen
class VerifiedTable:
    """One table of the load: the row of proof_tables.sql, and what was counted and compared."""

    schema: str
    name: str
    # The table's oid in this database, 0 if the table does not exist any more.
    oid: int
    # pg_class.relkind, None if the table does not exist any more. Rows of tables that inherit from an ordinary table do
    # not count.
    kind: str | None
    # The names that it had in the load: with its schema, and without.
    names: list[str]
    # Whether row-level security may hide rows of the table from the role.
    hides_rows: bool
    # The numbers of its objects.
    objects: list[int]
    # The records that were cut out of the objects. The next six fields say what became of them.
    records: int
    inserted: int
    updated: int
    rejected: int
    suppressed: int
    # Another record with the same key was stored.
    duplicates: int
    # The table had a row with the same key.
    existing: int
    # Whether the load has truncated or replaced the table.
    is_emptied: bool
    # Whether other loads may have rows in the table.
    is_shared: bool
    # Whether the load's rows are gone: the table was dropped, or a later load has truncated or replaced it.
    is_gone: bool
    # Whether the load alone has filled the table, so that the table may have no other row.
    is_alone: bool = False
    # The rows that the table has now; None if a transform has filled it, or if it is a view.
    rows: int | None = None
    # This and the next three fields are None unless values were compared: the records that were sent again, and the
    # bytes of their text.
    compared: int | None = None
    compared_bytes: int | None = None
    # The records that the table has not, or less often than the files, and those that the server refuses now.
    missing: int | None = None
    # The rows that the files have not, or less often than the table. 0 if the load has not filled the table alone.
    extra: int | None = None

    @property
    def table(self) -> TableName:
        """Return the table's name."""
        return TableName(schema=self.schema, name=self.name)

    @property
    def is_renamed(self) -> bool:
        """Whether the table has another name than in the load, or is in another schema."""
        return str(self.table) not in self.names


@frozen
class VerifyOutcome:
    """What was verified of a load."""

    load_id: str
    server: str
    database: str
    tables: tuple[VerifiedTable, ...]
    # What was found; of each table at most ten records and ten rows.
    problems: tuple[Problem, ...]

    @property
    def is_verified(self) -> bool:
        """Whether no problem was found."""
        return not self.problems
