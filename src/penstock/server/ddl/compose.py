"""Composes the statements that create a table from a definition, its indexes and its foreign keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from psycopg import sql

from penstock.errors import TargetError

if TYPE_CHECKING:
    from penstock.server.ddl.definition import ConstraintRow, IndexRow, TableDefinition

    # Schema and name.
    Table = tuple[str, str]


def compose_create(definition: TableDefinition, name: str) -> sql.Composed:
    """Return CREATE TABLE for the new table, under another name, without indexes and foreign keys."""
    table = definition.table
    without = sql.SQL("EXCLUDING INDEXES EXCLUDING STATISTICS EXCLUDING COMMENTS")
    return sql.SQL("CREATE {}TABLE {} (LIKE {} INCLUDING ALL {}){}{}").format(
        sql.SQL("UNLOGGED " if table.persistence == "u" else ""),
        sql.Identifier(table.schema, name),
        sql.Identifier(table.schema, table.name),
        without,
        sql.SQL(" USING {}" if table.access_method else "").format(sql.Identifier(table.access_method or "")),
        sql.SQL(" TABLESPACE {}" if table.tablespace else "").format(sql.Identifier(table.tablespace)),
    )


def compose_index(index: IndexRow, constraint: ConstraintRow | None, table: Table, name: str) -> list[sql.Composed]:
    """Return the statements that create an index under a name, and its constraint if it has one.

    A primary key or unique constraint uses a finished index, because only CREATE INDEX can set the tablespace. An
    exclusion constraint, or one WITHOUT OVERLAPS, creates its own index. ALTER INDEX then sets what ADD CONSTRAINT
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
    """Return CREATE INDEX. If the name is empty, the server chooses one."""
    unique = sql.SQL("UNIQUE " if index.is_unique else "")
    return sql.SQL("CREATE {}INDEX {} ON {} {}").format(unique, name, table, sql.SQL(index.body or ""))


def compose_parent_index(index: IndexRow, constraint: ConstraintRow | None, table: Table) -> sql.Composed:
    """Return the statement that creates an index of a partitioned table, and its constraint, but none on partitions."""
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
    """Return the statements for an index's properties that are not in its definition. The index has its final name."""
    name, relation = sql.Identifier(table[0], index.name), sql.Identifier(*table)
    # ALTER INDEX has no ONLY. It would give the indexes of all partitions the target of their parent.
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

    The second is None if the key was not valid or not enforced. Adding the key takes a lock on the referenced table
    that blocks its writers; validating takes one that does not. A key that refers to its own table will refer to the
    new one. Raises TargetError if it is unclear to which table the key refers.
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
