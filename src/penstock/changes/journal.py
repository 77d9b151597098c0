"""The journal: written down and committed, then made; restored under the table's lock, together with its record's end.

Every change at a table goes through `change_table`, whatever its kind, and through `restore`, whoever restores it: the
load that made it, the next one, or penstock repair.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from penstock.changes.context import Restored
from penstock.changes.kinds import KINDS, kind_of
from penstock.errors import PenstockError, TargetError
from penstock.server.changes.holds import find_other_holds, hold_shape, release_shape
from penstock.server.changes.kind import TableSwitch
from penstock.server.changes.look import copied_record
from penstock.server.changes.records import delete_changes, find_others, read_changes, write_changes
from penstock.server.connect.errors import in_transaction

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from penstock.changes.context import Context
    from penstock.changes.kinds import Kind
    from penstock.model.load.shape import Change
    from penstock.server.changes.kind import Want


class CannotRecord(TargetError):
    """The records of a table are not such that this role could restore what it would change, and `why`."""

    why = ""


# ---------------------------------------------------------------- changed


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """What is written down of a table, of that by this load, and at all tables."""

    before: Sequence[Change]
    ours: Sequence[Change]
    everything: Sequence[Change]


def open_records(context: Context, want: Want) -> Records:
    """Return what is written down; hold a table that other loads keep changed, or an earlier run of this one.

    Whoever holds a table last restores all of it. The caller has the table's lock. Raises CannotRecord, ServerError,
    TargetError.
    """
    connection, schema, oid = context.connection, context.schema, want.table.oid
    others = find_other_holds(connection, schema, oid, but_load_id=want.load_id)
    everything = read_changes(connection, schema)
    before = [each for each in everything if each.target_oid == oid and not each.is_copied]
    ours = [each for each in before if each.load_id == want.load_id]
    if before and others and not ours:
        _refuse_others(context, before, want)
    if before and (others or ours):
        _record(context, want)
    return Records(before=before, ours=ours, everything=everything)


def change_table(
    context: Context, kind: Kind, records: Records, want: Want, *, check: Callable[[], None] = lambda: None
) -> None:
    """Write down what the kind finds at a table, commit, and make the change; the caller has the table's lock.

    A crash from here on leaves a record. `check` may refuse when the table is locked. Raises CannotRecord, TargetError,
    ServerError.
    """
    table = want.table
    changes, stale = _settle(kind, kind.find(context.connection, want), records)
    if not changes:
        return
    if not (kind.keeps_records and records.ours):
        _refuse_others(context, [*records.before, *changes], want)
    _record(context, want, stale=stale, new=[change for change in changes if not change.number])
    what = "drop indexes"
    if isinstance(kind, TableSwitch):
        what = f"disable {kind.name}"
        words = ", ".join(dict.fromkeys(map(kind.words, changes)))
        context.notice(f'disabling at "{table.name}", to be restored after the load: {words}')

    def act() -> None:
        kind.apply(context.connection, table.oid, changes)
        check()

    relations = {table.oid, *(oid for change in changes for oid in change.relations)}
    context.with_locks(act, relations=relations, what=f'{what} of "{table.name}"', deadline_s=want.rules.retry_for)


def _settle(kind: Kind, found: Sequence[Change], records: Records) -> tuple[list[Change], list[Change]]:
    """Return the changes, those with a record as it has them, and the records that are to go."""
    mine = [each for each in records.everything if kind.handles(each) and not each.is_copied]
    if kind.keeps_records:
        # One whose rebuild was begun has a record, which knows how it was before.
        known = {(each.relation_oid, each.name): each for each in mine}
        return [known.get((change.relation_oid, change.name), change) for change in found], []
    keys = {(change.target_oid, change.kind, change.relation_oid, change.name) for change in found}
    return list(found), [each for each in mine if (each.target_oid, each.kind, each.relation_oid, each.name) in keys]


def _record(context: Context, want: Want, *, stale: Sequence[Change] = (), new: Sequence[Change] = ()) -> None:
    """Commit the records, and that this load wants the table so, before anything is changed."""
    connection, schema = context.connection, context.schema
    with in_transaction(connection, "recording changes at a table"):
        if stale:
            delete_changes(connection, schema, stale)
        hold_shape(connection, schema, load_id=want.load_id, target_oid=want.table.oid)
        write_changes(connection, schema, new)
    context.held.add(want.table.oid)


def _refuse_others(context: Context, changes: Sequence[Change], want: Want) -> None:
    """Raise CannotRecord where another role has records there: whoever holds a table restores all of it."""
    if strangers := find_others(context.connection, changes):
        names = ", ".join(f'"{name}"' for name in sorted(strangers))
        raise _cannot_record(
            want,
            f"a load of {names} has changed it already",
            detail="Only that role can restore it.",
            hint=f"Wait for that load, or run penstock repair as {names}, as a member of it, or as a superuser.",
        )


def _cannot_record(want: Want, why: str, *, detail: str | None = None, hint: str | None = None) -> CannotRecord:
    error = CannotRecord(f'nothing is disabled at "{want.table.name}": {why}', detail=detail, hint=hint)
    error.why = why
    return error


# ---------------------------------------------------------------- restored


def restore(context: Context, oids: Iterable[int], *, load_id: str | None = None) -> Restored:
    """Restore what was changed at tables, as far as no load at work wants it so.

    `load_id` is a load of ours that wants it no longer. What fails is in the result, and what of the same table was
    not begun by then stays, but for foreign keys. Raises ServerError where the server goes away.
    """
    wanted = sorted(set(oids))
    done = Restored()
    for oid in wanted:
        _restore_table(context, oid, load_id, done)
    for kind in KINDS:
        if not isinstance(kind, TableSwitch):
            kind.restore_rest(context, set(wanted), done)
    return done


def _restore_table(context: Context, oid: int, load_id: str | None, done: Restored) -> None:
    connection, schema = context.connection, context.schema
    with context.lock(oid):
        if load_id is not None:
            release_shape(connection, schema, load_id=load_id, target_oid=oid)
        written = read_changes(connection, schema, target_oid=oid)
        done.copied += [copied_record(change) for change in written if change.is_copied]
        changes = [change for change in written if not change.is_copied]
        if not changes or context.is_held(oid, changes[0], done):
            return
        try:
            for kind in KINDS:
                _restore_kind(context, kind, [change for change in changes if kind.handles(change)], done)
            for change in changes:
                kind_of(change)
        except PenstockError as error:
            if error.is_transient:
                raise
            done.errors.append(error)


def _restore_kind(context: Context, kind: Kind, changes: Sequence[Change], done: Restored) -> None:
    if not isinstance(kind, TableSwitch):
        kind.restore_table(context, changes, done)
        return
    for change in changes:
        began_s = context.clock()
        act = partial(kind.restore, context.connection, context.schema, change)
        what = f'rebuild "{change.name}" of "{change.target}"'
        context.with_locks(act, relations=[change.relation_oid], what=what)
        done.note(change, context.clock() - began_s)
