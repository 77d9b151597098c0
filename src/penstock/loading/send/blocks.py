"""The client's route: this process reads objects, cuts them into blocks, and sends these by COPY."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING

from penstock.core.connect.connection import Connection
from penstock.core.errors import PenstockError
from penstock.core.values.table import TableName
from penstock.ledger.rejects import FOREIGN_KEY_VIOLATION, RejectStore
from penstock.loading.context import UnreadableError
from penstock.loading.copy.copy import CopySession
from penstock.loading.read.feed import BlockFeed, FeedPlan, OpenObject, reader_limit
from penstock.loading.read.objects import is_unreadable, open_blocks
from penstock.loading.rejects.explain import RejectLimit
from penstock.loading.send.formats import open_encoded
from penstock.loading.send.session import LoadSession, Sending
from penstock.loading.values.objects import PlannedObject

if TYPE_CHECKING:
    from penstock.loading.rejects.sorter import RejectKeeper


class BlockUnit:
    """Sends the objects of an attempt as blocks that this process reads.

    An object that cannot be read to its end, and is skipped, is added to `unreadable` with its error, by its number.
    """

    def __init__(self, sending: Sending, unreadable: dict[int, PenstockError]) -> None:
        self._sending = sending
        self._plan = plan = sending.plan
        self._claimed = sending.claimed
        self._tools = tools = sending.tools
        self._unreadable = unreadable
        self._fence = tools.ledger.fence(sending.claimed.claim)
        self._reject_limit = self._make_limit(sending.first)
        self._member = member = sending.claimed.member
        sessions, is_joint = sending.given.sessions.initial, plan.job.rules.join
        self.feed = BlockFeed(
            member.work,
            lambda item: open_blocks(item, tools, format_check=sending.format_check),
            FeedPlan(
                reader_limit=reader_limit(None if is_joint else len(member.work), sessions=sessions),
                sessions=sessions,
                is_in_job_order=plan.is_in_job_order,
                is_by_table=plan.batch.is_one_table,
                is_open=is_joint,
                least_claim_bytes=plan.tuning.least_claim_bytes,
            ),
            on_object_failed=self._leave_out if plan.job.rules.skips_unreadable else None,
            open_encoded=partial(open_encoded, as_text=sending.given.as_text),
            clock=tools.clock,
        )

    @property
    def work(self) -> Sequence[PlannedObject]:
        """Return the objects that this process loads in this attempt, as far as they are known now."""
        return self._member.work

    def open_session(self, number: int, connection: Connection) -> LoadSession:
        """Return the session with this number, which sends blocks on `connection`. Sessions are numbered from 0."""
        rules = self._plan.job.rules
        session = CopySession(
            connection,
            fence=self._fence,
            is_protected=self._reject_limit is not None,
            frozen=self._find_frozen(),
            tables=self._claimed.tables,
        )
        return LoadSession(
            number,
            session,
            self.feed,
            self._sending,
            keeper=self._make_keeper(session),
            # Do not seal batches if several hosts load: their sessions could then wait for each other unnoticed. Do not
            # seal a batch that is a whole table either, because other sessions wait for the table until the batch is
            # committed. A load that yields seals none, because a sealed batch would stay open while others are held.
            seals=not (rules.join or rules.yields_for or self._plan.batch.is_one_table),
        )

    def _find_frozen(self) -> Collection[TableName]:
        """Return the tables whose rows COPY freezes, and which it truncates for this: those that are the load's own."""
        if not self._plan.freeze.is_used:
            return ()
        appended = {
            target.facts.oid
            for target in self._plan.targets
            if target.facts is not None and not (target.landing.is_fresh or target.is_replaced)
        }
        return {name for name, table in self._claimed.tables.items() if table.oid not in appended}

    def look(self, sessions: Sequence[object]) -> None:  # noqa: ARG002 (blocks show their own progress)
        """If several hosts load, claim objects before they are needed, and leave other hosts a share of the sessions.

        This is called again and again while sessions are at work.
        """
        self._member.supply(self.feed)

    def _leave_out(self, opened: OpenObject, error: PenstockError) -> None:
        """Skip an object that cannot be read to its end. Raise an error if a part of it was sent."""
        number = opened.work.number
        if not self._plan.is_repeatable or not is_unreadable(error) or self.feed.is_ending:
            raise error
        if opened.work.coverage.ranges or not self.feed.discard(opened):
            raise UnreadableError(error, number) from error
        self._tools.notice(f"{error.message}: loading the other objects")
        self._unreadable[number] = error

    def close(self) -> None:
        """Do nothing, because `look` opens nothing."""

    def _make_limit(self, first: Connection) -> RejectLimit | None:
        """Return the counter of rejected records, or None if the first rejected record ends the load.

        With --max-rejects, the counter begins at the number of records that earlier runs rejected and that are not
        stored yet.
        """
        rules = self._plan.job.rules
        if rules.on_error == "stop":
            return None

        before = self._open_rejects().count(first, but_code=FOREIGN_KEY_VIOLATION) if rules.max_rejects else 0
        return RejectLimit(rules.max_rejects, before=before)

    def _open_rejects(self) -> RejectStore:
        return RejectStore(self._tools.ledger.schema, self._claimed.claim.load_id)

    def _make_keeper(self, session: CopySession) -> RejectKeeper | None:
        if self._reject_limit is None:
            return None
        from penstock.loading.rejects.sorter import RejectKeeper  # noqa: PLC0415 (10 ms, for who rejects)

        return RejectKeeper(
            session,
            store=self._open_rejects(),
            limit=self._reject_limit,
            server_major=self._tools.server_major,
            most_sorted=self._plan.tuning.most_sorted,
        )
