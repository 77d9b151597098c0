"""Finds the bytes and the line of staged records in their objects.

A staging table has only the offset of a record's block, and a sequence number that gives the record's rank among the
staged records of the block. So the object is read again and cut at the same offsets. Records that were rejected before
staging are not counted. Checksums in the ledger prove that the object is the same as when it was staged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

from penstock.core.errors import DataError, FileLocation, PenstockError
from penstock.ledger.committed import read_ranges
from penstock.ledger.rejects import Reason, RecordForm, Reject, RejectStore
from penstock.ledger.values import CommittedRange, Coverage
from penstock.loading.context import LoadTools
from penstock.loading.formats import format_of
from penstock.loading.land.context import LandingContext
from penstock.loading.land.merge_errors import RecordPosition, name_by_number
from penstock.loading.land.merge_sorting import RefusedRecord
from penstock.loading.read.objects import open_blocks
from penstock.loading.rejects.explain import shorten_reason
from penstock.loading.rejects.pieces import Origin, Piece
from penstock.loading.rejects.sorter import make_reject
from penstock.loading.values.objects import PlannedObject


def find_records(
    work: PlannedObject,
    tools: LoadTools,
    records: Iterable[RefusedRecord],
    *,
    blocks: Sequence[int],
    rejected: Sequence[int],
    committed: Sequence[CommittedRange],
) -> tuple[RecordForm, Iterator[Reject]]:
    """Return how an object's records are read, and an iterator with a Reject for each of `records`.

    `records` are staged records of the object in file order. `blocks` are the offsets of the blocks that have them.
    `rejected` are the offsets of the object's records that were rejected before staging. Both are in ascending order,
    in bytes of the decompressed object, or in rows if its ranges count rows. `committed` has the object's committed
    ranges. Raises SourceError. The iterator raises DataError if the object has changed since it was staged. Then
    rejects that it has already returned may be wrong.
    """
    sums = format_of(work.target).sums(committed)
    starts = frozenset(blocks)
    # Empty ranges cut the object at these offsets without skipping any bytes.
    coverage = Coverage(ranges=tuple((start, start) for start in blocks))
    stream, cut, encoder, form = open_blocks(replace(work, coverage=coverage), tools, sums=sums)
    origin = Origin(
        number=work.number, uri=work.source.uri, form=form, encoder=encoder, server_major=tools.server_major
    )

    def find() -> Iterator[Reject]:
        waiting = iter(records)
        wanted = next(waiting, None)
        at, passed = -1, 0
        with stream:
            for block in cut:
                if wanted is None and sums.is_done:
                    break
                if block.start in starts:
                    at, passed = block.start, 0
                piece = Piece(origin=origin, block=block)
                missing = piece.records_at(rejected)
                staged = block.records - len(missing)
                while (
                    wanted is not None
                    and wanted.position.block_start == at
                    and wanted.position.record <= passed + staged
                ):
                    record = _skip(wanted.position.record - passed - 1, missing)
                    yield make_reject(piece, record, shorten_reason(wanted.reason))
                    wanted = next(waiting, None)
                passed += staged
        if wanted is not None or not sums.are_equal:
            raise DataError(
                f'"{work.source.uri}" has changed since its records were staged',
                detail="Records that the table refuses cannot be found in it any more.",
                hint="Restore the object and go on, or go on with the object as it is now: it is staged anew.",
            )

    return form, find()


def find_staged(
    context: LandingContext, number: int, records: Iterable[RefusedRecord], blocks: Sequence[int]
) -> tuple[RecordForm, Iterator[Reject]]:
    """Return what `find_records` returns, for the load's object with this number.

    `records` and `blocks` are those of `find_records`. Raises ServerError, SourceError.
    """
    connection, schema, load_id = context.connection, context.schema, context.claim.load_id
    return find_records(
        context.find(number),
        context.tools,
        records,
        blocks=blocks,
        rejected=RejectStore(schema, load_id).read_starts(connection, number),
        committed=read_ranges(connection, schema, load_id, number),
    )


def name_record(record: RecordPosition, context: LandingContext) -> FileLocation | str:
    """Return the file and line on which a staged record begins.

    If the object cannot be read again, return a text with the numbers of the object and the record.
    """
    number = record.object_number
    # Ignore an error, because the caller raises another one, which matters more than the line.
    with suppress(PenstockError):
        if context.plan.is_repeatable and number in context.objects:
            wanted = RefusedRecord(record, Reason(message=""))
            _, found = find_staged(context, number, [wanted], [record.block_start])
            return FileLocation(file=context.objects[number].source.uri, line=next(found).line)
    return name_by_number(record)


def _skip(index: int, missing: Sequence[int]) -> int:
    """Return the index of a record among all records, given its index among those that are not `missing`.

    >>> [_skip(index, [0, 2]) for index in range(3)]
    [1, 3, 4]
    """
    for other in missing:
        if other > index:
            break
        index += 1
    return index
