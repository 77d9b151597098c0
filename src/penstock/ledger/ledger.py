"""Looks up, begins, claims, fences, ends and removes loads in the ledger.

A claim is a value of `epoch` in the load's row of table loads, and a row of table members. Every transaction that loads
rows first reads and locks its member's row (`fence`). A transaction before or after the rows locks the load's row
instead (`hold_claim`). A process that takes over a load raises the epoch and ends members. Both UPDATEs wait for open
transactions of the old loader, and make its later transactions fail.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, LiteralString

import psycopg
from psycopg import sql

from penstock.core.connect.connection import Connection
from penstock.core.connect.errors import at_once, in_transaction, translate_errors
from penstock.core.connect.search_path import TO_USERS_SETTINGS
from penstock.core.errors import ServerError, TakenOverError, TargetError
from penstock.core.recorded import to_json
from penstock.core.sql import run_query
from penstock.core.values.accounts import UnreadableObject
from penstock.ledger.committed import BE_DURABLE, has_all
from penstock.ledger.locks import compose_query, lock_objects, mark, send_lock
from penstock.ledger.lookup import LedgerFindings, look_up, object_arrays
from penstock.ledger.members import compose_fence, refusing_older
from penstock.ledger.schema import VERSION, create_ledger, look_for_ledger, upgrade_ledger
from penstock.ledger.targets import keep_truncations, write_counts
from penstock.ledger.values import Claim, FinishedLoad, LandedCounts, LedgerObject, LoaderProcess

if TYPE_CHECKING:
    from psycopg.errors import Diagnostic

# How long a statement waits for another transaction before it is retried. The caller reports the wait meanwhile.
_LOCK_TIMEOUT = "1s"


class Ledger:
    """The ledger in one schema. Methods raise ServerError, TargetError.

    The role needs the privileges that `share_ledger` (rights.py) grants. If `is_publishing_allowed` is true, the ledger
    is created or upgraded although a publication FOR ALL TABLES would publish its tables.
    """

    def __init__(self, schema: str = "penstock") -> None:
        self.schema = schema

    def ensure(self, connection: Connection, *, is_publishing_allowed: bool = False) -> None:
        """Create the ledger if it does not exist, upgrade an older one, and refuse one that cannot be trusted."""
        self._prepare(connection, look_for_ledger(connection, self.schema)(), is_publishing_allowed)

    def open(self, connection: Connection, *, lock: str, is_publishing_allowed: bool = False) -> bool:
        """Create or upgrade the ledger if necessary, and take the advisory lock of a load. Return whether it was taken.

        It is not taken if another session has it. `lock` is the load's digest, as `try_lock` takes it. If the ledger is
        up to date, this takes one round trip.
        """
        with translate_errors("opening the ledger"), connection.pipeline():
            is_locked = send_lock(connection, lock)
            find = look_for_ledger(connection, self.schema)
        self._prepare(connection, find(), is_publishing_allowed)
        return is_locked()

    def _prepare(self, connection: Connection, version: int | None, is_publishing_allowed: bool) -> None:
        while version != VERSION:
            prepare = create_ledger if version is None else upgrade_ledger
            prepare(connection, self.schema, is_publishing_allowed=is_publishing_allowed)
            version = look_for_ledger(connection, self.schema)()

    def look_up(
        self, connection: Connection, identity: str, objects: Sequence[LedgerObject], *, lock: str
    ) -> LedgerFindings:
        """Return what the ledger has recorded of a load that is about to begin, and of its objects in other loads.

        `identity` is the digest of the job (loading/plan/identity.py). `lock` is the digest that `try_lock` takes.
        """
        return look_up(connection, self.schema, identity, objects, lock=lock)

    def has(self, connection: Connection, load_id: str) -> bool:
        """Return whether the ledger has a load."""
        query = self._compose("SELECT FROM ONLY {loads} WHERE id = %s")
        with translate_errors("looking for the load in the ledger"):
            return connection.execute(query, [load_id]).fetchone() is not None

    def begin(
        self,
        connection: Connection,
        *,
        load_id: str,
        identity: str,
        lock: str,
        process: LoaderProcess,
        tables: Sequence[tuple[str, bool]],
        meaning: str,
        job: str | None,
        objects: Sequence[LedgerObject],
        unshared: Collection[int] = (),
        seen: Collection[str] = (),
    ) -> Claim | None:
        """Record a new load with its objects, in one round trip, and return this process's claim on the load.

        `lock` is the digest that `try_lock` takes. `process` becomes the load's first member. `tables` has the name of
        each table, and whether the load has created it. `meaning` and `job` are JSON. `unshared` are the numbers of
        objects that no other load may have, except the loads in `seen`. If another load has one of them, that load
        began after the ledger was read. Then nothing is recorded, and None is returned.

        Holds of earlier loads with the same lock are removed. These loads have ended, but now that the lock is taken
        again their holds would look alive.
        """
        remove_holds = self._compose("DELETE FROM ONLY {holds} WHERE lock_key = %(lock)s")
        values = _with_seen(objects, unshared, seen) | {
            "ledger": self.schema,
            "load": load_id,
            "identity": identity,
            "lock": lock,
            "client": process.client,
            "names": [name for name, _ in tables],
            "created": [name for name, is_created in tables if is_created],
            "meaning": meaning,
            "job": job,
        }
        with refusing_older(), translate_errors("recording the load"):
            with at_once(connection):
                lock_objects(connection, _oids(objects, unshared))
                # This commit is durable. So a load that is missing in the ledger was removed, and not lost in a crash.
                connection.execute(BE_DURABLE)
                connection.execute(remove_holds, values)
                begun = run_query(connection, "ledger/begin", **values)
                # Insert the row of the load first: the policies of tables objects and members look it up.
                run_query(connection, "ledger/begin_objects", **values)
                run_query(connection, "ledger/begin_member", **values | {"lock": process.lock, "version": VERSION})
            if begun.fetchone() is None:
                return None
        return Claim(load_id=load_id, epoch=1, is_resumed=False, member=1)

    def take_over(
        self,
        connection: Connection,
        load_id: str,
        *,
        process: LoaderProcess,
        is_joint: bool = False,
        job: str | None = None,
        is_own_job: bool = True,
        is_patient: bool = False,
    ) -> Claim | None:
        """Take over a load: raise its epoch, end its members, and add `process` as a member. Return the new claim.

        If `is_joint`, only members that have died are ended. Returns None if other sessions, such as those of an
        earlier loader, still lock the load's rows after a second; if `is_patient`, this session waits for them. Rows
        that these sessions are committing count as loaded; later transactions of the sessions fail. `job` (JSON)
        replaces the recorded job, since options that are not part of the identity may differ now. `is_own_job` is
        whether this login chose the job; it is false if the job was read from the ledger. Raises TargetError if the
        load does not exist, has ended, or belongs to another role.

        The holds of the earlier loader are removed: the new loader holds only the tables that it restores itself.
        """
        remove_holds = self._compose("DELETE FROM ONLY {holds} WHERE holder = %s")
        values = {"ledger": self.schema, "load": load_id, "lock": process.lock, "client": process.client}
        member: tuple[Any, ...] | None = None
        try:
            with refusing_older(), in_transaction(connection, "taking the load over"):
                if not is_patient:
                    connection.execute(sql.SQL("SET LOCAL lock_timeout = {}").format(sql.Literal(_LOCK_TIMEOUT)))
                # Flush the new epoch to disk. With synchronous_commit off, a crash could restore the old epoch after
                # rows were committed under the new one.
                connection.execute("SET LOCAL synchronous_commit = 'local'")
                taken = run_query(connection, "ledger/take_over", **values, job=job, is_own_job=is_own_job)
                row = taken.fetchone()
                if row is not None:
                    connection.execute(remove_holds, [load_id])
                    run_query(connection, "ledger/end_members", **values, member=None, only_dead=is_joint)
                    if not is_joint:
                        # Remove the claims of objects, because a single member needs none.
                        connection.execute(self._compose("DELETE FROM ONLY {claims} WHERE load = %(load)s"), values)
                    member = run_query(connection, "ledger/add_member", **values, version=VERSION).fetchone()
        except ServerError as error:
            if error.sqlstate == "55P03":
                return None
            raise
        if row is None or member is None:
            raise TargetError(f"load {load_id} does not exist any more, or has ended", hint="See penstock loads.")
        return Claim(load_id=load_id, epoch=int(row[0]), is_resumed=True, member=int(member[0]))

    def adopt(self, connection: Connection, claim: Claim, *, identity: str, meaning: str) -> None:
        """Adapt a claimed load that came with a dump of another database to this database.

        `identity`, `meaning` (JSON) and the OIDs of the load's tables are recorded as they are here.
        """
        load = "UPDATE ONLY {loads} SET identity = %s, meaning = %s::jsonb WHERE id = %s"
        with in_transaction(connection, "recording the oids of the load's tables"):
            self.hold_claim(connection, claim)
            connection.execute(self._compose(load), [identity, meaning, claim.load_id])
            for query in ("ledger/adopt_objects", "ledger/adopt_targets"):
                run_query(connection, query, ledger=self.schema, load=claim.load_id)

    def add_objects(
        self,
        connection: Connection,
        claim: Claim,
        objects: Sequence[LedgerObject],
        *,
        unshared: Collection[int] = (),
        seen: Collection[str] = (),
    ) -> bool:
        """Add objects to a load that has begun. Return False, and add none, if another load has one of `unshared`.

        `unshared` are numbers of objects that no other load may have, except the loads in `seen`.
        """
        values = _with_seen(objects, unshared, {*seen, claim.load_id})
        with translate_errors("recording objects"):
            with at_once(connection):
                lock_objects(connection, _oids(objects, unshared))
                added = run_query(connection, "ledger/add_objects", ledger=self.schema, load=claim.load_id, **values)
            return added.rowcount == len(objects)

    def drop_objects(self, connection: Connection, claim: Claim, numbers: Sequence[int]) -> None:
        """Remove the objects with these numbers from a claimed load.

        Raises TakenOverError, and removes none, if the load has committed any of their records, if it does not have one
        of the objects, or if another process has claimed it. Also raises ServerError.
        """
        lock = self._compose("SELECT FROM ONLY {objects} WHERE load = %s AND number = ANY (%s) FOR UPDATE")
        query = self._compose(
            "DELETE FROM ONLY {objects} AS o WHERE o.load = %s AND o.number = ANY (%s)"
            " AND NOT EXISTS (SELECT FROM ONLY {ranges} AS r WHERE r.load = o.load AND r.object = o.number)"
        )
        values = [claim.load_id, list(numbers)]
        with in_transaction(connection, "removing objects from the load"):
            self.hold_claim(connection, claim)
            # This statement waits for transactions that are committing ranges of these objects. The next statement then
            # sees the ranges.
            connection.execute(lock, values)
            if connection.execute(query, values).rowcount != len(numbers):
                raise taken_over(claim.load_id)

    def give_up_objects(
        self,
        connection: Connection,
        claim: Claim,
        planned: Sequence[UnreadableObject],
        found: Mapping[int, UnreadableObject],
    ) -> None:
        """Record which objects of a claimed load cannot be read, and remove those of which no record is committed.

        `planned` are objects that were never added to the load. `found` are objects of the load, by number. Both
        replace the unreadable objects that an earlier run has recorded in loads.meaning. The commit waits for the disk
        and for synchronous standbys. Raises TakenOverError if another process has claimed the load, ServerError.
        """
        remove = self._compose(
            "DELETE FROM ONLY {objects} AS o WHERE o.load = %(load)s AND o.number = ANY (%(numbers)s)"
            " AND NOT EXISTS (SELECT FROM ONLY {ranges} AS r WHERE r.load = o.load AND r.object = o.number)"
        )
        note = self._compose(
            "UPDATE ONLY {loads} SET meaning = (meaning - 'unreadable') || %(found)s::jsonb,"
            " login = CASE WHEN login = SESSION_USER THEN login END WHERE id = %(load)s"
        )
        items = [asdict(each) for each in (*planned, *(found[number] for number in sorted(found)))]
        meaning = to_json({"unreadable": items} if items else {})
        values = {"load": claim.load_id, "numbers": list(found), "found": meaning}
        with in_transaction(connection, "recording objects that cannot be read"):
            self.hold_claim(connection, claim)
            connection.execute(BE_DURABLE)
            connection.execute(remove, values)
            connection.execute(note, values)

    def change_version(self, connection: Connection, claim: Claim, number: int, item: LedgerObject) -> None:
        """Record the version, the size and the time of change that an object has now. The load continues with them."""
        query = self._compose(
            "UPDATE ONLY {objects} SET version = %s, size_bytes = %s, ctime_ns = %s WHERE load = %s AND number = %s"
        )
        with translate_errors("recording an object's version"):
            connection.execute(query, [item.version, item.size_bytes, item.ctime_ns, claim.load_id, number])

    def fence(self, claim: Claim) -> sql.Composed:
        """Return the query with which a transaction of a load begins. If it returns no row, the claim has ended.

        It locks the claim's rows, so that another process that takes over the load waits for the transaction.
        """
        return self._fence_steps(claim) if claim.member is None else compose_fence(self.schema, claim)

    def _fence_steps(self, claim: Claim) -> sql.Composed:
        return self._compose(
            "SELECT {mark} FROM ONLY {loads} WHERE id = {load} AND epoch = {epoch} FOR SHARE",
            mark=mark(claim.load_id),
            load=sql.Literal(claim.load_id),
            epoch=sql.Literal(claim.epoch),
        )

    def hold_claim(self, connection: Connection, claim: Claim) -> None:
        """Lock a load's row for the rest of the transaction. Raises TakenOverError if the load was taken over."""
        with translate_errors("reading the load"):
            if connection.execute(self._fence_steps(claim)).fetchone() is None:
                raise taken_over(claim.load_id)

    def check_claim(self, connection: Connection, claim: Claim) -> None:
        """Raise TakenOverError if a load was taken over or removed."""
        query = self._compose("SELECT epoch FROM ONLY {loads} WHERE id = %s")
        with translate_errors("reading the load"):
            row = connection.execute(query, [claim.load_id]).fetchone()
        if row != (claim.epoch,):
            raise taken_over(claim.load_id)

    def forget_unused(self, connection: Connection, claim: Claim, *, even_if_used: bool = False) -> bool:
        """Remove a load if it has committed nothing, or if `even_if_used` is true. Return whether it was removed.

        The removal is noted at the role's previous load, so that `find_newest` does not return that load instead. The
        ledger keeps which tables the load has truncated.
        """
        hold = self._compose("SELECT FROM ONLY {loads} WHERE id = %s FOR UPDATE")
        find = self._compose(
            "SELECT coalesce(l.begin_event, l.event) FROM ONLY {loads} AS l"
            " WHERE l.id = %s AND l.epoch = %s AND l.state = 'running'"
            " AND (%s OR NOT EXISTS (SELECT FROM ONLY {ranges} AS r WHERE r.load = l.id))"
        )
        delete = self._compose("DELETE FROM ONLY {loads} WHERE id = %s")
        with in_transaction(connection, "removing the load from the ledger"):
            # A lost session may still be committing. Wait for it here; the next statement then sees its ranges.
            connection.execute(hold, [claim.load_id])
            removed = connection.execute(find, [claim.load_id, claim.epoch, even_if_used]).fetchone()
            if removed is not None:
                keep_truncations(connection, self.schema, claim.load_id)
                connection.execute(delete, [claim.load_id])
                run_query(connection, "ledger/note_removed", ledger=self.schema, load=claim.load_id, event=removed[0])
        return removed is not None

    def _compose(self, text: LiteralString, **parts: sql.Composable) -> sql.Composed:
        return compose_query(text, self.schema, **parts)


def _with_seen(objects: Sequence[LedgerObject], unshared: Collection[int], seen: Collection[str]) -> dict[str, Any]:
    return object_arrays(objects) | {
        "unshared": [item.number in unshared for item in objects],
        "seen": list(seen),
    }


def _oids(objects: Sequence[LedgerObject], numbers: Collection[int]) -> list[int]:
    return [item.target_oid for item in objects if item.number in numbers]


def taken_over(load_id: str) -> TakenOverError:
    """Return the error for a load that another process has taken over or removed."""
    return TakenOverError(f"load {load_id} was taken over by another process, or removed", hint="See penstock loads.")


# The SQLSTATE of the warning that the server sends if a commit's wait for synchronous standbys is cancelled. The
# transaction is then committed on the primary (SyncRepWaitForLSN in src/backend/replication/syncrep.c).
_UNCONFIRMED = "01000"


def finish(
    ledger: Ledger,
    connection: Connection,
    claim: Claim,
    *,
    act: Callable[[], Sequence[LandedCounts]] | None = None,
) -> FinishedLoad | None:
    """Record durably that a load is complete, and return its counts; return None if a part of it is not committed.

    If nothing is missing, `act` runs the last statements for the tables in the same transaction. Only the ledger
    decides, because a server that crashed may have lost commits that it had acknowledged. Raises ServerError,
    TargetError if the load was taken over, and the errors of `act`.
    """
    with translate_errors("recording that the load is complete"), _hearing_warnings(connection) as warnings:
        if act is None:
            row = _run_durably(connection, "ledger/finish", **_finished(ledger, claim))
        else:
            row = _run_with(ledger, connection, claim, act)
    if row is None:
        ledger.check_claim(connection, claim)
        return None
    return FinishedLoad(**row[0], is_local_only=_UNCONFIRMED in warnings)


def _run_with(
    ledger: Ledger,
    connection: Connection,
    claim: Claim,
    act: Callable[[], Sequence[LandedCounts]],
) -> tuple[Any, ...] | None:
    """Call `act` and run finish.sql in one durable transaction that checks the claim; return the row of finish.sql.

    If a part of the load is not committed, or finish.sql returns no row, roll back and return None.
    """
    row: tuple[Any, ...] | None = None
    with in_transaction(connection) as transaction:
        with connection.pipeline():
            connection.execute(BE_DURABLE)
            ledger.hold_claim(connection, claim)
        if has_all(connection, ledger.schema, claim.load_id):
            counts = act()
            with connection.pipeline():
                write_counts(connection, ledger.schema, claim, counts)
                cursor = run_query(connection, "ledger/finish", **_finished(ledger, claim))
            row = cursor.fetchone()
        if row is None:
            raise psycopg.Rollback(transaction)
        # Restore the user's settings, because deferred triggers run at the commit and need the user's search_path.
        connection.execute(TO_USERS_SETTINGS)
    return row


def _finished(ledger: Ledger, claim: Claim) -> dict[str, object]:
    return {"ledger": ledger.schema, "load": claim.load_id, "epoch": claim.epoch}


def commit_durably() -> sql.Composed:
    """Return statements that make the commit of their transaction wait for the disk and for synchronous standbys."""
    return sql.SQL("SET LOCAL synchronous_commit TO DEFAULT; {}").format(sql.SQL(BE_DURABLE))


def confirm(ledger: Ledger, connection: Connection, claim: Claim) -> FinishedLoad | None:
    """Return the result of `finish` if it has committed and only the answer was lost, otherwise None.

    The statement commits durably once more, which makes the commit of `finish` durable too. Raises ServerError.
    """
    with translate_errors("checking whether the load is complete"), _hearing_warnings(connection) as warnings:
        row = _run_durably(connection, "ledger/confirm", ledger=ledger.schema, load=claim.load_id)
    if row is None:
        return None
    totals, epoch = row
    return FinishedLoad(**totals, is_local_only=_UNCONFIRMED in warnings, is_others=epoch != claim.epoch)


def _run_durably(connection: Connection, query: str, **parameters: object) -> tuple[Any, ...] | None:
    """Run a named statement that writes, in its own transaction, and return its row once the transaction is durable."""
    with at_once(connection):
        connection.execute(BE_DURABLE)
        cursor = run_query(connection, query, **parameters)
    return cursor.fetchone()


@contextmanager
def _hearing_warnings(connection: Connection) -> Iterator[list[str]]:
    """Collect the SQLSTATEs of the warnings that the server sends within the context."""
    states: list[str] = []

    def hear(diagnostic: Diagnostic) -> None:
        states.append(diagnostic.sqlstate or "")

    connection.add_notice_handler(hear)
    try:
        yield states
    finally:
        connection.remove_notice_handler(hear)
