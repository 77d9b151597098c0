"""The statements for what is said about a table: grants, comments, security labels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from psycopg import sql

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.server.ddl.definition import Grant, TableDefinition
    from penstock.server.ddl.names import WorkingNames


def order_grants(grants: Sequence[Grant]) -> list[Grant]:
    """Return grants so that whoever passes a privilege on has been given it, with grant option, before."""
    ordered: list[Grant] = []
    waiting = list(grants)
    while waiting:
        ready = [grant for grant in waiting if grant.is_by_owner or _is_covered(grant, ordered)]
        # The catalogue holds no grant without its ground; should it, the server says so.
        ready = ready or waiting
        ordered += ready
        waiting = [grant for grant in waiting if grant not in ready]
    return ordered


def compose_revokes(replacement: TableDefinition, names: WorkingNames) -> list[sql.Composed]:
    """Return what takes away all privileges that a new table has been given, by default privileges or otherwise."""
    grantees: dict[str | None, set[str | None]] = {}
    for grant in replacement.grants:
        grantees.setdefault(grant.sequence, set()).add(grant.grantee)
    columns = {sequence.name: sequence.column for sequence in replacement.identity_sequences}
    statements: list[sql.Composed] = []
    for sequence, roles in grantees.items():
        target = _compose_target(names, None if sequence is None else columns[sequence])
        revoke = sql.SQL("REVOKE ALL ON {} FROM {} CASCADE")
        statements += [revoke.format(target, _compose_role(role)) for role in sorted(roles, key=str)]
    return statements


def compose_owner_grants(definition: TableDefinition, names: WorkingNames) -> list[sql.Composed]:
    """Return what lets the owner load, whatever default privileges say, until the old table's grants are copied."""
    owner = _compose_role(definition.table.owner)
    targets = [_compose_target(names, column) for column in (None, *names.sequences)]
    return [sql.SQL("GRANT ALL ON {} TO {}").format(target, owner) for target in targets]


def compose_grant(grant: Grant, definition: TableDefinition, names: WorkingNames) -> sql.Composed:
    """Return a GRANT; it is the grantor's to give unless that is the owner."""
    columns = {sequence.name: sequence.column for sequence in definition.identity_sequences}
    target = _compose_target(names, None if grant.sequence is None else columns[grant.sequence])
    column = sql.SQL("") if grant.column is None else sql.SQL(" ({})").format(sql.Identifier(grant.column))
    return sql.SQL("GRANT {}{} ON {} TO {}{}").format(
        sql.SQL(grant.privilege),
        column,
        target,
        _compose_role(grant.grantee),
        sql.SQL(" WITH GRANT OPTION" if grant.is_grantable else ""),
    )


def compose_comments(definition: TableDefinition, names: WorkingNames) -> Iterator[sql.Composed]:
    """Yield the comments on all that has been made before the swap; the table's own replaces the working one."""
    table = names.qualified
    yield _comment(sql.SQL("TABLE {}").format(table), definition.table.comment)
    found: list[tuple[sql.Composed, str | None]] = []
    for column in definition.columns:
        place = sql.Identifier(names.schema, names.table, column.name)
        found.append((sql.SQL("COLUMN {}").format(place), column.comment))
    found += [(sql.SQL("INDEX {}").format(names.index(index)), index.comment) for index in definition.indexes]
    for constraint in definition.constraints:
        place_of = sql.SQL("CONSTRAINT {} ON {}").format(names.constraint(constraint), table)
        found.append((place_of, constraint.comment))
    for trigger in definition.triggers:
        found.append((sql.SQL("TRIGGER {} ON {}").format(sql.Identifier(trigger.name), table), trigger.comment))
    for statistics in definition.statistics:
        found.append((sql.SQL("STATISTICS {}").format(names.statistics_object(statistics)), statistics.comment))
    for sequence in definition.identity_sequences:
        found.append((sql.SQL("SEQUENCE {}").format(sql.SQL(names.sequences[sequence.column])), sequence.comment))
    yield from (_comment(place, text) for place, text in found if text is not None)


def compose_late_comments(definition: TableDefinition, names: WorkingNames) -> Iterator[sql.Composed]:
    """Yield the comments on rules and policies, which are made in the swap."""
    for word, parts in (("RULE", definition.rules), ("POLICY", definition.policies)):
        for part in parts:
            if part.comment is not None:
                place = sql.SQL("{} {} ON {}").format(sql.SQL(word), sql.Identifier(part.name), names.qualified)
                yield _comment(place, part.comment)


def compose_labels(definition: TableDefinition, names: WorkingNames) -> Iterator[sql.Composed]:
    """Yield the security labels."""
    for label in definition.labels:
        place = (
            sql.SQL("TABLE {}").format(names.qualified)
            if label.column is None
            else sql.SQL("COLUMN {}").format(sql.Identifier(names.schema, names.table, label.column))
        )
        yield sql.SQL("SECURITY LABEL FOR {} ON {} IS {}").format(
            sql.Identifier(label.provider), place, sql.Literal(label.label)
        )


def _is_covered(grant: Grant, given: Sequence[Grant]) -> bool:
    """Whether the grantor holds the grant option: on the column, or on the whole table."""
    return any(
        other.is_grantable
        and other.grantee == grant.grantor
        and other.privilege == grant.privilege
        and other.sequence == grant.sequence
        and other.column in {None, grant.column}
        for other in given
    )


def _compose_target(names: WorkingNames, sequence_column: str | None) -> sql.Composed:
    if sequence_column is None:
        return sql.SQL("TABLE {}").format(names.qualified)
    return sql.SQL("SEQUENCE {}").format(sql.SQL(names.sequences[sequence_column]))


def _compose_role(role: str | None) -> sql.Composable:
    return sql.SQL("PUBLIC") if role is None else sql.Identifier(role)


def _comment(place: sql.Composable, text: str | None) -> sql.Composed:
    return sql.SQL("COMMENT ON {} IS {}").format(place, sql.Literal(text))
