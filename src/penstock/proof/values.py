"""What is known and found of a load that is verified. Pure."""

from __future__ import annotations

from penstock.core.slotted import slotted
from penstock.core.values.notice import Notice
from penstock.core.values.table import TableName


def differs(where: str, message: str, *, line: int | None = None, record: str | None = None) -> Notice:
    """Return a notice that an object or a table is not as the load left it, or does not have what the files have.

    `where` is the URI of the object or the name of the table. `line` is the line of the file, from 1, and `record` the
    text of the record or row.
    """
    return Notice(code="differs", uri=where, message=message, line=line, record=record)


@slotted
class TypeWithoutBinary:
    """A row of without_binary.sql: a column whose values have no binary form, and the type that has no binary output.

    The type is the column's own, or one of which the column's type is made, such as the element type of an array.
    """

    name: str
    type_name: str


@slotted
class VerifiedTable:
    """One table of a load: a row of proof_tables.sql, and what was counted and compared."""

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
    # Whether the load has created the table.
    is_created: bool
    # Whether other loads, or other targets of this one, may have put rows into the table, its partitions or its parents
    # after the load emptied or created it.
    is_shared: bool
    # Whether loads of the ledger, at any time, have put rows into partitions or parents of the table.
    has_relatives: bool
    # Whether loads have put rows into partitions of the table since it was emptied.
    has_parts: bool
    # Whether the load's rows are gone, or may be: the table was dropped, or a later load has truncated, replaced or
    # synchronized it, a partition of it or a parent.
    is_gone: bool
    # Whether later loads have done so only to partitions of the table.
    is_gone_in_part: bool
    # How many rows the table must have after this load, and after all loads that the ledger knows. Other sessions may
    # have deleted rows. `floor_of_all` is None if it is not known, because a sync has deleted rows and has not ended.
    floor: int
    floor_of_all: int | None
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
    # The rows whose key is equal to that of their record and written otherwise, such as 1 and 1.0.
    written_otherwise: int | None = None
    # Whether only the keys were compared, because the load has kept rows that had the keys of records.
    has_only_keys: bool = False
    # Whether a unique index on columns of the files keeps records from being equal, in other loads too.
    has_key: bool = False
    # Whether of two files each has columns that the other lacks.
    has_crossing: bool = False

    # The records that were loaded from a corrected reject file. They are not compared.
    corrected: int = 0

    @property
    def table(self) -> TableName:
        """Return the table's name."""
        return TableName(schema=self.schema, name=self.name)

    @property
    def is_renamed(self) -> bool:
        """Whether the table has another name than in the load, or is in another schema."""
        return str(self.table) not in self.names

    @property
    def is_compared_both_ways(self) -> bool:
        """Whether each row of the table must be a record of the files. Corrected records are not in the files."""
        return self.is_alone and not self.corrected

    @property
    def differs(self) -> bool:
        """Whether the table has fewer rows than all loads that the ledger records have together left there."""
        return self.rows is not None and self.floor_of_all is not None and self.rows < self.floor_of_all


@slotted
class VerifyOutcome:
    """What was verified of one load: its tables, with what was counted and compared, and what is wrong."""

    load_id: str
    server: str
    database: str
    tables: tuple[VerifiedTable, ...]
    # Whether values were to be compared.
    has_values: bool
    # What was found; of each table at most ten records and ten rows.
    problems: tuple[Notice, ...]
    # The objects that were not compared, because a later load has loaded another version of them into the table.
    renewed: tuple[str, ...] = ()

    @property
    def agrees(self) -> bool:
        """Whether no problem was found, and no table has fewer rows than all recorded loads together left there."""
        return not self.problems and not any(each.differs for each in self.tables)

    @property
    def is_verified(self) -> bool:
        """Whether each value was compared, and no problem was found. It is false if only counts were compared.

        It is also false if one row may have counted for two records: see `is_unsure`.
        """
        is_whole = not (self.problems or self.renewed or self.has_stored_unseen or self.is_unsure)
        return self.has_values and is_whole

    @property
    def has_stored_unseen(self) -> bool:
        """Whether the load has stored rows of which only the keys were compared."""
        return any(table.has_only_keys and table.inserted for table in self.tables)

    @property
    def has_all_records(self) -> bool:
        """Whether all records of the load were compared, so that the values that it gave to rows are known."""
        is_whole = all(each.compared is not None and not each.corrected for each in self.tables)
        return self.has_values and not self.renewed and is_whole

    @property
    def is_unsure(self) -> bool:
        """Whether one row may have counted for two records.

        A unique index on columns of the files prevents this. Without one, equal records of several loads may count the
        same row if the table lacks rows, and so may records of two files each of which has columns that the other
        lacks.
        """
        return any((each.differs or each.has_crossing) and not each.has_key for each in self.tables)


@slotted
class FillingLoad:
    """A row of loads_of_table.sql: a load with objects that fill a table."""

    load_id: str
    is_complete: bool
    # Whether the ledger has the load's sources.
    has_job: bool
    # Whether the load may have updated rows of others.
    updates: bool
    # Whether another load has loaded another version of one of its objects.
    has_versions: bool


@slotted
class TableOutcome:
    """What verifying all loads that have filled a table has found."""

    table: str
    server: str
    database: str
    # What was verified of each load whose rows must be in the table, the oldest first.
    loads: tuple[VerifyOutcome, ...]
    # The loads whose rows a later one has removed, perhaps only from some partitions (`is_partial`), and those of which
    # the ledger does not have the sources. `has_parts` says whether other loads have put rows into partitions.
    removed: tuple[str, ...]
    is_partial: bool
    has_parts: bool
    unknown: tuple[str, ...]
    # The rows that the loads have stored, None unless the table must have those alone.
    expected: int | None
    # The rows that are records of the files in all columns, with null in those that the files lack. None unless values
    # were to be compared, and a file was loaded in several versions, or rows that had the keys of records were kept.
    compared: int | None
    # What is wrong with the loads, and with the table.
    problems: tuple[Notice, ...]

    @property
    def agrees(self) -> bool:
        """Whether no problem was found, and the counts of each load agree."""
        return not self.problems and all(each.agrees for each in self.loads)

    @property
    def is_verified(self) -> bool:
        """Whether no problem was found, and each value of each load or each row of the table was compared.

        If a later load has loaded another version of a file, the earlier version cannot be compared. The table is
        verified all the same if each of its rows is a record of the files that were compared.
        """
        has_unseen = bool(self.unknown) or self.is_partial or self.has_parts
        if self.problems or has_unseen or any(each.is_unsure for each in self.loads):
            return False
        is_covered = self.compared is not None and self.compared == self.expected
        return is_covered or all(each.is_verified for each in self.loads)
