"""A COPY command that some of its records spoil: all others go in, and those are put aside with the reason.

A command is sent under a savepoint and its records are kept until it has ended well. If it fails, the record that the
error names is put aside; where the error names none, halves are tried until one record is left. What stood before a
named record is sent once more at the end, all together; what stands behind it goes on at once, in commands as long as
the records between two failures lately were. Of what needs no server to be found (screen.py) all is put aside at the
first failure. Where failures are many, the server sorts out what is left of the command (sorting.py), and the next
command takes its records straight to where that is done.

Records with values that their types refuse need not fail a command: PostgreSQL 17 leaves them out, and says so of each.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from penstock.loading.explain import explain_miscount, rename
from penstock.loading.pieces import Spot, count_records, find_spots, part, remove, runs, take_records
from penstock.loading.reasons import KEY_TAKEN, describe_failure, is_records_fault
from penstock.loading.screen import SCREENED
from penstock.loading.skipped import explain_skipped
from penstock.model.reject import FOREIGN_KEY_VIOLATION, Reason, Reject
from penstock.server.copy import CopyFailed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.loading.pieces import Piece
    from penstock.loading.sorting import SortedOut, Sorting
    from penstock.model.block import CopySpec
    from penstock.server.copy import CopySession, SkippedRow

# After a failure the next command carries so many times the records that the failed one had got through.
_STRETCH = 4

# A command of fewer records costs as much as one of so many.
_FEWEST_RECORDS = 16

# The server sorts out what is left of a command that has failed so often, since that costs as much as some failures do.
# Where it found as many bad records the last time, the next command need fail but once.
_FAILURES_BEFORE_SORTING = 4

# Fewer records are not worth it.
_FEWEST_SORTED = 100

# More at once would have the server and penstock hold too many reasons, should all of them be bad.
_MOST_SORTED = 100_000

# How many records are put aside together when one of them breaks a foreign key.
_FEWEST_PARKED = 16
_MOST_PARKED = 1024


@dataclass(slots=True)
class Salvaged:
    """What became of records: `rows` were stored, `suppressed` were not, by object, and `rejects` are put aside."""

    rows: int = 0
    suppressed: Counter[int] = field(default_factory=Counter)
    rejects: list[Reject] = field(default_factory=list)


class _Ended(NamedTuple):
    """How a COPY command ended: rows reported, or its failure; and the rows it left out."""

    reported: int
    failure: CopyFailed | None
    skipped: tuple[SkippedRow, ...]


class _Parted(NamedTuple):
    """What stood before a failure, what must be tried next, and how many records of that at once."""

    before: list[Piece]
    behind: list[Piece]
    limit: int


class Salvage:
    """Sends records through one session until each is stored or put aside. Methods raise CopyFailed and DataError.

    What is raised says nothing of a record: a lost connection, a full disk, a table that is not there. With `parks`
    records are put aside together of which one breaks a foreign key: they will be tried again.
    """

    def __init__(self, session: CopySession, *, parks: bool) -> None:
        self._session = session
        self._result = Salvaged()
        self._parks = parks
        self._is_screened = False
        self._parked_together = _FEWEST_PARKED if parks else 1
        self._sorting: Sorting | None = None
        self._patience = _FAILURES_BEFORE_SORTING
        # What the last command was for that was sorted.
        self._sorted: CopySpec | None = None
        self._is_sorting = False

    def start(self, spec: CopySpec) -> None:
        """Begin a COPY command for records that `settle` is given; where they are to be sorted, it takes them there."""
        sorts_at_once = self._patience == 1 and self._sorted == spec and self._find_sorting().is_possible(spec)
        self._is_sorting = sorts_at_once and self._find_sorting().start(spec)
        if not self._is_sorting:
            self._session.start_copy(spec)

    def is_full(self, records: int) -> bool:
        """Whether the command that was begun should carry no more than so many records."""
        return self._is_sorting and records >= _MOST_SORTED

    def settle(self, pieces: Sequence[Piece]) -> Salvaged:
        """End the COPY command in which pieces were sent, and do what it takes for those that it did not store."""
        self._result, self._is_screened = Salvaged(), False
        if self._is_sorting:
            self._is_sorting = False
            left = self._end_sorting(pieces)
            if left:
                self._work_off(left, self._copy(left), is_sorted=True)
        else:
            ended = self._finish()
            if ended.failure is None:
                self._patience = _FAILURES_BEFORE_SORTING
            if pieces:
                self._work_off(list(pieces), ended)
        return self._result

    def send(self, pieces: Sequence[Piece]) -> Salvaged:
        """Send pieces that have not been sent yet, and see to each of their records."""
        self._result, self._is_screened = Salvaged(), True
        for run in runs(pieces):
            self._work_off(run, self._copy(run))
        return self._result

    # ---------------------------------------------------------------- commands

    def _work_off(self, pieces: list[Piece], ended: _Ended, *, is_sorted: bool = False) -> None:
        """See to what a command carried, and send what is left of it until nothing is.

        Each further command stores its records, or puts one aside, or is followed by one of half as many. Those that
        sorting has left (`is_sorted`) are not sorted again.
        """
        taken, limit = pieces, count_records(pieces)
        pending: deque[Piece] = deque()
        # Those that stood before a failure: they have passed all but the checks among themselves.
        passed: list[Piece] = []
        # Not once more for the same records.
        failures = -count_records(pieces) if is_sorted else 0
        while True:
            if ended.failure is None:
                pending.extendleft(reversed(self._take(taken, ended)))
                limit *= 2
            else:
                failures += 1
                before, behind, limit = self._part(taken, ended)
                if (clean := self._screen(behind, ended.failure)) is not None:
                    # Nothing may be left of these, and something of those behind them.
                    behind, limit = clean, max(_FEWEST_RECORDS, count_records(clean))
                passed += before
                pending.extendleft(reversed(behind))
            if not pending:
                pending, passed, limit = deque(passed), [], count_records(passed)
            if failures >= self._patience and self._is_worth_sorting(left := [*passed, *pending]):
                pending, passed = deque(self._sort(left)), []
                limit = count_records(pending)
                # Not once more for the same records.
                failures = -limit
            if not pending:
                return
            taken = take_records(pending, limit)
            ended = self._copy(taken)

    def _copy(self, pieces: Sequence[Piece]) -> _Ended:
        self._session.start_copy(pieces[0].origin.encoder.spec)
        # One part, since pieces may be as small as a record.
        self._session.send([b"".join(data for piece in pieces for data in piece.payload())])
        return self._finish()

    def _finish(self) -> _Ended:
        try:
            reported = self._session.finish_copy()
        except CopyFailed as failure:
            if not is_records_fault(failure):
                raise
            return _Ended(0, failure, tuple(self._session.skipped))
        return _Ended(reported, None, tuple(self._session.skipped))

    # ---------------------------------------------------------------- what came of one

    def _take(self, pieces: Sequence[Piece], ended: _Ended) -> list[Piece]:
        """Account for a command that ended well; return what must be sent again."""
        records = count_records(pieces)
        missing = records - ended.reported - len(ended.skipped)
        form = pieces[0].origin.form
        spots = self._find_skipped(pieces, ended.skipped)
        if missing < 0 or spots is None or (missing and ended.skipped and not form.allows_suppressed_rows):
            return self._distrust(pieces)
        if missing and not form.allows_suppressed_rows:
            raise explain_miscount(pieces[0].origin.uri, reported=ended.reported, records=records)
        self._put_aside_skipped(pieces, spots, ended.skipped)
        self._parked_together = _FEWEST_PARKED if self._parks else 1
        self._result.rows += ended.reported
        if missing:
            self._result.suppressed[pieces[0].origin.number] += missing
        return []

    def _distrust(self, pieces: Sequence[Piece]) -> list[Piece]:
        """Undo a command whose notices make no sense, and have rows left out no more."""
        assert self._session.ignores_types
        self._session.ignores_types = False
        self._session.undo_copy()
        return list(pieces)

    def _part(self, pieces: Sequence[Piece], ended: _Ended) -> _Parted:
        """Put aside what a failed command names, and see what is left of it."""
        failure = ended.failure
        assert failure is not None
        skipped = ended.skipped
        spots = self._find_skipped(pieces, skipped)
        if spots is None:
            spots, skipped = [], ()
        bad = self._find_bad(pieces, failure)
        if bad is not None:
            # COPY reads ahead of the rows that it stores: what it left out behind the failure is met again.
            spots = [spot for spot in spots if spot < bad]
            skipped = skipped[: len(spots)]
        self._put_aside_skipped(pieces, spots, skipped)
        if bad is None:
            # Without a place the records must be tried in parts; the next ones are half as many.
            left = remove(pieces, spots)
            if not spots and self._put_aside_together(left, failure):
                return _Parted([], [], self._parked_together)
            return _Parted([], left, max(1, count_records(pieces) // 2))
        before, behind = part(pieces, bad)
        before = remove(before, spots)
        if before and failure.report.sqlstate in KEY_TAKEN:
            # Perhaps by a record of this very command that does not stay: those before it go in first.
            return _Parted([], remove(pieces, spots), count_records(before))
        self._put_aside(pieces, [(bad, describe_failure(failure))])
        return _Parted(before, behind, max(_FEWEST_RECORDS, _STRETCH * count_records(before)))

    def _put_aside_together(self, pieces: Sequence[Piece], failure: CopyFailed) -> bool:
        """Put aside few enough records of which nobody knows which one is bad; return whether they were few enough.

        Where records refer to others that come later, many do: once some were put aside, more are at once.
        """
        is_reference = failure.report.sqlstate == FOREIGN_KEY_VIOLATION
        if count_records(pieces) > (self._parked_together if is_reference else 1):
            return False
        if is_reference and self._parks:
            self._parked_together = min(2 * self._parked_together, _MOST_PARKED)
        reason = describe_failure(failure)
        self._put_aside(
            pieces,
            [(Spot(number, record), reason) for number, piece in enumerate(pieces) for record in range(piece.records)],
        )
        return True

    def _screen(self, pieces: Sequence[Piece], failure: CopyFailed) -> list[Piece] | None:
        """Put aside what is bad as the record was that a command failed for, and can be found without the server.

        Returns what is left; None where nothing can be found, or all has been.
        """
        if failure.report.sqlstate not in SCREENED or self._is_screened:
            return None
        return self._screen_all(pieces)

    def _screen_all(self, pieces: Sequence[Piece]) -> list[Piece]:
        self._is_screened = True
        found = [
            (Spot(number, record), reason)
            for number, piece in enumerate(pieces)
            if piece.origin.screen is not None
            for record, reason in piece.origin.screen.find(piece.block)
        ]
        self._put_aside(pieces, found)
        return remove(pieces, [spot for spot, _ in found])

    def _find_bad(self, pieces: Sequence[Piece], failure: CopyFailed) -> Spot | None:
        line = failure.place.line
        if line is None:
            return None
        spots = find_spots(pieces, pieces[0].origin.encoder.spec, [line])
        return spots[0] if spots else None

    def _find_skipped(self, pieces: Sequence[Piece], skipped: Sequence[SkippedRow]) -> list[Spot] | None:
        if not skipped:
            return []
        return find_spots(pieces, pieces[0].origin.encoder.spec, [row.line for row in skipped])

    # ---------------------------------------------------------------- many of them

    def _find_sorting(self) -> Sorting:
        if self._sorting is None:
            from penstock.loading.sorting import Sorting  # noqa: PLC0415 (paid for by loads that need it)

            self._sorting = Sorting(self._session, parks=self._parks)
        return self._sorting

    def _is_worth_sorting(self, pieces: Sequence[Piece]) -> bool:
        if count_records(pieces) < _FEWEST_SORTED:
            return False
        return self._find_sorting().is_possible(pieces[0].origin.encoder.spec)

    def _sort(self, pieces: Sequence[Piece]) -> list[Piece]:
        """Have the server sort records out; return those that must be seen to otherwise."""
        sorting = self._find_sorting()
        waiting, refused = deque(pieces), 0
        while waiting:
            together = take_records(waiting, _MOST_SORTED)
            if (found := sorting.sort(together)) is not None:
                refused += self._take_sorted(together, found)
                continue
            left = [*together, *waiting]
            if self._is_screened or not sorting.is_possible(left[0].origin.encoder.spec):
                return left
            # What COPY cannot even read is perhaps found without the server.
            waiting = deque(self._screen_all(left))
        self._note_refused(refused)
        return []

    def _end_sorting(self, pieces: Sequence[Piece]) -> list[Piece]:
        """End a command that took records to where they are sorted; return those that must be seen to otherwise."""
        if not pieces:
            self._session.finish_copy()
            self._session.undo_copy()
            return []
        found = self._find_sorting().end(pieces)
        if found is None:
            # What COPY cannot even read is perhaps found without the server.
            self._patience = _FAILURES_BEFORE_SORTING
            return self._sort(self._screen_all(pieces))
        self._note_refused(self._take_sorted(pieces, found))
        return []

    def _note_refused(self, count: int) -> None:
        """Have the next records sorted at once, or behind their first failure, where these had many bad ones."""
        self._patience = 1 if count >= _FAILURES_BEFORE_SORTING else _FAILURES_BEFORE_SORTING

    def _take_sorted(self, pieces: Sequence[Piece], found: SortedOut) -> int:
        """Account for records that were sorted out; return how many were refused."""
        self._put_aside_skipped(pieces, found.spots, found.skipped)
        self._put_aside(found.left, found.refused)
        self._result.rows += found.stored
        self._note_suppressed(pieces[0], count_records(found.left) - len(found.refused) - found.stored)
        self._sorted = pieces[0].origin.encoder.spec
        return len(found.refused)

    def _note_suppressed(self, piece: Piece, count: int) -> None:
        assert count >= 0
        if count:
            self._result.suppressed[piece.origin.number] += count

    # ---------------------------------------------------------------- putting aside

    def _put_aside_skipped(self, pieces: Sequence[Piece], spots: Sequence[Spot], skipped: Sequence[SkippedRow]) -> None:
        if spots:
            reasons = explain_skipped(self._session, pieces, spots, skipped)
            self._put_aside(pieces, list(zip(spots, reasons, strict=True)))

    def _put_aside(self, pieces: Sequence[Piece], found: Sequence[tuple[Spot, Reason]]) -> None:
        self._result.rejects += [make_reject(pieces[spot.piece], spot.record, reason) for spot, reason in found]


def make_reject(piece: Piece, record: int, reason: Reason) -> Reject:
    """Return a record of a piece as it is put aside."""
    start, _, line = piece.bounds(record)
    if names := piece.origin.form.working_names:
        detail = None if reason.detail is None else rename(reason.detail, names)
        reason = replace(reason, message=rename(reason.message, names), detail=detail)
    return Reject(object_number=piece.origin.number, start=start, line=line, raw=piece.raw(record), reason=reason)
