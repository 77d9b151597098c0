"""Sends rejected records again. At the load's end, these are the records that violated a foreign key.

land/retry.py sends all rejected records when a user requests it. A record is removed from the rejects in the
transaction that stores it, so none is stored twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from penstock import _native
from penstock.core.connect.connection import Connection
from penstock.core.errors import PenstockError, TargetError
from penstock.ledger.ledger import taken_over
from penstock.ledger.rejects import FOREIGN_KEY_VIOLATION, Correction, Reject, RejectStore
from penstock.ledger.values import Claim
from penstock.loading.context import LoadTools
from penstock.loading.copy.copy import CopyFailed, CopySession, Superseded
from penstock.loading.rejects.explain import describe_unwritable, explain_failure, too_many_rejects
from penstock.loading.rejects.pieces import Origin, Piece, form_from_json, make_origin
from penstock.loading.rejects.sorter import RejectSorter, SortedOut
from penstock.loading.values.block import Block, LineEnd


def retry_references(
    claim: Claim,
    tools: LoadTools,
    connection: Connection,
    *,
    max_rejects: int | None = None,
) -> None:
    """Retry the records that violated a foreign key, until no more of them can be stored.

    Raises PenstockError, and DataError if more than `max_rejects` records of the load are left.
    """
    store = RejectStore(tools.ledger.schema, claim.load_id)
    forms = store.read_forms(connection)
    if store.count_rejected(connection):
        origins = {
            number: make_origin(form_from_json(item.form), number=number, uri=item.uri, server_major=tools.server_major)
            for number, item in forms.items()
        }
        _send_references(Resender(claim, tools, connection, origins), claim)
    if max_rejects is None or store.count(connection) <= max_rejects:
        return
    rejects = store.read(connection)
    raise too_many_rejects(max_rejects, rejects, uris={number: item.uri for number, item in forms.items()})


def _send_references(resender: Resender, claim: Claim) -> None:
    """Send the records that violated a foreign key, in several transactions, until no more of them can be stored.

    The last records are sent first, because most of these records come before the records that they refer to. Each
    further pass reverses the order.
    """
    is_backwards = True
    has_stored = True
    while has_stored:
        has_stored = False
        for rejects in resender.read(codes=[FOREIGN_KEY_VIOLATION], is_backwards=is_backwards):
            with committing(resender.session, claim):
                found = resender.send(rejects)
                resender.settle(rejects, found.rejects, suppressed=found.suppressed)
            has_stored |= bool(found.rows)
        is_backwards = not is_backwards


class Resender:
    """Sends rejected records of one load in one session, in the caller's transactions.

    `origins` has, by the object's number, the table to which its records are sent, and how. Methods raise CopyFailed,
    PenstockError.
    """

    def __init__(self, claim: Claim, tools: LoadTools, connection: Connection, origins: Mapping[int, Origin]) -> None:
        self.session = CopySession(connection, fence=tools.ledger.fence(claim), is_protected=True)
        self.store = RejectStore(tools.ledger.schema, claim.load_id)
        self.origins = origins
        self._sorter = RejectSorter(self.session)

    def read(
        self,
        *,
        objects: Sequence[int] | None = None,
        codes: Sequence[str] | None = None,
        is_backwards: bool = False,
    ) -> Iterator[list[Reject]]:
        """Yield rejected records, a few MiB at a time (see RejectStore.read). Records may be sent in between."""
        beyond = None
        while True:
            with self.session.between_copies() as connection:
                rejects = self.store.read(
                    connection, beyond=beyond, objects=objects, codes=codes, is_backwards=is_backwards
                )
            if not rejects:
                return
            yield rejects
            beyond = rejects[-1].object_number, rejects[-1].start

    def send(self, rejects: Sequence[Reject]) -> SortedOut:
        """Send records, and return which were stored and which were refused. The ledger is not changed."""
        pieces, unwritable = _make_pieces(rejects, self.origins)
        found = self._sorter.send(pieces)
        found.rejects += unwritable
        return found

    def settle(
        self,
        rejects: Sequence[Reject],
        refused: Iterable[Reject],
        *,
        suppressed: Mapping[int, int],
    ) -> int:
        """Remove the records that were not refused again from the ledger's rejects, and return their number.

        The refused records get their new reasons and bytes. `suppressed` is the number of records, by object, that row
        triggers skipped. Raises TargetError if another process has removed one of the records.
        """
        again = {(reject.object_number, reject.start): reject for reject in refused}
        stored = [reject for reject in rejects if (reject.object_number, reject.start) not in again]
        corrections = [
            Correction(
                object_number=number, rows=count - suppressed.get(number, 0), suppressed=suppressed.get(number, 0)
            )
            for number, count in Counter(reject.object_number for reject in stored).items()
        ]
        with self.session.between_copies() as connection:
            self.store.renew(connection, list(again.values()))
            if stored:
                if self.store.remove(connection, stored) != len(stored):
                    raise removed_meanwhile()
                self.store.correct(connection, corrections)
        return len(stored)


def removed_meanwhile() -> TargetError:
    """Return the error for records that another process has retried or discarded."""
    return TargetError("rejected records of this load were loaded or removed just now", hint="Try again.")


def _make_pieces(rejects: Iterable[Reject], origins: Mapping[int, Origin]) -> tuple[list[Piece], list[Reject]]:
    """Return the records that can be sent, as pieces, and those that cannot be encoded for COPY, with the reason."""
    pieces: list[Piece] = []
    unwritable: list[Reject] = []
    for reject in rejects:
        piece = _make_piece(reject, origins[reject.object_number])
        try:
            piece.payload()
        except _native.RecordError as exc:
            unwritable.append(replace(reject, reason=describe_unwritable(exc)))
        else:
            pieces.append(piece)
    return pieces, unwritable


def _make_piece(reject: Reject, origin: Origin) -> Piece:
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


def find_line_end(raw: bytes) -> LineEnd | None:
    r"""Return the line end of a record, or None if it has none because it is the last one of a file.

    >>> find_line_end(b"a\r\n"), find_line_end(b"a")
    ('crlf', None)
    """
    ends: tuple[tuple[bytes, LineEnd], ...] = ((b"\r\n", "crlf"), (b"\n", "lf"), (b"\r", "cr"))
    return next((name for mark, name in ends if raw.endswith(mark)), None)


@contextmanager
def committing(session: CopySession, claim: Claim) -> Iterator[None]:
    """Run the block in one transaction that checks the load's fence, and commit it. Raises PenstockError."""
    try:
        session.begin()
        yield
        session.commit()
    except CopyFailed as failure:
        raise explain_failure(failure, where=failure.location) from failure
    except Superseded as exc:
        raise taken_over(claim.load_id) from exc
    except PenstockError:
        session.roll_back()
        raise
