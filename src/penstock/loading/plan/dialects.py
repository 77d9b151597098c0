"""Compares the beginning of every object with the format and dialect of the first, before any row is loaded."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from penstock.core.errors import DataError
from penstock.loading.formats import find_format, format_of

if TYPE_CHECKING:
    from penstock.core.files.streams import SourceReader
    from penstock.loading.formats.format import Depth
    from penstock.loading.values.work import ObjectWork
    from penstock.loading.warned import WarningLog


def refuse_other_dialects(
    works: Sequence[ObjectWork], sources: SourceReader, warnings: WarningLog, *, depth: Depth = "columns"
) -> None:
    """Raise DataError if an object seems to have another dialect than the first one, and no option names the dialect.

    Raises SourceError if an object has no format that can be loaded. Raises TargetError or DataError if an object's
    header does not fit the table. With depth "records", these errors are also raised if one of an object's first
    records does not fit the table. Warns of each object, except the first, in which the first line names a separator.

    Pipes are not checked here but by `refuse_other_pipe`, because the writer of a pipe may wait until another pipe is
    read.
    """
    seen = [work for work in works if not _is_unseen(work)]
    for _, of_target in groupby(seen, key=lambda work: work.target_index):
        _look_at(list(of_target), sources, warnings, depth=depth)


def refuse_other_pipe(work: ObjectWork, sources: SourceReader, warnings: WarningLog) -> None:
    """Check a pipe as `refuse_other_dialects` does, just before the pipe is read.

    When this is called, the load may have sent rows, but rows of pipes are committed only at the load's end.
    """
    if _is_unseen(work):
        # Check only the dialect now. The header is mapped to columns when the pipe is read.
        _look_at([work], sources, warnings, depth="dialect")


def _is_unseen(work: ObjectWork) -> bool:
    return work.source.is_pipe and not work.source.is_spooled


def _look_at(works: Sequence[ObjectWork], sources: SourceReader, warnings: WarningLog, *, depth: Depth) -> None:
    target = works[0].target
    first, options = format_of(target), target.job.dialect
    for sample in sources.sample_all([work.source for work in works], options):
        here = find_format(sample, options)
        here.check_content(sample, options)
        is_other = here.title(sample.own) != first.title(target.own)
        if is_other and not (first.may_be_blank and sample.own is None and not sample.head.strip()):
            named = target.dialect.format if first.is_delimited else first.title(target.own)
            raise DataError(
                "files of one load have different formats",
                detail=f"{sample.source.uri} has format {here.title(sample.own)}; the first file {named}.",
                hint=f"{target.landing.alone[0].upper()}{target.landing.alone[1:]}.",
            )
        first.check_sample(sample, target, warnings, depth=depth)
