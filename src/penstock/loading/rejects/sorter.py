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

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate

from penstock import _native
from penstock.core.connect.errors import CopyContext, ServerReport
from penstock.core.errors import FileLocation
from penstock.core.tuning import DEFAULT_TUNING
from penstock.ledger.rejects import Reason, Reject, RejectStore
from penstock.loading.copy.copy import CopyFailed, CopySession
from penstock.loading.copy.payload import make_form_encoder
from penstock.loading.read.feed import OpenObject
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
from penstock.loading.rejects.pieces import (
    Origin,
    Piece,
    count_records,
    find_line_end,
    find_positions,
    find_record,
    form_to_json,
    origin_of,
    runs,
    take_records,
)
from penstock.loading.rejects.sorting import SortedRows, SortingStage
from penstock.loading.values.objects import Block, CopySpec, LineEnd


@dataclass(slots=True)
class SortedRecords:
    """What has become of the records that were sent: how many were stored and suppressed, and which were refused."""

    # How many records were stored.
    rows: int = 0
    # How many records triggers skipped, by the number of the object.
    suppressed: Counter[int] = field(default_factory=Counter)
    # The refused records.
    rejects: list[Reject] = field(default_factory=list)


class RejectSorter:
    """Makes sure that each record that a session sends is stored or refused. Methods raise CopyFailed and DataError.

    They are raised only for errors that no record causes, such as a lost connection, a full disk, a missing table, or a
    table for which records cannot be sorted (see `find_hindrance`).
    """

    def __init__(self, session: CopySession, *, most_sorted: int = DEFAULT_TUNING.most_sorted) -> None:
        self._session = session
        self._most_sorted = most_sorted
        self._stage = SortingStage(session, RECORD_CODES)
        self._result = SortedRecords()
        self._checked: dict[int, Origin] = {}

    def settle(self, pieces: Sequence[Piece]) -> SortedRecords:
        """End the COPY command in which `pieces` were sent, and sort the records that it did not store.

        Return what has become of all records. The caller writes the refused ones to the ledger.
        """
        self._result = SortedRecords()
        self._end_copy(pieces)
        return self._result

    def send(self, pieces: Sequence[Piece]) -> SortedRecords:
        """Send `pieces` in COPY commands, end these, and return what has become of the records, as `settle` does."""
        self._result = SortedRecords()
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
                position = _find_failed(pieces, pieces[0].origin.encoder.spec, failure)
                failure.location = None if position is None else locate(*find_record(pieces, position))
                raise
            self._sort(pieces, failure)
            return
        if not pieces:
            return
        origin, lines = pieces[0].origin, self._session.skipped
        missing = count_records(pieces) - reported - len(lines)
        found = find_positions(pieces, origin.encoder.spec, lines)
        if found is None or missing < 0 or (missing and not origin.form.allows_suppressed_rows):
            if not lines:
                raise explain_miscount(origin.uri, reported=reported, records=count_records(pieces))
            # The lines in the notices do not match the records, so sort all records.
            self._session.undo_copy()
            self._sort(pieces, _SKIPPED)
            return
        self._result.rows += reported
        self._note_suppressed(origin, missing)
        if found:
            skipped = (find_record(pieces, position) for position in found)
            self._sort([piece.cut(record, record + 1) for piece, record in skipped], _SKIPPED)

    # ---------------------------------------------------------------- what is sorted out

    def _sort(self, pieces: Sequence[Piece], failure: CopyFailed) -> None:
        """Store the records that the table accepts, and reject the others. `failure` is the error of the COPY."""
        stage = self._stage.prepare(pieces[0].origin.encoder.spec, failure)
        waiting = deque[Piece]()
        for piece in pieces:
            parts, rejects = part_unwritable(replace(piece, origin=self._check(piece.origin)), reads_bytes=True)
            waiting += parts
            self._result.rejects += rejects
        most = self._most_sorted
        while waiting:
            together = take_records(waiting, most)
            unread = self._copy_to_stage(together, stage)
            if unread is None:
                self._take(together, self._sort_staged(together))
                most = min(2 * most, self._most_sorted)
                continue
            waiting.extendleft(reversed(together))
            # First store the records before the one that cannot be read, or half of them if it is not known.
            position = _find_failed(together, stage, unread)
            if before := count_records(together) // 2 if position is None else position - 1:
                most = before
            else:
                (bad,) = take_records(waiting, 1)
                self._result.rejects.append(make_reject(bad, 0, describe_failure(unread)))

    def _sort_staged(self, pieces: Sequence[Piece]) -> SortedRows:
        """Sort the staged records. If an error is raised that is not a record's fault, it names the record's place."""
        try:
            return self._stage.sort()
        except CopyFailed as failure:
            position = failure.report.datatype or ""
            if position.isdecimal():
                failure.location = locate(*find_record(pieces, int(position)))
            raise

    def _check(self, origin: Origin) -> Origin:
        """Return an origin whose encoder refuses records with another number of fields than expected."""
        if origin.number not in self._checked:
            encoder = make_form_encoder(origin.form, positions=origin.encoder.positions, checks_width=True)
            self._checked[origin.number] = replace(origin, encoder=encoder)
        return self._checked[origin.number]

    def _copy_to_stage(self, pieces: Sequence[Piece], stage: CopySpec) -> CopyFailed | None:
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

    def _take(self, pieces: Sequence[Piece], found: SortedRows) -> None:
        """Add the result of sorting pieces to the counts and the rejects."""
        ends = list(accumulate(piece.records for piece in pieces))
        for position, reason in found.refused:
            piece, record = find_record(pieces, position, ends=ends)
            self._result.rejects.append(make_reject(piece, record, shorten_reason(reason)))
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


def locate(piece: Piece, record: int) -> FileLocation:
    """Return the file and line of a record, given its index in a piece."""
    return FileLocation(file=piece.origin.uri, line=piece.bounds(record).line, part=piece.block.part)


def _find_failed(pieces: Sequence[Piece], spec: CopySpec, failure: CopyFailed) -> int | None:
    """Return the position of the record that made a COPY fail, None if it is not known."""
    found = None if failure.context.line is None else find_positions(pieces, spec, [failure.context.line])
    return found[0] if found else None


def part_unwritable(piece: Piece, *, reads_bytes: bool = False) -> tuple[list[Piece], list[Reject]]:
    """Split a piece into pieces of records that can be encoded for COPY, and rejects for its other records.

    If `reads_bytes` is true and the encoding is UTF-8, records that are not valid UTF-8 are rejects, too.
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
    """Return the Reject for the record with this index in a piece. In JSON Lines it lacks blank lines before it."""
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


def make_piece(reject: Reject, origin: Origin) -> Piece:
    """Return a rejected record as a piece of one record, which can be sent. `origin` says how it is encoded."""
    # Remove the blank lines before a record of JSON Lines, which the cutter counts as a part of the record.
    raw = reject.raw.lstrip(b" \t\r\n") if origin.encoder.is_by_name else reject.raw
    line_end = find_line_end(raw)
    strays = 0
    if origin.form.dialect.format == "tsv" and b"\\" in raw:
        cut = origin.cutter_for(line_end or "lf")().feed(raw)
        strays = max(cut.stray_backslashes, 1) if line_end is None else cut.stray_backslashes
    lines = raw.count(b"\r" if line_end == "cr" else b"\n")
    block = Block(
        segments=((raw, 0, len(raw)),),
        start=reject.start,
        end=reject.start + len(raw),
        first_line=reject.line,
        lines=lines,
        server_lines=lines,
        records=1,
        line_end=line_end or "lf",
        stray_backslashes=strays,
        is_unended=line_end is None,
        fault=_find_fault(raw, origin, line_end=line_end or "lf"),
    )
    return Piece(origin=origin, block=block)


def _find_fault(raw: bytes, origin: Origin, *, line_end: LineEnd) -> str | None:
    """Return why bytes are not exactly one record, or None.

    A line with a stray quote, for example, would join the next one.

    In JSON Lines, a blank line is not a record.
    """
    if origin.form.dialect.quote is None and not origin.encoder.is_by_name:
        return None
    cutter = origin.cutter_for(line_end)()
    try:
        records = cutter.feed(raw).records + cutter.finish().records
    except _native.RecordError as exc:
        return str(exc.args[0])
    return None if records == 1 else f"{records} records in the place of one"


class RejectKeeper:
    """Keeps the records of one session's open COPY command, so that the bad ones among them can be rejected.

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
        """Keep the records of a block that can be encoded for COPY.

        Return their payload, which the caller sends, and rejects for the other records.
        """
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

    def settle(self) -> SortedRecords:
        """End the COPY command, sort the kept records if it fails, and return what has become of them.

        Afterwards no record is kept.
        """
        pieces, self._pieces = self._pieces, []
        return self._sorter.settle(pieces)

    def write(self, rejects: Sequence[Reject]) -> None:
        """Insert rejected records into the ledger, in the session's transaction, and count them against the limit."""
        if rejects:
            self._session.begin()
            with self._session.between_copies() as connection:
                self._store.insert(connection, rejects)
            self._limit.note(rejects, uris={number: origin.uri for number, origin in self._origins.items()})

    def form(self, object_number: int) -> str:
        """Return the RecordForm of an object as JSON: how its records are read and sent. A block of it must be kept."""
        if object_number not in self._forms:
            self._forms[object_number] = form_to_json(self._origins[object_number].form)
        return self._forms[object_number]

    def _origin(self, opened: OpenObject) -> Origin:
        number = opened.work.number
        if number not in self._origins:
            self._origins[number] = origin_of(opened, self._server_major)
        return self._origins[number]
