"""Opens an object for loading with its format, and decides what to do about objects that cannot be read."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy

from penstock.core.errors import PenstockError, SourceError
from penstock.core.units import count_nouns
from penstock.core.values.accounts import UnreadableObject, describe_error
from penstock.ledger.values import Coverage
from penstock.loading.context import LoadTools
from penstock.loading.files.listing import recorded_name
from penstock.loading.formats import format_of
from penstock.loading.formats.format import Opened, RangeSums
from penstock.loading.plan.dialects import refuse_other_pipe
from penstock.loading.read.format_check import FormatCheck
from penstock.loading.values.objects import PlannedObject


def open_blocks(
    work: PlannedObject, tools: LoadTools, *, sums: RangeSums | None = None, format_check: FormatCheck | None = None
) -> Opened:
    """Open an object by Format.open of its format: return its stream, its blocks, their encoder and their form.

    If `format_check` is given, it checks the blocks as they are taken. `sums` computes checksums of committed ranges. A
    pipe that has another format or dialect than the target's first object is refused. Raises PenstockError.
    """
    refuse_other_pipe(work, tools.sources, tools.warnings)
    stream, blocks, encoder, form = format_of(work.target).open(work, tools, sums=sums)
    if format_check is not None:
        blocks = format_check.watch(blocks, work, encoder)
    return stream, blocks, encoder, form


def is_unreadable(error: PenstockError) -> bool:
    """Return whether an error means that an object cannot be read, and that a retry could not read it either."""
    return isinstance(error, SourceError) and error.is_unreadable


def describe_unreadable(work: PlannedObject, error: PenstockError, coverage: Coverage | None) -> UnreadableObject:
    """Return what the outcome and the ledger say of an object that cannot be read: its URI, its table and the reason.

    `coverage` is what is committed of the object. The reason says how many of its rows that is.
    """
    reason = describe_error(error)
    if coverage is not None and coverage.ranges:
        reason += f" ({count_nouns(coverage.rows, 'row')} of it committed)"
    return UnreadableObject(uri=recorded_name(work.source), table=str(work.target.table), reason=reason)


def refuse_emptying(errors: Mapping[int, PenstockError], objects: Mapping[int, PlannedObject], *, is_all: bool) -> None:
    """Raise an error of `errors` if the load would only empty a table, because no object for the table can be read.

    `errors` and `objects` are by the number of the object. If `is_all` is true, `objects` are all objects of the
    sources. Then also raise an error if none of them can be read.
    """
    readable = {work.target_index for number, work in objects.items() if number not in errors}
    for number, error in errors.items():
        work = objects[number]
        if (work.target.landing.is_fresh and work.target_index not in readable) or (is_all and not readable):
            raise error


def refuse_partial(errors: Mapping[int, PenstockError], coverage: Mapping[int, Coverage]) -> None:
    """Raise the error of an object that cannot be read if some of its ranges are committed.

    `errors` and `coverage` are by the number of the object.
    """
    for number, error in errors.items():
        if (found := coverage.get(number)) is not None and found.ranges:
            extended = copy(error)
            stays = "The load's other objects are loaded; what was committed of this one stays."
            extended.detail = stays if error.detail is None else f"{error.detail}\n{stays}"
            raise extended
