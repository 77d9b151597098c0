"""Keeps the records of a session's COPY command, so that those that the table refuses can be rejected."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock import _native
from penstock.loading.rejects.pieces import Origin, Piece
from penstock.loading.rejects.record_format import form_to_json
from penstock.loading.rejects.sorter import RejectSorter, SortedOut, part_unwritable

if TYPE_CHECKING:
    from penstock.loading.reading.feed import OpenObject
    from penstock.loading.rejects.limit import RejectLimit
    from penstock.model.load.reject import Reject
    from penstock.model.source.block import Block
    from penstock.server.copy.copy import CopySession
    from penstock.server.ledger.rejects import RejectStore


class RejectKeeper:
    """Keeps the records of one session's open COPY command.

    `settle` and `write` raise CopyFailed; `write` raises DataError if too many records are rejected.
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
        """Return the payload of the records that can be sent, which are kept, and rejects for those that cannot."""
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
