"""This process as a member of a load: which objects it loads, and what it shares with other members.

A load by one process has one member, which has all objects and needs no queries. A member of a load by several hosts
has its own session, and claims objects in the ledger. Both classes have the same methods, and their callers do not ask
which of them a member is: what else depends on it is asked of the load's rules (`LoadRules.join`).
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Literal

from penstock.core.connect.connection import Connection
from penstock.core.errors import Interrupted, PenstockError, TakenOverError
from penstock.core.host.machine import client_name, host_name
from penstock.ledger.committed import OtherObject, read_coverage
from penstock.ledger.ledger import taken_over
from penstock.ledger.locks import find_lock_holder, find_workers, try_lock
from penstock.ledger.members import (
    end_dead,
    end_member,
    find_claimed,
    finish_objects,
    list_members,
    look_at_members,
    open_claims,
    take_objects,
)
from penstock.ledger.values import Claim, Coverage, LoaderProcess, MembersState
from penstock.loading.claim.decide import name_objects, not_seen
from penstock.loading.context import LoadTools
from penstock.loading.pace import limit_sessions, share_sessions
from penstock.loading.read.feed import BlockFeed
from penstock.loading.values.objects import PlannedObject
from penstock.loading.values.outcome import LoadShare
from penstock.loading.values.plan import SessionPlan, total_size

_log = logging.getLogger(__name__)

# Calls a function with a session after the load is complete, and returns the function's result.
AtEnd = Callable[[Callable[[Connection], LoadShare]], LoadShare]

# What a member does next: load free objects ("load"), end a load with nothing left to load ("end"), report a complete
# load ("complete"), or claim the load because no process leads it ("lead").
Turn = Literal["load", "end", "complete", "lead"]

# How often to look at the other members. A look costs the server about a millisecond.
_LOOK_S = 1.0

# A waiting member checks the ledger at this interval, multiplied by the number of members, but at least every _LOOK_S.
# So up to 20 members together check no more often than a single member.
_TURN_S = 0.05

# Sessions of a dead member are reported after this time. The server ends the sessions of a vanished host after 80 s.
_DYING_S = 3.0

# How long a member waits until other members claim the objects that this host does not have. Every member checks for
# free objects every second.
_STUCK_S = 5.0

# The most objects to claim at once, so that others get some too.
_MOST_OBJECTS = 64


class Member:
    """This process as the only member of a load. It has all objects.

    The load's lock shows that the process is alive.
    """

    # Whether this process runs the steps before and after the rows.
    leads = True
    # The load that another process led, and that this process has waited for.
    waited_for: str | None = None

    def __init__(self, tools: LoadTools, *, lock: str) -> None:
        self._tools = tools
        self.process = LoaderProcess(client=client_name(), lock=lock)
        # The stored size of what this process will load. None if it is not known, as in a load by several hosts.
        self.size_bytes: int | None = None
        self._work: Sequence[PlannedObject] = ()
        self._rounds = 0

    def bind(
        self,
        claim: Claim,  # noqa: ARG002 (JointMember uses it; so do the next)
        objects: Mapping[int, PlannedObject],  # noqa: ARG002
        work: Sequence[PlannedObject],
        *,
        unseen: Sequence[OtherObject],  # noqa: ARG002
        left: Sequence[str],  # noqa: ARG002
    ) -> None:
        """Record what was claimed. `objects` are the load's objects that this host has, by their numbers in the ledger.

        `work` are those that this process must still load; it is empty if members claim objects later. `unseen` are the
        load's objects that this host does not have. `left` are the URIs of this host's objects that are not part of the
        load.
        """
        self._work, self.size_bytes = work, total_size(each.source for each in work)

    @property
    def work(self) -> Sequence[PlannedObject]:
        """Return the objects that this process loads in this round, as far as they are known now."""
        return self._work

    # ---------------------------------------------------------------- rounds

    def open(self, *, limit: int) -> None:
        """Let other members claim the load's objects. All members together may have `limit` sessions."""

    def await_turn(self) -> Turn:
        """Wait until this member can do something, and return what it does next (see Turn).

        "load" begins a round: the member loads the objects that it claims until no object is left to claim.
        """
        self._rounds += 1
        return "load" if self._rounds == 1 else "end"

    def end_round(self, *, is_stopped: bool) -> bool:  # noqa: ARG002 (JointMember uses it)
        """Return whether every object that this member has claimed is committed completely.

        `is_stopped` is true if the user has interrupted the round. The only member of a load always returns true,
        because the end of the load checks all objects.
        """
        return True

    def has_leader(self, connection: Connection) -> bool:  # noqa: ARG002 (JointMember uses it)
        """Return whether a process leads the load."""
        return True

    def limit(self, sessions: SessionPlan) -> SessionPlan:
        """Return the session plan, reduced to the sessions that this member may have."""
        return sessions

    def supply(self, feed: BlockFeed) -> None:
        """Add objects to an open feed before they are needed.

        The load's only member adds none, because its feed has all objects from the start.
        """

    # ---------------------------------------------------------------- the end

    def outlive(self, error: PenstockError) -> PenstockError:
        """Return the error with which an attempt ends.

        It is `error`, or a transient copy of it if this process should join the load again.
        """
        return error

    def read_share(self, load_id: str, at_end: AtEnd) -> LoadShare | None:  # noqa: ARG002 (JointMember uses it)
        """Return what this process has loaded of a complete load, or None if it was the load's only member.

        `at_end` calls a function with a session in which the ledger is read.
        """
        return None

    def leave(self) -> bool:
        """End this member, so that others can claim its objects.

        Return whether another live member continues the load.
        """
        return False

    def close(self) -> None:
        """Release the lock that shows that this process is alive, unless it is the load's lock."""


class JointMember(Member):
    """This process as one of several members of a load. Its own session holds the lock that shows that it is alive.

    Methods raise PenstockError, among them TakenOverError if another member has ended this one.
    """

    _claim: Claim

    def __init__(
        self, tools: LoadTools, connection: Connection, *, load_lock: str, leads: bool, waited_for: str | None
    ) -> None:
        # The key is as long as the key of a load. Only the first 64 bits of a key are used.
        super().__init__(tools, lock=secrets.token_hex(32))
        try_lock(connection, self.process.lock)
        self.leads, self.waited_for = leads, waited_for
        self._load_lock = load_lock
        self._connection = connection
        self._schema = tools.ledger.schema
        self._objects: Mapping[int, PlannedObject] = {}
        # The objects of the load that this host does not have.
        self._unseen: Sequence[int] = ()
        self._looked_s = tools.clock()
        self._seen: MembersState | None = None
        # A lock is needed, because other threads show progress while this thread claims objects.
        self._mutex = threading.Lock()
        # The objects that were claimed in this round.
        self._taken: list[PlannedObject] = []
        self._unfinished: set[int] = set()
        # When each dead member with open transactions was first seen, and the members that were reported.
        self._dying: dict[int, float] = {}
        self._told: set[int] = set()

    def bind(
        self,
        claim: Claim,
        objects: Mapping[int, PlannedObject],
        work: Sequence[PlannedObject],  # noqa: ARG002 (objects are claimed as they are needed)
        *,
        unseen: Sequence[OtherObject],
        left: Sequence[str],
    ) -> None:
        """Record what was claimed, and show notices that name the objects left to other hosts or to another load."""
        self._claim, self._objects = claim, objects
        self._unseen = [each.number for each in unseen]
        if unseen:
            names = name_objects([each.uri for each in unseen])
            self._tools.notice(f"not among the sources of this host, and left to other hosts: {names}")
        if left:
            self._tools.notice(f"not part of load {claim.load_id}, and left to another load: {name_objects(left)}")

    @property
    def work(self) -> Sequence[PlannedObject]:
        """Return the objects that were claimed in this round."""
        with self._mutex:
            return tuple(self._taken)

    def open(self, *, limit: int) -> None:
        """If this member leads, let all members claim the load's objects. Together they may have `limit` sessions."""
        if self.leads:
            open_claims(self._connection, self._schema, self._claim.load_id, limit=limit)

    # ---------------------------------------------------------------- objects

    def supply(self, feed: BlockFeed) -> None:
        """Claim objects for the feed before they are needed. End the feed if no object is left to claim.

        About once a second, also remove the claims of complete objects, reduce the feed's sessions to this host's
        share, and end the feed if no process leads the load.
        """
        wanted = feed.wanted_bytes()
        if wanted > 0 and self._may_take(feed.unsent):
            if found := self._take(length_bytes=wanted):
                feed.add(found)
            elif not self.look().free:
                feed.end()
        if self._tools.clock() - self._looked_s >= _LOOK_S:
            self._looked_s = self._tools.clock()
            self._finish_complete()
            if not (self.leads or self.has_leader(self._connection)):
                # Only a leader ends the load. One of the members leads when it has loaded what it has claimed.
                feed.end()
            seen = self.look()
            if seen.session_limit is not None:
                share = share_sessions(seen.session_limit, members=seen.others + 1)
                if share < feed.sessions:
                    feed.set_sessions(share)

    def _take(self, *, length_bytes: int) -> list[PlannedObject]:
        """Claim objects, the largest first, until they have `length_bytes`. Return those that are not complete."""
        while numbers := take_objects(
            self._connection,
            self._schema,
            self._claim,
            count=self._most(),
            length_bytes=length_bytes,
            unseen=self._unseen,
        ):
            coverage = read_coverage(self._connection, self._schema, self._claim.load_id, numbers=numbers)
            works = [replace(self._objects[number], coverage=coverage.get(number, Coverage())) for number in numbers]
            # Another member has died after its last commit, and before it removed its claim.
            if done := [work.number for work in works if work.coverage.is_complete]:
                finish_objects(self._connection, self._schema, self._claim, done)
            if left := [work for work in works if not work.coverage.is_complete]:
                with self._mutex:
                    self._taken += left
                self._unfinished.update(work.number for work in left)
                return left
        return []

    def _most(self) -> int:
        """Return how many objects to claim at once. It is a part of all free ones, so that all members end together.

        A member that is alone also claims only a part, because another member may be about to join.
        """
        seen = self._seen or self.look()
        return max(1, min(_MOST_OBJECTS, seen.free // (2 * max(2, seen.others + 1))))

    def _may_take(self, unsent: int) -> bool:
        """Return whether to claim more objects, if `unsent` claimed ones are not sent yet.

        This is false once this member has its equal share of the objects that are not sent yet.
        """
        seen = self._seen or self.look()
        return not unsent or unsent < -(-(seen.free + unsent) // (seen.others + 1))

    def end_round(self, *, is_stopped: bool) -> bool:
        """Remove the claims of complete objects. Return whether no claimed object is left.

        Raises Interrupted if the user has interrupted the round.
        """
        if is_stopped:
            raise Interrupted("load interrupted")
        return self._finish_complete()

    def _finish_complete(self) -> bool:
        """Remove the claims of the objects that are committed completely. Return whether no claimed object is left."""
        if not self._unfinished:
            return True
        numbers = sorted(self._unfinished)
        coverage = read_coverage(self._connection, self._schema, self._claim.load_id, numbers=numbers)
        if done := [number for number in numbers if number in coverage and coverage[number].is_complete]:
            finish_objects(self._connection, self._schema, self._claim, done)
            self._unfinished.difference_update(done)
        return not self._unfinished

    # ---------------------------------------------------------------- other members

    def look(self) -> MembersState:
        """End members that have died, show which, and return the present state of the load and of its members."""
        for client in end_dead(self._connection, self._schema, self._claim):
            self._tools.notice(f"member {client} has ended without finishing: its objects are free")
        seen = look_at_members(self._connection, self._schema, self._claim, unseen=self._unseen)
        if seen is None or not (seen.is_member or seen.is_complete):
            raise taken_over(self._claim.load_id)
        self._seen = seen
        self._tell_dying(seen.dying)
        return seen

    def _tell_dying(self, numbers: Sequence[int]) -> None:
        """Report each dead member once if its backends have had open transactions for some seconds."""
        now_s = self._tools.clock()
        self._dying = {number: self._dying.get(number, now_s) for number in numbers}
        for number, since_s in self._dying.items():
            if number not in self._told and now_s - since_s > _DYING_S:
                self._told.add(number)
                pids = find_workers(self._connection, self._claim.load_id, member=number)
                calls = " ".join(f"SELECT pg_terminate_backend({pid});" for pid in pids)
                self._tools.notice(f"waiting for sessions of member {number}, which has died; to end them: {calls}")

    def await_turn(self) -> Turn:
        """Wait until this member can do something, and return what it does next (see Turn).

        Raises SourceError if no host has the remaining objects among its sources. The leading process raises it only
        when it is the last member, because it then undoes the load's steps.
        """
        is_shown, stuck_s = False, None
        while True:
            seen = self.look()
            if seen.is_complete:
                return "complete"
            if not (self.leads or self.has_leader(self._connection)):
                return "lead"
            if seen.free:
                with self._mutex:
                    self._taken = []
                return "load"
            if self.leads and not seen.claimed:
                return "end"
            if not seen.claimed or seen.held:
                stuck_s = None
            elif stuck_s is None:
                stuck_s = self._tools.clock()
            elif not seen.others if self.leads else self._tools.clock() - stuck_s > _STUCK_S:
                uris = find_claimed(self._connection, self._schema, self._claim.load_id)
                raise not_seen(uris, self._claim.load_id, host=host_name())
            if not is_shown:
                what = f"{seen.others} other members" if seen.others != 1 else "another member"
                self._tools.notice(f"no object is left to claim: waiting for {what}")
                is_shown = True
            self._tools.sleep(min(_LOOK_S, _TURN_S * (seen.others + 1)))

    def has_leader(self, connection: Connection) -> bool:
        """Return whether a process leads the load: it has the load's lock."""
        return find_lock_holder(connection, self._load_lock) is not None

    def limit(self, sessions: SessionPlan) -> SessionPlan:
        """Return the session plan, reduced to this member's share of the sessions that all members may have."""
        seen = self._seen or self.look()
        if seen.session_limit is None:
            return sessions
        return limit_sessions(sessions, connections=seen.session_limit, members=seen.others + 1)

    # ---------------------------------------------------------------- the end

    def outlive(self, error: PenstockError) -> PenstockError:
        """Return a transient copy of `error` if other members have ended this one, otherwise `error`.

        They do so if this member seems dead. After a transient error, this process joins the load again.
        """
        if not isinstance(error, TakenOverError):
            return error
        again = copy(error)
        again.message = "the other members took this one for dead, and its objects are free"
        again.is_transient = True
        return again

    def read_share(self, load_id: str, at_end: AtEnd) -> LoadShare | None:
        """Return how many rows and objects this process has loaded of a complete load.

        The result also has the number of members that loaded rows. If the ledger cannot be read, show a notice and
        return None.
        """

        def read(connection: Connection) -> LoadShare:
            members = list_members(connection, self._schema, load_id)
            own = [each for each in members if each.client == client_name()]
            return LoadShare(
                host=host_name(),
                rows=sum(each.rows for each in own),
                objects=sum(each.objects for each in own),
                members=len({each.client for each in members if each.rows}),
            )

        try:
            return at_end(read)
        except PenstockError as error:
            self._tools.notice(f"this host's share of the load was not counted: {error.message}")
            return None

    def leave(self) -> bool:
        """End this member, so that others can claim its objects.

        Return whether another live member continues the load. If the server cannot be reached, the result is false, and
        the other members end this one.
        """
        seen = None
        try:
            with self._tools.connect.connect(label="end") as connection:
                # Of members that end together, the last one sees that there is no other.
                end_member(connection, self._schema, self._claim)
                seen = look_at_members(connection, self._schema, self._claim)
        except PenstockError as error:
            _log.info("cannot end this member: %s", error.message)
        finally:
            self.close()
        return seen is not None and not seen.is_complete and seen.others > 0

    def close(self) -> None:
        """Close the session, which releases its lock."""
        self._connection.close()
