"""What a table is made of, as frozen values: the rows of the ddl_*.sql files and the definition they add up to.

Two definitions are equal where two tables differ in nothing but their oids and the state of their sequences. All
expressions and definitions are the server's own text, with every name qualified.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from penstock.model.table import TableName

__all__ = [
    "ColumnRow",
    "ConstraintRow",
    "Grant",
    "IndexRow",
    "LabelRow",
    "PolicyRow",
    "PublicationRow",
    "RuleRow",
    "SequenceRow",
    "SequenceState",
    "StatisticsRow",
    "TableDefinition",
    "TableRow",
    "TriggerRow",
    "find_differences",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRow:
    """The row of ddl_table.sql; `kind`, `persistence` and `replica_identity` are pg_class's letters."""

    oid: int = field(compare=False)
    name: str
    schema: str
    quoted_name: str
    kind: str
    owner: str
    persistence: str
    access_method: str | None
    tablespace: str
    options: list[str]
    toast_options: list[str]
    replica_identity: str
    has_row_security: bool
    forces_row_security: bool
    is_partition: bool
    of_type: str | None
    parents: list[str]
    comment: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnRow:
    """The row of ddl_columns.sql; `expression` is the default, or what a generated column is generated from.

    `generated` is '', 's' (stored) or 'v' (virtual), `identity` '', 'a' (always) or 'd' (by default).
    """

    name: str
    type_name: str
    collation: str | None
    is_not_null: bool
    expression: str | None
    generated: str
    identity: str
    storage: str | None
    compression: str | None
    statistics_target: int | None
    options: list[str]
    comment: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceRow:
    """The row of ddl_sequences.sql."""

    oid: int = field(compare=False)
    name: str
    quoted_name: str
    column: str
    is_identity: bool
    type_name: str
    start: int
    increment: int
    minimum: int
    maximum: int
    cache: int
    is_cycled: bool
    comment: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceState:
    """Where a sequence stands; `is_called` tells whether `last_value` has been given out."""

    name: str
    last_value: int
    is_called: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexRow:
    """The row of ddl_indexes.sql; `constraint_name` is None for an index that is no constraint's."""

    name: str
    is_unique: bool
    body: str | None
    constraint_name: str | None
    tablespace: str
    options: list[str]
    is_clustered: bool
    is_replica_identity: bool
    statistics_targets: list[int | None]
    comment: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstraintRow:
    """The row of ddl_constraints.sql; `kind` is pg_constraint.contype, 'n' for NOT NULL."""

    name: str
    kind: str
    definition: str
    self_reference_head: str | None
    is_deferrable: bool
    is_deferred: bool
    is_validated: bool
    is_enforced: bool
    is_temporal: bool
    comment: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """The row of ddl_grants.sql: one privilege on the table, on a column of it, or on an identity sequence."""

    sequence: str | None
    column: str | None
    privilege: str
    grantee: str | None
    grantor: str
    is_by_owner: bool
    is_grantable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRow:
    """The row of ddl_policies.sql; the role '' is PUBLIC."""

    name: str
    is_permissive: bool
    command: str
    roles: list[str]
    using_expression: str | None
    check_expression: str | None
    comment: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerRow:
    """The row of ddl_triggers.sql; `enabled` is O (origin), D (disabled), R (replica) or A (always)."""

    name: str
    head: str
    body: str | None
    enabled: str
    comment: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleRow:
    """The row of ddl_rules.sql; `enabled` as with triggers."""

    name: str
    definition: str
    enabled: str
    comment: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StatisticsRow:
    """The row of ddl_statistics.sql."""

    schema: str
    name: str
    body: str | None
    owner: str
    target: int | None
    comment: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicationRow:
    """The row of ddl_publications.sql; one that is not explicit takes the table in by its schema, or takes in all."""

    name: str
    is_explicit: bool
    columns: list[str] | None
    filter: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelRow:
    """The row of ddl_labels.sql; `column` is None for the table's own label."""

    provider: str
    column: str | None
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TableDefinition:
    """All that makes a table what it is, but for its rows."""

    table: TableRow
    columns: tuple[ColumnRow, ...]
    sequences: tuple[SequenceRow, ...]
    sequence_states: tuple[SequenceState, ...] = field(compare=False)
    indexes: tuple[IndexRow, ...]
    constraints: tuple[ConstraintRow, ...]
    grants: tuple[Grant, ...]
    policies: tuple[PolicyRow, ...]
    triggers: tuple[TriggerRow, ...]
    rules: tuple[RuleRow, ...]
    statistics: tuple[StatisticsRow, ...]
    publications: tuple[PublicationRow, ...]
    labels: tuple[LabelRow, ...]

    @property
    def oid(self) -> int:
        """Return the table's oid."""
        return self.table.oid

    @property
    def name(self) -> TableName:
        """Return the table's qualified name."""
        return TableName(schema=self.table.schema, name=self.table.name)

    @property
    def identity_sequences(self) -> tuple[SequenceRow, ...]:
        """Return the sequences that identity columns have of their own: a new table gets new ones."""
        return tuple(sequence for sequence in self.sequences if sequence.is_identity)

    @property
    def shared_sequences(self) -> tuple[SequenceRow, ...]:
        """Return the sequences owned by ALTER SEQUENCE ... OWNED BY, as serial's are: they go on serving."""
        return tuple(sequence for sequence in self.sequences if not sequence.is_identity)

    @property
    def implicit_publications(self) -> tuple[str, ...]:
        """Return the publications of all tables, or of the schema's: they publish a replacement too."""
        return tuple(publication.name for publication in self.publications if not publication.is_explicit)


def find_differences(first: TableDefinition, second: TableDefinition) -> tuple[str, ...]:
    """Return in which parts two definitions differ, in words: table, columns, sequences, indexes ..."""
    return tuple(
        part.name
        for part in fields(TableDefinition)
        if part.compare and getattr(first, part.name) != getattr(second, part.name)
    )
