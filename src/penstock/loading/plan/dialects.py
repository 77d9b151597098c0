"""Compares the first block of every object with the dialect of the first object, before any row is loaded."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Literal

from penstock.errors import DataError, FileLocation
from penstock.files.probe import (
    Contradiction,
    check_is_delimited,
    explain_misfit,
    find_contradiction,
    find_header,
    find_misfit,
    separator_notice,
)
from penstock.files.probe.columnar import probe_columnar, refuse_unsupported
from penstock.files.probe.folders import read_folder_values
from penstock.files.probe.json_lines import is_json_lines, refuse_document
from penstock.loading.plan.columns import map_columns, map_names
from penstock.loading.plan.plan import options_of, table_after_creation
from penstock.server.connect.errors import find_hint

# How much of each file is checked: its dialect; also its columns; or also the field count of its first records.
Depth = Literal["dialect", "columns", "records"]

if TYPE_CHECKING:
    from penstock.files import SourceReader
    from penstock.loading.plan.work import ObjectWork
    from penstock.loading.warned import WarningLog
    from penstock.model.load.plan import ObjectSample, TargetPlan
    from penstock.model.server.table import ColumnMap
    from penstock.model.source.dialect import Dialect


def refuse_other_dialects(
    works: Sequence[ObjectWork], sources: SourceReader, warnings: WarningLog, *, depth: Depth = "columns"
) -> None:
    """Raise DataError if an object seems to have another dialect than the first one, and no option names the dialect.

    Raises SourceError if an object is neither delimited text nor JSON Lines; TargetError or DataError if its header, or
    with "records" one of its first records, does not fit the table. Warns of first lines that name a separator, except
    in the first object.

    `refuse_other_pipe` checks pipes: the writer of one may wait until another is read.
    """
    seen = [work for work in works if not _is_unseen(work)]
    for _, of_target in groupby(seen, key=lambda work: work.target_index):
        _look_at(list(of_target), sources, warnings, depth=depth)


def refuse_other_pipe(work: ObjectWork, sources: SourceReader, warnings: WarningLog) -> None:
    """Check a pipe as `refuse_other_dialects` does, just before the pipe is read.

    The load may have sent rows by then, but rows of pipes are committed only at the load's end.
    """
    if _is_unseen(work):
        # The header is mapped to columns when the pipe is read.
        _look_at([work], sources, warnings, depth="dialect")


def _is_unseen(work: ObjectWork) -> bool:
    return work.source.is_pipe and not work.source.is_spooled


def map_object(header: Sequence[str] | None, target: TargetPlan, *, uri: str) -> ColumnMap:
    """Return the columns of the fields of one object, by its own header.

    Raises TargetError if they do not fit the table, DataError if rows are staged, so that one statement moves the rows
    of all objects, and the first object has other columns.
    """
    table = table_after_creation(target)
    if target.dialect.format == "jsonl":
        return map_names(header or (), job=target.job, table=table, uri=uri)
    column_map = map_columns(
        header,
        job=target.job,
        table=table,
        uri=uri,
        edge=target.edge,
        folder_values={} if target.columnar is None else read_folder_values(uri),
    )
    if target.is_staged and set(column_map.columns) != set(target.column_map.columns):
        here, first = ", ".join(column_map.columns), ", ".join(target.column_map.columns)
        raise DataError(
            "the file has different columns from the first one",
            detail=f"{uri} fills {here}; the first file {first}.",
            hint="Load files with different columns separately, or skip columns with --skip.",
        )
    return column_map


def _look_at(works: Sequence[ObjectWork], sources: SourceReader, warnings: WarningLog, *, depth: Depth) -> None:
    target = works[0].target
    fields = target.column_map.field_count
    if fields is None:
        fields = len(target.column_map.columns) - len(target.column_map.constants)
    columns = None
    if target.job.columns is None:
        columns = [column.name for column in table_after_creation(target).columns]
    options = target.job.dialect
    for sample in sources.sample_all([work.source for work in works], options):
        if sample.columnar is not None or target.columnar is not None:
            _look_at_columns(sample, target)
            continue
        if _is_json(sample, target):
            continue
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
            raise _explain(found, FileLocation(file=sample.source.uri, line=sample.first_line + found.line - 1))
        if depth == "dialect":
            continue
        column_map = map_sample(sample, target)
        if depth == "records":
            _refuse_misfit(sample, target.dialect, column_map)


def _look_at_columns(sample: ObjectSample, target: TargetPlan) -> None:
    """Raise DataError unless both are columnar files of one format; TargetError if columns do not fit the table."""
    here, first = (None if each.columnar is None else each.columnar.format for each in (sample, target))
    if sample.columnar is None or here != first:
        raise _other_formats(sample, here or "text", first or "text")
    uri = sample.source.uri
    probe_columnar(sample.columnar, target.job, uri=uri)
    refuse_unsupported(sample.columnar, map_object(sample.columnar.names, target, uri=uri), uri=uri)


def _is_json(sample: ObjectSample, target: TargetPlan) -> bool:
    """Return whether an object is JSON Lines.

    Raises SourceError if it is neither JSON Lines nor delimited text, DataError if only this one is JSON Lines, or only
    the first one.
    """
    head, is_whole, options = sample.head, sample.is_whole, target.job.dialect
    uri, compression = sample.source.uri, sample.compression
    is_json = is_json_lines(head, options, is_whole=is_whole)
    if is_json:
        refuse_document(head, is_whole=is_whole, uri=uri, compression=compression)
    else:
        check_is_delimited(head, is_whole=is_whole, uri=uri, options=options, compression=compression)
    if sample.head.strip() and is_json != (target.dialect.format == "jsonl"):
        raise _other_formats(sample, "jsonl" if is_json else "delimited text", target.dialect.format)
    return is_json or target.dialect.format == "jsonl"


def _other_formats(sample: ObjectSample, here: str, first: str) -> DataError:
    return DataError(
        "files of one load have different formats",
        detail=f"{sample.source.uri} has format {here}; the first file {first}.",
        hint="Load the files that differ separately.",
    )


def map_sample(sample: ObjectSample, target: TargetPlan) -> ColumnMap:
    """Return the columns of an object's fields, given its beginning. Raises as `map_object` does."""
    if not target.dialect.has_header:
        return target.column_map
    uri = sample.source.uri
    header = find_header(sample.head, target.dialect, is_whole=sample.is_whole, uri=uri, line=sample.first_line)
    if header is None or tuple(header) == target.header:
        return target.column_map
    return map_object(header, target, uri=uri)


def _refuse_misfit(sample: ObjectSample, dialect: Dialect, column_map: ColumnMap) -> None:
    if (field_count := column_map.field_count) is None:
        return
    misfit = find_misfit(
        sample.head, dialect, is_whole=sample.is_whole, field_count=field_count, ends_empty=column_map.ends_empty
    )
    if misfit is None:
        return
    record, count = misfit
    hint = explain_misfit(
        record.text, dialect, field_count=field_count, uri=sample.source.uri, compression=sample.compression
    )
    location = FileLocation(file=sample.source.uri, line=sample.first_line + record.line - 1)
    raise DataError(
        f"a record has {count} field{'' if count == 1 else 's'}, and {field_count} are expected",
        detail=f"{location}.",
        hint=hint or find_hint("22P04"),
        location=location,
    )


def _explain(found: Contradiction, location: FileLocation) -> DataError:
    first, second = found.options
    return DataError(
        "files of one load have different dialects",
        detail=f"{location}: {found.text}\n"
        f"By the first file's dialect, this is {found.before}.\n"
        f"By its own, it is {found.here}.",
        hint=f"Use {first} or {second} if it is right for every file, or load the files that differ separately.",
        location=location,
    )
