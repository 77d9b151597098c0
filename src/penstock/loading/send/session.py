"""Runs one session: sends blocks in COPY commands and commits batches."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from penstock import _native
from penstock.core.connect.connection import Connection
from penstock.core.errors import FileLocation, PenstockError, TargetError
from penstock.core.slotted import slotted
from penstock.core.values.accounts import SessionTotals, Stopwatch
from penstock.core.values.table import TableName
from penstock.ledger.committed import insert_ranges, lacks_object
from penstock.ledger.ledger import taken_over
from penstock.ledger.rejects import Reject
from penstock.loading.claim.write import ClaimedLoad
from penstock.loading.context import LoadTools, NextAttempt, RefusedEncodedError
from penstock.loading.copy.copy import CopyFailed, CopySession, OtherTypes, Statement, Superseded
from penstock.loading.formats.blocks import make_cutter, record_error
from penstock.loading.formats.sent import explain_line
from penstock.loading.read.feed import BlockFeed, NothingReady, OpenObject
from penstock.loading.read.format_check import FormatCheck
from penstock.loading.read.value_check import ValueCheck
from penstock.loading.rejects.explain import explain_failure, explain_miscount, solve_unwritten
from penstock.loading.send.chunk import Batch, Chunk
from penstock.loading.values.objects import Block, CopySpec, LineEnd
from penstock.loading.values.plan import LoadPlan

if TYPE_CHECKING:
    from penstock.loading.rejects.sorter import RejectKeeper


@slotted
class Sending:
    """What the modules of one attempt share: the plan, the claimed load, the tools, and the checks of what is sent."""

    plan: LoadPlan
    claimed: ClaimedLoad
    tools: LoadTools
    # The options of this attempt.
    given: NextAttempt
    # The session that holds the load's lock.
    first: Connection
    format_check: FormatCheck
    value_check: ValueCheck


_log = logging.getLogger(__name__)

_T = TypeVar("_T")

# The SQLSTATE of a value in the binary format whose length does not fit the type, because the column's type has
# changed.
_PROTOCOL_VIOLATION = "08P01"

# The SQLSTATE class of operator intervention: somebody has cancelled the statement or dropped the database. The rows
# are not the cause.
_INTERVENTION_CLASS = "57"


@dataclass(slots=True)
class _Command:
    """The COPY command that is open."""

    chunk: Chunk
    spec: CopySpec
    line_end: LineEnd
    began_s: float


class LoadSession:
    """Takes blocks from the feed and sends them by one CopySession, until the feed is empty.

    A batch is one transaction. Its ledger rows are inserted in this transaction, so both are committed or neither. If
    `seals` is true, `run` leaves the last batch ready to be committed by `commit`, so that the last batches of all
    sessions are committed together. With a `keeper`, records that the table refuses are rejected. Without a keeper,
    they end the load.
    """

    def __init__(
        self,
        number: int,
        session: CopySession,
        feed: BlockFeed,
        sending: Sending,
        *,
        keeper: RejectKeeper | None = None,
        seals: bool = True,
    ) -> None:
        self.number = number
        self.session = session
        self.totals = SessionTotals()
        self._feed = feed
        self._ledger = sending.tools.ledger
        self._claim = sending.claimed.claim
        self._batch_plan = sending.plan.batch
        self._batch = Batch()
        self._batch_began_s = 0.0
        self._clock = sending.tools.clock
        self._watch = Stopwatch(self._clock)
        self._server_major = sending.tools.server_major
        self._keeper = keeper
        self._seals = seals
        self._value_check = sending.value_check
        self._opened: dict[int, OpenObject] = {}
        # The objects that have encoded blocks in the present batch.
        self._encoded: set[int] = set()
        # Rejected records, which are written to the ledger only after the COPY command has ended.
        self._unwritten: list[Reject] = []
        self._command: _Command | None = None
        # The last command's spec: the next block should be one that the same command can carry.
        self._spec: CopySpec | None = None
        # The table of the present batch, if each batch is all rows of one table.
        self._table: TableName | None = None
        # The object whose block was sent last, for errors.
        self._current: OpenObject | None = None

    def run(self) -> None:
        """Send blocks until none is left. Raises PenstockError, or Abandoned if the load failed in another thread."""
        self._watch.lap()
        while (taken := self._take()) is not None:
            self.totals.seconds.waiting_s += self._watch.lap()
            self._send(*taken)
        self.totals.seconds.waiting_s += self._watch.lap()
        self._end_chunk()
        if not self._seals:
            self._commit_batch()
        if self._batch:
            self._guarded(lambda: self.session.seal(self._ledger_rows()))
        self.totals.seconds.finishing_s += self._watch.lap()

    @property
    def has_sealed(self) -> bool:
        """Return whether the last batch is sent and left to `commit`."""
        return bool(self._batch)

    def commit(self) -> None:
        """Commit the last batch, if `run` has left it. Raises CopyFailed."""
        if self._batch:
            self._watch.lap()
            self.session.commit()
            self.totals.seconds.committing_s += self._watch.lap()
            self._end_batch()

    def _ledger_rows(self) -> Statement:
        ranges, rejects = self._batch.committed_ranges(), self._keeper is not None
        return insert_ranges(self._ledger.schema, self._claim, ranges, is_under_savepoints=rejects)

    def _commit_batch(self) -> None:
        """Commit what was sent since the last commit, with its ledger rows."""
        if self._batch:
            self._value_check.warnings.refuse()
            self.totals.seconds.encoding_s += self._watch.lap()
            self._guarded(lambda: self.session.commit(self._ledger_rows()))
            self.totals.seconds.committing_s += self._watch.lap()
            _log.info("session %d: committed a batch of %d bytes", self.number, self._batch.bytes_sent)
            self._end_batch()

    def _end_batch(self) -> None:
        self.totals.rows_committed += self._batch.rows
        self._batch = Batch()
        self._encoded.clear()

    def _is_batch_due(self) -> bool:
        plan = self._batch_plan
        is_full = plan.limit_bytes is not None and self._batch.bytes_sent >= plan.limit_bytes
        if is_full or plan.duration_s is None:
            return is_full
        lasted_s = self._clock() - self._batch_began_s
        return lasted_s >= max(plan.duration_s, plan.commits_per_batch * self.session.commit_s)

    def _take(self) -> tuple[OpenObject, Block] | None:
        """Return the next block. If none is ready for a while, end the COPY command first, to get its errors.

        If the batch is due, or the load is held, it is committed too.
        """
        while self._batch:
            try:
                return self._feed.take(session=self.number, prefer=self._spec, patience_s=self._batch_plan.silence_s)
            except NothingReady:
                self.totals.seconds.waiting_s += self._watch.lap()
                self._end_chunk()
                if self._is_batch_due() or self._feed.is_held:
                    self._commit_batch()
        return self._feed.take(session=self.number, prefer=self._spec)

    def _send(self, opened: OpenObject, block: Block) -> None:
        if self._batch_plan.is_one_table and opened.target.table != self._table:
            # Commit the rows of the last table. The feed gives a session another table only after the last table's rows
            # are sent.
            self._end_chunk()
            self._commit_batch()
            self._table = opened.target.table
        if not self._batch:
            self._batch_began_s = self._clock()
        encoder, form = opened.encoder, opened.form
        if not block.records:
            self._batch.add(opened.work.number, block, header=form.header)
            self._feed.note_sent(opened, 0)
            return
        rows, spec = self._encode_rows(opened, block)
        is_untouched = rows is None and encoder.is_untouched(block)
        line_end: LineEnd = block.line_end if is_untouched else "lf"
        command = self._command
        if command is not None and not self._continues(command, opened, spec, line_end):
            self._end_chunk()
            command = None
        self._current = opened
        if command is None:
            command = self._begin_chunk(spec, line_end)
        parts: Sequence[bytes | memoryview]
        if rows is None:
            parts = self._encode(command.chunk, opened, block)
        else:
            parts = [rows]
            self._encoded.add(opened.work.number)
            # Keep no lines, because an error is located when the object is sent again as text.
            command.chunk.count(block, uri=opened.source.uri, records=block.records)
        self._batch.add(opened.work.number, block, header=form.header)
        self.totals.seconds.encoding_s += self._watch.lap()
        if parts:
            self._guarded(lambda: self.session.send(parts))
        self.totals.seconds.sending_s += self._watch.lap()
        self.totals.bytes_copied += sum(map(len, parts))
        self._feed.note_sent(opened, block.records)
        is_due = self._is_batch_due()
        is_over = (is_untouched and block.is_unended) or is_due or self._is_long_enough(command)
        if is_over or self.session.has_answer():
            self._end_chunk()
        if is_due:
            self._commit_batch()

    def _encode_rows(self, opened: OpenObject, block: Block) -> tuple[bytes | None, CopySpec]:
        """Return a block's encoded rows (None if it is sent as text), and the COPY command for it."""
        encoded = opened.encoded
        rows = None if encoded is None else encoded.encode(block)
        spec = opened.encoder.spec if encoded is None or rows is None else encoded.spec
        if rows is not None and spec.format != "binary":
            # The encoder of the binary format declines blocks with values that columns change.
            self._look(opened, block)
        self.totals.seconds.encoding_s += self._watch.lap()
        return rows, spec

    def _encode(self, chunk: Chunk, opened: OpenObject, block: Block) -> Sequence[bytes | memoryview]:
        """Add a block to the chunk, and return its payload.

        With a keeper, records that cannot be encoded are rejected.
        """
        encoder = opened.encoder
        if self._keeper is not None:
            self._look(opened, block)
            self._opened[opened.work.number] = opened
            parts, rejects = self._keeper.keep(opened, block)
            self._unwritten += rejects
            chunk.count(block, uri=opened.source.uri, records=block.records - len(rejects))
            return parts
        try:
            payload = encoder.encode(block)
        except _native.RecordError as exc:
            error = record_error(exc, uri=opened.source.uri, first_line=block.first_line)
            error.hint = error.hint or explain_line(block, exc.args[2], opened.form, uri=opened.source.uri)
            error.hint, error.options = solve_unwritten(exc.args[0], opened.work.target) or (error.hint, None)
            raise error from exc
        self._look(opened, block, payload)
        chunk.add(
            block,
            uri=opened.source.uri,
            payload=payload,
            was_rewritten=not encoder.is_untouched(block),
            make_cutter=partial(make_cutter, opened.target.dialect, server_major=self._server_major),
        )
        return payload

    def _look(self, opened: OpenObject, block: Block, payload: Sequence[bytes | memoryview] = ()) -> None:
        """Count the values of a block that the table's columns would change."""
        self._value_check.look(block, opened.work, opened.encoder, payload)

    def _continues(self, command: _Command, opened: OpenObject, spec: CopySpec, line_end: LineEnd) -> bool:
        """Return whether the open COPY command can carry a block.

        If triggers may suppress rows, the command cannot carry a second object, because suppressed rows are counted for
        each object.
        """
        if spec != command.spec or line_end != command.line_end:
            return False
        return opened is self._current or not opened.target.allows_suppressed_rows

    def _is_long_enough(self, command: _Command) -> bool:
        plan = self._batch_plan
        if self._keeper is not None:
            return command.chunk.bytes_sent >= min(plan.chunk_bytes, plan.kept_chunk_bytes)
        lasted_s = self._clock() - command.began_s
        is_long = lasted_s >= plan.round_trips_per_chunk * self.session.round_trip_s
        return is_long and command.chunk.bytes_sent >= plan.chunk_bytes

    def _begin_chunk(self, spec: CopySpec, line_end: LineEnd) -> _Command:
        self._spec = spec
        self._command = _Command(Chunk(spec), spec, line_end, began_s=self._clock())
        self._guarded(lambda: self.session.start_copy(spec))
        self.totals.seconds.sending_s += self._watch.lap()
        return self._command

    def _end_chunk(self) -> None:
        command, current = self._command, self._current
        if command is None or current is None:
            return
        if self._keeper is not None:
            self._settle(self._keeper)
        else:
            reported = self._guarded(self.session.finish_copy)
            self._command = None
            self._account(command.chunk, current, reported)
        self.totals.seconds.finishing_s += self._watch.lap()

    def _settle(self, keeper: RejectKeeper) -> None:
        """End the COPY command, and count each record as stored, suppressed by a trigger, or rejected."""
        found = self._guarded(keeper.settle)
        self._command = None
        rejects, self._unwritten = [*self._unwritten, *found.rejects], []
        for number, missing in found.suppressed.items():
            self._note_suppressed(self._opened[number], missing)
        for number, count in Counter(reject.object_number for reject in rejects).items():
            self._batch.note_rejected(number, count, form=keeper.form(number))
            self._feed.note_suppressed(self._opened[number], count)
        self._guarded(lambda: keeper.write(rejects))

    def _account(self, chunk: Chunk, opened: OpenObject, reported: int) -> None:
        """Compare the rows that COPY reported with the records that were sent."""
        missing = chunk.records - reported
        if missing < 0 or (missing and not opened.target.allows_suppressed_rows):
            raise explain_miscount(opened.source.uri, reported=reported, records=chunk.records)
        if missing:
            self._note_suppressed(opened, missing)

    def _note_suppressed(self, opened: OpenObject, rows: int) -> None:
        self._batch.note_suppressed(opened.work.number, rows)
        self._feed.note_suppressed(opened, rows)

    def _guarded(self, act: Callable[[], _T]) -> _T:
        try:
            return act()
        except CopyFailed as failure:
            if lacks_object(failure.report, self._ledger.schema):
                raise taken_over(self._claim.load_id) from failure
            error = self._explain(failure)
            is_lasting = not error.is_transient or error.sqlstate == _PROTOCOL_VIOLATION
            is_refusal = is_lasting and not (error.sqlstate or "").startswith(_INTERVENTION_CLASS)
            if self._encoded and is_refusal and not failure.is_disconnect:
                raise RefusedEncodedError(error, self._encoded) from failure
            raise error from failure
        except OtherTypes as exc:
            if not self._encoded:
                # Rows of columnar files are encoded for the types of the plan.
                raise TargetError(
                    "columns have other types than when the load was planned", hint="Run the load again."
                ) from exc
            raise RefusedEncodedError("columns have other types than when the load began", self._encoded) from exc
        except Superseded as exc:
            raise taken_over(self._claim.load_id) from exc

    def _explain(self, failure: CopyFailed) -> PenstockError:
        return explain_failure(
            failure,
            where=failure.location or self._where(failure.context.line),
            constants=self._current.target.job.set if self._current is not None else (),
            working_names=self._current.work.working_names if self._current is not None else (),
            target=self._current.target if self._current is not None else None,
            is_in_conflict=self.session.is_in_conflict,
        )

    def _where(self, line: int | None) -> FileLocation | str | None:
        """Return the position in the files. It is the object alone if the server named no line."""
        chunk = None if self._command is None else self._command.chunk
        if chunk is None or not chunk.uris:
            return None
        # With a keeper, the server's line may belong to a command that sorts records.
        found = chunk.locate(line) if line is not None and self._keeper is None else None
        if found is not None:
            return found
        uris = chunk.uris
        return (
            FileLocation(file=uris[0])
            if len(uris) == 1
            else f"One of {len(uris)} objects, from {uris[0]} to {uris[-1]}"
        )
