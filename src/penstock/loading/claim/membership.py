"""This process as a member of a load by several hosts: the session that shows it is live, and what it has claimed."""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Literal

from penstock.errors import PenstockError, SourceError
from penstock.loading.claim.claims import client_name, host_name
from penstock.loading.claim.left import name_objects
from penstock.loading.context import LoadTools
from penstock.loading.pace import limit_sessions, share_sessions
from penstock.loading.plan.work import ObjectWork
from penstock.model.load.ledger import Claim, Coverage, MembersLook
from penstock.model.load.outcome import LoadShare
from penstock.model.load.plan import SessionPlan
from penstock.server.connect.connection import Connection
from penstock.server.ledger.committed import OtherObject, read_coverage
from penstock.server.ledger.ledger import taken_over
from penstock.server.ledger.locks import find_workers, try_lock, try_lock_here
from penstock.server.ledger.members import (
    end_dead,
    end_member,
    find_claimed,
    finish_objects,
    list_members,
    look_at_members,
    open_claims,
    take_objects,
)

_log = logging.getLogger(__name__)

# What a member does next: load objects that are free, end a load of which nothing is left, report a load that is
# complete, or claim the load because no process leads it.
Turn = Literal["load", "end", "complete", "lead"]

# How often to look at the other members. A look costs the server about a millisecond.
_LOOK_S = 1.0

# How often a member that waits looks, for each member, so that many do not look more often than few.
_TURN_S = 0.05

# Sessions of a dead member are reported after this time; the server ends those of a vanished host after 80 s.
_DYING_S = 3.0

# How long a member waits for others to claim objects that it does not have: they look every second.
_STUCK_S = 5.0

# The most objects to claim at once, so that others get some too.
_MOST_OBJECTS = 64


class Membership:
    """One member, on a session of its own, which holds the lock that shows that the process lives.

    Methods raise PenstockError: TakenOverError if another member has ended this one. `taken` are the objects that were
    claimed in this round.
    """

    def __init__(self, tools: LoadTools, connection: Connection, *, load_lock: str) -> None:
        self._tools = tools
        self._load_lock = load_lock
        self._connection = connection
        self._schema = tools.ledger.schema
        # As long as the keys of loads, of which 64 bits count.
        self.lock = secrets.token_hex(32)
        try_lock(connection, self.lock)
        self._claim: Claim | None = None
        self._objects: Mapping[int, ObjectWork] = {}
        # The objects of the load that this host does not have.
        self._unseen: Sequence[int] = ()
        self._looked_s = tools.clock()
        self._seen: MembersLook | None = None
        # Progress is shown from other threads than the one that claims.
        self._mutex = threading.Lock()
        self.taken: list[ObjectWork] = []
        self._unfinished: set[int] = set()
        # When each dead member that is still committing was first seen, and of which was told.
        self._dying: dict[int, float] = {}
        self._told: set[int] = set()

    @classmethod
    @contextmanager
    def opening(cls, tools: LoadTools, *, load_lock: str) -> Iterator[Membership]:
        """Provide a member that has not joined yet; close it if the block fails. `load_lock` is the load's."""
        connection = tools.connect.connect(label="member")
        try:
            yield cls(tools, connection, load_lock=load_lock)
        except BaseException:
            connection.close()
            raise

    @property
    def claim(self) -> Claim:
        """Return the claim; call this only after `bind`."""
        assert self._claim is not None
        return self._claim

    def bind(
        self, claim: Claim, objects: Mapping[int, ObjectWork], *, unseen: Sequence[OtherObject], left: Sequence[str]
    ) -> None:
        """Join a load. This host has `objects` of it, by number, not `unseen`; `left` are others that this host has."""
        self._claim, self._objects = claim, objects
        self._unseen = [each.number for each in unseen]
        if unseen:
            names = name_objects([each.uri for each in unseen])
            self._tools.notice(f"not among the sources of this host, and left to other hosts: {names}")
        if left:
            self._tools.notice(f"not part of load {claim.load_id}, and left to another load: {name_objects(left)}")

    def open(self, *, limit: int) -> None:
        """Let members claim the load's objects, with at most `limit` sessions in all; only for the one that leads."""
        open_claims(self._connection, self._schema, self.claim.load_id, limit=limit)

    # ---------------------------------------------------------------- objects

    def take(self, *, length_bytes: int) -> list[ObjectWork]:
        """Claim objects, the largest first, until they have `length_bytes`; return what is left of them."""
        while numbers := take_objects(
            self._connection,
            self._schema,
            self.claim,
            count=self._most(),
            length_bytes=length_bytes,
            unseen=self._unseen,
        ):
            coverage = read_coverage(self._connection, self._schema, self.claim.load_id, numbers=numbers)
            works = [replace(self._objects[number], coverage=coverage.get(number, Coverage())) for number in numbers]
            # Another member has died after its last commit, and before it removed its claim.
            if done := [work.number for work in works if work.coverage.is_complete]:
                finish_objects(self._connection, self._schema, self.claim, done)
            if left := [work for work in works if not work.coverage.is_complete]:
                with self._mutex:
                    self.taken += left
                self._unfinished.update(work.number for work in left)
                return left
        return []

    def _most(self) -> int:
        """Return how many objects to claim at once: a part of what was free, so that members end together.

        If this member is alone, another one may be about to join.
        """
        seen = self._seen or self.look()
        return max(1, min(_MOST_OBJECTS, seen.free // (2 * max(2, seen.others + 1))))

    def may_take(self, unsent: int) -> bool:
        """Return whether to claim more, with so many objects claimed and not sent: not if others get less than that."""
        seen = self._seen or self.look()
        return not unsent or unsent < -(-(seen.free + unsent) // (seen.others + 1))

    def begin_round(self) -> None:
        """Forget what was claimed in the last round."""
        with self._mutex:
            self.taken = []

    def finish_complete(self) -> bool:
        """Remove the claims of objects that the ledger has completely; return whether it has all that were claimed."""
        if not self._unfinished:
            return True
        numbers = sorted(self._unfinished)
        coverage = read_coverage(self._connection, self._schema, self.claim.load_id, numbers=numbers)
        if done := [number for number in numbers if number in coverage and coverage[number].is_complete]:
            finish_objects(self._connection, self._schema, self.claim, done)
            self._unfinished.difference_update(done)
        return not self._unfinished

    # ---------------------------------------------------------------- other members

    def look(self) -> MembersLook:
        """Look at the load, and end members that have died."""
        for client in end_dead(self._connection, self._schema, self.claim):
            self._tools.notice(f"member {client} has ended without finishing: its objects are free")
        seen = look_at_members(self._connection, self._schema, self.claim, unseen=self._unseen)
        if seen is None or not (seen.is_member or seen.is_complete):
            raise taken_over(self.claim.load_id)
        self._seen = seen
        self._tell_dying(seen.dying)
        return seen

    def _tell_dying(self, numbers: Sequence[int]) -> None:
        """Report once the backends of a dead member that have been in a transaction for a while."""
        now_s = self._tools.clock()
        self._dying = {number: self._dying.get(number, now_s) for number in numbers}
        for number, since_s in self._dying.items():
            if number not in self._told and now_s - since_s > _DYING_S:
                self._told.add(number)
                pids = find_workers(self._connection, self.claim.load_id, member=number)
                calls = " ".join(f"SELECT pg_terminate_backend({pid});" for pid in pids)
                self._tools.notice(f"waiting for sessions of member {number}, which has died; to end them: {calls}")

    def look_at_times(self) -> MembersLook | None:
        """Look, and remove claims that are done, if the last look was long enough ago."""
        if self._tools.clock() - self._looked_s < _LOOK_S:
            return None
        self._looked_s = self._tools.clock()
        self.finish_complete()
        return self.look()

    def await_turn(self, *, leads: bool) -> Turn:
        """Wait until this member can do something, and return what.

        Raises SourceError if objects are left that no host has: the one that leads is the last to say so, because it
        undoes the load's steps.
        """
        is_shown, stuck_s = False, None
        while True:
            seen = self.look()
            if seen.is_complete:
                return "complete"
            if seen.free:
                return "load"
            if leads and not seen.claimed:
                return "end"
            # The lock is free if no process leads; it is taken for the length of this statement only.
            if not leads and try_lock_here(self._connection, self._load_lock):
                return "lead"
            if not seen.claimed or seen.held:
                stuck_s = None
            elif stuck_s is None:
                stuck_s = self._tools.clock()
            elif not seen.others if leads else self._tools.clock() - stuck_s > _STUCK_S:
                raise self._not_seen()
            if not is_shown:
                what = f"{seen.others} other members" if seen.others != 1 else "another member"
                self._tools.notice(f"no object is left to claim: waiting for {what}")
                is_shown = True
            self._tools.sleep(min(_LOOK_S, _TURN_S * (seen.others + 1)))

    def _not_seen(self) -> SourceError:
        uris = find_claimed(self._connection, self._schema, self.claim.load_id)
        return SourceError(
            f"no host has {name_objects(uris)}, which load {self.claim.load_id} began with",
            detail=f"Host {host_name()} has not found it among its sources, and no other host has loaded it.",
            hint="Restore it, and run the same command again; or run the command once without --join, which leaves out"
            " what does not exist any more.",
        )

    def limit(self, sessions: SessionPlan) -> SessionPlan:
        """Return how many sessions this member may open: its share of what is free."""
        seen = self._seen or self.look()
        if seen.session_limit is None:
            return sessions
        return limit_sessions(sessions, connections=seen.session_limit, members=seen.others + 1)

    def share(self) -> int | None:
        """Return how many sessions this member may have by the last look, None if the load has no limit."""
        seen = self._seen
        if seen is None or seen.session_limit is None:
            return None
        return share_sessions(seen.session_limit, members=seen.others + 1)

    @property
    def work(self) -> Sequence[ObjectWork]:
        """Return the objects that were claimed in this round."""
        with self._mutex:
            return tuple(self.taken)

    # ---------------------------------------------------------------- the end

    def leave(self) -> bool:
        """End this member, so that others take its objects; return whether another member is live."""
        seen = None
        try:
            with self._tools.connect.connect(label="end") as connection:
                seen = look_at_members(connection, self._schema, self.claim)
                end_member(connection, self._schema, self.claim)
        except PenstockError as error:
            _log.info("cannot end this member: %s", error.message)
        finally:
            self.close()
        return seen is not None and not seen.is_complete and seen.others > 0

    def close(self) -> None:
        """Close the session, and so release the lock."""
        self._connection.close()


def read_share(connection: Connection, schema: str, load_id: str) -> LoadShare:
    """Return what this process has done of a load by several hosts. Raises ServerError."""
    members = list_members(connection, schema, load_id)
    own = [each for each in members if each.client == client_name()]
    return LoadShare(
        host=host_name(),
        rows=sum(each.rows for each in own),
        objects=sum(each.objects for each in own),
        members=len({each.client for each in members if each.rows}),
    )
