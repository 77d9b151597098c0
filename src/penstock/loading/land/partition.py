"""Models a new partition, makes it as a table by itself, and attaches it to its parent.

A model is made by the server: a table like the parent, and temporary partitions with the bounds of all others. Both are
rolled back. So nothing is locked against others, and errors have the server's words.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace

from psycopg import sql

from penstock.changes.tables.definition import (
    ConstraintRow,
    DdlObstacle,
    PublicationRow,
    TableDefinition,
    find_differences,
    local_settings,
    run_all,
)
from penstock.changes.tables.parts import IndexPart, capture_many
from penstock.core.catalogue.tables import check_names
from penstock.core.connect.connection import Connection
from penstock.core.connect.errors import in_transaction, rolled_back, translate_errors
from penstock.core.connect.search_path import users_settings
from penstock.core.errors import ServerError, TargetError
from penstock.core.slotted import slotted
from penstock.core.sql import fetch_one, fetch_rows
from penstock.core.units import MIB
from penstock.core.values.table import TableFacts, TableName
from penstock.loading.land.exchange import FURTHER_LOCKS_TIMEOUT, capture_table, create_replacement
from penstock.loading.land.leaf import ReplacedPartition, compose_attach, compose_bounds, find_partition

_log = logging.getLogger(__name__)

# ATTACH reads the default partition under an ACCESS EXCLUSIVE lock. This much takes moments.
_MOST_DEFAULT_BYTES = 64 * MIB


@slotted
class ParentRow:
    """The row of partition_parent.sql: a partitioned table, as far as a new partition of it must be like it."""

    oid: int
    schema: str
    name: str
    # The partition key, as PARTITION BY takes it.
    key: str
    # The condition on the rows of a parent that is a partition itself, None for others.
    own_bounds: str | None
    # Empty for the default, as is the tablespace.
    access_method: str
    tablespace: str
    # The names of the partitions and their bounds, in the same order, without the default partition.
    partitions: list[str]
    bounds: list[str]
    default_oid: int | None
    default_partition: str | None
    # The actions of ALTER TABLE by which identity columns get the values of the parent's sequences.
    defaults: list[str]

    @property
    def table(self) -> sql.Identifier:
        """Return the parent's qualified name."""
        return sql.Identifier(self.schema, self.name)


@slotted
class PartitionModel:
    """A partition as it is to be, before it is attached."""

    definition: TableDefinition
    # The indexes of the model, which has been rolled back.
    indexes: tuple[IndexPart, ...]
    parent: ParentRow
    # What follows PARTITION in ATTACH, as the server writes it: FOR VALUES ...
    bounds: str
    # The condition that all rows of the partition fulfil.
    check: str

    @property
    def meaning(self) -> object:
        """Return what must be the same if a table that an earlier run has made is to be attached."""
        return self.definition, self.parent.oid, self.bounds, self.check


def refuse_parent(connection: Connection, facts: TableFacts, *, skips_triggers: bool) -> None:
    """Raise TargetError that lists all reasons why a partition cannot be built aside for the parent of `facts`."""
    if lines := _find_obstacles(connection, facts.oid, skips_triggers=skips_triggers, is_new=True):
        raise TargetError(
            f'cannot build a partition of table "{facts.parent}" aside',
            detail=lines,
            hint="Or make the partition by CREATE TABLE ... PARTITION OF, and load into it without --partition-of.",
        )


def refuse_partition(connection: Connection, name: TableName, partition: ReplacedPartition) -> None:
    """Raise TargetError that lists all reasons why partition `name` cannot be replaced by a table of its own."""
    # Like all of --mode replace, the triggers do not fire: describe_notices (plan/modes.py) says so.
    lines = _find_obstacles(connection, partition.parent_oid, skips_triggers=True, is_new=False)
    if partition.is_default:
        lines = f"default partition: its bounds change with each new partition\n{lines}".rstrip()
    if partition.is_detaching:
        lines = (
            f"detached partition: DETACH PARTITION ... FINALIZE has to end its DETACH CONCURRENTLY\n{lines}".rstrip()
        )
    if lines:
        raise TargetError(
            f'cannot replace partition "{name}" of table {partition.parent}',
            detail=lines,
            hint="Load with --mode truncate, which keeps the table.",
        )


def _find_obstacles(connection: Connection, oid: int, *, skips_triggers: bool, is_new: bool) -> str:
    """Return a line for each reason why the partitioned table with this OID cannot get a table that is made aside.

    `is_new` says whether that becomes a new partition, whose bounds temporary tables try.
    """
    with translate_errors("looking at a partitioned table"):
        found = [
            *fetch_rows(
                connection,
                "loading/partition_obstacles",
                DdlObstacle,
                oid=oid,
                skips_triggers=skips_triggers,
                is_new=is_new,
                most_bytes=_MOST_DEFAULT_BYTES,
            ),
            *_find_publications(connection, oid),
        ]
    return "\n".join(f"{each.kind}: {each.description}" for each in found)


def _find_publications(connection: Connection, oid: int) -> list[DdlObstacle]:
    """Return the publications of a table or an ancestor: rows that are loaded before the attach reach no subscriber."""
    query = "SELECT relid::oid FROM pg_catalog.pg_partition_ancestors(%s)"
    found = {
        row.name
        for (line,) in connection.execute(query, [oid]).fetchall()
        for row in fetch_rows(connection, "changes/ddl_publications", PublicationRow, oid=line)
    }
    text = "publication {} publishes it, and rows that are loaded before the attach would never reach its subscribers"
    return [
        DdlObstacle(kind="publication", description=text.format(sql.Identifier(name).as_string(None)))
        for name in sorted(found)
    ]


def model_partition(connection: Connection, facts: TableFacts, for_values: str) -> PartitionModel:
    """Return the model of a new partition. `facts` are those of the plan, `for_values` is the user's text.

    Everything that is made is rolled back. Needs the parent's owner, CREATE on its schema and TEMPORARY on the
    database. Raises TargetError if the bounds are no bounds or overlap another partition, if the default partition has
    rows within them, or if the partition's name is taken, and ServerError.
    """
    check_names(facts.name, [])
    # In ISO, dates and times are read again as they were written, whatever the session's DateStyle is.
    with local_settings(connection, datestyle="ISO"):
        with translate_errors(f"looking at table {facts.parent}"):
            rows = fetch_rows(connection, "loading/partition_parent", ParentRow, oid=facts.oid)
        if not rows:
            raise TargetError(f'table "{facts.parent}" was dropped or is not partitioned any more')
        parent = rows[0]
        with translate_errors(f'trying the bounds of partition "{facts.name}"'):
            bounds, check = _find_bounds(connection, parent, facts.name.name, for_values)
            refuse_default(connection, parent, check)
        with translate_errors(f"modelling partition {facts.name}"), rolled_back(connection):
            table = sql.Identifier(parent.schema, facts.name.name)
            like = sql.SQL("CREATE TABLE {} (LIKE {} INCLUDING ALL {}){}{}")
            connection.execute(
                like.format(
                    table,
                    parent.table,
                    sql.SQL("EXCLUDING IDENTITY EXCLUDING STATISTICS EXCLUDING COMMENTS"),
                    sql.SQL(" USING {}" if parent.access_method else "").format(sql.Identifier(parent.access_method)),
                    sql.SQL(" TABLESPACE {}" if parent.tablespace else "").format(sql.Identifier(parent.tablespace)),
                )
            )
            (oid,) = fetch_one(connection, "SELECT %s::regclass::oid", [table.as_string(connection)])
            made = capture_table(connection, oid)
            indexes = capture_many(connection, [oid], what="indexes")[oid].indexes
            of_parent = capture_table(connection, parent.oid).constraints
    return PartitionModel(
        definition=_define(made, of_parent, indexes), indexes=indexes, parent=parent, bounds=bounds, check=check
    )


def _define(made: TableDefinition, of_parent: Sequence[ConstraintRow], parts: Sequence[IndexPart]) -> TableDefinition:
    """Return the definition of a table that was made like its parent, with the foreign keys of the parent.

    Indexes are in the order in which they were made, which is the parent's.
    """
    order = {part.name: part.facts.oid for part in parts}
    keys = [replace(each, comment=None) for each in of_parent if each.kind == "f"]
    constraints = sorted((*made.constraints, *keys), key=lambda each: (each.kind, each.name))
    return replace(
        made,
        table=replace(made.table, oid=0),
        constraints=tuple(constraints),
        publications=(),
        indexes=tuple(sorted(made.indexes, key=lambda each: order[each.name])),
    )


def _find_bounds(connection: Connection, parent: ParentRow, name: str, for_values: str) -> tuple[str, str]:
    """Return the bounds as the server writes them, and the condition on all rows of the partition."""
    root, new = sql.Identifier("pg_temp", parent.name), sql.Identifier("pg_temp", name)
    with rolled_back(connection):
        create = sql.SQL("CREATE TEMPORARY TABLE {} (LIKE {}) PARTITION BY {}")
        connection.execute(create.format(sql.Identifier(parent.name), parent.table, sql.SQL(parent.key)))
        taken = {parent.name, name}
        statements = []
        for number, (each, bounds) in enumerate(zip(parent.partitions, parent.bounds, strict=True)):
            # Partitions of other schemas may have equal names.
            label = each if each not in taken else f"penstock_{number}"
            taken.add(label)
            # A partitioned table has bounds and no storage, so that thousands of them need few locks and no files.
            part = sql.SQL("CREATE TEMPORARY TABLE {} PARTITION OF {} {} PARTITION BY {}")
            statements.append(part.format(sql.Identifier(label), root, sql.SQL(bounds), sql.SQL(parent.key)))
        run_all(connection, statements)
        connection.execute(sql.SQL("CREATE TEMPORARY TABLE {} (LIKE {})").format(sql.Identifier(name), root))
        attach = sql.SQL("ALTER TABLE {} ATTACH PARTITION {} FOR VALUES {}")
        with users_settings(connection):
            # `binary` makes psycopg use the extended protocol, which refuses a text with a second statement.
            connection.execute(attach.format(root, new, sql.SQL(for_values)), binary=True)
        query = (
            "SELECT pg_catalog.pg_get_expr(c.relpartbound, c.oid), pg_catalog.pg_get_partition_constraintdef(c.oid),"
            " %s::regclass::oid FROM pg_catalog.pg_class AS c WHERE c.oid = %s::regclass"
        )
        found, check, oid = fetch_one(connection, query, [root.as_string(connection), new.as_string(connection)])
    check = check.replace(f"satisfies_hash_partition('{oid}'::oid", f"satisfies_hash_partition('{parent.oid}'::oid")
    return found, check if parent.own_bounds is None else f"({parent.own_bounds}) AND ({check})"


def refuse_other_bounds(connection: Connection, facts: TableFacts, for_values: str) -> None:
    """Raise TargetError if the partition of `facts`, which exists, has other bounds than the user's text `for_values`.

    Needs TEMPORARY on the database. Raises TargetError if the text is no bounds, and ServerError.
    """
    with (
        local_settings(connection, datestyle="ISO"),
        translate_errors(f'trying the bounds of partition "{facts.name}"'),
    ):
        found = find_partition(connection, facts.oid)
        if found is None:
            raise TargetError(f'table "{facts.name}" was detached, or dropped, after the load was planned')
        (parent,) = fetch_rows(connection, "loading/partition_parent", ParentRow, oid=found.parent_oid)
        wanted, _ = _find_bounds(connection, replace(parent, partitions=[], bounds=[]), facts.name.name, for_values)
    if wanted != found.bounds:
        raise TargetError(
            f'partition "{facts.name}" exists with other bounds',
            detail=f"It is the partition {found.bounds}, not {wanted}.",
            hint="Give --for-values as it has them or, if these are wrong, detach it and attach it with others.",
        )


def refuse_default(connection: Connection, parent: ParentRow, check: str) -> None:
    """Raise TargetError if the default partition has a row that fulfils `check`, as those of the new partition do."""
    if parent.default_oid is None or parent.default_partition is None:
        return
    name, condition = sql.SQL(parent.default_partition), sql.SQL(check)
    with translate_errors("looking for rows in the default partition"):
        row = connection.execute(sql.SQL("SELECT FROM {} WHERE {} LIMIT 1").format(name, condition)).fetchone()
    if row is not None:
        raise TargetError(
            f"default partition {parent.default_partition} has rows that belong to the new partition",
            hint=f"Move them out of it first. They fulfil {check}.",
        )


def create_partition(connection: Connection, model: PartitionModel, *, name: str) -> int:
    """Create the table `name` that becomes the partition, without indexes, and return its OID.

    It has the bounds as a CHECK constraint, and the sequences of the parent's identity columns as defaults. Raises
    TargetError, ServerError.
    """
    oid = create_replacement(connection, model.definition, name=name, like=model.parent.table)
    table = sql.Identifier(model.definition.table.schema, name)
    with translate_errors(f"creating table {name}"):
        connection.execute(compose_bounds(table, model.check, model.parent.defaults))
    return oid


def attach_partition(connection: Connection, model: PartitionModel, oid: int) -> None:
    """Give the table its final name and attach it to its parent, in the caller's transaction.

    ATTACH locks the parent so that readers and writers go on, and against all the default partition and the tables to
    which foreign keys refer, where it drops triggers. Raises TargetError, and ServerError, also if the partition then
    differs from its model.
    """
    definition = model.definition
    # A session that waits for the default partition may have a lock of a table to which a foreign key refers.
    is_risky = model.parent.default_oid is not None and any(each.kind == "f" for each in definition.constraints)
    with in_transaction(connection, f"attaching partition {definition.name}"):
        statements = _compose_attach(model, oid, name=capture_table(connection, oid).table.name)
        with local_settings(connection, lock_timeout=FURTHER_LOCKS_TIMEOUT) if is_risky else nullcontext():
            run_all(connection, statements)
        # Since PostgreSQL 17, ATTACH makes columns identity columns as they are in the parent.
        ignored = {"triggers", "publications", *(["columns"] if model.parent.defaults else [])}
        by_name = replace(definition, indexes=tuple(sorted(definition.indexes, key=lambda each: each.name)))
        differences = {*find_differences(by_name, capture_table(connection, oid))} - ignored
        if differences:
            raise ServerError(
                f'partition "{definition.name}" is not like its parent',
                detail=f"They differ in: {', '.join(sorted(differences))}. The table is not attached.",
                hint="If the parent was altered since the load began, run the load again.",
            )
    _log.info("attached %s to %s.%s", definition.name, model.parent.schema, model.parent.name)


def _compose_attach(model: PartitionModel, oid: int, *, name: str) -> list[sql.Composed | str]:
    definition, parent = model.definition, model.parent
    schema, final = definition.table.schema, sql.Identifier(definition.table.name)
    table = sql.Identifier(schema, definition.table.name)
    rename = sql.SQL("ALTER {} {} RENAME TO {}")
    indexes = definition.name_indexes(oid)
    return [
        rename.format(sql.SQL("TABLE"), sql.Identifier(schema, name), final),
        sql.SQL("COMMENT ON TABLE {} IS NULL").format(table),
        *(
            rename.format(sql.SQL("INDEX"), sql.Identifier(schema, indexes[index.name]), sql.Identifier(index.name))
            for index in definition.indexes
        ),
        *definition.statements("swap"),
        *compose_attach(table, parent.table, model.bounds, parent.defaults),
    ]
