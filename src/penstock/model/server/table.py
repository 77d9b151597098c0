"""A table as the catalog describes it."""

from __future__ import annotations

from dataclasses import field

from penstock.frozen import frozen


@frozen
class TableName:
    """A table's name. If `schema` is None, search_path determines the schema."""

    schema: str | None
    name: str

    def __str__(self) -> str:
        return self.name if self.schema is None else f"{self.schema}.{self.name}"


@frozen
class Column:
    """One column of a table.

    `identity` is '' (no identity column), 'a' (always) or 'd' (by default). `sequence` is the qualified name of the
    sequence that the column owns. `denied_sequence` is one that its default draws from and that the role has neither
    USAGE nor UPDATE on. `number`, `type_oid` and `type_modifier` are pg_attribute's attnum, atttypid and
    atttypmod. `is_json` is whether its type is json or jsonb, or a domain over them.
    """

    name: str
    type_name: str
    is_not_null: bool = False
    is_generated: bool = False
    has_default: bool = False
    identity: str = ""
    sequence: str | None = None
    denied_sequence: str | None = None
    number: int = 0
    type_oid: int = 0
    type_modifier: int = -1
    is_json: bool = False


@frozen
class TableFacts:
    """The facts of a table that a load needs. `name` is always qualified; `kind` is pg_class.relkind.

    `suppressing_triggers` are the enabled BEFORE and INSTEAD OF INSERT row triggers of the table and of every
    partition. Only they can make COPY report fewer rows than it was sent. `references` are the oids of the tables that
    its foreign keys refer to. `has_indexes` is whether it has indexes, or had some recently. `row_triggers` and
    `statement_triggers` are the user's own triggers that an INSERT fires, including those of partitions. `unpublished`
    are the database's publications if none of them publishes the table's new rows, and otherwise empty.
    `attributes` is pg_class.relnatts, the largest attnum that a column has or had.
    """

    oid: int
    name: TableName
    kind: str
    columns: tuple[Column, ...]
    suppressing_triggers: tuple[str, ...] = ()
    row_security_applies: bool = False
    is_unlogged: bool = False
    can_insert: bool = True
    may_vacuum: bool = True
    is_owner: bool = True
    row_triggers: tuple[str, ...] = ()
    statement_triggers: tuple[str, ...] = ()
    unlogged_partitions: tuple[str, ...] = ()
    unpublished: tuple[str, ...] = ()
    references: frozenset[int] = frozenset()
    has_indexes: bool = False
    attributes: int = 0

    def column(self, name: str) -> Column | None:
        """Return the column with exactly this name, or None."""
        return next((column for column in self.columns if column.name == name), None)


@frozen
class ColumnMap:
    """How a file's fields become a table's columns.

    `columns` is the column list of the COPY command, in the order of the payload. `keep` are the indexes of the file's
    fields that are sent (None: all of them, unchanged). `constants` are appended to each record; None is null.
    `field_count` is how many fields each record of the file must have, or None if records are not rewritten and the
    server checks that. `ends_empty` is whether one additional blank field at the end is dropped.

    Of JSON Lines, `names` are the names of values with the index of the column of each, None if it is skipped. If there
    are no names, the whole record is the value of the first column. `takes_json` has the indexes of the columns whose
    values are sent as JSON. `names` is None for other formats.
    """

    columns: tuple[str, ...]
    keep: tuple[int, ...] | None = None
    constants: tuple[str | None, ...] = field(default=())
    field_count: int | None = None
    ends_empty: bool = False
    names: tuple[tuple[str, int | None], ...] | None = None
    takes_json: tuple[int, ...] = ()
