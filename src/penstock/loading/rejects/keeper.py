"""What a session that rejects records keeps: the records of its COPY command, and where the rejected ones go."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock import _native
from penstock.loading.rejects.pieces import Origin, Piece
from penstock.loading.rejects.record_format import form_to_json
from penstock.loading.rejects.sorter import RejectSorter, part_unwritable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.loading.reading.feed import OpenObject
    from penstock.loading.rejects.limit import RejectLimit
    from penstock.loading.rejects.sorter import SortedOut
    from penstock.model.load.reject import Reject
    from penstock.model.source.block import Block
    from penstock.server.copy.copy import CopySession
    from penstock.server.ledger.rejects import RejectStore


class RejectKeeper:
    """One session's records in flight. `settle` and `write` raise CopyFailed; `write` also DataError at the limit."""

    def __init__(self, session: CopySession, *, store: RejectStore, limit: RejectLimit, server_major: int) -> None:
        self._session = session
        self._store = store
        self._limit = limit
        self._server_major = server_major
        self._sorter = RejectSorter(session)
        self._origins: dict[int, Origin] = {}
        self._forms: dict[int, str] = {}
        self._pieces: list[Piece] = []

    def keep(self, opened: OpenObject, block: Block) -> tuple[Sequence[bytes | memoryview], list[Reject]]:
        """Return the payload of a block's records that can be sent, and those that cannot; the former are kept."""
        piece = Piece(origin=self._origin(opened), block=block)
        try:
            parts = piece.payload()
        except _native.RecordError:
            pieces, rejects = part_unwritable(piece)
            self._pieces += pieces
            # Each part is a message to the server: many small ones travel as one.
            payload = b"".join(part for each in pieces for part in each.payload())
            return [payload] if payload else [], rejects
        self._pieces.append(piece)
        return parts, []

    def settle(self) -> SortedOut:
        """End the COPY command, and see that each record that was kept is stored or rejected."""
        pieces, self._pieces = self._pieces, []
        return self._sorter.settle(pieces)

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
            self._origins[number] = Origin(
                number=number,
                uri=opened.source.uri,
                form=opened.form,
                encoder=opened.encoder,
                server_major=self._server_major,
            )
        return self._origins[number]
