"""What a session that puts records aside keeps: the records of its COPY command, and where the rejected ones go."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock import _native
from penstock.loading.form import form_to_json
from penstock.loading.pieces import Origin, Piece, Spot, part
from penstock.loading.salvage import Salvage, make_reject
from penstock.model.reject import Reason

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.loading.feed import OpenObject
    from penstock.loading.rejects import RejectLimit
    from penstock.loading.salvage import Salvaged
    from penstock.model.block import Block
    from penstock.model.reject import Reject
    from penstock.server.copy import CopySession
    from penstock.server.ledger.rejects import RejectStore

# What COPY says of a record with too few or too many fields (bad copy file format).
_BAD_FORMAT = "22P04"


class RejectKeeper:
    """One session's records in flight. `settle` and `write` raise CopyFailed; `write` also DataError at the limit."""

    def __init__(self, session: CopySession, *, store: RejectStore, limit: RejectLimit, server_major: int) -> None:
        self._session = session
        self._store = store
        self._limit = limit
        self._server_major = server_major
        self._salvage = Salvage(session, parks=True)
        self._origins: dict[int, Origin] = {}
        self._forms: dict[int, str] = {}
        self._pieces: list[Piece] = []

    def keep(self, opened: OpenObject, block: Block) -> tuple[list[bytes | memoryview], list[Reject]]:
        """Return the payload of a block's records that can be sent, and those that cannot; the former are kept."""
        pieces, rejects = _encode(Piece(origin=self._origin(opened), block=block))
        self._pieces += [piece for piece, _ in pieces]
        return [data for _, payload in pieces for data in payload], rejects

    def settle(self) -> Salvaged:
        """End the COPY command, and see that each record that was kept is stored or put aside."""
        pieces, self._pieces = self._pieces, []
        return self._salvage.settle(pieces)

    def write(self, rejects: Sequence[Reject]) -> None:
        """Write rejected records down in the session's transaction."""
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
            assert opened.encoder is not None
            assert opened.form is not None
            self._origins[number] = Origin(
                number=number,
                uri=opened.source.uri,
                form=opened.form,
                encoder=opened.encoder,
                server_major=self._server_major,
            )
        return self._origins[number]


def _encode(piece: Piece) -> tuple[list[tuple[Piece, Sequence[bytes | memoryview]]], list[Reject]]:
    """Return a piece's payload, parted where a record cannot be written for COPY, and those records."""
    encoded: list[tuple[Piece, Sequence[bytes | memoryview]]] = []
    rejects: list[Reject] = []
    left = [piece]
    while left:
        piece = left.pop(0)
        try:
            encoded.append((piece, piece.payload()))
        except _native.RecordError as exc:
            message, record, _ = exc.args
            rejects.append(make_reject(piece, record, Reason(message=message, sqlstate=_BAD_FORMAT)))
            before, behind = part([piece], Spot(0, record))
            left = [*before, *behind, *left]
    return encoded, rejects
