"""Takes indexes, keys and foreign keys of a table away; they have been written down before."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from psycopg import sql

from penstock.errors import TargetError
from penstock.model.shape import Change
from penstock.model.table import TableName
from penstock.server.ddl.session import run_all
from penstock.server.errors import translate_errors
from penstock.server.shape.parts import capture_parts, is_foreign_key
from penstock.server.shape.rebuild import look_at

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from penstock.server.connection import Connection
    from penstock.server.shape.parts import ForeignKey, IndexPart, TableParts

_log = logging.getLogger(__name__)


def make_changes(
    parts: TableParts, *, indexes: Iterable[IndexPart], foreign_keys: Iterable[ForeignKey], load_id: str
) -> list[Change]:
    """Return the records of what is to be parked, in the order in which it falls: what relies on others first."""
    table = parts.table
    target = TableName(schema=table.schema, name=table.name)
    changes = [
        Change(
            target_oid=table.oid,
            target=target,
            kind="constraint" if key.relation_oid == table.oid else "reference",
            relation_oid=key.relation_oid,
            name=key.name,
            record=key.record(),
            load_id=load_id,
        )
        for key in foreign_keys
    ]
    changes += [
        Change(
            target_oid=table.oid,
            target=target,
            kind="index" if part.constraint is None else "constraint",
            relation_oid=table.oid,
            name=part.name,
            record=part.record(),
            load_id=load_id,
        )
        for part in indexes
    ]
    return changes


def lock_table(connection: Connection, oid: int) -> None:
    """Lock a table against everybody to the transaction's end. Raises TargetError where it is gone, ServerError."""
    with translate_errors("locking a table"):
        row = connection.execute(
            "SELECT n.nspname, c.relname FROM pg_catalog.pg_class AS c"
            " JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace WHERE c.oid = %s",
            [oid],
        ).fetchone()
        if row is None:
            raise TargetError("the table is gone", detail=f"There is no relation with oid {oid}.")
        connection.execute(sql.SQL("LOCK TABLE ONLY {} IN ACCESS EXCLUSIVE MODE").format(sql.Identifier(*row)))


def park(connection: Connection, target_oid: int, changes: Sequence[Change]) -> None:
    """Take away what the changes tell of, in the caller's transaction, which has locked the table.

    Raises TargetError where something is not as it was written down, ServerError.
    """
    found = capture_parts(connection, target_oid)
    if found is None:
        raise TargetError("the table is gone", detail=f"There is no relation with oid {target_oid}.")
    for change in changes:
        _check_unchanged(found, change)
    _log.info("parking %s of %s", ", ".join(change.name for change in changes), found.table.quoted_name)
    with translate_errors(f"parking indexes of {found.table.quoted_name}"):
        run_all(connection, _compose_drops(found, changes))


def _check_unchanged(found: TableParts, change: Change) -> None:
    """Raise TargetError where a thing is not what its record tells of; one whose rebuild was begun may have less."""
    if look_at(found, change) not in ("there", "begun"):
        raise TargetError(
            f'{change.kind} "{change.name}" of table "{change.target}" was dropped just now',
            hint="Run the load again.",
        )


def _compose_drops(found: TableParts, changes: Sequence[Change]) -> Iterator[sql.Composed]:
    drop = sql.SQL("ALTER TABLE {} DROP CONSTRAINT {}")
    table = sql.Identifier(found.table.schema, found.table.name)
    for change in changes:
        name = sql.Identifier(change.name)
        if is_foreign_key(change):
            # As the server spelled it just now.
            yield drop.format(sql.SQL(change.record["relation"]), name)
            continue
        part = found.index(change.name)
        assert part is not None
        if part.constraint is None:
            yield sql.SQL("DROP INDEX {}").format(sql.Identifier(found.table.schema, change.name))
        else:
            yield drop.format(table, name)
