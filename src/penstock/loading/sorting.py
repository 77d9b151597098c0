"""Records of which many are bad, on their way through the sorting table: which became rows, and which were refused.

Where sorting cannot be had (no right to temporary tables, a rule on the table, records that COPY itself cannot read)
nothing is done, and the records are left to those who try them in commands.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

from penstock.loading.pieces import Spot, count_records, find_spots, remove
from penstock.loading.reasons import (
    INVALID_PARAMETER,
    OF_A_LINE,
    RECORD_CODES,
    describe_refused,
    is_nobodys_fault,
    is_records_fault,
)
from penstock.server.copy import CopyFailed
from penstock.server.errors import NOT_DATA
from penstock.server.sorting import Sorted, Sorter, SortingRules

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.loading.pieces import Piece
    from penstock.model.block import CopySpec
    from penstock.model.reject import Reason
    from penstock.server.copy import CopySession, SkippedRow
    from penstock.server.sorting import RefusedRow

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class SortedOut:
    """What came of pieces: rows stored, and refused records.

    `skipped` are at `spots` of the pieces, `refused` are records of what is `left` without those.
    """

    stored: int
    spots: list[Spot]
    skipped: tuple[SkippedRow, ...]
    left: list[Piece]
    refused: list[tuple[Spot, Reason]]


class Sorting:
    """Sorts out records that one session has kept. Raises CopyFailed for what is no record's fault."""

    def __init__(self, session: CopySession, *, parks: bool) -> None:
        self._session = session
        rules = SortingRules(
            own_codes=RECORD_CODES,
            other_codes=tuple(sorted(NOT_DATA - {INVALID_PARAMETER})),
            parks=parks,
        )
        self._sorter = Sorter(session, rules)
        self._impossible: set[CopySpec] = set()

    def is_possible(self, spec: CopySpec) -> bool:
        """Whether records may be sorted: the table has not turned out to be one of those where they cannot."""
        return spec not in self._impossible

    def sort(self, pieces: Sequence[Piece]) -> SortedOut | None:
        """Store what can be; None where nothing was done, and the records must be seen to otherwise."""
        if not self.start(pieces[0].origin.encoder.spec):
            return None
        self._send(_payload(pieces))
        return self.end(pieces)

    def start(self, spec: CopySpec) -> bool:
        """Begin the COPY command that takes records to where they are sorted; return whether there is such a place."""
        try:
            staged = self._sorter.prepare(spec)
            if staged is not None:
                self._session.start_copy(staged)
                return True
        except CopyFailed as failure:
            self._undo(failure)
        self._impossible.add(spec)
        return False

    def end(self, pieces: Sequence[Piece]) -> SortedOut | None:
        """End that command, which carried these pieces, and have them sorted; None as `sort` does."""
        spec = pieces[0].origin.encoder.spec
        try:
            reported = self._session.finish_copy()
        except CopyFailed as failure:
            if not is_records_fault(failure):
                raise
            self._session.undo_copy()
            if self._session.ignores_types or self._sorter.reads_values or failure.report.sqlstate in OF_A_LINE:
                return None
            # One that a type refuses: it must be read where that can be told.
            self._sorter.reads_values = True
            return self.sort(pieces)
        skipped = tuple(self._session.skipped)
        spots = find_spots(pieces, spec, [row.line for row in skipped]) if skipped else []
        if spots is None or reported + len(skipped) != count_records(pieces):
            self._session.undo_copy()
            return None
        left = remove(pieces, spots)
        found = self._ask(spec) if left else Sorted(stored=0, refused=())
        if found is None:
            return None
        return SortedOut(
            stored=found.stored, spots=spots, skipped=skipped, left=left, refused=_find_refused(left, found.refused)
        )

    def _ask(self, spec: CopySpec) -> Sorted | None:
        try:
            found = self._sorter.sort()
            self._session.check_table(spec)
        except CopyFailed as failure:
            self._undo(failure)
            self._impossible.add(spec)
            return None
        # Where types refuse nothing any more, COPY can read the values, and they can be looked at before.
        self._sorter.reads_values &= any(row.sqlstate.startswith("22") for row in found.refused)
        return found

    def _undo(self, failure: CopyFailed) -> None:
        if is_nobodys_fault(failure):
            raise failure
        _log.info("records are not sorted out by the server: %s", failure.report.message)
        self._session.undo_copy()

    def _send(self, payload: bytes) -> None:
        # One part, since pieces may be as small as a record.
        self._session.send([payload])


def _payload(pieces: Sequence[Piece]) -> bytes:
    return b"".join(data for piece in pieces for data in piece.payload())


def _find_refused(pieces: Sequence[Piece], rows: Sequence[RefusedRow]) -> list[tuple[Spot, Reason]]:
    """Return which records rows are, by their place among all, and why they were refused."""
    ends = list(accumulate(piece.records for piece in pieces))
    found = []
    for row in rows:
        number = bisect_left(ends, row.place)
        before = ends[number - 1] if number else 0
        found.append((Spot(number, row.place - before - 1), describe_refused(row)))
    return found
