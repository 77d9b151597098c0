"""The statements that give a loaded table all that the old one has, each under its working name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from psycopg import sql

from penstock.server.ddl.compose_table import compose_options

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from penstock.server.ddl.definition import ConstraintRow, IndexRow, StatisticsRow, TableDefinition, TriggerRow
    from penstock.server.ddl.names import WorkingNames

_ENABLE = {"D": "DISABLE", "R": "ENABLE REPLICA", "A": "ENABLE ALWAYS"}


def compose_index(index: IndexRow, constraint: ConstraintRow | None, names: WorkingNames) -> list[sql.Composed]:
    """Return what makes an index, and its constraint where it has one.

    A primary key or unique constraint takes a finished index over, which alone can say where the index lies. An
    exclusion constraint, or one WITHOUT OVERLAPS, makes its own; what ADD CONSTRAINT does not say follows.
    """
    name = sql.Identifier(names.indexes[index.name])
    if constraint is not None and (constraint.kind == "x" or constraint.is_temporal):
        statements = [_add_constraint(names.qualified, name, sql.SQL(constraint.definition))]
        if index.options:
            options = sql.SQL(", ").join(compose_options(index.options))
            statements.append(sql.SQL("ALTER INDEX {} SET ({})").format(names.index(index), options))
        return statements
    unique = sql.SQL("UNIQUE " if index.is_unique else "")
    create = sql.SQL("CREATE {}INDEX {} ON {} {}").format(unique, name, names.qualified, sql.SQL(index.body or ""))
    if constraint is None:
        return [create]
    definition = sql.SQL("{} USING INDEX {}{}").format(
        sql.SQL("PRIMARY KEY" if constraint.kind == "p" else "UNIQUE"), name, _compose_deferral(constraint)
    )
    return [create, _add_constraint(names.qualified, name, definition)]


def compose_parent_index(index: IndexRow, constraint: ConstraintRow | None, names: WorkingNames) -> sql.Composed:
    """Return what makes an index of a partitioned table, and its constraint, without one for any partition."""
    name = sql.Identifier(names.indexes[index.name])
    if constraint is None:
        unique = sql.SQL("UNIQUE " if index.is_unique else "")
        body = sql.SQL(index.body or "")
        return sql.SQL("CREATE {}INDEX {} ON ONLY {} {}").format(unique, name, names.qualified, body)
    # Only here can storage parameters be said, between the columns and what is said of deferral.
    deferral = _compose_deferral(constraint)
    columns = constraint.definition.removesuffix(deferral.as_string())
    options = sql.SQL(" WITH ({})").format(sql.SQL(", ").join(compose_options(index.options)))
    return sql.SQL("ALTER TABLE ONLY {} ADD CONSTRAINT {} {}{}{}").format(
        names.qualified, name, sql.SQL(columns), options if index.options else sql.SQL(""), deferral
    )


def compose_index_marks(definition: TableDefinition, names: WorkingNames) -> Iterator[sql.Composed]:
    """Yield statistics targets of expressions, the mark of CLUSTER, and the replica identity."""
    for index in definition.indexes:
        for number, target in enumerate(index.statistics_targets, 1):
            if target is not None:
                yield sql.SQL("ALTER INDEX {} ALTER COLUMN {} SET STATISTICS {}").format(
                    names.index(index), sql.Literal(number), sql.Literal(target)
                )
        name = sql.Identifier(names.indexes[index.name])
        if index.is_clustered:
            yield _alter(names, sql.SQL("CLUSTER ON {}").format(name))
        if index.is_replica_identity:
            yield _alter(names, sql.SQL("REPLICA IDENTITY USING INDEX {}").format(name))
    # What USING INDEX ('i') stands for is said with the index.
    if word := {"n": "NOTHING", "f": "FULL"}.get(definition.table.replica_identity):
        yield _alter(names, sql.SQL("REPLICA IDENTITY {}").format(sql.SQL(word)))


def compose_checks(
    definition: TableDefinition, names: WorkingNames, *, but: Collection[str] = ()
) -> Iterator[sql.Composed]:
    """Yield the check constraints, and NOT NULL constraints that are not validated, `but` those of some names."""
    for constraint in definition.constraints:
        if constraint.name in but:
            continue
        if constraint.kind == "c" or (constraint.kind == "n" and not constraint.is_validated):
            name = sql.Identifier(constraint.name)
            yield _add_constraint(names.qualified, name, sql.SQL(constraint.definition))


def compose_foreign_key(
    constraint: ConstraintRow, definition: TableDefinition, names: WorkingNames
) -> tuple[sql.Composed, sql.Composed | None]:
    """Return what adds a foreign key without looking at rows, and what then validates it, if it was valid.

    Adding takes a lock on the referenced table that stops its writers; validating takes one that does not.
    """
    text: sql.Composable = sql.SQL(constraint.definition)
    if constraint.self_reference_head is not None:
        head = constraint.self_reference_head
        rest = constraint.definition.removeprefix(head).removeprefix(definition.table.quoted_name)
        assert head + definition.table.quoted_name + rest == constraint.definition
        text = sql.SQL("{}{}{}").format(sql.SQL(head), names.qualified, sql.SQL(rest))
    name = sql.Identifier(constraint.name)
    if not (constraint.is_validated and constraint.is_enforced):
        return _add_constraint(names.qualified, name, text), None
    add = _add_constraint(names.qualified, name, sql.SQL("{} NOT VALID").format(text))
    return add, _alter(names, sql.SQL("VALIDATE CONSTRAINT {}").format(name))


def compose_statistics(statistics: StatisticsRow, names: WorkingNames) -> Iterator[sql.Composed]:
    """Yield what makes extended statistics."""
    name = names.statistics_object(statistics)
    body = sql.SQL(statistics.body or "")
    yield sql.SQL("CREATE STATISTICS {} {} FROM {}").format(name, body, names.qualified)
    if statistics.target is not None:
        yield sql.SQL("ALTER STATISTICS {} SET STATISTICS {}").format(name, sql.Literal(statistics.target))
    yield sql.SQL("ALTER STATISTICS {} OWNER TO {}").format(name, sql.Identifier(statistics.owner))


def compose_trigger(trigger: TriggerRow, names: WorkingNames) -> Iterator[sql.Composed]:
    """Yield what makes a trigger and enables it as it was."""
    yield sql.SQL("{} ON {} {}").format(sql.SQL(trigger.head), names.qualified, sql.SQL(trigger.body or ""))
    if word := _ENABLE.get(trigger.enabled):
        yield _alter(names, sql.SQL("{} TRIGGER {}").format(sql.SQL(word), sql.Identifier(trigger.name)))


def compose_row_security(definition: TableDefinition, names: WorkingNames) -> Iterator[sql.Composed]:
    """Yield the row security flags; as long as there is no policy, others than the owner see no row."""
    if definition.table.has_row_security:
        yield _alter(names, sql.SQL("ENABLE ROW LEVEL SECURITY"))
    if definition.table.forces_row_security:
        yield _alter(names, sql.SQL("FORCE ROW LEVEL SECURITY"))


def compose_rules_and_policies(definition: TableDefinition, names: WorkingNames) -> Iterator[sql.Composed]:
    """Yield what may refer to the table by its name: rules and policies. It must have that name by now."""
    for rule in definition.rules:
        yield sql.SQL("{}").format(sql.SQL(rule.definition))
        if word := _ENABLE.get(rule.enabled):
            yield _alter(names, sql.SQL("{} RULE {}").format(sql.SQL(word), sql.Identifier(rule.name)))
    for policy in definition.policies:
        roles = sql.SQL(", ").join(sql.Identifier(role) if role else sql.SQL("PUBLIC") for role in policy.roles)
        yield sql.SQL("CREATE POLICY {} ON {} AS {} FOR {} TO {}{}{}").format(
            sql.Identifier(policy.name),
            names.qualified,
            sql.SQL("PERMISSIVE" if policy.is_permissive else "RESTRICTIVE"),
            sql.SQL(policy.command),
            roles,
            _compose_expression(" USING ({})", policy.using_expression),
            _compose_expression(" WITH CHECK ({})", policy.check_expression),
        )


def compose_publications(definition: TableDefinition, names: WorkingNames) -> Iterator[sql.Composed]:
    """Yield what makes the table a member of the publications that named it."""
    for publication in definition.publications:
        if not publication.is_explicit:
            continue
        columns = sql.SQL(", ").join(map(sql.Identifier, publication.columns or []))
        yield sql.SQL("ALTER PUBLICATION {} ADD TABLE ONLY {}{}{}").format(
            sql.Identifier(publication.name),
            names.qualified,
            sql.SQL(" ({})").format(columns) if publication.columns is not None else sql.SQL(""),
            _compose_expression(" WHERE ({})", publication.filter),
        )


def compose_renames(
    definition: TableDefinition, replacement: TableDefinition, names: WorkingNames
) -> Iterator[sql.Composed]:
    """Yield what gives the table and its parts the names of the old ones, which must be gone."""
    yield sql.SQL("ALTER TABLE {} RENAME TO {}").format(names.qualified, sql.Identifier(definition.table.name))
    for index in definition.indexes:
        # A constraint follows its index.
        yield sql.SQL("ALTER INDEX {} RENAME TO {}").format(names.index(index), sql.Identifier(index.name))
    for statistics in definition.statistics:
        name = names.statistics_object(statistics)
        yield sql.SQL("ALTER STATISTICS {} RENAME TO {}").format(name, sql.Identifier(statistics.name))
    old_names = {sequence.column: sequence.name for sequence in definition.identity_sequences}
    for sequence in replacement.identity_sequences:
        if sequence.name != old_names[sequence.column]:
            yield sql.SQL("ALTER SEQUENCE {} RENAME TO {}").format(
                sql.SQL(sequence.quoted_name), sql.Identifier(old_names[sequence.column])
            )


def _compose_expression(template: str, expression: str | None) -> sql.Composable:
    return sql.SQL("") if expression is None else sql.SQL(template).format(sql.SQL(expression))


def _compose_deferral(constraint: ConstraintRow) -> sql.SQL:
    if not constraint.is_deferrable:
        return sql.SQL("")
    return sql.SQL(" DEFERRABLE INITIALLY DEFERRED" if constraint.is_deferred else " DEFERRABLE")


def _add_constraint(table: sql.Identifier, name: sql.Identifier, definition: sql.Composable) -> sql.Composed:
    return sql.SQL("ALTER TABLE {} ADD CONSTRAINT {} {}").format(table, name, definition)


def _alter(names: WorkingNames, action: sql.Composable) -> sql.Composed:
    return sql.SQL("ALTER TABLE {} {}").format(names.qualified, action)
