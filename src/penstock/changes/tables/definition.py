"""A table's definition: the rows of the ddl_*.sql files, and the statements that create an equal table.

Two definitions are equal if the tables differ only in their OIDs and in the state of their sequences. All expressions
and definitions are the server's own text, with every name qualified.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from psycopg import sql
from psycopg.pq import TransactionStatus

from penstock.core.connect.connection import Connection
from penstock.core.connect.errors import in_transaction
from penstock.core.errors import ServerError, TargetError
from penstock.core.slotted import slotted
from penstock.core.sql import change_setting
from penstock.core.values.table import TableName

if TYPE_CHECKING:
    from psycopg.sql import Composed

    Table = tuple[str, str]


@slotted
class DdlTableRow:
    """The row of ddl_table.sql: the table itself, its owner, persistence, access method and tablespace."""

    oid: int = field(compare=False)
    name: str
    schema: str
    quoted_name: str
    owner: str
    # pg_class.relpersistence.
    persistence: str
    access_method: str | None
    tablespace: str


@slotted
class IndexRow:
    """The row of ddl_indexes.sql: a valid index of the table, with the text that follows CREATE INDEX ... ON."""

    name: str
    is_unique: bool
    # What follows CREATE INDEX ... ON table, None if the server's definition has another form.
    body: str | None
    # The name of the index's constraint, None if the index has none.
    constraint_name: str | None
    # The tablespace's name, empty for the database's default.
    tablespace: str
    options: list[str]
    is_clustered: bool
    is_replica_identity: bool
    # One for each column of the index, None for the default.
    statistics_targets: list[int | None]
    comment: str | None

    @property
    def is_marked(self) -> bool:
        """Whether ALTER TABLE, which locks the table, must mark the index: for CLUSTER, or as the replica identity."""
        return self.is_clustered or self.is_replica_identity


@slotted
class ConstraintRow:
    """The row of ddl_constraints.sql: a constraint of the table, with the text behind ADD CONSTRAINT and its name."""

    name: str
    # pg_constraint.contype, 'n' for NOT NULL.
    kind: str
    # What follows ADD CONSTRAINT and the name.
    definition: str
    is_deferrable: bool
    is_deferred: bool
    is_validated: bool
    is_enforced: bool
    # Whether it is a key WITHOUT OVERLAPS or a foreign key with PERIOD.
    is_temporal: bool
    comment: str | None

    @property
    def makes_index(self) -> bool:
        """Whether ADD CONSTRAINT must create the index: an exclusion constraint, or a key WITHOUT OVERLAPS."""
        return self.kind == "x" or self.is_temporal


@slotted
class PublicationRow:
    """The row of ddl_publications.sql: a publication of the table, by its name or as one of all tables."""

    name: str
    # The statement that adds the table by its name. None for a publication of all tables or of a whole schema.
    statement: str | None


@slotted
class PartRow:
    """The row of ddl_parts.sql: one index, constraint, trigger or other part of a table's definition."""

    part: str
    step: str
    # The statement that creates the part. None if the part was dropped while it was read.
    statement: str | None


@slotted
class HandoverRow:
    """The row of ddl_handover.sql: a statement that moves a sequence or a name from the old table to the new one."""

    step: str
    statement: str


@slotted
class DdlObstacle:
    """The row of ddl_obstacles.sql: a reason why a new table cannot take the place of the old one.

    It is a dependent object, such as a view, a property of the table, such as inheritance, or a missing privilege.
    """

    kind: str
    description: str


@slotted
class TableDefinition:
    """Everything that defines a table, except its rows."""

    table: DdlTableRow
    indexes: tuple[IndexRow, ...]
    constraints: tuple[ConstraintRow, ...]
    publications: tuple[PublicationRow, ...]
    parts: tuple[PartRow, ...]

    @property
    def oid(self) -> int:
        """Return the table's OID."""
        return self.table.oid

    @property
    def name(self) -> TableName:
        """Return the table's qualified name."""
        return TableName(schema=self.table.schema, name=self.table.name)

    @property
    def implicit_publications(self) -> tuple[str, ...]:
        """Return the names of the publications for all tables or for the table's schema.

        These publications also publish a table that replaces this one. No statement is needed for that.
        """
        return tuple(publication.name for publication in self.publications if publication.statement is None)

    def statements(self, step: str) -> list[str]:
        """Return the statements that create those parts of the table that ddl_parts.sql assigns to a step."""
        return [part.statement or "" for part in self.parts if part.step == step]

    def name_indexes(self, oid: int) -> dict[str, str]:
        """Return a temporary name for each index of the replacement table, by the name of the old index.

        `oid` is the replacement table's OID. Each name contains this OID, so the names are unique.
        """
        return {index.name: f"penstock_{oid}_index_{number}" for number, index in enumerate(self.indexes, 1)}


def find_differences(first: TableDefinition, second: TableDefinition, *, retyped: int = 0) -> tuple[str, ...]:
    """Return the kinds of parts in which two definitions differ, such as indexes or triggers; empty if they are equal.

    `retyped` is the number of columns whose types differ on purpose. If only so many columns differ, columns are not
    reported.
    """
    fields = ("table", "indexes", "constraints", "publications")
    found = {name for name in fields if getattr(first, name) != getattr(second, name)}
    parts = {*first.parts} ^ {*second.parts}
    columns = {part for part in parts if part.part == "columns" and part.step == "like"}
    if len(columns) == 2 * retyped:
        parts -= columns
    return tuple(sorted(found | {part.part for part in parts}))


_Result = TypeVar("_Result")

# How many times look_again calls `read`. A transaction that drops several parts has usually ended before the last call.
_LOOKS = 3

# The SQLSTATE of "cache lookup failed", which the server reports if a part was dropped while it was read.
_INTERNAL_ERROR = "XX000"


class UnreadDefinition(TargetError):
    """A part of a table's definition could not be read: penstock does not know it, or it was dropped meanwhile."""


def look_again(read: Callable[[], _Result], connection: Connection | None = None) -> _Result:
    """Return the result of `read`. Call it again, at most three times in all, if a part was dropped while it was read.

    Then `read` raises UnreadDefinition, because the query's snapshot still shows the part but its definition is gone,
    or the server raises an internal error. If `connection` is in a transaction, each call is in a savepoint, so that
    the transaction survives such an error.
    """
    if connection is not None and connection.info.transaction_status is TransactionStatus.INTRANS:
        return look_again(partial(_in_savepoint, read, connection))
    for _ in range(_LOOKS - 1):
        try:
            return read()
        except UnreadDefinition:
            continue
        except ServerError as error:
            if error.sqlstate != _INTERNAL_ERROR:
                raise
    return read()


def _in_savepoint(read: Callable[[], _Result], connection: Connection) -> _Result:
    with in_transaction(connection, "reading a definition"):
        return read()


@contextmanager
def local_settings(connection: Connection, **settings: str) -> Iterator[None]:
    """Run the block with these settings, in a transaction or in a savepoint of the caller's transaction.

    Afterwards the old settings are restored. SET LOCAL alone would last until the caller's transaction ends. An error
    rolls back the block's changes.
    """
    with in_transaction(connection):
        before = {name: change_setting(connection, name, value) for name, value in settings.items()}
        yield
        for name, value in before.items():
            change_setting(connection, name, value)


def run_all(connection: Connection, statements: Iterable[Composed | str]) -> None:
    """Run statements in order in one round trip, so locks are held only while the statements run."""
    if found := [sql.SQL(each) if isinstance(each, str) else each for each in statements]:
        connection.execute(sql.SQL("; ").join(found))


def compose_create(definition: TableDefinition, name: str, like: sql.Identifier | None = None) -> sql.Composed:
    """Return CREATE TABLE for a table like the defined one, under another name, without indexes and foreign keys.

    `like` is the table whose columns are copied, without their identities; by default it is the defined table.
    """
    table = definition.table
    without = "EXCLUDING INDEXES EXCLUDING STATISTICS EXCLUDING COMMENTS"
    return sql.SQL("CREATE {}TABLE {} (LIKE {} INCLUDING ALL {}){}{}").format(
        sql.SQL("UNLOGGED " if table.persistence == "u" else ""),
        sql.Identifier(table.schema, name),
        like or sql.Identifier(table.schema, table.name),
        sql.SQL(without if like is None else f"{without} EXCLUDING IDENTITY"),
        sql.SQL(" USING {}" if table.access_method else "").format(sql.Identifier(table.access_method or "")),
        sql.SQL(" TABLESPACE {}" if table.tablespace else "").format(sql.Identifier(table.tablespace)),
    )


def compose_index(index: IndexRow, constraint: ConstraintRow | None, table: Table, name: str) -> list[sql.Composed]:
    """Return the statements that create an index under a name, and its constraint if it has one.

    The index of a primary key or unique constraint is created first, because only CREATE INDEX can set the tablespace.
    An exclusion constraint, or one WITHOUT OVERLAPS, creates its own index. ALTER INDEX then sets what ADD CONSTRAINT
    cannot set.
    """
    named = sql.Identifier(name)
    if constraint is not None and constraint.makes_index:
        statements = [_add_constraint(table, name, sql.SQL(constraint.definition))]
        if index.options:
            place = sql.Identifier(table[0], name)
            statements.append(sql.SQL("ALTER INDEX {} SET ({})").format(place, _compose_options(index.options)))
        return statements
    create = compose_create_index(index, sql.Identifier(*table), named)
    if constraint is None:
        return [create]
    kind = sql.SQL("PRIMARY KEY" if constraint.kind == "p" else "UNIQUE")
    definition = sql.SQL("{} USING INDEX {}{}").format(kind, named, _compose_deferral(constraint))
    return [create, _add_constraint(table, name, definition)]


def compose_create_index(index: IndexRow, table: sql.Composable, name: sql.Composable) -> sql.Composed:
    """Return CREATE INDEX for an index on `table`. If `name` is empty, the server chooses one."""
    unique = sql.SQL("UNIQUE " if index.is_unique else "")
    return sql.SQL("CREATE {}INDEX {} ON {} {}").format(unique, name, table, sql.SQL(index.body or ""))


def compose_parent_index(index: IndexRow, constraint: ConstraintRow | None, table: Table) -> sql.Composed:
    """Return the statement that creates an index and its constraint on a partitioned table, but not on partitions."""
    name, relation = sql.Identifier(index.name), sql.Identifier(*table)
    if constraint is None:
        return compose_create_index(index, sql.SQL("ONLY {}").format(relation), name)
    # Storage parameters can only be given here, between the columns and the DEFERRABLE clause.
    deferral = _compose_deferral(constraint)
    columns = constraint.definition.removesuffix(deferral.as_string())
    options = sql.SQL(" WITH ({})").format(_compose_options(index.options))
    return sql.SQL("ALTER TABLE ONLY {} ADD CONSTRAINT {} {}{}{}").format(
        relation, name, sql.SQL(columns), options if index.options else sql.SQL(""), deferral
    )


def compose_index_marks(index: IndexRow, constraint: ConstraintRow | None, table: Table) -> list[sql.Composed]:
    """Return the statements for what CREATE INDEX and ADD CONSTRAINT cannot set. The index has its final name.

    These are statistics targets, comments, the CLUSTER mark and the replica identity.
    """
    name, relation = sql.Identifier(table[0], index.name), sql.Identifier(*table)
    # The statements are ALTER TABLE ONLY. ALTER INDEX has no ONLY: for the index of a partitioned table, it would also
    # set the statistics targets of the indexes of all partitions.
    statements: list[sql.Composed] = [
        sql.SQL("ALTER TABLE ONLY {} ALTER COLUMN {} SET STATISTICS {}").format(
            name, sql.Literal(number), sql.Literal(target)
        )
        for number, target in enumerate(index.statistics_targets, 1)
        if target is not None
    ]
    if index.comment is not None:
        statements.append(sql.SQL("COMMENT ON INDEX {} IS {}").format(name, sql.Literal(index.comment)))
    if constraint is not None and constraint.comment is not None:
        statements.append(compose_constraint_comment(table, constraint.name, constraint.comment))
    if index.is_clustered:
        statements.append(sql.SQL("ALTER TABLE {} CLUSTER ON {}").format(relation, sql.Identifier(index.name)))
    if index.is_replica_identity:
        use = sql.SQL("ALTER TABLE {} REPLICA IDENTITY USING INDEX {}")
        statements.append(use.format(relation, sql.Identifier(index.name)))
    return statements


def compose_constraint_comment(table: Table, name: str, comment: str) -> sql.Composed:
    """Return COMMENT ON CONSTRAINT."""
    return sql.SQL("COMMENT ON CONSTRAINT {} ON {} IS {}").format(
        sql.Identifier(name), sql.Identifier(*table), sql.Literal(comment)
    )


def compose_foreign_key(
    constraint: ConstraintRow, definition: TableDefinition, table: Table
) -> tuple[sql.Composed, sql.Composed | None]:
    """Return the statement that adds a foreign key without a check of the rows, and the one that validates it.

    `definition` is that of the old table, and `table` the new one. The second statement is None if the key was not
    valid or not enforced. Adding the key blocks writers of the referenced table. Validating the key does not block
    them. A key of the old table that refers to the old table itself will refer to the new table. Raises TargetError if
    it is unclear to which table the key refers.
    """
    head, own, tail = constraint.definition.partition(f") REFERENCES {definition.table.quoted_name}(")
    if own in tail and own:
        raise TargetError(f'cannot tell to which table foreign key "{constraint.name}" of "{definition.name}" refers')
    text: sql.Composable = sql.SQL(constraint.definition)
    if own:
        text = sql.SQL("{}) REFERENCES {}({}").format(sql.SQL(head), sql.Identifier(*table), sql.SQL(tail))
    validate = sql.SQL("ALTER TABLE {} VALIDATE CONSTRAINT {}")
    if not (constraint.is_validated and constraint.is_enforced):
        return _add_constraint(table, constraint.name, text), None
    add = _add_constraint(table, constraint.name, sql.SQL("{} NOT VALID").format(text))
    return add, validate.format(sql.Identifier(*table), sql.Identifier(constraint.name))


def _compose_options(options: Sequence[str]) -> sql.Composed:
    """Return storage parameters for WITH and SET, from the name=value pairs of the catalog."""
    pairs = (option.partition("=") for option in options)
    return sql.SQL(", ").join(
        sql.SQL("{} = {}").format(sql.Identifier(name), sql.Literal(value)) for name, _, value in pairs
    )


def _compose_deferral(constraint: ConstraintRow) -> sql.SQL:
    if not constraint.is_deferrable:
        return sql.SQL("")
    return sql.SQL(" DEFERRABLE INITIALLY DEFERRED" if constraint.is_deferred else " DEFERRABLE")


def _add_constraint(table: Table, name: str, definition: sql.Composable) -> sql.Composed:
    return sql.SQL("ALTER TABLE {} ADD CONSTRAINT {} {}").format(
        sql.Identifier(*table), sql.Identifier(name), definition
    )
