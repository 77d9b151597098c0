"""Changes that came with a dump of another database: finds their tables by name, and makes their records this one's.

The OIDs in such records may be other tables here. A record names its table, a record of a partition's index and a
foreign key name theirs too. Records that name no table that exists here stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from psycopg import sql

from penstock.changes.records import delete_changes, read_changes, write_changes
from penstock.changes.tables.kind import Switch
from penstock.changes.tables.kinds import KINDS
from penstock.changes.tables.look import describe_change, look_at
from penstock.changes.tables.parts import capture_for, check_foreign_key_record, is_foreign_key, parent_id_of
from penstock.changes.tables.rebuild import as_owner
from penstock.changes.values import SERVER, Change
from penstock.core.catalogue.catalog import read_partition_line
from penstock.core.connect.connection import Connection
from penstock.core.connect.errors import in_transaction, translate_errors
from penstock.core.errors import PenstockError, TargetError

_TRIGGER = "SELECT tgfoid::bigint FROM pg_catalog.pg_trigger WHERE tgrelid = %s::bigint::oid AND tgname = %s"


def adopt_copied(connection: Connection, schema: str) -> list[PenstockError]:
    """Replace the records of changes that came with a dump of another database by records with the OIDs of this one.

    Each record is replaced as the role that owns it. `repair` then restores the changes like any others. Return the
    errors of records that stay as they are. A record whose table does not exist here stays, without an error.
    """
    errors: list[PenstockError] = []
    for change, here in _find_here(connection, read_changes(connection, schema)):
        if here is None:
            continue
        try:
            with in_transaction(connection, "adopting the record of a change"), as_owner(connection, change):
                delete_changes(connection, schema, [change])
                write_changes(connection, schema, [here])
        except PenstockError as error:
            errors.append(error)
    return errors


def show_copied(connection: Connection, changes: Sequence[Change]) -> list[Change]:
    """Return these changes, with the OIDs that `adopt_copied` would give them. Raises ServerError, TargetError."""
    here = {id(change): found for change, found in _find_here(connection, changes)}
    return [here.get(id(change)) or change for change in changes]


def refuse_copied(connection: Connection, copied: Sequence[Change], oids: Sequence[int] | None) -> None:
    """Raise TargetError if tables came with a dump, and a load of the dumped database has changed them.

    `copied` are the records that came with the dump, as `refuse_missing` returns them. `oids` are those of the tables,
    None for every table. A record of a change that is already restored is no obstacle. Raises ServerError.
    """
    names = set(read_partition_line(connection, oids).values()) if copied and oids is not None else set()
    changes = [change for change in copied if oids is None or change.target in names]
    left = [change for change, here in _find_here(connection, changes) if here is None or _is_left(connection, here)]
    if left:
        raise TargetError(
            f'table "{left[0].target}" came with a dump, and is still changed by load {left[0].load_id}',
            detail=f"Not restored: {', '.join(dict.fromkeys(map(describe_change, left)))}.",
            hint="Run penstock repair, which restores it; until then nothing is loaded into the table.",
        )


def _is_left(connection: Connection, change: Change) -> bool:
    """Return whether the object of a record of this database is changed. It is also if another has its name."""
    try:
        for kind in KINDS:
            if isinstance(kind, Switch) and kind.handles(change):
                return kind.switch.look(connection, change) == "absent"
        return look_at(capture_for(connection, change), change) not in ("gone", "there")
    except TargetError:
        return True


def _find_here(connection: Connection, changes: Sequence[Change]) -> list[tuple[Change, Change | None]]:
    """Return each copied change of a table, with the same change by this database's OIDs, None if it has none."""
    copied = [change for change in changes if change.is_copied and change.target_oid != SERVER]
    if not copied:
        return []
    oids = _find_oids(connection, copied)
    return [(change, _translate(connection, change, oids)) for change in copied]


def _find_oids(connection: Connection, changes: Sequence[Change]) -> dict[int, int]:
    """Return the OID of each table in this database, by its OID in the dumped one, as far as records name tables."""
    names: dict[int, set[str]] = {}
    for change in changes:
        target = sql.Identifier(*filter(None, (change.target.schema, change.target.name))).as_string(connection)
        names.setdefault(change.target_oid, set()).add(target)
        if change.relation_oid != change.target_oid and isinstance(name := change.record.get("relation"), str):
            names.setdefault(change.relation_oid, set()).add(name)
        if isinstance(name := change.record.get("references"), str):
            names.setdefault(change.relations[-1], set()).add(name)
    with translate_errors("looking up the tables of changes"):
        found = connection.execute(
            "SELECT w.oid, min(pg_catalog.to_regclass(w.name)::oid::bigint)"
            " FROM ROWS FROM (pg_catalog.unnest(%s::bigint[]), pg_catalog.unnest(%s::text[])) AS w (oid, name)"
            " GROUP BY 1 HAVING count(DISTINCT pg_catalog.to_regclass(w.name)::oid) = 1",
            [
                [oid for oid, each in names.items() for _ in each],
                [name for each in names.values() for name in each],
            ],
        ).fetchall()
    return dict(found)


def _translate(connection: Connection, change: Change, oids: Mapping[int, int]) -> Change | None:
    """Return a copied change by this database's OIDs, or None if a table of it is not known here."""
    record: dict[str, Any] = dict(change.record)
    wanted = [change.target_oid, *change.relations]
    try:
        if is_foreign_key(change):
            check_foreign_key_record(change)
        parent = parent_id_of(change)
    except TargetError:
        return None
    if parent is not None:
        wanted.append(parent[0])
        record["parent"] = {"relation_oid": oids.get(parent[0]), "name": parent[1]}
    if not oids.keys() >= set(wanted):
        return None
    if "references_oid" in record:
        record["references_oid"] = oids[record["references_oid"]]
    if "function_oid" in record:
        with translate_errors("looking up a trigger"):
            found = connection.execute(_TRIGGER, [oids[change.relation_oid], change.name]).fetchone()
        record["function_oid"] = None if found is None else found[0]
    return replace(
        change,
        target_oid=oids[change.target_oid],
        relation_oid=oids[change.relation_oid],
        record=record,
        # No other record has this number. A new one is given when the record is written.
        number=-change.number,
        is_copied=False,
    )
