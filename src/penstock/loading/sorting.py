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

from penstock.loading.explain import shorten_message
from penstock.loading.pieces import Spot, count_records, find_spots, remove
from penstock.loading.reasons import INVALID_PARAMETER, RECORD_CODES, is_nobodys_fault, is_records_fault
from penstock.model.reject import Reason
from penstock.server.copy import CopyFailed
from penstock.server.errors import NOT_DATA
from penstock.server.sorting import Sorted, Sorter, SortingRules

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.loading.pieces import Piece
    from penstock.model.block import CopySpec
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

    def is_possible(self, pieces: Sequence[Piece]) -> bool:
        """Whether the table that pieces are meant for has not turned out to be one of those that cannot be sorted."""
        return pieces[0].origin.encoder.spec not in self._impossible

    def sort(self, pieces: Sequence[Piece]) -> SortedOut | None:
        """Store what can be; None where nothing was done, and the records must be seen to otherwise."""
        spec = pieces[0].origin.encoder.spec
        try:
            staged = self._sorter.prepare(spec)
            if staged is not None:
                return self._sort(pieces, staged)
        except CopyFailed as failure:
            if is_nobodys_fault(failure):
                raise
            _log.info("records are not sorted out by the server: %s", failure.report.message)
            self._session.undo_copy()
        self._impossible.add(spec)
        return None

    def _sort(self, pieces: Sequence[Piece], staged: CopySpec) -> SortedOut | None:
        reported = self._stage(pieces, staged)
        skipped = tuple(self._session.skipped)
        spots = find_spots(pieces, staged, [row.line for row in skipped]) if skipped else []
        if reported is None or spots is None or reported + len(skipped) != count_records(pieces):
            self._session.undo_copy()
            return None
        left = remove(pieces, spots)
        found = self._sorter.sort() if left else Sorted(stored=0, refused=())
        return SortedOut(
            stored=found.stored, spots=spots, skipped=skipped, left=left, refused=_find_refused(left, found.refused)
        )

    def _stage(self, pieces: Sequence[Piece], staged: CopySpec) -> int | None:
        """Copy records to where they are sorted, and return how many; None where one cannot even be read."""
        try:
            self._session.start_copy(staged)
            # One part, since pieces may be as small as a record.
            self._session.send([b"".join(data for piece in pieces for data in piece.payload())])
            return self._session.finish_copy()
        except CopyFailed as failure:
            if not is_records_fault(failure):
                raise
            return None


def _find_refused(pieces: Sequence[Piece], rows: Sequence[RefusedRow]) -> list[tuple[Spot, Reason]]:
    """Return which records rows are, by their place among all, and why they were refused."""
    ends = list(accumulate(piece.records for piece in pieces))
    found = []
    for row in rows:
        number = bisect_left(ends, row.place)
        before = ends[number - 1] if number else 0
        found.append((Spot(number, row.place - before - 1), _describe(row)))
    return found


def _describe(row: RefusedRow) -> Reason:
    return Reason(
        message=shorten_message(row.message),
        sqlstate=row.sqlstate,
        detail=None if row.detail is None else shorten_message(row.detail),
        column=row.column,
    )
