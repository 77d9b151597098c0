"""The records of a COPY command of which the table refuses some: all others go in, and those are rejected.

A command is sent under a savepoint and its records are kept until it has ended well. If it fails for one of them, it is
undone and the server sorts all of them out (server/copy/sorting.py). Records with values that their types refuse need
not fail a command: PostgreSQL 17 skips them, and says so of each; then those alone are sorted out, to know why.

What cannot even be copied into a temporary table of texts is found before: records with too few or too many fields and
bytes that are no UTF-8 by penstock, others (in other encodings) by the line that the server names.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, deque
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import TYPE_CHECKING

from penstock import _native
from penstock.copyformat import make_encoder
from penstock.loading.rejects.explain import explain_miscount, rename
from penstock.loading.rejects.pieces import Origin, Piece, count_records, find_spots, runs, take_records
from penstock.loading.rejects.reasons import (
    RECORD_CODES,
    describe_failure,
    describe_refused,
    describe_unwritable,
    is_records_fault,
)
from penstock.model.load.reject import Reason, Reject
from penstock.server.connect.errors import CopyContext, ServerReport
from penstock.server.copy.copy import CopyFailed
from penstock.server.copy.sorting import Hindered, Sorter

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penstock.model.source.block import CopySpec
    from penstock.server.copy.copy import CopySession
    from penstock.server.copy.sorting import Sorted

# More at once would have the server and penstock hold too many reasons, should all of them be bad.
_MOST_SORTED = 100_000


@dataclass(slots=True)
class SortedOut:
    """What became of records: `rows` were stored, `suppressed` were not, by object, and `rejects` were refused."""

    rows: int = 0
    suppressed: Counter[int] = field(default_factory=Counter)
    rejects: list[Reject] = field(default_factory=list)


class RejectSorter:
    """Sees that each record of one session is stored or rejected. Methods raise CopyFailed and DataError.

    What is raised says nothing of a record: a lost connection, a full disk, a table that is not there; or that the
    table's records cannot be sorted out.
    """

    def __init__(self, session: CopySession) -> None:
        self._session = session
        self._sorter = Sorter(session, RECORD_CODES)
        self._result = SortedOut()
        self._checked: dict[int, Origin] = {}

    def settle(self, pieces: Sequence[Piece]) -> SortedOut:
        """End the COPY command in which pieces were sent, and sort out what it did not store."""
        self._result = SortedOut()
        self._end_copy(pieces)
        return self._result

    def send(self, pieces: Sequence[Piece]) -> SortedOut:
        """Send pieces that have not been sent yet, and see to each of their records."""
        self._result = SortedOut()
        for run in runs(pieces):
            self._copy(run, run[0].origin.encoder.spec)
            self._end_copy(run)
        return self._result

    def _copy(self, pieces: Sequence[Piece], spec: CopySpec) -> None:
        self._session.start_copy(spec)
        # One part, since pieces may be as small as a record.
        self._session.send([b"".join(data for piece in pieces for data in piece.payload())])

    def _end_copy(self, pieces: Sequence[Piece]) -> None:
        try:
            reported = self._session.finish_copy()
        except CopyFailed as failure:
            if not pieces or not is_records_fault(failure):
                raise
            self._sort(pieces, failure)
            return
        if not pieces:
            return
        origin, lines = pieces[0].origin, self._session.skipped
        missing = count_records(pieces) - reported - len(lines)
        spots = find_spots(pieces, origin.encoder.spec, lines)
        if spots is None or missing < 0 or (missing and not origin.form.allows_suppressed_rows):
            if not lines:
                raise explain_miscount(origin.uri, reported=reported, records=count_records(pieces))
            # Its notices make no sense.
            self._session.undo_copy()
            self._sort(pieces, _SKIPPED)
            return
        self._result.rows += reported
        self._note_suppressed(origin, missing)
        if spots:
            self._sort([pieces[spot.piece].cut(spot.record, spot.record + 1) for spot in spots], _SKIPPED)

    # ---------------------------------------------------------------- what is sorted out

    def _sort(self, pieces: Sequence[Piece], failure: CopyFailed) -> None:
        """Store what the table takes of records, and reject the others; `failure` is why they are sorted out."""
        spec = pieces[0].origin.encoder.spec
        try:
            stage = self._sorter.prepare(spec)
        except Hindered as hindered:
            report = replace(failure.report, hint=str(hindered))
            raise CopyFailed(report, failure.place, is_disconnect=False) from failure
        checked = (replace(piece, origin=self._check(piece.origin)) for piece in pieces)
        waiting = deque(self._reject_unwritable(checked))
        most = _MOST_SORTED
        while waiting:
            together = take_records(waiting, most)
            unread = self._stage(together, stage)
            if unread is None:
                self._take(together, self._sorter.sort())
                most = min(2 * most, _MOST_SORTED)
                continue
            waiting.extendleft(reversed(together))
            # What stands before a record that cannot be read is taken on first.
            if before := _count_before(together, stage, unread):
                most = before
            else:
                (bad,) = take_records(waiting, 1)
                self._result.rejects.append(make_reject(bad, 0, describe_failure(unread)))

    def _check(self, origin: Origin) -> Origin:
        """Return an origin whose encoder refuses records with another number of fields than expected."""
        if origin.number not in self._checked:
            form = origin.form
            encoder = make_encoder(
                form.dialect,
                form.column_map,
                table=form.table,
                encoding=form.encoding,
                positions=origin.encoder.positions,
                checks_width=True,
            )
            self._checked[origin.number] = replace(origin, encoder=encoder)
        return self._checked[origin.number]

    def _reject_unwritable(self, pieces: Iterable[Piece]) -> list[Piece]:
        good: list[Piece] = []
        for piece in pieces:
            parts, rejects = part_unwritable(piece, reads_bytes=True)
            good += parts
            self._result.rejects += rejects
        return good

    def _stage(self, pieces: Sequence[Piece], stage: CopySpec) -> CopyFailed | None:
        """Copy records to where they are sorted out; return why that failed for one of them."""
        self._copy(pieces, stage)
        try:
            reported = self._session.finish_copy()
        except CopyFailed as failure:
            if not is_records_fault(failure):
                raise
            return failure
        if reported != count_records(pieces):
            raise explain_miscount(pieces[0].origin.uri, reported=reported, records=count_records(pieces))
        return None

    def _take(self, pieces: Sequence[Piece], found: Sorted) -> None:
        """Account for records that were sorted out."""
        ends = list(accumulate(piece.records for piece in pieces))
        for row in found.refused:
            number = bisect_left(ends, row.place)
            record = row.place - (ends[number - 1] if number else 0) - 1
            self._result.rejects.append(make_reject(pieces[number], record, describe_refused(row)))
        self._result.rows += found.stored
        self._note_suppressed(pieces[0].origin, count_records(pieces) - len(found.refused) - found.stored)

    def _note_suppressed(self, origin: Origin, count: int) -> None:
        assert count >= 0
        if count:
            self._result.suppressed[origin.number] += count


# What stands for the reason that a notice does not give.
_SKIPPED = CopyFailed(
    ServerReport(message="a value does not have the form that its type needs", sqlstate="22P02"),
    CopyContext(),
    is_disconnect=False,
)


def _count_before(pieces: Sequence[Piece], spec: CopySpec, failure: CopyFailed) -> int:
    """Return how many records stand before the one that a COPY failed for; half of them where that is not known."""
    line = failure.place.line
    if line is None or not (spots := find_spots(pieces, spec, [line])):
        return count_records(pieces) // 2
    return count_records(pieces[: spots[0].piece]) + spots[0].record


def part_unwritable(piece: Piece, *, reads_bytes: bool = False) -> tuple[list[Piece], list[Reject]]:
    """Return a piece without the records that cannot be written for COPY, and those.

    With `reads_bytes` nor those with bytes that are no UTF-8, where that is their encoding.
    """
    good: list[Piece] = []
    rejects: list[Reject] = []
    left = deque([piece])
    while left:
        piece = left.popleft()
        try:
            piece.payload()
            if reads_bytes:
                piece.decode()
        except (_native.RecordError, UnicodeDecodeError) as error:
            record = error.args[1] if isinstance(error, _native.RecordError) else piece.record_at(error.start)
            rejects.append(make_reject(piece, record, describe_unwritable(error)))
            edges = ((record + 1, piece.records), (0, record))
            left.extendleft(piece.cut(start, end) for start, end in edges if start < end)
        else:
            good.append(piece)
    return good, rejects


def make_reject(piece: Piece, record: int, reason: Reason) -> Reject:
    """Return a record of a piece as it is rejected."""
    start, _, line = piece.bounds(record)
    if names := piece.origin.form.working_names:
        detail = None if reason.detail is None else rename(reason.detail, names)
        reason = replace(reason, message=rename(reason.message, names), detail=detail)
    return Reject(object_number=piece.origin.number, start=start, line=line, raw=piece.raw(record), reason=reason)
