"""What a session that puts records aside keeps: the records of its COPY command, and where the rejected ones go."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock import _native
from penstock.loading.form import form_to_json
from penstock.loading.pieces import Origin, Piece, Spot, remove
from penstock.loading.salvage import Salvage, make_reject
from penstock.loading.screen import BAD_FORMAT, SCREENED, make_screen
from penstock.model.reject import Reason

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.loading.feed import OpenObject
    from penstock.loading.rejects import RejectLimit
    from penstock.loading.salvage import Salvaged
    from penstock.model.block import Block, CopySpec
    from penstock.model.reject import Reject
    from penstock.server.copy import CopySession
    from penstock.server.ledger.rejects import RejectStore

# Once COPY has refused a record that a screen finds, blocks are looked at before they are sent until so many in a row
# were clean: a look costs less than a fiftieth of a block's COPY, a failed command more than one.
_CLEAN_BLOCKS = 64


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
        self._looks_left = 0

    def start(self, spec: CopySpec) -> None:
        """Begin the COPY command that `settle` ends."""
        self._salvage.start(spec)

    def is_full(self, records: int) -> bool:
        """Whether the command should end that carries so many records."""
        return self._salvage.is_full(records)

    def keep(self, opened: OpenObject, block: Block) -> tuple[list[bytes | memoryview], list[Reject]]:
        """Return the payload of a block's records that can be sent, and those that cannot; the former are kept."""
        piece = Piece(origin=self._origin(opened), block=block)
        pieces, rejects = self._screen(piece) if self._looks_left else ([piece], [])
        parts: list[bytes | memoryview] = []
        while pieces:
            piece = pieces.pop(0)
            try:
                parts += piece.payload()
            except _native.RecordError as exc:
                clean, refused = self._screen(piece)
                if not refused:
                    message, record, _ = exc.args
                    clean, refused = _take_out(piece, [(record, Reason(message=message, sqlstate=BAD_FORMAT))])
                pieces[:0] = clean
                rejects += refused
            else:
                self._pieces.append(piece)
        # Each part is a message to the server: many small ones travel as one.
        return [b"".join(parts)] if rejects and parts else parts, rejects

    def _screen(self, piece: Piece) -> tuple[list[Piece], list[Reject]]:
        found = [] if piece.origin.screen is None else piece.origin.screen.find(piece.block)
        self._looks_left = _CLEAN_BLOCKS if found else max(0, self._looks_left - 1)
        return _take_out(piece, found)

    def settle(self) -> Salvaged:
        """End the COPY command, and see that each record that was kept is stored or put aside."""
        pieces, self._pieces = self._pieces, []
        salvaged = self._salvage.settle(pieces)
        if any(reject.reason.sqlstate in SCREENED for reject in salvaged.rejects):
            self._looks_left = _CLEAN_BLOCKS
        return salvaged

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
                screen=make_screen(opened.target, opened.form, opened.encoder),
            )
        return self._origins[number]


def _take_out(piece: Piece, found: Sequence[tuple[int, Reason]]) -> tuple[list[Piece], list[Reject]]:
    """Return a piece without some of its records, and these as they are put aside."""
    rejects = [make_reject(piece, record, reason) for record, reason in found]
    return remove([piece], [Spot(0, record) for record, _ in found]), rejects
