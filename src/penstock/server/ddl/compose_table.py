"""The statements that make the bare new table: columns, and all that decides how rows are stored."""

from __future__ import annotations

from typing import TYPE_CHECKING

from psycopg import sql

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.server.ddl.definition import ColumnRow, SequenceRow, TableDefinition

_STORAGE = {"p": "PLAIN", "e": "EXTERNAL", "m": "MAIN", "x": "EXTENDED"}
_COMPRESSION = {"p": "pglz", "l": "lz4"}
_IDENTITY = {"a": "ALWAYS", "d": "BY DEFAULT"}
_GENERATED = {"s": "STORED", "v": "VIRTUAL"}


def compose_create(definition: TableDefinition, name: str) -> sql.Composed:
    """Return CREATE TABLE for a new table of another name; NOT NULL is the only constraint it has."""
    table = definition.table
    sequences = {sequence.column: sequence for sequence in definition.identity_sequences}
    named = [constraint for constraint in definition.constraints if constraint.kind == "n"]
    elements = [
        compose_column(column, sequences.get(column.name), says_not_null=not named) for column in definition.columns
    ]
    elements += [
        sql.SQL("CONSTRAINT {} {}").format(sql.Identifier(constraint.name), sql.SQL(constraint.definition))
        for constraint in named
        if constraint.is_validated
    ]
    options = [
        *compose_options(table.options),
        *(sql.SQL("toast.{}").format(option) for option in compose_options(table.toast_options)),
    ]
    return sql.SQL("CREATE {}TABLE {} ({}){}{}{}").format(
        sql.SQL("UNLOGGED " if table.persistence == "u" else ""),
        sql.Identifier(table.schema, name),
        sql.SQL(", ").join(elements),
        _clause(" USING {}", table.access_method),
        sql.SQL(" WITH ({})").format(sql.SQL(", ").join(options)) if options else sql.SQL(""),
        _clause(" TABLESPACE {}", table.tablespace),
    )


def compose_column(column: ColumnRow, sequence: SequenceRow | None, *, says_not_null: bool) -> sql.Composed:
    """Return a column as CREATE TABLE has it; from PostgreSQL 18 on NOT NULL is a constraint with a name, apart."""
    parts: list[sql.Composable] = [sql.Identifier(column.name), sql.SQL(column.type_name)]
    if column.collation is not None:
        parts.append(sql.SQL("COLLATE {}").format(sql.SQL(column.collation)))
    if sequence is not None:
        parts.append(_compose_identity(column, sequence))
    elif column.generated:
        kind = sql.SQL(_GENERATED[column.generated])
        parts.append(sql.SQL("GENERATED ALWAYS AS ({}) {}").format(sql.SQL(column.expression or ""), kind))
    elif column.expression is not None:
        parts.append(sql.SQL("DEFAULT {}").format(sql.SQL(column.expression)))
    if column.is_not_null and says_not_null:
        parts.append(sql.SQL("NOT NULL"))
    return sql.SQL(" ").join(parts)


def compose_column_settings(column: ColumnRow, table: sql.Identifier) -> list[sql.Composed]:
    """Return what CREATE TABLE cannot say of a column in all versions: storage, compression, statistics, options."""
    actions: list[sql.Composable] = []
    if column.storage is not None:
        actions.append(sql.SQL("SET STORAGE {}").format(sql.SQL(_STORAGE[column.storage])))
    if column.compression is not None:
        actions.append(sql.SQL("SET COMPRESSION {}").format(sql.SQL(_COMPRESSION[column.compression])))
    if column.statistics_target is not None:
        actions.append(sql.SQL("SET STATISTICS {}").format(sql.Literal(column.statistics_target)))
    if column.options:
        actions.append(sql.SQL("SET ({})").format(sql.SQL(", ").join(compose_options(column.options))))
    name = sql.Identifier(column.name)
    return [sql.SQL("ALTER TABLE {} ALTER COLUMN {} {}").format(table, name, action) for action in actions]


def compose_options(options: Sequence[str]) -> list[sql.Composed]:
    """Return storage parameters as WITH and SET take them, from the catalogue's name=value."""
    pairs = (option.partition("=") for option in options)
    return [sql.SQL("{} = {}").format(sql.Identifier(name), sql.Literal(value)) for name, _, value in pairs]


def _compose_identity(column: ColumnRow, sequence: SequenceRow) -> sql.Composed:
    numbers = (sequence.start, sequence.increment, sequence.minimum, sequence.maximum, sequence.cache)
    # PostgreSQL's own literals put blanks around negative numbers; plain digits read better in the server's log.
    options = "START WITH {} INCREMENT BY {} MINVALUE {} MAXVALUE {} CACHE {}".format(*numbers)
    return sql.SQL("GENERATED {} AS IDENTITY ({}{})").format(
        sql.SQL(_IDENTITY[column.identity]), sql.SQL(options), sql.SQL(" CYCLE" if sequence.is_cycled else "")
    )


def _clause(template: str, name: str | None) -> sql.Composable:
    return sql.SQL(template).format(sql.Identifier(name)) if name else sql.SQL("")
