"""A table as the catalog describes it."""

from __future__ import annotations

from dataclasses import field

from penstock.core.slotted import slotted


@slotted
class TableName:
    """A table's name."""

    # The schema, None if search_path determines it.
    schema: str | None
    name: str

    def __str__(self) -> str:
        return self.name if self.schema is None else f"{self.schema}.{self.name}"


@slotted
class BaseType:
    """A type that is not a domain: its name, pg_type.oid and modifier."""

    name: str
    oid: int
    modifier: int


@slotted
class Column:
    """One column of a table."""

    name: str
    type_name: str
    is_not_null: bool = False
    is_generated: bool = False
    has_default: bool = False
    # The kind of identity column: 'a' (always), 'd' (by default), or '' for another column.
    identity: str = ""
    # The qualified name of the sequence that the column owns.
    sequence: str | None = None
    # The sequence of the column's default if the role has neither USAGE nor UPDATE on it, otherwise None.
    denied_sequence: str | None = None
    # This and the next two fields are attnum, atttypid and atttypmod of pg_attribute.
    number: int = 0
    type_oid: int = 0
    type_modifier: int = -1
    is_domain: bool = False
    # This and the next two fields are those of `base`, None if it is the type itself.
    base_name: str | None = None
    base_oid: int | None = None
    base_modifier: int = -1
    # Whether the type is json or jsonb, or a domain over them.
    is_json: bool = False

    @property
    def base(self) -> BaseType:
        """Return the base type of the column's type if that is a domain, otherwise the type itself.

        It decides how values are read. For an array of domains, it is an array of their base type.
        """
        if self.base_oid is None or self.base_name is None:
            return BaseType(name=self.type_name, oid=self.type_oid, modifier=self.type_modifier)
        return BaseType(name=self.base_name, oid=self.base_oid, modifier=self.base_modifier)


@slotted
class TableFacts:
    """What a load needs to know of a table: its kind, columns, keys, triggers and the role's rights."""

    oid: int
    # The table's name, always with its schema.
    name: TableName
    # pg_class.relkind.
    kind: str
    columns: tuple[Column, ...]
    # The enabled BEFORE and INSTEAD OF INSERT row triggers of the table and of every partition. Only they can make COPY
    # report fewer rows than it was sent.
    suppressing_triggers: tuple[str, ...] = ()
    row_security_applies: bool = False
    is_unlogged: bool = False
    can_insert: bool = True
    # The columns on which the role lacks INSERT.
    denied_columns: tuple[str, ...] = ()
    may_vacuum: bool = True
    is_owner: bool = True
    # This and the next field are the user's own triggers that an INSERT fires, including those of partitions.
    row_triggers: tuple[str, ...] = ()
    statement_triggers: tuple[str, ...] = ()
    unlogged_partitions: tuple[str, ...] = ()
    # The database's publications if none of them publishes the table's new rows, otherwise empty.
    unpublished: tuple[str, ...] = ()
    # The OIDs of the tables that its foreign keys refer to.
    references: frozenset[int] = frozenset()
    # Whether the table has indexes, or had some recently.
    has_indexes: bool = False
    # The partitioned table of which the load makes the table a partition; its OID and columns are the facts'. None if
    # the table exists.
    parent: TableName | None = None
    # pg_class.relnatts, the largest attnum that a column has or had.
    attributes: int = 0
    # Whether the table exists and is a partition.
    is_partition: bool = False

    def column(self, name: str) -> Column | None:
        """Return the column with exactly this name, or None."""
        return next((column for column in self.columns if column.name == name), None)


@slotted
class ColumnMap:
    """Which column of the table each field of a file fills, and which fields are skipped."""

    # The column list of the COPY command, in the order of the payload.
    columns: tuple[str, ...]
    # The indexes of the file's fields that are sent. None: all fields are sent unchanged.
    keep: tuple[int, ...] | None = None
    # Values that are appended to each record; None is null.
    constants: tuple[str | None, ...] = field(default=())
    # How many fields each record of the file must have. None if records are not rewritten; the server then checks their
    # fields.
    field_count: int | None = None
    # Whether one additional blank field at the end is dropped.
    ends_empty: bool = False
    # JSON Lines only, None for other formats: the names of values, each with the index of its column, or None if the
    # value is skipped. If there are no names, the whole record is the value of the first column.
    names: tuple[tuple[str, int | None], ...] | None = None
    # JSON Lines only: whether names that are not in `names` are skipped. Otherwise a record that has one is refused.
    skips_others: bool = False
    # JSON Lines only: the indexes of the columns that are sent their values as JSON.
    takes_json: tuple[int, ...] = ()
    # The notation of each column's values in the file. For dates it is dmy, mdy or ymd. For numbers it is 1234.5 as the
    # file would write it, such as 1.234,5. It is None for a column whose values are sent unchanged. Empty if this is
    # so for all columns.
    notations: tuple[str | None, ...] = ()
