"""Replaces a table: creates the new one without indexes, finishes it after its rows are loaded, and swaps the two."""

from __future__ import annotations

import logging
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from psycopg import Rollback, errors, sql

from penstock.changes.tables.builds import Builders, Opener, plan_builds
from penstock.changes.tables.definition import (
    ConstraintRow,
    DdlObstacle,
    DdlTableRow,
    HandoverRow,
    IndexRow,
    PartRow,
    PublicationRow,
    TableDefinition,
    UnreadDefinition,
    compose_create,
    compose_create_index,
    compose_foreign_key,
    compose_index,
    compose_index_marks,
    find_differences,
    local_settings,
    look_again,
    run_all,
)
from penstock.changes.tables.parts import IndexPart, measure_tables
from penstock.changes.tables.rebuild_plan import order_by_cost
from penstock.changes.values import Change
from penstock.core.catalogue.tables import check_names
from penstock.core.connect.connection import Connection
from penstock.core.connect.errors import in_transaction, translate_errors
from penstock.core.errors import OtherTableError, PenstockError, ServerError, TargetError
from penstock.core.sql import fetch_many, fetch_one, fetch_rows, table_identifier
from penstock.core.values.table import TableName
from penstock.loading.land.leaf import ReplacedPartition, compose_bounds, find_partition
from penstock.loading.values.types import ColumnChange

# The parts of a definition. One query, changes/ddl_PART, describes each.
_PARTS: dict[str, type] = {
    "table": DdlTableRow,
    "indexes": IndexRow,
    "constraints": ConstraintRow,
    "publications": PublicationRow,
    "parts": PartRow,
}


def capture_table(connection: Connection, oid: int, *, name: TableName | None = None) -> TableDefinition:
    """Return the definition of the table with this OID.

    Any kind of relation is captured; find_obstacles decides whether it can be replaced. The queries see one state of
    the catalog only if the caller holds a lock on the table. `name` is the name that the table had when its OID was
    read; the error contains it. Raises TargetError if the table does not exist, or if a part of its definition is not
    understood, and ServerError.
    """
    return look_again(lambda: _capture(connection, oid, name), connection)


def find_obstacles(connection: Connection, definition: TableDefinition) -> tuple[DdlObstacle, ...]:
    """Return everything that prevents a table's replacement: dependent objects, the table's kind, missing privileges.

    Function bodies that are stored as text (PL/pgSQL, SQL in quotes) and prepared statements look up the table by name,
    so they find the new one and do not prevent the replacement. pg_shdepend records nothing that depends on a table.
    Raises ServerError.
    """
    with translate_errors(f"looking for what depends on table {definition.name}"):
        return tuple(fetch_rows(connection, "loading/ddl_obstacles", DdlObstacle, oid=definition.oid))


def refuse_obstacles(name: TableName, obstacles: Sequence[DdlObstacle]) -> None:
    """Raise TargetError that lists all obstacles to replacing table `name`. Do nothing if there are none."""
    if not obstacles:
        return
    lines = "\n".join(f"{obstacle.kind}: {obstacle.description}" for obstacle in obstacles)
    hint = "Load with --mode truncate, which keeps the table, or drop these first and create them anew after the load."
    if {obstacle.kind for obstacle in obstacles} <= {"view", "materialized view"}:
        views = ", ".join(obstacle.description for obstacle in obstacles)
        hint = (
            f"Drop {views} before the load and create it anew after it; or load with --mode truncate, which keeps it: "
            "readers then see an empty table at first, and with --atomic they wait for most of the load."
        )
    raise TargetError(
        f'cannot replace table "{name}"',
        detail=f"A new table could not take its place because of:\n{lines}",
        hint=hint,
    )


def _capture(connection: Connection, oid: int, name: TableName | None) -> TableDefinition:
    with translate_errors("reading a table's definition"):
        queries = [(f"changes/ddl_{part}", row_type) for part, row_type in _PARTS.items()]
        parts = dict(zip(_PARTS, map(tuple, fetch_many(connection, queries, oid=oid)), strict=True))
        if not parts["table"]:
            raise _gone(connection, oid, name)
    (table,) = parts.pop("table")
    definition = TableDefinition(table=table, **parts)
    constraints = {None, *(constraint.name for constraint in definition.constraints)}
    unread = {part.part for part in definition.parts if part.statement is None}
    unread |= {
        index.name for index in definition.indexes if index.body is None or index.constraint_name not in constraints
    }
    if unread:
        raise UnreadDefinition(
            f'cannot read the definition of "{definition.name}"',
            detail=f"Not understood: {', '.join(sorted(unread))}.",
            hint="Please report this with the output of pg_dump --schema-only for the table.",
        )
    return definition


def _gone(connection: Connection, oid: int, name: TableName | None) -> TargetError:
    """Return the error for a table whose OID no longer exists. Its name may belong to another table now."""
    if name is None:
        return TargetError("the table is gone", detail=f"There is no relation with oid {oid}.")
    quoted = table_identifier(name).as_string(connection)
    row = connection.execute("SELECT pg_catalog.to_regclass(%s) IS NULL", [quoted]).fetchone()
    is_dropped = row == (True,)
    return OtherTableError(
        f'table "{name}" was {"dropped" if is_dropped else "replaced"} after the load was planned',
        detail=None if is_dropped else "Another load with --mode replace did so, or somebody who created it anew.",
        hint="Create it again, then run the load again."
        if is_dropped
        else "Run the load again, if it is still wanted.",
    )


_log = logging.getLogger(__name__)

# How long a swap waits for each further lock after it has locked the old table, and an attach for each if it locks a
# default partition and other tables. A session that waits for the first table may itself hold a lock that the swap
# needs, and then the two sessions are deadlocked. PostgreSQL would cancel the query of the other session, because that
# session began to wait first, so its deadlock_timeout (1 s) ends first.
FURTHER_LOCKS_TIMEOUT = "100ms"


def _at_once(act: Callable[[], object]) -> object:
    return act()


def create_replacement(
    connection: Connection,
    definition: TableDefinition,
    *,
    name: str,
    retyped: Sequence[ColumnChange] = (),
    like: sql.Identifier | None = None,
    partition: ReplacedPartition | None = None,
) -> int:
    """Create the new table `name` in the old one's schema, without indexes, and return its OID.

    `definition` is that of the old table. The columns in `retyped` get other types than in the old table. If an index
    or a CHECK constraint cannot be created for these types, the error is raised now, and not after the rows are loaded.
    `like` is the table to copy if it is not the old one; its identity columns become ordinary ones. `partition` is what
    makes the old table a partition: the new one then has its bounds as a CHECK constraint.

    The new table has what CREATE TABLE (LIKE ...) copies except indexes. That includes CHECK constraints; their
    functions are called for each row, with the user's search_path. The old table's owner owns the new table, and nobody
    else may read it. Identity columns continue after the values of the old ones; a serial column uses the old sequence.
    Needs CREATE on the schema, the owner's role and SELECT on the old table. Raises TargetError, ServerError.
    """
    new = TableName(schema=definition.table.schema, name=name)
    check_names(new, [])
    table = sql.Identifier(definition.table.schema, name)
    actions = [f"OWNER TO {sql.Identifier(definition.table.owner).as_string()}", *definition.statements("create")]
    if partition is not None and partition.defaults:
        like = sql.Identifier(definition.table.schema, definition.table.name)
    # LIKE marks constraints that are NOT VALID as valid, because the new table is empty. So create these constraints
    # again.
    for constraint in definition.constraints:
        if constraint.kind in "cn" and not constraint.is_validated:
            key = sql.Identifier(constraint.name).as_string()
            actions += [f"DROP CONSTRAINT {key}", f"ADD CONSTRAINT {key} {constraint.definition}"]
    with translate_errors(f"creating table {new}"), local_settings(connection, default_tablespace=""):
        connection.execute(compose_create(definition, name, like))
        if retyped:
            # The table is empty, so no value has to be converted.
            change = sql.SQL("ALTER COLUMN {0} TYPE {1} USING NULL::{1}")
            parts = [change.format(sql.Identifier(each.column), sql.SQL(each.type_name)) for each in retyped]
            connection.execute(sql.SQL("ALTER TABLE {} {}").format(table, sql.SQL(", ").join(parts)))
        connection.execute(sql.SQL("ALTER TABLE {} {}").format(table, sql.SQL(", ".join(actions))))
        note = f"made by penstock to replace {definition.name}; not finished"
        connection.execute(sql.SQL("COMMENT ON TABLE {} IS {}").format(table, sql.Literal(note)))
        row = fetch_one(connection, "SELECT %s::regclass::oid", [table.as_string(connection)])
        run_all(connection, capture_table(connection, row[0]).statements("revoke"))
        handover = _hand_over(connection, definition, row[0])
        run_all(connection, [*handover["identity"], *handover["statistics"]])
        if partition is not None:
            connection.execute(compose_bounds(table, partition.condition, partition.defaults))
        if retyped:
            _try_indexes(connection, definition, row[0])
    _log.info("created table %s to replace %s", new, definition.name)
    return int(row[0])


def _try_indexes(connection: Connection, definition: TableDefinition, oid: int) -> None:
    """Raise an error if the new table, which has other types, cannot have an index or CHECK of the old one.

    PostgreSQL adds casts to expressions on columns that get other types, and the tables would differ at the exchange.
    """
    with in_transaction(connection):
        _make_indexes(connection, definition, capture_table(connection, oid))
        if lost := sorted(_list_expressions(definition) - _list_expressions(capture_table(connection, oid))):
            raise TargetError(
                f'the types found in the files would change what table "{definition.name}" checks or indexes',
                detail=f"It has {'; '.join(lost)}.",
                hint="Load without --types infer, which keeps the types; or drop these, and add them again behind the"
                " load.",
            )
        raise Rollback


def _list_expressions(definition: TableDefinition) -> set[str]:
    """Return the texts of a table's CHECK constraints, and of its indexes without their names."""
    checks = {constraint.definition for constraint in definition.constraints if constraint.kind == "c"}
    return checks | {index.body for index in definition.indexes if index.body is not None}


def enforce_early(
    connection: Connection, definition: TableDefinition, oid: int, *, indexes: Collection[str], with_foreign_keys: bool
) -> None:
    """Create some of the old table's indexes, with their constraints, on the new table while it is empty.

    `indexes` are the names of these indexes. `definition` is that of the old table, `oid` is the OID of the new one.
    The functions of the indexes are not called now, because the table is empty. They are called later for each row,
    with the user's search_path. With `with_foreign_keys`, foreign keys are added too, which locks the referenced tables
    until the transaction ends. finish_replacement adds the remaining indexes and keys. Raises TargetError, ServerError.
    """
    replacement = capture_table(connection, oid)
    with translate_errors(f"preparing table {replacement.name}"):
        try:
            with in_transaction(connection):
                _make_indexes(connection, definition, replacement, only=indexes)
        except (errors.UndefinedFunction, errors.UndefinedTable) as exc:
            # An index's function has failed, although the new table is empty: the planner inlines simple SQL functions.
            raise TargetError(
                f'cannot make the indexes of "{definition.name}" again: {exc.diag.message_primary}',
                detail=exc.diag.context,
                hint="Give the function its search_path (ALTER FUNCTION ... SET search_path) and run the load again.",
            ) from exc
        if with_foreign_keys:
            _add_foreign_keys(connection, definition, replacement, _at_once)


def finish_replacement(
    connection: Connection,
    definition: TableDefinition,
    oid: int,
    *,
    with_foreign_keys: bool = True,
    with_locks: Callable[[Callable[[], object]], object] = _at_once,
) -> None:
    """Create the indexes and constraints that the loaded new table lacks. Indexes get temporary names until the swap.

    In autocommit mode all indexes are created in one transaction. Each foreign key, and each validation, has its own
    transaction, so that writers to the referenced table wait only while the key is added. Without `with_foreign_keys`,
    the caller calls add_foreign_keys before the swap. After an error the function may be called again: it keeps what
    exists. Raises DataError if the rows violate a constraint, TargetError, ServerError.
    """
    replacement = capture_table(connection, oid)
    with _finishing(definition, replacement.name):
        with in_transaction(connection):
            _make_indexes(connection, definition, replacement)
        if with_foreign_keys:
            _add_foreign_keys(connection, definition, replacement, with_locks)
    _log.info("finished table %s", replacement.name)


def build_together(
    connection: Connection,
    definition: TableDefinition,
    oid: int,
    parts: Sequence[IndexPart],
    *,
    opener: Opener,
    is_local: bool,
) -> None:
    """Build the indexes that the loaded new table lacks in several sessions, without their constraints.

    `definition` is that of the table as it is to be, `parts` are its indexes, `oid` is the new table's. Of equal
    indexes, one is built after the other, because ATTACH takes them in the order of their OIDs. Raises DataError if the
    rows violate an index, TargetError, ServerError.
    """
    replacement = capture_table(connection, oid)
    names, present = definition.name_indexes(oid), {index.name for index in replacement.indexes}
    rows = {index.name: index for index in definition.indexes}
    rounds: dict[int, list[Change]] = defaultdict(list)
    equals: Counter[tuple[str | None, bool]] = Counter()
    for part in sorted(parts, key=lambda part: part.facts.oid):
        # An index that was made since the definition was read is left to the comparison before the swap.
        is_due = part.name in names and names[part.name] not in present
        if is_due and not (part.constraint is not None and part.constraint.makes_index):
            key = rows[part.name].body, rows[part.name].is_unique
            change = Change(
                kind="index",
                name=part.name,
                record=part.record(),
                target_oid=oid,
                target=definition.name,
                relation_oid=oid,
                load_id="",
            )
            rounds[equals[key]].append(change)
            equals[key] += 1
    table = sql.Identifier(replacement.table.schema, replacement.table.name)

    def build(session: Connection, change: Change) -> float:
        index, began_s = rows[change.name], time.perf_counter()
        create = compose_create_index(index, table, sql.Identifier(names[index.name]))
        with _finishing(definition, replacement.name), local_settings(session, default_tablespace=index.tablespace):
            session.execute(create)
        return time.perf_counter() - began_s

    def note(change: Change, seconds: float) -> None:
        _log.info("made index %s of %s in %.1f s", change.name, definition.name, seconds)

    sizes = measure_tables(connection, [oid])
    for changes in rounds.values():
        plan = plan_builds(connection, len(changes), is_local=is_local)
        Builders(opener, plan, order_by_cost(changes, sizes), sizes=sizes, build=build, note=note, look=None).run()


def add_foreign_keys(
    connection: Connection,
    definition: TableDefinition,
    oid: int,
    *,
    with_locks: Callable[[Callable[[], object]], object] = _at_once,
) -> None:
    """Add the foreign keys of the old table's `definition` that the loaded new table lacks. `oid` is the new table's.

    `with_locks` is called with a function that adds one key and locks the referenced table, and must call it. It may
    retry the call. Raises DataError if the rows violate a key, TargetError, ServerError.
    """
    replacement = capture_table(connection, oid)
    with _finishing(definition, replacement.name):
        _add_foreign_keys(connection, definition, replacement, with_locks)


@contextmanager
def _finishing(definition: TableDefinition, working: TableName) -> Iterator[None]:
    """Convert errors in the block. Their messages then have the name that the new table will have."""
    try:
        with translate_errors(f"finishing the table that replaces {definition.name}"):
            yield
    except PenstockError as error:
        own, name = f'"{working.name}"', f'"{definition.table.name}"'
        error.message = error.message.replace(own, name)
        error.detail = None if error.detail is None else error.detail.replace(own, name)
        raise


def swap_replacement(
    connection: Connection,
    definition: TableDefinition,
    oid: int,
    *,
    retyped: int = 0,
    partition: ReplacedPartition | None = None,
) -> None:
    """Drop the old table and give its name, privileges and all other properties to the new one.

    `definition` is that of the old table, `oid` is the OID of the new one. If the old table is a partition, the new one
    is attached in its place. The swap runs in the caller's transaction.
    Readers wait for the commit and then see the new table. Nothing is dropped by CASCADE. At the end the new table's
    definition must equal the old one's; otherwise ServerError is raised, so that no property is lost silently. Only the
    types of columns may differ, of as many columns as `retyped` says. Dropping the old table's foreign keys locks the
    referenced tables too (catalog.find_references returns them). Raises TargetError if the old table has changed since
    its definition was read or has new dependents, and ServerError (SQLSTATE 55P03 if a lock was not granted in time).
    """
    with in_transaction(connection, f"putting the new table in the place of {definition.name}"):
        new = capture_table(connection, oid).table
        _lock_old(connection, definition, partition)
        with local_settings(connection, lock_timeout=FURTHER_LOCKS_TIMEOUT):
            _replace_old(connection, definition, oid, name=new.name, partition=partition)
        if differences := find_differences(definition, capture_table(connection, oid), retyped=retyped):
            raise ServerError(
                f'the new table for "{definition.name}" is not like the old one',
                detail=f"They differ in: {', '.join(differences)}. The old table is left as it was.",
                hint="Load with --mode truncate, which keeps the table.",
            )
    _log.info("table %s is replaced", definition.name)


def _lock_old(connection: Connection, definition: TableDefinition, partition: ReplacedPartition | None) -> None:
    """Take an ACCESS EXCLUSIVE lock on the old table, then check that it is still as captured."""
    old = sql.Identifier(definition.table.schema, definition.table.name)
    connection.execute(sql.SQL("LOCK TABLE ONLY {} IN ACCESS EXCLUSIVE MODE").format(old))
    now = capture_table(connection, definition.oid, name=definition.name)
    differences = [*find_differences(definition, now)]
    if find_partition(connection, definition.oid) != partition:
        differences.append("partition")
    if differences:
        raise TargetError(
            f'table "{definition.name}" was altered while its replacement was loaded',
            detail=f"Changed: {', '.join(differences)}.",
            hint="Run the load again: it then carries the table as it is now.",
        )
    refuse_obstacles(definition.name, find_obstacles(connection, definition))


def _replace_old(
    connection: Connection, definition: TableDefinition, oid: int, *, name: str, partition: ReplacedPartition | None
) -> None:
    schema, final = definition.table.schema, definition.table.name
    table, handover = sql.Identifier(schema, final), _hand_over(connection, definition, oid)
    constraints = {constraint.name: constraint for constraint in definition.constraints}
    statements: list[sql.Composed | str] = [
        *handover["identity"],
        *handover["owned"],
        sql.SQL("DROP TABLE {}").format(table),
        sql.SQL("ALTER TABLE {} RENAME TO {}").format(sql.Identifier(schema, name), sql.Identifier(final)),
        sql.SQL("COMMENT ON TABLE {} IS NULL").format(table),
        *handover["rename"],
    ]
    names = definition.name_indexes(oid)
    for index in definition.indexes:
        # Renaming an index renames its constraint too.
        new = sql.Identifier(schema, names[index.name])
        statements.append(sql.SQL("ALTER INDEX {} RENAME TO {}").format(new, sql.Identifier(index.name)))
        statements += compose_index_marks(index, constraints.get(index.constraint_name or ""), (schema, final))
    last = definition.statements("swap")
    if partition is not None:
        # ATTACH makes the triggers that the partition has of its parent.
        statements += partition.attach(table)
        last = [statement for statement in last if statement not in partition.triggers]
    publications = [publication.statement for publication in definition.publications if publication.statement]
    run_all(connection, [*statements, *last, *publications])


def _hand_over(connection: Connection, definition: TableDefinition, oid: int) -> dict[str, list[str]]:
    """Return, for each step, the statements that transfer properties of the old table to the new one."""
    rows = fetch_rows(connection, "loading/ddl_handover", HandoverRow, old=definition.oid, new=oid)
    steps = ("identity", "statistics", "owned", "rename")
    return {step: [row.statement for row in rows if row.step == step] for step in steps}


def _make_indexes(
    connection: Connection,
    definition: TableDefinition,
    replacement: TableDefinition,
    *,
    only: Collection[str] | None = None,
) -> None:
    """Create the indexes, with their constraints, that do not exist yet."""
    constraints = {constraint.name: constraint for constraint in definition.constraints}
    present = {index.name: index for index in replacement.indexes}
    names = definition.name_indexes(replacement.oid)
    for index in definition.indexes:
        made, constraint = present.get(names[index.name]), constraints.get(index.constraint_name or "")
        is_whole = made is not None and (constraint is None or made.constraint_name is not None)
        if is_whole or (only is not None and index.name not in only):
            continue
        _log.info("making index %s of %s", index.name, definition.name)
        table = replacement.table.schema, replacement.table.name
        statements = compose_index(index, constraint, table, names[index.name])
        with local_settings(connection, default_tablespace=index.tablespace):
            run_all(connection, statements if made is None else statements[1:])


def _add_foreign_keys(
    connection: Connection,
    definition: TableDefinition,
    replacement: TableDefinition,
    with_locks: Callable[[Callable[[], object]], object],
) -> None:
    present = {constraint.name: constraint for constraint in replacement.constraints}
    for constraint in definition.constraints:
        if constraint.kind != "f":
            continue
        table = replacement.table.schema, replacement.table.name
        add, validate = compose_foreign_key(constraint, definition, table)
        if constraint.name not in present:
            with_locks(partial(connection.execute, add))
        if validate is not None and not (constraint.name in present and present[constraint.name].is_validated):
            _log.info("validating foreign key %s of %s", constraint.name, definition.name)
            connection.execute(validate)
