"""Why COPY left rows out whose values their types refuse: its notices name a column at most, so the server is asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.loading.reasons import UNKNOWN, Value, suspect_null, suspect_values
from penstock.model.reject import Reason
from penstock.server.input_errors import find_input_errors, find_null_error

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.loading.pieces import Piece, Spot
    from penstock.model.block import CopySpec
    from penstock.server.copy import CopySession, SkippedRow


def explain_skipped(
    session: CopySession, pieces: Sequence[Piece], spots: Sequence[Spot], skipped: Sequence[SkippedRow]
) -> list[Reason]:
    """Return why each row was left out, by a question about the values that the notices name. Raises CopyFailed."""
    spec = pieces[0].origin.encoder.spec
    payloads = [_payload(pieces[spot.piece], spot.record) for spot in spots]
    known = _ask(
        session,
        spec,
        [
            value
            for number, (payload, row) in enumerate(zip(payloads, skipped, strict=True))
            for value in suspect_values(number, payload, spec, row=row)
        ],
    )
    if left := [number for number in range(len(spots)) if number not in known]:
        # The notice was misread: all of these records' values.
        known |= _ask(
            session, spec, [value for number in left for value in suspect_values(number, payloads[number], spec)]
        )
    if left := [number for number in left if number not in known]:
        known |= _ask_of_nulls(session, spec, {number: (payloads[number], skipped[number]) for number in left})
    return [known.get(number, UNKNOWN) for number in range(len(spots))]


def _ask(session: CopySession, spec: CopySpec, values: Sequence[Value]) -> dict[int, Reason]:
    return {
        row.record: Reason(message=row.message, sqlstate=row.sqlstate, detail=row.detail, column=row.column)
        for row in find_input_errors(session, spec, values)
    }


def _ask_of_nulls(
    session: CopySession, spec: CopySpec, left: Mapping[int, tuple[bytes, SkippedRow]]
) -> dict[int, Reason]:
    """Return why records were left out of which no value is wrong: for a null that a domain refuses."""
    columns = {number: suspect_null(payload, spec, row=row) for number, (payload, row) in left.items()}
    errors = {column: find_null_error(session, spec, column) for column in set(columns.values()) if column is not None}
    return {
        number: Reason(message=error.message, sqlstate=error.sqlstate, detail=error.detail, column=column)
        for number, column in columns.items()
        if column is not None and (error := errors[column]) is not None
    }


def _payload(piece: Piece, record: int) -> bytes:
    """Return what COPY was sent of a record."""
    return piece.raw(record) if piece.is_untouched else piece.payload_of([record])
