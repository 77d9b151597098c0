"""A table's definition as frozen values: the rows of the ddl_*.sql files, and their combination.

Two definitions are equal if the tables differ only in their OIDs and in the state of their sequences. All expressions
and definitions are the server's own text, with every name qualified.
"""

from __future__ import annotations

from dataclasses import field

from penstock.frozen import frozen
from penstock.model.server.table import TableName


@frozen
class TableRow:
    """The row of ddl_table.sql."""

    oid: int = field(compare=False)
    name: str
    schema: str
    quoted_name: str
    owner: str
    # pg_class.relpersistence.
    persistence: str
    access_method: str | None
    tablespace: str


@frozen
class IndexRow:
    """The row of ddl_indexes.sql."""

    name: str
    is_unique: bool
    body: str | None
    # None for an index without a constraint.
    constraint_name: str | None
    tablespace: str
    options: list[str]
    is_clustered: bool
    is_replica_identity: bool
    statistics_targets: list[int | None]
    comment: str | None

    @property
    def is_marked(self) -> bool:
        """Whether ALTER TABLE must mark the index, which locks the table: for CLUSTER, or as the replica identity."""
        return self.is_clustered or self.is_replica_identity


@frozen
class ConstraintRow:
    """The row of ddl_constraints.sql."""

    name: str
    # pg_constraint.contype, 'n' for NOT NULL.
    kind: str
    definition: str
    is_deferrable: bool
    is_deferred: bool
    is_validated: bool
    is_enforced: bool
    is_temporal: bool
    comment: str | None

    @property
    def makes_index(self) -> bool:
        """Whether ADD CONSTRAINT must create the index: an exclusion constraint, or a key WITHOUT OVERLAPS."""
        return self.kind == "x" or self.is_temporal


@frozen
class PublicationRow:
    """The row of ddl_publications.sql."""

    name: str
    # None for a publication of all tables, or of a whole schema.
    statement: str | None


@frozen
class PartRow:
    """The row of ddl_parts.sql."""

    part: str
    step: str
    # None if the part was dropped while it was read.
    statement: str | None


@frozen
class HandoverRow:
    """The row of ddl_handover.sql."""

    step: str
    statement: str


@frozen
class Obstacle:
    """The row of ddl_obstacles.sql: the kind of the obstacle, and PostgreSQL's description of it."""

    kind: str
    description: str


@frozen
class TableDefinition:
    """Everything that defines a table, except its rows."""

    table: TableRow
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
        """Return the publications of all tables or of the whole schema, which publish a replacement too."""
        return tuple(publication.name for publication in self.publications if publication.statement is None)

    def statements(self, step: str) -> list[str]:
        """Return the statements of all parts for a step."""
        return [part.statement or "" for part in self.parts if part.step == step]

    def name_indexes(self, oid: int) -> dict[str, str]:
        """Return a temporary name for each index of the replacement table, by the name of the old index.

        `oid` is the replacement's. Each name contains it, so the names are unique.
        """
        return {index.name: f"penstock_{oid}_index_{number}" for number, index in enumerate(self.indexes, 1)}


def find_differences(first: TableDefinition, second: TableDefinition, *, retyped: int = 0) -> tuple[str, ...]:
    """Return the parts in which two definitions differ, as words: table, indexes, constraints, columns, triggers ...

    The other types of `retyped` columns do not count as a difference.
    """
    fields = ("table", "indexes", "constraints", "publications")
    found = {name for name in fields if getattr(first, name) != getattr(second, name)}
    parts = {*first.parts} ^ {*second.parts}
    columns = {part for part in parts if part.part == "columns" and part.step == "like"}
    if len(columns) == 2 * retyped:
        parts -= columns
    return tuple(sorted(found | {part.part for part in parts}))
