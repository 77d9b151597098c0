"""What tables lack since a rebuild failed: nothing is loaded into them until that is repaired."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.errors import TargetError
from penstock.model.shape import Missing
from penstock.server.ledger.schema import CHANGES_VERSION, find_version
from penstock.server.shape.changes import find_failed, read_changes
from penstock.server.shape.look import look_at
from penstock.server.shape.parts import capture_for, is_foreign_key, parent_of, place_of
from penstock.server.shape.switches import SWITCHES

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from penstock.model.shape import Change
    from penstock.server.connection import Connection
    from penstock.server.shape.parts import Place


_INSUFFICIENT_PRIVILEGE = "42501"


def refuse_missing(connection: Connection, schema: str, oids: Sequence[int]) -> None:
    """Raise TargetError if something of the tables is missing since a rebuild failed; ServerError."""
    try:
        found = find_missing(connection, schema, oids)
    except TargetError as error:
        if error.sqlstate != _INSUFFICIENT_PRIVILEGE:
            raise
        # Whoever may not read the ledger cannot load, and is told of that.
        return
    for missing in found:
        raise TargetError(
            f'table "{missing.table}" lacks {", ".join(missing.names)} since a rebuild failed',
            detail=missing.why,
            hint="Remove what is in the way, the rows that do not fit, and run penstock repair; until then nothing is "
            "loaded into the table.",
        )


def find_missing(connection: Connection, schema: str, oids: Sequence[int] | None = None) -> list[Missing]:
    """Return what the tables, or all tables, lack since a rebuild failed. Raises ServerError, TargetError.

    What somebody has made again by hand is not missing.
    """
    if find_version(connection, schema) < CHANGES_VERSION:
        return []
    found = []
    for oid in find_failed(connection, schema, oids):
        missing = read_missing(connection, schema, oid)
        if why := [change.failure for change in missing if change.failure is not None]:
            places = {place_of(change) for change in missing}
            names = tuple(_describe(change) for change in missing if not _is_attached(change, places))
            found.append(Missing(table=str(missing[0].target), names=names, why="\n".join(why)))
    return found


def read_missing(connection: Connection, schema: str, target_oid: int) -> list[Change]:
    """Return what loads of a table have parked that does not stand now. Raises ServerError, TargetError."""
    changes = [change for change in read_changes(connection, schema, target_oid=target_oid) if not change.is_copied]
    return [change for change in changes if change.kind not in SWITCHES and not _stands(connection, change)]


def _stands(connection: Connection, change: Change) -> bool:
    try:
        return look_at(capture_for(connection, change), change) in ("gone", "there")
    except TargetError:
        # Something else has its name, or its columns are others now.
        return False


def _is_attached(change: Change, places: Collection[Place]) -> bool:
    """Whether a partition's index or key is told of with that of the partitioned table."""
    try:
        return parent_of(change) in places
    except TargetError:
        return False


def _describe(change: Change) -> str:
    # One that was added and not validated is there for new rows.
    return f'{"valid foreign key" if is_foreign_key(change) else change.kind} "{change.name}"'
