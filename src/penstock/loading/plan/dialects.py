"""Every object's first block held against the dialect that the first one's has told, before any row is loaded."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from penstock.errors import DataError, FilePlace
from penstock.files.probe import check_is_not_json, find_contradiction, separator_notice
from penstock.loading.plan.plan import options_of, table_after_creation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.files import SourceReader
    from penstock.files.probe import Contradiction
    from penstock.loading.plan.work import ObjectWork
    from penstock.loading.warned import WarningLog


def refuse_other_dialects(works: Sequence[ObjectWork], sources: SourceReader, warnings: WarningLog) -> None:
    """Raise DataError where an object could be meant otherwise than the first one, and no option says how.

    Raises SourceError for one that is JSON. Warns of first lines that name a separator in all but the first.

    Pipes are left to `refuse_other_pipe`: one may not be written before another is read.
    """
    seen = [work for work in works if not _is_unseen(work)]
    for _, of_target in groupby(seen, key=lambda work: work.place):
        _look_at(list(of_target), sources, warnings)


def refuse_other_pipe(work: ObjectWork, sources: SourceReader, warnings: WarningLog) -> None:
    """Do the same for a pipe that is about to be read: nothing is committed before the end of what comes by pipes."""
    if _is_unseen(work):
        _look_at([work], sources, warnings)


def _is_unseen(work: ObjectWork) -> bool:
    return work.source.is_pipe and not work.source.is_spooled


def _look_at(works: Sequence[ObjectWork], sources: SourceReader, warnings: WarningLog) -> None:
    target = works[0].target
    fields = target.column_map.field_count
    if fields is None:
        fields = len(target.column_map.columns) - len(target.column_map.constants)
    columns = None
    if target.job.columns is None:
        columns = [column.name for column in table_after_creation(target).columns]
    options = target.job.dialect
    for sample in sources.sample_all([work.source for work in works], options):
        if options.format is None:
            check_is_not_json(sample.head, is_whole=sample.is_whole, uri=sample.source.uri)
        if sample.separator not in (None, target.dialect.delimiter):
            raise DataError(
                "files of one load have different dialects",
                detail=f"{sample.source.uri} line {sample.first_line - 1}: sep={sample.separator}\n"
                f"By the first file's dialect, the delimiter is {target.dialect.delimiter!r}.",
                hint="Use --delimiter if one is right for every file, or load the files that differ separately.",
            )
        if sample.separator is not None and sample.source != target.objects[0]:
            warnings.add(separator_notice(sample.source.uri, sample.first_line - 1))
        found = find_contradiction(
            sample.head,
            is_whole=sample.is_whole,
            dialect=target.dialect,
            options=options_of(sample, options),
            header=target.header,
            table_columns=columns,
            column_count=fields,
        )
        if found is not None:
            raise _explain(found, FilePlace(file=sample.source.uri, line=sample.first_line + found.line - 1))


def _explain(found: Contradiction, place: FilePlace) -> DataError:
    first, second = found.options
    return DataError(
        "files of one load have different dialects",
        detail=f"{place}: {found.text}\n"
        f"By the first file's dialect, this is {found.before}.\n"
        f"By its own, it is {found.here}.",
        hint=f"Use {first} or {second} if it is right for every file, or load the files that differ separately.",
        place=place,
    )
