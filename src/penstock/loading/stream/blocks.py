"""The client's route: objects are read, cut into blocks and sent by COPY sessions."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from penstock.loading.reading.feed import BlockFeed, reader_limit
from penstock.loading.reading.objects import open_blocks
from penstock.loading.reading.unreadable import UnreadableError, is_unreadable
from penstock.loading.rejects.limit import RejectLimit
from penstock.loading.stream.formats import open_binary
from penstock.loading.stream.session import LoadSession
from penstock.model.load.reject import FOREIGN_KEY_VIOLATION
from penstock.server.copy.copy import CopySession
from penstock.server.ledger.rejects import RejectStore

if TYPE_CHECKING:
    from penstock.errors import PenstockError
    from penstock.loading.claim.prepared import PreparedLoad
    from penstock.loading.context import LoadTools
    from penstock.loading.plan.work import ObjectWork
    from penstock.loading.reading.feed import OpenObject
    from penstock.loading.reading.format_check import FormatCheck
    from penstock.loading.reading.value_check import ValueCheck
    from penstock.loading.rejects.keeper import RejectKeeper
    from penstock.model.load.plan import LoadPlan
    from penstock.server.connect.connection import Connection


class BlockUnit:
    """Sends blocks of objects; `first` is the session that holds the load's lock."""

    def __init__(
        self,
        plan: LoadPlan,
        prepared: PreparedLoad,
        tools: LoadTools,
        work: Sequence[ObjectWork],
        *,
        sessions: int,
        first: Connection,
        format_check: FormatCheck,
        value_check: ValueCheck,
    ) -> None:
        self._plan = plan
        self._prepared = prepared
        self._tools = tools
        self._value_check = value_check
        self._fence = tools.ledger.fence(prepared.claim)
        self._reject_limit = self._make_limit(first)
        self._member, self._work = prepared.member, work
        self.feed = BlockFeed(
            work,
            lambda item: open_blocks(item, tools, format_check=format_check),
            reader_limit=reader_limit(len(work) if self._member is None else None, sessions=sessions),
            sessions=sessions,
            is_in_job_order=plan.is_in_job_order,
            is_open=self._member is not None,
            least_claim_bytes=plan.tuning.least_claim_bytes,
            on_object_failed=None if tools.unreadable is None else self._leave_out,
            open_binary=partial(open_binary, as_text=tools.as_text),
            clock=tools.clock,
        )

    @property
    def work(self) -> Sequence[ObjectWork]:
        """Return the objects of the feed, in its order."""
        return self._work if self._member is None else self._member.work

    def open_session(self, number: int, connection: Connection) -> LoadSession:
        """Return session `number` on a connection."""
        session = CopySession(
            connection,
            fence=self._fence,
            is_protected=self._reject_limit is not None,
            tables=self._prepared.tables,
        )
        return LoadSession(
            number,
            session,
            self.feed,
            ledger=self._tools.ledger,
            claim=self._prepared.claim,
            batch_plan=self._plan.batch,
            server_major=self._tools.server_major,
            keeper=self._make_keeper(session),
            # Sessions of several hosts that hold sealed batches could wait for each other unnoticed.
            seals=self._member is None,
            value_check=self._value_check,
            clock=self._tools.clock,
        )

    def look(self, sessions: Sequence[object]) -> None:  # noqa: ARG002 (blocks show their own progress)
        """If several hosts load, claim objects before they are needed, and leave others their share of sessions."""
        if (member := self._member) is None:
            return
        wanted, unsent = self.feed.wanted_bytes(), self.feed.unsent
        if wanted > 0 and member.may_take(unsent):
            if found := member.take(length_bytes=wanted):
                self.feed.add(found)
            elif not member.look().free:
                self.feed.end()
        if member.look_at_times() is not None:
            share = member.share()
            if share is not None and share < self.feed.sessions:
                self.feed.set_sessions(share)

    def _leave_out(self, opened: OpenObject, error: PenstockError) -> None:
        """Leave out an object that cannot be read to its end; raise an error if a part of it was sent."""
        unreadable, number = self._tools.unreadable, opened.work.number
        if unreadable is None or not self._plan.is_repeatable or not is_unreadable(error) or self.feed.is_ending:
            raise error
        if opened.work.coverage.ranges or not self.feed.discard(opened):
            raise UnreadableError(error, number) from error
        self._tools.notice(f"{error.message}: loading the other objects")
        unreadable[number] = error

    def close(self) -> None:
        """Do nothing: `look` opens nothing."""

    def _make_limit(self, first: Connection) -> RejectLimit | None:
        """Return the counter of rejected records, or None if the first rejected record ends the load.

        With --max-rejects it counts from the number of records that earlier runs rejected and that are not stored yet.
        """
        rules = self._plan.job.rules
        if rules.on_error == "stop":
            return None

        before = self._open_rejects().count(first, but_code=FOREIGN_KEY_VIOLATION) if rules.max_rejects else 0
        return RejectLimit(rules.max_rejects, before=before)

    def _open_rejects(self) -> RejectStore:
        return RejectStore(self._tools.ledger.schema, self._prepared.claim.load_id)

    def _make_keeper(self, session: CopySession) -> RejectKeeper | None:
        if self._reject_limit is None:
            return None
        from penstock.loading.rejects.keeper import RejectKeeper  # noqa: PLC0415 (10 ms, for who rejects)

        return RejectKeeper(
            session,
            store=self._open_rejects(),
            limit=self._reject_limit,
            server_major=self._tools.server_major,
            most_sorted=self._plan.tuning.most_sorted,
        )
