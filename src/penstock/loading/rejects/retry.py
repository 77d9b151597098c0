"""Retries rejected records: at the load's end those that violated a foreign key, or all of them on request.

A record is removed from the rejects in the transaction that stores it, so none is stored twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from penstock import _native
from penstock.errors import PenstockError, TargetError
from penstock.loading.context import LoadTools
from penstock.loading.rejects.explain import explain_failure
from penstock.loading.rejects.limit import too_many_rejects
from penstock.loading.rejects.pieces import Origin, Piece
from penstock.loading.rejects.reasons import describe_unwritable
from penstock.loading.rejects.record_format import form_from_json, make_origin
from penstock.loading.rejects.sorter import RejectSorter, SortedOut
from penstock.model.load.ledger import Claim
from penstock.model.load.reject import FOREIGN_KEY_VIOLATION, Correction, Reject, RetryOutcome
from penstock.model.source.block import Block, LineEnd
from penstock.server.changes.missing import refuse_missing
from penstock.server.connect.connection import Connection
from penstock.server.copy.copy import CopyFailed, CopySession, Superseded
from penstock.server.ledger.ending import commit_durably
from penstock.server.ledger.ledger import taken_over
from penstock.server.ledger.locks import try_lock
from penstock.server.ledger.rejects import RejectStore
from penstock.server.ledger.targets import read_landed


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
    again = _Retry(claim, tools, connection)
    if again.store.count_rejected(connection):
        again.send_references()
    if max_rejects is None or again.store.count(connection) <= max_rejects:
        return
    rejects = again.store.read(connection)
    raise too_many_rejects(max_rejects, rejects, uris=again.uris)


def retry_rejects(
    load_id: str, tools: LoadTools, connection: Connection, *, edited: Sequence[bytes] | None = None
) -> RetryOutcome:
    """Retry the rejected records of a complete load; `edited` has replacements for them, in their order.

    Raises PenstockError. Records that are refused again stay in the rejects.
    """
    tools.connect.refuse_unwritable("load")
    store = RejectStore(tools.ledger.schema, load_id)
    load = store.read_load(connection)
    if load is None:
        raise TargetError(f"there is no load {load_id}", hint="penstock loads lists them.")
    if load.state != "complete":
        raise TargetError(f"load {load_id} has not ended", hint=f"Finish it first: penstock resume {load_id}.")
    if not try_lock(connection, load.lock_key):
        raise TargetError("another process works on this load", hint="Try again when it has ended.")
    refuse_missing(connection, tools.ledger.schema, store.find_tables(connection))
    _refuse_merged(store, connection, tools, load_id=load_id)
    raws = None if edited is None else _pair(edited, store, connection, load_id=load_id)
    claim = Claim(load_id=load_id, epoch=load.epoch, is_resumed=True)
    again = _Retry(claim, tools, connection, is_ended=True)
    total = again.send_all(raws)
    _add(total, again.send_references())
    return RetryOutcome(
        load_id=load_id,
        rows=total.rows,
        suppressed=total.suppressed.total(),
        left=store.count(connection),
    )


def _refuse_merged(store: RejectStore, connection: Connection, tools: LoadTools, *, load_id: str) -> None:
    """Raise TargetError if the load staged or replaced the table of a record, so that COPY must not store it."""
    forms = store.read_forms(connection)
    landed = read_landed(connection, tools.ledger.schema, load_id)
    tables = [target.table for target in landed if not forms.keys().isdisjoint(target.objects)]
    if tables and store.count(connection):
        raise TargetError(
            f'rejected records of table "{tables[0]}" cannot be retried',
            detail="They went to a table of the load's own first.",
            hint=f"Write them to a file with penstock rejects {load_id} --reject-file PATH, correct that, and load it:"
            " with the same --mode if that was upsert or insert-new, with the same --transform, else without.",
        )


def _pair(
    records: Sequence[bytes], store: RejectStore, connection: Connection, *, load_id: str
) -> dict[tuple[int, int], bytes]:
    """Return the edited records by object and offset of the rejected records that they replace. Raises TargetError."""
    refuse_other_count(records, store, connection, load_id=load_id)
    left = iter(records)
    return {
        (reject.object_number, reject.start): next(left) for rejects in store.read_all(connection) for reject in rejects
    }


def refuse_other_count(records: Sequence[bytes], store: RejectStore, connection: Connection, *, load_id: str) -> None:
    """Raise TargetError unless there are as many edited records as rejected ones that they replace."""
    count = store.count(connection)
    if count != len(records):
        raise TargetError(
            f"the file has {len(records)} records, and the load has {count} rejected ones",
            detail="Each record of the file takes the place of the rejected one in the same place.",
            hint=f"Write them again with penstock rejects {load_id} --reject-file PATH, and edit that.",
        )


class _Retry:
    """Sends the rejected records of one load in one session.

    If `is_ended`, the load is complete. Then each commit here is durable at once, because no later commit of the load
    flushes the WAL.
    """

    def __init__(self, claim: Claim, tools: LoadTools, connection: Connection, *, is_ended: bool = False) -> None:
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

    def send_all(self, raws: Mapping[tuple[int, int], bytes] | None = None) -> SortedOut:
        """Send all records once; `raws` has the bytes of edited ones."""
        total = SortedOut()
        for rejects in self.store.read_all(self._connection):
            if raws is not None:
                rejects = [replace(reject, raw=raws[reject.object_number, reject.start]) for reject in rejects]  # noqa: PLW2901
            _add(total, self._send(rejects))
        return total

    def send_references(self) -> SortedOut:
        """Send the records that violated a foreign key, until no more of them can be stored.

        The last ones are sent first, because most such records come before those that they refer to; each further time
        the order is reversed.
        """
        total = SortedOut()
        is_backwards = True
        while True:
            sent = SortedOut()
            for rejects in self.store.read_all(
                self._connection, codes=[FOREIGN_KEY_VIOLATION], is_backwards=is_backwards
            ):
                _add(sent, self._send(rejects))
            if not sent.rows:
                return total
            _add(total, sent)
            is_backwards = not is_backwards

    def _send(self, rejects: Sequence[Reject]) -> SortedOut:
        """Send some records in their own transaction."""
        with _committing(self._session, self._claim):
            pieces, unwritable = _make_pieces(rejects, self._origins)
            found = RejectSorter(self._session).send(pieces)
            found.rejects += unwritable
            self._write(rejects, found)
            if self._is_ended:
                self._session.execute(commit_durably())
        return found

    def _write(self, rejects: Sequence[Reject], found: SortedOut) -> None:
        refused = {(reject.object_number, reject.start) for reject in found.rejects}
        stored = [reject for reject in rejects if (reject.object_number, reject.start) not in refused]
        corrections = [
            Correction(
                object_number=number,
                rows=count - found.suppressed[number],
                suppressed=found.suppressed[number],
            )
            for number, count in Counter(reject.object_number for reject in stored).items()
        ]
        with self._session.between_copies() as connection:
            self.store.renew(connection, found.rejects)
            if not stored:
                return
            if self.store.remove(connection, stored) != len(stored):
                raise TargetError("rejected records of this load were loaded or removed just now", hint="Try again.")
            self.store.correct(connection, corrections)


def _make_pieces(rejects: Iterable[Reject], origins: Mapping[int, Origin]) -> tuple[list[Piece], list[Reject]]:
    """Return records as pieces that can be sent, and those that cannot be encoded for COPY, with the reason."""
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
        fault=_find_fault(raw, origin, line_end=line_end or "lf"),
    )
    return Piece(origin=origin, block=block)


def _find_fault(raw: bytes, origin: Origin, *, line_end: LineEnd) -> str | None:
    """Return why bytes are not one record, or None; a line with a stray quote would be joined with the next record.

    A line of blanks is no record of JSON Lines.
    """
    if origin.form.dialect.format not in ("csv", "jsonl"):
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


def _add(total: SortedOut, part: SortedOut) -> None:
    total.rows += part.rows
    total.suppressed += part.suppressed
    total.rejects += part.rejects


@contextmanager
def _committing(session: CopySession, claim: Claim) -> Iterator[None]:
    """Run the block in one transaction that checks the load's fence, and commit it. Raises PenstockError."""
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
