"""The names under which the parts of a replacement live until the swap.

Columns, constraints that have no index, triggers, policies and rules have their names within the table: theirs are
final from the start. Indexes, statistics and sequences share a schema with the old table's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from psycopg import sql

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.server.ddl.definition import ConstraintRow, IndexRow, StatisticsRow, TableDefinition


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkingNames:
    """What the parts of one replacement are called now; `sequences` are quoted names by column."""

    schema: str
    table: str
    indexes: Mapping[str, str]
    statistics: Mapping[tuple[str, str], str]
    sequences: Mapping[str, str]

    @property
    def qualified(self) -> sql.Identifier:
        """Return the table's name with its schema."""
        return sql.Identifier(self.schema, self.table)

    def index(self, index: IndexRow) -> sql.Identifier:
        """Return an index's name with its schema."""
        return sql.Identifier(self.schema, self.indexes[index.name])

    def constraint(self, constraint: ConstraintRow) -> sql.Identifier:
        """Return a constraint's name: that of its index, where it has one."""
        has_index = constraint.kind in "pux"
        return sql.Identifier(self.indexes[constraint.name] if has_index else constraint.name)

    def statistics_object(self, statistics: StatisticsRow) -> sql.Identifier:
        """Return the name of extended statistics with their schema, which need not be the table's."""
        return sql.Identifier(statistics.schema, self.statistics[statistics.schema, statistics.name])


def name_indexes(definition: TableDefinition, oid: int) -> dict[str, str]:
    """Return the working names of indexes by their own, after the replacement's oid, so that no two tables meet."""
    return {index.name: f"penstock_{oid}_index_{number}" for number, index in enumerate(definition.indexes, 1)}


def choose_names(definition: TableDefinition, replacement: TableDefinition) -> WorkingNames:
    """Return the names in a replacement; what it lacks yet is named after its oid, so that no two tables meet."""
    prefix = f"penstock_{replacement.oid}"
    columns = {sequence.column: sequence.quoted_name for sequence in replacement.identity_sequences}
    return WorkingNames(
        schema=definition.table.schema,
        table=replacement.table.name,
        indexes=name_indexes(definition, replacement.oid),
        statistics={
            (statistics.schema, statistics.name): f"{prefix}_statistics_{number}"
            for number, statistics in enumerate(definition.statistics, 1)
        },
        sequences={sequence.column: columns[sequence.column] for sequence in definition.identity_sequences},
    )
