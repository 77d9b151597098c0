"""Objects read once more for records that have one of some keys: compared by the server, put aside with their bytes.

Exact is the count: each key must have as many records as the table has rows.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import replace
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from penstock.copyformat import make_encoder
from penstock.copyformat.encoder import python_codec
from penstock.errors import DataError
from penstock.loading.explain import explain_miscount
from penstock.loading.form import form_to_json
from penstock.loading.objects import RangeSums, open_blocks
from penstock.loading.pieces import Origin, Piece, runs
from penstock.loading.salvage import make_reject
from penstock.model.ledger import Coverage
from penstock.model.reject import FOREIGN_KEY_VIOLATION, UNIQUE_VIOLATION, Correction, Reason
from penstock.model.table import ColumnMap
from penstock.server.ledger.committed import read_ranges
from penstock.server.ledger.rejects import RejectStore
from penstock.server.shape.parts import is_foreign_key
from penstock.server.violations import STAGE, clear_stage, copy_to_stage
from penstock.units import MIB

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from penstock.loading.tools import LoadTools
    from penstock.loading.work import ObjectWork
    from penstock.model.reject import Reject
    from penstock.model.shape import Change
    from penstock.server.connection import Connection
    from penstock.server.violations import Violations

# Of so few keys the text is looked for in the object: the records without it need not be sent to the server. Each is
# one more look at all bytes.
_MOST_NEEDLES = 16

# A shorter text is in every other record.
_SHORTEST_NEEDLE_BYTES = 3

# How much of an object is compared at once; it is kept meanwhile.
_PORTION_BYTES = 16 * MIB

# How many rejected records are written down at once.
_WRITTEN_RECORDS = 1000


class NotAllFound(Exception):
    """Rows and records of some key are not as many; `is_too_few`: nowhere are there more records than rows."""

    def __init__(self, text: str, *, is_too_few: bool = False) -> None:
        super().__init__(text)
        self.is_too_few = is_too_few


class _Picked(NamedTuple):
    """Records of a piece that are compared, by their indices; all of them where these are None."""

    piece: Piece
    records: Sequence[int] | None

    @property
    def size(self) -> int:
        return self.piece.records if self.records is None else len(self.records)

    def payload(self) -> Sequence[bytes | memoryview]:
        return self.piece.payload() if self.records is None else [self.piece.payload_of(self.records)]

    def reject(self, place: int, reason: Reason) -> Reject:
        return make_reject(self.piece, place if self.records is None else self.records[place], reason)


class Search:
    """Reads objects once more, and puts aside the records that have one of the keys."""

    def __init__(
        self,
        load_id: str,
        tools: LoadTools,
        connection: Connection,
        broken: Sequence[Violations],
        *,
        changes: Sequence[Change],
        columns: Collection[str],
    ) -> None:
        self._load_id = load_id
        self._tools = tools
        self._connection = connection
        self._broken = broken
        self._columns = columns
        self._store = RejectStore(tools.ledger.schema, load_id)
        is_reference = is_foreign_key(changes[0])
        name = f'{"foreign key" if is_reference else "key"} "{changes[0].name}"'
        # Until the table has said it in its own words.
        self._reason = Reason(
            message=f"breaks {name}, and was not tried again yet",
            sqlstate=FOREIGN_KEY_VIOLATION if is_reference else UNIQUE_VIOLATION,
        )
        self._sent = 0
        self.count = 0

    def try_needles(self, works: Sequence[ObjectWork], needles: Sequence[str]) -> bool:
        """Do as `run` with the records that have a key's text; return False, and undo it, where that misses some.

        A value may be written in several ways, so the text is a guess; that as many are found as there are rows is not.
        """
        try:
            with self._connection.transaction():
                self.run(works, needles=needles)
        except NotAllFound as trouble:
            if not trouble.is_too_few:
                raise
            return False
        return True

    def run(self, works: Sequence[ObjectWork], *, needles: Sequence[str] | None) -> None:
        """Put all records aside that have one of the keys. Raises NotAllFound where these are not its rows."""
        self.count = 0
        for work in works:
            self._search_object(work, needles)
        for violations in self._broken:
            differing, is_too_few = violations.count_differing()
            if differing:
                raise NotAllFound(
                    f"{differing:,} of the rows that break it are not those of this load's records: somebody else has"
                    " written to the table.",
                    is_too_few=is_too_few,
                )

    def _search_object(self, work: ObjectWork, needles: Sequence[str] | None) -> None:
        sums = RangeSums(read_ranges(self._connection, self._tools.ledger.schema, self._load_id, work.number))
        before = self._store.read_starts(self._connection, work.number)
        whole = replace(work, coverage=Coverage())
        stream, blocks, _, form = open_blocks(whole, self._tools, sums=sums)
        narrow = _narrow(form.column_map, self._columns)
        if not narrow.columns:
            stream.close()
            return
        encoder = make_encoder(form.dialect, narrow, table=STAGE, encoding=form.encoding)
        origin = Origin(
            number=work.number,
            uri=work.source.uri,
            form=form,
            encoder=encoder,
            server_major=self._tools.server_major,
        )
        coded = None if needles is None else _encode(needles, form.encoding)
        count = 0
        with stream:
            portion: list[_Picked] = []
            length_bytes = 0
            for block in blocks:
                picked = _pick(Piece(origin=origin, block=block), before, coded)
                if picked is None:
                    continue
                portion.append(picked)
                length_bytes += block.end - block.start
                if length_bytes >= _PORTION_BYTES:
                    count += self._compare(portion)
                    portion, length_bytes = [], 0
            count += self._compare(portion)
        if not sums.are_equal:
            raise DataError(
                f'"{work.source.uri}" has changed since it was loaded',
                detail="Records that break a key cannot be found in it any more.",
                hint="Restore the object and go on.",
            )
        if count:
            correction = Correction(object_number=work.number, rows=-count, suppressed=0, form=form_to_json(form))
            self._store.correct(self._connection, [correction])
            self.count += count

    def _compare(self, portion: Sequence[_Picked]) -> int:
        """Have the server look which records have one of the keys, and put these aside; return how many."""
        if not portion:
            return 0
        by_piece = {id(picked.piece): picked for picked in portion}
        before = self._sent
        for run in runs([picked.piece for picked in portion]):
            self._copy([by_piece[id(piece)] for piece in run])
        matching = {number for violations in self._broken for number in violations.match()}
        clear_stage(self._connection)
        ends = list(accumulate((picked.size for picked in portion), initial=before))
        rejects: list[Reject] = []
        for number in sorted(matching):
            place = bisect_left(ends, number) - 1
            rejects.append(portion[place].reject(number - 1 - ends[place], self._reason))
            if len(rejects) == _WRITTEN_RECORDS:
                self._store.insert(self._connection, rejects)
                rejects = []
        if rejects:
            self._store.insert(self._connection, rejects)
        return len(matching)

    def _copy(self, picked: Sequence[_Picked]) -> None:
        records = sum(each.size for each in picked)
        spec = picked[0].piece.origin.encoder.spec
        copied = copy_to_stage(self._connection, spec, (part for each in picked for part in each.payload()))
        if copied != records:
            raise explain_miscount(picked[0].piece.origin.uri, reported=copied, records=records)
        self._sent += records


# ---------------------------------------------------------------- which records


def _pick(piece: Piece, before: Sequence[int], needles: Sequence[bytes] | None) -> _Picked | None:
    """Return which records of a piece are compared: no rejected ones, and where there are needles, those with one."""
    if not piece.records:
        return None
    records: Sequence[int] | None = None
    if needles is not None:
        records = piece.find_records(needles)
    here = before[bisect_left(before, piece.block.start) : bisect_left(before, piece.block.end)]
    if here:
        gone = frozenset(here)
        candidates = range(piece.records) if records is None else records
        records = [record for record in candidates if piece.bounds(record).start not in gone]
    return None if records is not None and not records else _Picked(piece, records)


def _narrow(column_map: ColumnMap, columns: Collection[str]) -> ColumnMap:
    """Return the map that leaves all but some columns out, so that the server need not read them.

    >>> _narrow(ColumnMap(columns=("a", "b", "c", "d"), constants=("1",)), {"b", "d"})
    ColumnMap(columns=('b', 'd'), keep=(1,), constants=('1',), field_count=3)
    """
    sent = len(column_map.columns) - len(column_map.constants)
    keep = range(sent) if column_map.keep is None else column_map.keep
    fields = [pair for pair in zip(column_map.columns, keep, strict=False) if pair[0] in columns]
    constants = [
        pair for pair in zip(column_map.columns[sent:], column_map.constants, strict=True) if pair[0] in columns
    ]
    return ColumnMap(
        columns=(*(name for name, _ in fields), *(name for name, _ in constants)),
        keep=tuple(index for _, index in fields),
        constants=tuple(value for _, value in constants),
        field_count=sent if column_map.field_count is None else column_map.field_count,
    )


def choose_needles(broken: Sequence[Violations]) -> list[str] | None:
    """Return the longest value of each key, None where there are too many, or one tells too little."""
    needles: set[str] = set()
    for violations in broken:
        keys = violations.read_keys(_MOST_NEEDLES)
        if keys is None:
            return None
        needles |= {max(key, key=len) for key in keys}
    is_telling = len(needles) <= _MOST_NEEDLES and all(len(needle) >= _SHORTEST_NEEDLE_BYTES for needle in needles)
    return sorted(needles) if is_telling else None


def _encode(needles: Sequence[str], encoding: str) -> list[bytes] | None:
    """Return texts as an object has them, None where its encoding lacks one."""
    try:
        return [needle.encode(python_codec(encoding)) for needle in needles]
    except (UnicodeEncodeError, LookupError):
        return None
