"""Stores the records of a COPY command, and rejects those that the table refuses by writing them to the ledger.

A command is sent after a savepoint, and its records are kept until it has succeeded. If it fails because of a record,
it is rolled back, and the server sorts all its records: it stores the good ones and reports the others
(loading/rejects/sorting.py). PostgreSQL 17 can skip records with values that their types refuse, and sends a notice for
each. Then the command succeeds, and only the skipped records are sorted, to get the reasons.

Records to be sorted are copied into a temporary table of texts. Records that cannot be copied even there are found
first. penstock finds those with too few or too many fields, or with bytes that are not UTF-8. For other encodings, the
server names the line.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import TYPE_CHECKING

from penstock import _native
from penstock.core.connect.errors import CopyContext, ServerReport
from penstock.core.errors import FileLocation
from penstock.core.tuning import DEFAULT_TUNING
from penstock.ledger.rejects import Reason, Reject, RejectStore
from penstock.loading.copy.copy import CopyFailed, CopySession
from penstock.loading.copy.payload import make_form_encoder
from penstock.loading.rejects.explain import (
    RECORD_CODES,
    RejectLimit,
    describe_failure,
    describe_unwritable,
    explain_miscount,
    is_records_fault,
    rename,
    shorten_reason,
)
from penstock.loading.rejects.pieces import Origin, Piece, count_records, find_spots, form_to_json, runs, take_records
from penstock.loading.rejects.sorting import Hindered, Sorted, Sorter
from penstock.loading.values.block import Block, CopySpec

if TYPE_CHECKING:
    from penstock.loading.read.feed import OpenObject


@dataclass(slots=True)
class SortedOut:
    """Which records were stored, suppressed and refused."""

    # How many records were stored.
    rows: int = 0
    # How many records triggers skipped, by the number of the object.
    suppressed: Counter[int] = field(default_factory=Counter)
    # The refused records.
    rejects: list[Reject] = field(default_factory=list)


class RejectSorter:
    """Makes sure that each record of one session is stored or rejected. Methods raise CopyFailed and DataError.

    Only errors that no record causes are raised, such as a lost connection, a full disk, a missing table, or a table
    whose records cannot be sorted.
    """

    def __init__(self, session: CopySession, *, most_sorted: int = DEFAULT_TUNING.most_sorted) -> None:
        self._session = session
        self._most_sorted = most_sorted
        self._sorter = Sorter(session, RECORD_CODES)
        self._result = SortedOut()
        self._checked: dict[int, Origin] = {}

    def settle(self, pieces: Sequence[Piece]) -> SortedOut:
        """End the COPY command in which pieces were sent. Store or reject the records that it did not store."""
        self._result = SortedOut()
        self._end_copy(pieces)
        return self._result

    def send(self, pieces: Sequence[Piece]) -> SortedOut:
        """Send pieces that have not been sent yet, and store or reject each of their records."""
        self._result = SortedOut()
        for run in runs(pieces):
            self._copy(run, run[0].origin.encoder.spec)
            self._end_copy(run)
        return self._result

    def _copy(self, pieces: Sequence[Piece], spec: CopySpec) -> None:
        self._session.start_copy(spec)
        # Send one message, because pieces may be as small as a record.
        self._session.send([b"".join(data for piece in pieces for data in piece.payload())])

    def _end_copy(self, pieces: Sequence[Piece]) -> None:
        try:
            reported = self._session.finish_copy()
        except CopyFailed as failure:
            if not pieces:
                raise
            if not is_records_fault(failure):
                spec = pieces[0].origin.encoder.spec
                spots = None if (line := failure.context.line) is None else find_spots(pieces, spec, [line])
                failure.location = locate(pieces[spots[0].piece], spots[0].record) if spots else None
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
            # The lines in the notices do not match the records, so sort all records.
            self._session.undo_copy()
            self._sort(pieces, _SKIPPED)
            return
        self._result.rows += reported
        self._note_suppressed(origin, missing)
        if spots:
            self._sort([pieces[spot.piece].cut(spot.record, spot.record + 1) for spot in spots], _SKIPPED)

    # ---------------------------------------------------------------- what is sorted out

    def _sort(self, pieces: Sequence[Piece], failure: CopyFailed) -> None:
        """Store the records that the table accepts, and reject the others. `failure` is the error of the COPY."""
        spec = pieces[0].origin.encoder.spec
        try:
            stage = self._sorter.prepare(spec)
        except Hindered as hindered:
            report = replace(failure.report, hint=str(hindered))
            raise CopyFailed(report, failure.context, is_disconnect=False) from failure
        checked = (replace(piece, origin=self._check(piece.origin)) for piece in pieces)
        waiting = deque(self._reject_unwritable(checked))
        most = self._most_sorted
        while waiting:
            together = take_records(waiting, most)
            unread = self._stage(together, stage)
            if unread is None:
                self._take(together, self._sort_staged(together))
                most = min(2 * most, self._most_sorted)
                continue
            waiting.extendleft(reversed(together))
            # First store the records before the one that cannot be read.
            if before := _count_before(together, stage, unread):
                most = before
            else:
                (bad,) = take_records(waiting, 1)
                self._result.rejects.append(make_reject(bad, 0, describe_failure(unread)))

    def _sort_staged(self, pieces: Sequence[Piece]) -> Sorted:
        """Sort the staged records. If an error is raised that is not a record's fault, it names the record's place."""
        try:
            return self._sorter.sort()
        except CopyFailed as failure:
            position = failure.report.datatype or ""
            if position.isdecimal():
                failure.location = locate(*_find_record(pieces, int(position)))
            raise

    def _check(self, origin: Origin) -> Origin:
        """Return an origin whose encoder refuses records with another number of fields than expected."""
        if origin.number not in self._checked:
            encoder = make_form_encoder(origin.form, positions=origin.encoder.positions, checks_width=True)
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
        """Copy records into the table in which they are sorted. Return the error if one of them cannot be read."""
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
        """Add the result of sorting pieces to the counts and the rejects."""
        ends = list(accumulate(piece.records for piece in pieces))
        for row in found.refused:
            piece, record = _find_record(pieces, row.position, ends=ends)
            self._result.rejects.append(make_reject(piece, record, shorten_reason(row.reason)))
        self._result.rows += found.stored
        origin, records = pieces[0].origin, count_records(pieces) - len(found.refused)
        if found.stored != records and not origin.form.allows_suppressed_rows:
            raise explain_miscount(origin.uri, reported=found.stored, records=records)
        self._note_suppressed(origin, records - found.stored)

    def _note_suppressed(self, origin: Origin, count: int) -> None:
        assert count >= 0
        if count:
            self._result.suppressed[origin.number] += count


# The failure of records that the server has skipped. The server's notices do not give the reasons.
_SKIPPED = CopyFailed(
    ServerReport(message="a value does not have the form that its type needs", sqlstate="22P02"),
    CopyContext(),
    is_disconnect=False,
)


def _find_record(pieces: Sequence[Piece], position: int, *, ends: Sequence[int] | None = None) -> tuple[Piece, int]:
    """Return a record's piece and its index there. `position` counts from 1. `ends` are the ends of the pieces."""
    ends = list(accumulate(piece.records for piece in pieces)) if ends is None else ends
    number = bisect_left(ends, position)
    return pieces[number], position - (ends[number - 1] if number else 0) - 1


def locate(piece: Piece, record: int) -> FileLocation:
    """Return the place of a record of a piece in its file."""
    return FileLocation(file=piece.origin.uri, line=piece.bounds(record).line, part=piece.block.part)


def _count_before(pieces: Sequence[Piece], spec: CopySpec, failure: CopyFailed) -> int:
    """Return how many records come before the one that made a COPY fail. If that is not known, return half of them."""
    line = failure.context.line
    if line is None or not (spots := find_spots(pieces, spec, [line])):
        return count_records(pieces) // 2
    return count_records(pieces[: spots[0].piece]) + spots[0].record


def part_unwritable(piece: Piece, *, reads_bytes: bool = False) -> tuple[list[Piece], list[Reject]]:
    """Split a piece: return the records that can be encoded for COPY as pieces, and the others as rejects.

    If `reads_bytes` is true and the encoding is UTF-8, also reject records with bytes that are not valid.
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
    """Return the reject for a record of a piece."""
    start, _, line = piece.bounds(record)
    if names := piece.origin.form.working_names:
        detail = None if reason.detail is None else rename(reason.detail, names)
        reason = replace(reason, message=rename(reason.message, names), detail=detail)
    raw = piece.raw(record)
    if piece.origin.encoder.is_by_name:
        # Remove the blank lines before the record, which the cutter counts as a part of the record.
        skipped = raw.rfind(b"\n", 0, len(raw) - len(raw.lstrip(b" \t\r\n"))) + 1
        start, line, raw = start + skipped, line + raw.count(b"\n", 0, skipped), raw[skipped:]
    return Reject(object_number=piece.origin.number, start=start, line=line, raw=raw, reason=reason)


class RejectKeeper:
    """Keeps the records of one session's open COPY command, so that the bad ones can be rejected.

    `settle` and `write` raise CopyFailed. `write` also raises DataError if too many records are rejected.
    """

    def __init__(
        self, session: CopySession, *, store: RejectStore, limit: RejectLimit, server_major: int, most_sorted: int
    ) -> None:
        self._session = session
        self._store = store
        self._limit = limit
        self._server_major = server_major
        self._sorter = RejectSorter(session, most_sorted=most_sorted)
        self._origins: dict[int, Origin] = {}
        self._forms: dict[int, str] = {}
        self._pieces: list[Piece] = []

    def keep(self, opened: OpenObject, block: Block) -> tuple[Sequence[bytes | memoryview], list[Reject]]:
        """Keep the records of a block that can be sent. Return their payload, and rejects for the other records."""
        piece = Piece(origin=self._origin(opened), block=block)
        try:
            parts = piece.payload()
        except _native.RecordError:
            pieces, rejects = part_unwritable(piece)
            self._pieces += pieces
            # Each part is one message to the server, so join many small ones.
            payload = b"".join(part for each in pieces for part in each.payload())
            return [payload] if payload else [], rejects
        self._pieces.append(piece)
        return parts, []

    def settle(self) -> SortedOut:
        """End the COPY command, and make sure that each kept record is stored or rejected."""
        pieces, self._pieces = self._pieces, []
        return self._sorter.settle(pieces)

    def write(self, rejects: Sequence[Reject]) -> None:
        """Insert rejected records into the ledger, in the session's transaction."""
        if rejects:
            self._session.begin()
            with self._session.between_copies() as connection:
                self._store.insert(connection, rejects)
            self._limit.note(rejects, uris={number: origin.uri for number, origin in self._origins.items()})

    def form(self, object_number: int) -> str:
        """Return how an object's records are read, as JSON."""
        if object_number not in self._forms:
            self._forms[object_number] = form_to_json(self._origins[object_number].form)
        return self._forms[object_number]

    def _origin(self, opened: OpenObject) -> Origin:
        number = opened.work.number
        if number not in self._origins:
            self._origins[number] = Origin(
                number=number,
                uri=opened.source.uri,
                form=opened.form,
                encoder=opened.encoder,
                server_major=self._server_major,
            )
        return self._origins[number]
