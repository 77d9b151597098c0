"""The journal: a change is recorded, committed and made; later it is looked at, restored, and its record removed.

Every change goes through `record` and `restore`, whatever its kind and its store, and whichever process restores it:
the one that made it, the next one, or penstock repair.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.changes.context import Restored, describe_held
from penstock.errors import PenstockError, TargetError
from penstock.model.load.shape import SERVER, Hold
from penstock.server.changes.look import copied_record
from penstock.server.changes.records import find_others

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from penstock.changes.context import Context
    from penstock.changes.kinds.kind import TableKind
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
    oid = want.table.oid
    others = [hold for hold in context.store.read_holds(oid) if hold.is_alive and hold.holder_id != want.load_id]
    everything = context.store.read_changes()
    before = [each for each in everything if each.target_oid == oid and not each.is_copied]
    ours = [each for each in before if each.load_id == want.load_id]
    if before and others and not ours:
        _refuse_others(context, before, want)
    if before and (others or ours):
        record(context, _hold(want))
    return Records(before=before, ours=ours, everything=everything)


def change_table(
    context: Context, kind: TableKind, records: Records, want: Want, *, check: Callable[[], None] = lambda: None
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
    record(context, _hold(want), [change for change in changes if not change.number], stale)
    if (notice := kind.announce(changes)) is not None:
        context.notice(notice)

    def act() -> None:
        kind.apply(context.connection, table.oid, changes)
        check()

    relations = {table.oid, *(oid for change in changes for oid in change.relations)}
    what = f'{kind.deed} of "{table.name}"'
    context.with_locks(act, relations=relations, what=what, deadline_s=want.rules.retry_for)


def record(context: Context, hold: Hold, new: Sequence[Change] = (), stale: Sequence[Change] = ()) -> None:
    """Commit records of changes and the hold that wants them, before the changes are made; the caller has the lock."""
    context.store.write(hold, new, stale)
    context.held.add(hold.target_oid)


def _hold(want: Want) -> Hold:
    return Hold(holder_id=want.load_id, target_oid=want.table.oid)


def _settle(kind: TableKind, found: Sequence[Change], records: Records) -> tuple[list[Change], list[Change]]:
    """Return the changes, those with a record as it has them, and the records that are to go."""
    mine = [each for each in records.everything if kind.handles(each) and not each.is_copied]
    if kind.keeps_records:
        # One whose rebuild was begun has a record, which knows how it was before.
        known = {(each.relation_oid, each.name): each for each in mine}
        return [known.get((change.relation_oid, change.name), change) for change in found], []
    keys = {(change.target_oid, change.kind, change.relation_oid, change.name) for change in found}
    return list(found), [each for each in mine if (each.target_oid, each.kind, each.relation_oid, each.name) in keys]


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


def restore(context: Context, oids: Iterable[int]) -> Restored:
    """Restore what was changed at tables, or of the server, as far as no live hold wants it so.

    What fails is in the result; changes of the same table that come after it are not restored. Raises ServerError if
    the connection is lost.
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
            # A hold of another kind keeps its records. A hold whose changes were not restored tells their server.
            over = [hold for hold in over if hold.holder_id in context.leaving or _wants(hold, free)]
            over = [hold for hold in over if not _wants(hold, left)]
        store.forget(oid, ended, [hold.holder_id for hold in over])


def _wants(hold: Hold, changes: Sequence[Change]) -> bool:
    return any(hold.wants(change) for change in changes)
