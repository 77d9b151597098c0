"""Rejected records tried again: those that referred to records which have landed since, or all of them on request.

Records that go in leave the rejects in the transaction that stores them, so none can go in twice.
"""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock import _native
from penstock.errors import PenstockError, TargetError
from penstock.loading.explain import explain_failure
from penstock.loading.form import form_from_json, make_origin
from penstock.loading.pieces import Origin, Piece
from penstock.loading.rejects import too_many_rejects
from penstock.loading.salvage import Salvage, Salvaged
from penstock.loading.screen import BAD_FORMAT
from penstock.model.block import Block
from penstock.model.ledger import Claim, LandedCounts
from penstock.model.reject import FOREIGN_KEY_VIOLATION, Correction, Reason, RetryOutcome
from penstock.server.copy import CopyFailed, CopySession, Superseded
from penstock.server.ledger.ending import commit_durably
from penstock.server.ledger.ledger import taken_over
from penstock.server.ledger.locks import try_lock
from penstock.server.ledger.rejects import RejectStore
from penstock.server.ledger.targets import read_landed
from penstock.server.shape.missing import refuse_missing

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from penstock.loading.tools import LoadTools
    from penstock.model.block import LineEnd
    from penstock.model.ledger import LandedTarget
    from penstock.model.reject import Reject
    from penstock.server.connection import Connection


def retry_references(
    claim: Claim,
    tools: LoadTools,
    connection: Connection,
    *,
    max_rejects: int | None = None,
) -> None:
    """Try records again that broke a foreign key, until none of them goes in any more.

    Raises PenstockError, and DataError where more than `max_rejects` records of the load are left.
    """
    again = _Again(claim, tools, connection)
    if again.store.count_rejected(connection):
        again.send_references()
    if max_rejects is None or again.store.count(connection) <= max_rejects:
        return
    rejects = again.store.read(connection)
    raise too_many_rejects(max_rejects, rejects, uris=again.uris)


def retry_behind_merges(claim: Claim, tools: LoadTools, connection: Connection) -> Salvaged:
    """Try records again that broke a foreign key, and are not merged themselves: what they refer to may have been.

    The load is complete. Raises PenstockError.
    """
    landed = read_landed(connection, tools.ledger.schema, claim.load_id)
    return _Again(claim, tools, connection, but=_find_landed(landed), is_ended=True).send_references()


def retry_rejects(
    load_id: str, tools: LoadTools, connection: Connection, *, edited: Sequence[bytes] | None = None
) -> RetryOutcome:
    """Load the rejected records of a load that has ended once more; `edited` takes their place, in their order.

    Raises PenstockError. What is refused again stays among the rejects.
    """
    tools.connect.refuse_pooler("load")
    store = RejectStore(tools.ledger.schema, load_id)
    load = store.read_load(connection)
    if load is None:
        raise TargetError(f"there is no load {load_id}", hint="penstock loads lists them.")
    if load.state != "complete":
        raise TargetError(f"load {load_id} has not ended", hint=f"Finish it first: penstock resume {load_id}.")
    if not try_lock(connection, load.lock_key):
        raise TargetError("another process works on this load", hint="Try again when it has ended.")
    refuse_missing(connection, tools.ledger.schema, store.find_tables(connection))
    raws = None if edited is None else _pair(edited, store, connection, load_id=load_id)
    landed = read_landed(connection, tools.ledger.schema, load_id)
    claim = Claim(load_id=load_id, epoch=load.epoch, is_resumed=True)
    again = _Again(claim, tools, connection, but=_find_landed(landed), is_ended=True)
    total = again.send_all(raws)
    _add(total, again.send_references())
    merged = LandedCounts(number=0, target_oid=0)
    if landed:
        from penstock.loading.again_landed import retry_landed  # noqa: PLC0415 (paid for by loads that need it)

        merged = retry_landed(claim, landed, tools, connection, job=load.job, raws=raws)
        if any(reject.reason.sqlstate == FOREIGN_KEY_VIOLATION for reject in total.rejects):
            # They may refer to what has just been merged.
            _add(total, again.send_references())
    return RetryOutcome(
        load_id=load_id,
        rows=total.rows + merged.inserted + merged.updated,
        suppressed=total.suppressed.total() + merged.suppressed,
        left=store.count(connection),
        duplicates=merged.duplicates,
        existing=merged.existing,
    )


def _find_landed(landed: Sequence[LandedTarget]) -> frozenset[int]:
    """Return the numbers of the objects whose records landed elsewhere first."""
    return frozenset(number for target in landed for number in target.objects)


def _pair(
    records: Sequence[bytes], store: RejectStore, connection: Connection, *, load_id: str
) -> dict[tuple[int, int], bytes]:
    """Return edited records by object and offset of those whose place they take, in their order. Raises TargetError."""
    count = store.count(connection)
    if count != len(records):
        raise TargetError(
            f"the file has {len(records)} records, and the load has {count} rejected ones",
            detail="Each record of the file takes the place of the rejected one in the same place.",
            hint=f"Write them anew with penstock rejects {load_id} --reject-file, and edit that.",
        )
    left = iter(records)
    return {
        (reject.object_number, reject.start): next(left) for rejects in store.read_all(connection) for reject in rejects
    }


def replace_raw(rejects: Iterable[Reject], raws: Mapping[tuple[int, int], bytes] | None) -> list[Reject]:
    """Return rejected records with the bytes that they were given since."""
    if raws is None:
        return list(rejects)
    return [replace(reject, raw=raws[reject.object_number, reject.start]) for reject in rejects]


class _Again:
    """The rejected records of one load, on one session, without those of the objects `but`.

    With `is_ended` no end of the load will make safe what is committed here.
    """

    def __init__(
        self,
        claim: Claim,
        tools: LoadTools,
        connection: Connection,
        *,
        but: frozenset[int] = frozenset(),
        is_ended: bool = False,
    ) -> None:
        self._but = but
        self._is_ended = is_ended
        self.store = RejectStore(tools.ledger.schema, claim.load_id)
        self._claim = claim
        self._ledger = tools.ledger
        self._connection = connection
        self._session = CopySession(connection, fence=tools.ledger.fence(claim), is_protected=True)
        stored = self.store.read_forms(connection)
        self.uris = {number: item.uri for number, item in stored.items()}
        self._origins = {
            number: make_origin(form_from_json(item.form), number=number, uri=item.uri, server_major=tools.server_major)
            for number, item in stored.items()
        }

    def send_all(self, raws: Mapping[tuple[int, int], bytes] | None = None) -> Salvaged:
        """Send all records once, with the bytes that they were given since."""
        total = Salvaged()
        for rejects in self.store.read_all(self._connection):
            _add(total, self._send(replace_raw(self._without(rejects), raws)))
        return total

    def send_references(self) -> Salvaged:
        """Send those that broke a foreign key until none of them goes in any more.

        The last ones first, and the other way round the next time: mostly they stood before what they refer to.
        """
        total = Salvaged()
        is_backwards = True
        while True:
            sent = Salvaged()
            for rejects in self.store.read_all(
                self._connection, codes=[FOREIGN_KEY_VIOLATION], is_backwards=is_backwards
            ):
                _add(sent, self._send(self._without(rejects)))
            if not sent.rows:
                return total
            _add(total, sent)
            is_backwards = not is_backwards

    def _without(self, rejects: Sequence[Reject]) -> list[Reject]:
        return [reject for reject in rejects if reject.object_number not in self._but]

    def _send(self, rejects: Sequence[Reject]) -> Salvaged:
        """Send some records in a transaction of their own."""
        if not rejects:
            return Salvaged()
        with committing(self._session, self._claim):
            pieces, unwritable = make_pieces(rejects, self._origins)
            salvaged = Salvage(self._session, parks=False).send(pieces)
            salvaged.rejects += unwritable
            self._write(rejects, salvaged)
            if self._is_ended:
                self._session.execute(commit_durably())
        return salvaged

    def _write(self, rejects: Sequence[Reject], salvaged: Salvaged) -> None:
        refused = {(reject.object_number, reject.start) for reject in salvaged.rejects}
        stored = [reject for reject in rejects if (reject.object_number, reject.start) not in refused]
        corrections = [
            Correction(
                object_number=number,
                rows=count - salvaged.suppressed[number],
                suppressed=salvaged.suppressed[number],
            )
            for number, count in Counter(reject.object_number for reject in stored).items()
        ]
        with self._session.between_copies() as connection:
            self.store.renew(connection, salvaged.rejects)
            if not stored:
                return
            if self.store.remove(connection, stored) != len(stored):
                raise TargetError("rejected records of this load were loaded or removed just now", hint="Try again.")
            self.store.correct(connection, corrections)


def make_pieces(rejects: Iterable[Reject], origins: Mapping[int, Origin]) -> tuple[list[Piece], list[Reject]]:
    """Return records as pieces that can be sent, and those that cannot even be written for COPY, with the reason."""
    pieces: list[Piece] = []
    unwritable: list[Reject] = []
    for reject in rejects:
        piece = _make_piece(reject, origins[reject.object_number])
        try:
            piece.payload()
        except _native.RecordError as exc:
            unwritable.append(replace(reject, reason=Reason(message=exc.args[0], sqlstate=BAD_FORMAT)))
        else:
            pieces.append(piece)
    return pieces, unwritable


def _make_piece(reject: Reject, origin: Origin) -> Piece:
    raw = reject.raw
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
    )
    return Piece(origin=origin, block=block)


def find_line_end(raw: bytes) -> LineEnd | None:
    r"""Return how a record ends, None for one that is the last of a file without a line end.

    >>> find_line_end(b"a\r\n"), find_line_end(b"a")
    ('crlf', None)
    """
    ends: tuple[tuple[bytes, LineEnd], ...] = ((b"\r\n", "crlf"), (b"\n", "lf"), (b"\r", "cr"))
    return next((name for mark, name in ends if raw.endswith(mark)), None)


def _add(total: Salvaged, part: Salvaged) -> None:
    total.rows += part.rows
    total.suppressed += part.suppressed
    total.rejects += part.rejects


@contextmanager
def committing(session: CopySession, claim: Claim) -> Iterator[None]:
    """Run the block in one transaction, behind the load's fence, and commit it. Raises PenstockError."""
    try:
        session.begin()
        yield
        session.commit()
    except CopyFailed as failure:
        raise explain_failure(failure, where=None) from failure
    except Superseded as exc:
        raise taken_over(claim.load_id) from exc
    except PenstockError:
        session.roll_back()
        raise
