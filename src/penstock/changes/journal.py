"""Keeps the journal: commits a record of each change before it is made, and later restores it and removes the record.

Every change of every kind and store goes through `record` and `restore`. The process that made a change restores it. If
that process has died, a later process or penstock repair restores it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from penstock.changes.context import Context, Restored, describe_held
from penstock.changes.records import find_others
from penstock.changes.tables.kind import TableKind, TableRequest
from penstock.changes.tables.look import copied_record
from penstock.changes.values import SERVER, Change, Hold
from penstock.core.errors import PenstockError, TargetError
from penstock.core.slotted import slotted


class CannotRecord(TargetError):
    """A table is not changed, because other roles have recorded changes there that this role may not restore.

    The attribute `why` names the reason.
    """

    why = ""


# ---------------------------------------------------------------- changed


@slotted
class ChangeRecords:
    """The changes that were recorded when a load began to change a table."""

    # The recorded changes of the table.
    before: Sequence[Change]
    # The changes of the table that this load has recorded.
    ours: Sequence[Change]
    # The recorded changes of all tables.
    everything: Sequence[Change]


def open_records(context: Context, request: TableRequest) -> ChangeRecords:
    """Return the recorded changes of a table, which other loads or an earlier run of this load have made.

    If a running load still needs them, or this load has recorded some of them, a hold of this load is written. The last
    load to end restores all changes of the table. The caller has the table's lock. Raises CannotRecord if the current
    role may not restore one of them, ServerError, TargetError.
    """
    oid = request.table.oid
    others = [hold for hold in context.store.read_holds(oid) if hold.is_alive and hold.holder_id != request.load_id]
    everything = context.store.read_changes()
    before = [each for each in everything if each.target_oid == oid and not each.is_copied]
    ours = [each for each in before if each.load_id == request.load_id]
    if before and others and not ours:
        _refuse_others(context, before, request)
    if before and (others or ours):
        record(context, _hold(request))
    return ChangeRecords(before=before, ours=ours, everything=everything)


def change_table(
    context: Context,
    kind: TableKind,
    records: ChangeRecords,
    request: TableRequest,
    *,
    check: Callable[[], None] = lambda: None,
) -> None:
    """Record the changes that a kind finds for a table, commit, and make them. The caller has the table's lock.

    If the process is killed after the commit, the records remain, so that the changes are restored later. `check` runs
    in the transaction that makes the changes, when the table is locked, and may raise an error. Raises CannotRecord,
    TargetError, ServerError.
    """
    table = request.table
    changes, stale = _settle(kind, kind.find(context.connection, request), records)
    if not changes:
        return
    if not (kind.keeps_records and records.ours):
        _refuse_others(context, [*records.before, *changes], request)
    record(context, _hold(request), [change for change in changes if not change.number], stale)
    if (notice := kind.announce(changes)) is not None:
        context.notice(notice)

    def act() -> None:
        kind.apply(context.connection, table.oid, changes)
        check()

    relations = {table.oid, *(oid for change in changes for oid in change.relations)}
    what = f'{kind.activity} of "{table.name}"'
    context.with_locks(act, relations=relations, what=what, deadline_s=request.rules.retry_for)


def record(context: Context, hold: Hold, new: Sequence[Change] = (), stale: Sequence[Change] = ()) -> None:
    """Commit a hold and records of the changes `new`, before these are made, and remove the records `stale`.

    The caller has the lock of the table or of the server.
    """
    context.store.write(hold, new, stale)
    context.held.add(hold.target_oid)


def _hold(request: TableRequest) -> Hold:
    return Hold(holder_id=request.load_id, target_oid=request.table.oid)


def _settle(kind: TableKind, found: Sequence[Change], records: ChangeRecords) -> tuple[list[Change], list[Change]]:
    """Return the changes to make, and the records to remove.

    Some kinds keep the records of earlier loads. Of such a kind, the recorded change of an object is returned instead
    of the new one.
    """
    mine = [each for each in records.everything if kind.handles(each) and not each.is_copied]
    if kind.keeps_records:
        # Return the earlier record of an object, because only this record has the original state if the rebuild of the
        # object has begun.
        known = {(each.relation_oid, each.name): each for each in mine}
        return [known.get((change.relation_oid, change.name), change) for change in found], []
    keys = {(change.target_oid, change.kind, change.relation_oid, change.name) for change in found}
    return list(found), [each for each in mine if (each.target_oid, each.kind, each.relation_oid, each.name) in keys]


def _refuse_others(context: Context, changes: Sequence[Change], request: TableRequest) -> None:
    """Raise CannotRecord if this role cannot restore a change that is recorded for the table.

    The last load to end restores all changes of a table, so its role must be able to restore each of them.
    """
    if other_roles := find_others(context.connection, changes):
        names = ", ".join(f'"{name}"' for name in sorted(other_roles))
        raise _cannot_record(
            request,
            f"a load of {names} has changed it already",
            detail="Only that role can restore it.",
            hint=f"Wait for that load, or run penstock repair as {names}, as a member of it, or as a superuser.",
        )


def _cannot_record(
    request: TableRequest, why: str, *, detail: str | None = None, hint: str | None = None
) -> CannotRecord:
    error = CannotRecord(f'nothing is disabled at "{request.table.name}": {why}', detail=detail, hint=hint)
    error.why = why
    return error


# ---------------------------------------------------------------- restored


def restore(context: Context, oids: Iterable[int]) -> Restored:
    """Restore the changes of tables, or of the server, that no live hold needs. Return what was restored.

    Errors are in the result. After an error, the remaining changes of that table are not restored. Temporary errors,
    such as a lost connection, are raised.
    """
    wanted = set(oids)
    done = Restored()
    for oid in sorted(wanted):
        _restore_at(context, oid, done)
    for kind in context.kinds:
        kind.restore_rest(context, wanted, done)
    return done


def _restore_at(context: Context, oid: int, done: Restored) -> None:
    store = context.store
    with context.lock(oid):
        written, holds = list(filter(context.concerns, store.read_changes(oid))), store.read_holds(oid)
        done.copied += [copied_record(change) for change in written if change.is_copied]
        staying = [hold for hold in holds if not context.is_over(hold)]
        changes = [change for change in written if not change.is_copied]
        free = [change for change in changes if not any(hold.wants(change) for hold in staying)]
        if staying and oid != SERVER:
            done.held += [describe_held(change, staying[0]) for change in changes[:1]]
        ended: list[Change] = []
        left: list[Change] = []
        try:
            for kind in context.kinds:
                if mine := [change for change in free if kind.handles(change)]:
                    ended += kind.restore(context, mine, done)
            for change in free:
                context.kind_of(change)
        except PenstockError as error:
            if error.is_transient:
                raise
            done.errors.append(error)
            left = [change for change in free if change not in ended]
        over = [hold for hold in holds if context.is_over(hold)]
        if oid == SERVER:
            # Other holds are on changes of other kinds. A hold is kept if one of its changes could not be restored,
            # because only the hold says on which server the change was made.
            over = [hold for hold in over if hold.holder_id in context.leaving or _wants(hold, free)]
            over = [hold for hold in over if not _wants(hold, left)]
        store.forget(oid, ended, [hold.holder_id for hold in over])


def _wants(hold: Hold, changes: Sequence[Change]) -> bool:
    return any(hold.wants(change) for change in changes)
