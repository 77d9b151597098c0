"""Makes parked indexes, keys and foreign keys again, each in a transaction with the end of its record.

Statements are put together from the record by ddl, sent by a protocol that carries one statement alone, and run as the
role that parked. What comes of them is read back and held against the record before it is committed.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from psycopg import sql

from penstock.errors import DataError, TargetError
from penstock.server.ddl.compose_parts import compose_index
from penstock.server.ddl.names import WorkingNames
from penstock.server.ddl.session import local_settings
from penstock.server.errors import translate_errors
from penstock.server.shape.changes import delete_change
from penstock.server.shape.parts import (
    capture_parts,
    check_foreign_key_record,
    is_foreign_key,
    read_index_record,
    spoilt_record,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.model.shape import Change
    from penstock.server.connection import Connection
    from penstock.server.ddl.definition import ConstraintRow, IndexRow
    from penstock.server.shape.parts import ForeignKey, TableParts

_log = logging.getLogger(__name__)

# gone: the table is no more. there: it stands as it was. begun: an index stands and the rest is to be added, or a
# foreign key is to be validated. absent: it is to be made.
State = Literal["gone", "there", "begun", "absent"]


def look_at(parts: TableParts | None, change: Change) -> State:
    """Return how far what a record tells of is there.

    `parts` are those of the table at which it is, None where that is gone. Raises TargetError where a thing of that
    name is there that is another, where columns are not what they were, and where the record is not whole.
    """
    if is_foreign_key(change):
        check_foreign_key_record(change)
        return _look_at_foreign_key(parts, change)
    if change.kind not in ("index", "constraint"):
        raise spoilt_record(change)
    index, constraint = read_index_record(change)
    if parts is None:
        return "gone"
    found = parts.index(change.name)
    if found is None:
        return "absent"
    if found.row is not None and _is_same_index(found.row, index):
        if found.constraint == constraint and found.row == index:
            return "there"
        # Made, and what belongs to it not yet: its constraint, its mark of CLUSTER.
        if found.constraint is None or _without_comment(found.constraint) == _without_comment(constraint):
            return "begun"
    raise _is_another(change)


def _look_at_foreign_key(parts: TableParts | None, change: Change) -> State:
    if parts is None:
        return "gone"
    found = next((key for key in parts.foreign_keys if _is_at(key, change)), None)
    if found is None:
        return "absent"
    now = found.record()
    if now == change.record:
        return "there"
    # Added, and not validated yet.
    same = {"is_validated", "definition", "comment", "columns"}
    if all(now[key] == value for key, value in change.record.items() if key not in same) and not found.is_validated:
        return "begun"
    raise _is_another(change)


def _is_at(key: ForeignKey, change: Change) -> bool:
    return (key.relation_oid, key.name) == (change.relation_oid, change.name)


def _is_same_index(found: IndexRow, index: IndexRow) -> bool:
    """Whether an index is the one that was parked, but for what is added to it afterwards."""
    return _bare(found) == _bare(index)


def _bare(index: IndexRow) -> IndexRow:
    return replace(
        index,
        constraint_name=None,
        is_clustered=False,
        is_replica_identity=False,
        statistics_targets=[],
        comment=None,
    )


def _without_comment(constraint: ConstraintRow | None) -> ConstraintRow | None:
    return None if constraint is None else replace(constraint, comment=None)


def _is_another(change: Change) -> TargetError:
    return TargetError(
        f'"{change.name}" is at table "{change.target}", and is not what was parked under that name',
        hint="Rename or drop it, and run penstock repair.",
    )


# ---------------------------------------------------------------- made again


def build_index(connection: Connection, schema: str, change: Change) -> None:
    """Make an index; the record goes with it where it is no constraint's.

    An exclusion constraint, and a key WITHOUT OVERLAPS, are made at once, which keeps even readers out meanwhile.
    Raises DataError where rows do not fit it, TargetError, ServerError.
    """
    index, constraint = read_index_record(change)
    with _putting_back(connection, change) as parts:
        _check_columns(parts, change)
        names = _names(parts, change.name)
        statements = compose_index(index, constraint, names)
        is_whole = constraint is None or constraint.kind == "x" or constraint.is_temporal
        path = _evaluation_path(connection)
        with local_settings(connection, default_tablespace=index.tablespace, search_path=path):
            for statement in statements if is_whole else statements[:1]:
                _execute(connection, statement)
        if is_whole and not index.is_clustered and not index.is_replica_identity:
            _add_marks(connection, parts, index, constraint)
            _end(connection, schema, change)


def complete_index(connection: Connection, schema: str, change: Change) -> None:
    """Add the constraint to an index that stands, and what else is said of it; then the record is gone.

    It locks the table for a moment: call it within with_lock_retries. Raises TargetError, ServerError.
    """
    index, constraint = read_index_record(change)
    with _putting_back(connection, change) as parts:
        found = parts.index(change.name)
        if constraint is not None and found is not None and found.constraint is None:
            statements = compose_index(index, constraint, _names(parts, change.name))
            with local_settings(connection, search_path=""):
                _execute(connection, statements[-1])
        _add_marks(connection, parts, index, constraint)
        _end(connection, schema, change)


def add_foreign_key(connection: Connection, schema: str, change: Change) -> None:
    """Add a foreign key without looking at rows; the record goes with it where it was not valid before.

    It locks both tables for a moment: call it within with_lock_retries. Raises TargetError, ServerError.
    """
    record = change.record
    with _putting_back(connection, change) as parts:
        _check_foreign_key(connection, parts, change)
        relation = sql.Identifier(parts.table.schema, parts.table.name)
        is_valid = record["is_validated"] and record["is_enforced"]
        with local_settings(connection, search_path=""):
            add = sql.SQL("ALTER TABLE {} ADD CONSTRAINT {} {}{}").format(
                relation,
                sql.Identifier(change.name),
                sql.SQL(record["definition"]),
                sql.SQL(" NOT VALID" if is_valid else ""),
            )
            _execute(connection, add)
            if record["comment"] is not None:
                _execute(connection, _comment_on_constraint(relation, change.name, record["comment"]))
        if not is_valid:
            _end(connection, schema, change)


def validate_foreign_key(connection: Connection, schema: str, change: Change) -> None:
    """Have the server look whether all rows fit a foreign key that was added; then the record is gone.

    Raises DataError where a row does not, TargetError, ServerError.
    """
    with _putting_back(connection, change) as parts:
        relation = sql.Identifier(parts.table.schema, parts.table.name)
        with local_settings(connection, search_path=""):
            validate = sql.SQL("ALTER TABLE {} VALIDATE CONSTRAINT {}").format(relation, sql.Identifier(change.name))
            _execute(connection, validate)
        _end(connection, schema, change)


def drop_record(connection: Connection, schema: str, change: Change) -> None:
    """Remove a record of which nothing is left to do, as its owner. Raises TargetError, ServerError."""
    with translate_errors("removing the record of a change"), connection.transaction(), as_owner(connection, change):
        delete_change(connection, schema, change)


def lock_for_build(connection: Connection, change: Change) -> None:
    """Take the lock that CREATE INDEX takes, so that the wait for it can be cut short. Raises TargetError, ServerError.

    A statement that waits for it makes later writers wait too.
    """
    parts = capture_parts(connection, change.relation_oid)
    if parts is None:
        raise TargetError(f'table "{change.target}" is gone')
    table = sql.Identifier(parts.table.schema, parts.table.name)
    with translate_errors(f"locking {parts.table.quoted_name}"), as_owner(connection, change):
        connection.execute(sql.SQL("LOCK TABLE ONLY {} IN SHARE MODE").format(table))


# ---------------------------------------------------------------- its parts


@contextmanager
def _putting_back(connection: Connection, change: Change) -> Iterator[TableParts]:
    """Run the block in a transaction, or a part of the caller's, as the record's owner; provide the table as it is."""
    what = f'rebuilding {change.kind} "{change.name}" of "{change.target}"'
    try:
        with translate_errors(what), connection.transaction():
            parts = capture_parts(connection, change.relation_oid)
            if parts is None:
                raise TargetError(f'table "{change.target}" is gone')
            with as_owner(connection, change):
                yield parts
    except DataError as error:
        raise _does_not_fit(change, error) from error


@contextmanager
def as_owner(connection: Connection, change: Change) -> Iterator[None]:
    """Run the block, within a transaction, as the role that parked. Raises TargetError where we may not."""
    row = connection.execute(
        "SELECT CURRENT_USER,"
        " (SELECT pg_catalog.pg_has_role(r.oid, 'MEMBER') FROM pg_catalog.pg_roles AS r WHERE r.rolname = %s)",
        [change.owner],
    ).fetchone()
    assert row is not None
    user, may_become = row
    if user == change.owner:
        yield
        return
    if not may_become:
        raise TargetError(
            f'cannot put {change.kind} "{change.name}" of table "{change.target}" back as role "{user}"',
            detail=f'Role "{change.owner}" has parked it, and it is put back as that role.'
            if may_become is False
            else f'Role "{change.owner}", which has parked it, is gone.',
            hint=f'Run penstock repair as "{change.owner}", as a member of it, or as a superuser.',
        )
    with local_settings(connection, role=change.owner):
        yield


def _does_not_fit(change: Change, error: DataError) -> DataError:
    what = "foreign key" if is_foreign_key(change) else change.kind
    return DataError(
        f'cannot rebuild {what} "{change.name}" of table "{change.target}": {error.message}',
        detail=error.detail,
        hint="The rows are loaded, and this and what was parked with it is not there: remove the rows that do not fit, "
        "then run penstock repair.",
        sqlstate=error.sqlstate,
    )


def _check_columns(parts: TableParts, change: Change) -> None:
    """Raise TargetError where a column on which an index depends has gone or has another type."""
    ours = change.record["columns"]
    now = parts.table.columns
    if different := sorted(name for name, type_name in ours.items() if now.get(name) != type_name):
        raise _column_changed(change, different[0], was=ours[different[0]], now=now.get(different[0]))


def _check_foreign_key(connection: Connection, parts: TableParts, change: Change) -> None:
    """Raise TargetError where one of a foreign key's tables has another name, or a column of it another type."""
    record = change.record
    query = """
        SELECT pg_catalog.format('%%s.%%I', a.attrelid, a.attname),
               pg_catalog.format_type(a.atttypid, a.atttypmod),
               pg_catalog.to_regclass(%s)::oid = %s
          FROM pg_catalog.pg_attribute AS a
         WHERE a.attrelid IN (%s, %s)
           AND a.attnum > 0
           AND NOT a.attisdropped
    """
    oid = record["references_oid"]
    rows = connection.execute(query, [record["references"], oid, change.relation_oid, oid]).fetchall()
    if parts.table.quoted_name != record["relation"] or not rows or not rows[0][2]:
        raise TargetError(
            f'cannot rebuild foreign key "{change.name}": one of its tables is gone or has another name',
            detail=f"It was of {record['relation']} and referred to {record['references']}.",
            hint="Add it by hand as it should be now, and delete its record from the ledger's table changes.",
        )
    now = {name: type_name for name, type_name, _ in rows}
    for name, was in record["columns"].items():
        if now.get(name) != was:
            raise _column_changed(change, name.partition(".")[2], was=was, now=now.get(name))


def _column_changed(change: Change, name: str, *, was: str, now: str | None) -> TargetError:
    return TargetError(
        f'cannot rebuild {change.kind} "{change.name}" of table "{change.target}": column "{name}" is another now',
        detail=f"Its type was {was}, and is {now or 'gone'}.",
        hint="Make it by hand as it should be now, and delete its record from the ledger's table changes.",
    )


def _names(parts: TableParts, index: str) -> WorkingNames:
    """Return final names: what is rebuilt lives under its own."""
    table = parts.table
    return WorkingNames(schema=table.schema, table=table.name, indexes={index: index}, statistics={}, sequences={})


def _add_marks(connection: Connection, parts: TableParts, index: IndexRow, constraint: ConstraintRow | None) -> None:
    """Set what is said of an index besides its definition."""
    name = sql.Identifier(parts.table.schema, index.name)
    table = sql.Identifier(parts.table.schema, parts.table.name)
    statements: list[sql.Composed] = [
        sql.SQL("ALTER INDEX {} ALTER COLUMN {} SET STATISTICS {}").format(
            name, sql.Literal(number), sql.Literal(target)
        )
        for number, target in enumerate(index.statistics_targets, 1)
        if target is not None
    ]
    if index.comment is not None:
        statements.append(sql.SQL("COMMENT ON INDEX {} IS {}").format(name, sql.Literal(index.comment)))
    if constraint is not None and constraint.comment is not None:
        statements.append(_comment_on_constraint(table, constraint.name, constraint.comment))
    if index.is_clustered:
        statements.append(sql.SQL("ALTER TABLE {} CLUSTER ON {}").format(table, sql.Identifier(index.name)))
    if index.is_replica_identity:
        use = sql.SQL("ALTER TABLE {} REPLICA IDENTITY USING INDEX {}")
        statements.append(use.format(table, sql.Identifier(index.name)))
    for statement in statements:
        _execute(connection, statement)


def _comment_on_constraint(table: sql.Identifier, name: str, comment: str) -> sql.Composed:
    return sql.SQL("COMMENT ON CONSTRAINT {} ON {} IS {}").format(sql.Identifier(name), table, sql.Literal(comment))


def _execute(connection: Connection, statement: sql.Composed) -> None:
    # In binary it goes by the extended protocol, in which a text cannot smuggle a second statement in.
    connection.execute(statement, binary=True)


def _end(connection: Connection, schema: str, change: Change) -> None:
    """See that what was made is what the record tells of, and remove the record. Raises TargetError."""
    state = look_at(capture_parts(connection, change.relation_oid), change)
    if state != "there":
        raise TargetError(
            f'{change.kind} "{change.name}" of table "{change.target}" came out otherwise than its record says',
            detail="What was made is taken back.",
            hint="Please report this with the output of pg_dump --schema-only for the table.",
        )
    delete_change(connection, schema, change)
    _log.info('%s "%s" of %s is back', change.kind, change.name, change.target)


def _evaluation_path(connection: Connection) -> str:
    """Return a search_path that reads names as the server wrote them, then as the session would.

    Functions in an index are called for each row; their bodies may rely on the user's path.
    """
    row = connection.execute("SELECT pg_catalog.current_setting('search_path')").fetchone()
    assert row is not None
    return f"pg_catalog, {row[0]}" if row[0] else "pg_catalog"
