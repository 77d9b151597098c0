"""JSON Lines: each line is a JSON object, whose names are names of columns.

Recognizes JSON Lines, and describes them as probing describes text. The records' names are the header.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from penstock import _native
from penstock.core.errors import DataError, FileLocation, UsageError
from penstock.core.units import format_bytes
from penstock.core.values.dialect import Dialect, DialectOptions
from penstock.core.values.job import TargetJob
from penstock.core.values.notice import Notice
from penstock.core.values.server import ServerFacts
from penstock.core.values.source import Compression, ObjectSample
from penstock.core.values.table import ColumnMap, TableFacts
from penstock.loading.files.encodings import client_encoding, iconv_name
from penstock.loading.formats.columns import (
    find_loaded,
    find_whole_column,
    map_names,
    name_records,
    refuse_many_names,
    refuse_unknown_names,
)
from penstock.loading.formats.format import Depth
from penstock.loading.formats.probe.content import JSON_LINES, Content, OtherContent, describe_conversion, recognize
from penstock.loading.formats.probe.header import check_is_utf8
from penstock.loading.formats.probe.probing import ProbeResult
from penstock.loading.formats.text import Textual
from penstock.loading.values.plan import TargetPlan, table_after_creation
from penstock.loading.warned import WarningLog

# The options for fields of delimited text, which JSON Lines refuses.
_REFUSED: Final = (
    *("delimiter", "quote", "escape", "null", "force_null", "header"),
    *("decimal_comma", "thousands", "date_order"),
)


def check_json_options(options: DialectOptions, *, convert: Callable[[str], str]) -> None:
    """Raise UsageError for given options that JSON Lines does not have.

    `convert` returns the command that converts the file from an encoding.
    """
    default = DialectOptions()
    for name in _REFUSED:
        if getattr(options, name) != getattr(default, name):
            raise UsageError(
                f"--{name.replace('_', '-')} cannot be used with format jsonl",
                detail="It says how delimited text is written.",
                hint="If the files are not JSON Lines, name their format with --format.",
            )
    if options.encoding is not None and client_encoding(options.encoding) != "UTF8":
        raise UsageError(
            f"--encoding {options.encoding} cannot be used with format jsonl",
            detail="JSON is UTF8; UTF16, UTF32, GBK and GB18030 can be loaded too, as they are converted first.",
            hint=f"{convert(options.encoding)}.",
        )


def _describe_iconv(encoding: str, *, uri: str, compression: Compression) -> str:
    """Return the command that converts a file to UTF-8."""
    command = f"iconv -f {iconv_name(encoding)} -t UTF-8"
    found = Content(name="JSON Lines", advice="Convert it to UTF8", command=command, suffix=".utf8")
    return describe_conversion(found, uri=uri, compression=compression)


def refuse_document(head: bytes, *, is_whole: bool, uri: str, compression: Compression) -> None:
    """Raise OtherContent if a sample is JSON that does not have one record on each line."""
    found = recognize(head, is_whole=is_whole)
    if found is not None and found.is_certain:
        hint = describe_conversion(found, uri=uri, compression=compression)
        raise OtherContent(f'"{uri}" is {found.name}, not JSON Lines', hint=hint)


def probe_json_lines(
    head: bytes,
    *,
    options: DialectOptions,
    is_whole: bool,
    table_columns: Collection[str],
    uri: str,
    first_line: int = 1,
    rejects: bool = False,
    compression: Compression = "none",
) -> ProbeResult:
    """Return what a sample of JSON Lines shows: the dialect, and the names in its records as the header.

    `head` is decompressed text, which begins on line `first_line` of the file, and `is_whole` says whether it is the
    whole file. `table_columns` are the columns of the table, none if it is yet to be created. `rejects` says whether
    the load rejects bad records. Raises UsageError. Raises OtherContent for JSON that does not have one record on each
    line. Raises DataError if the sample is not UTF-8, or if it ends within the first record.
    """
    convert = partial(_describe_iconv, uri=uri, compression=compression)
    check_json_options(options, convert=convert)
    refuse_document(head, is_whole=is_whole, uri=uri, compression=compression)
    if options.encoding is None:
        check_is_utf8(
            head,
            is_whole=is_whole,
            rejects=rejects,
            uri=uri,
            locate=lambda at: (first_line + head.count(b"\n", 0, at), at - head.rfind(b"\n", 0, at)),
            convert=convert,
        )
    if not is_whole and b"\n" not in head.lstrip():
        location = FileLocation(file=uri, line=first_line)
        raise DataError(
            f"the first record is longer than {format_bytes(len(head))}",
            detail=f"{location}.",
            hint="If the record is right, raise --max-record; otherwise, check that each record ends with a line feed.",
            location=location,
        )
    names = collect_names(head, is_whole=is_whole, table_columns=table_columns)
    return ProbeResult(
        dialect=Dialect(
            format="jsonl",
            delimiter="\t",
            quote=None,
            escape=None,
            nulls=("\\N",),
            has_header=False,
            encoding="UTF8" if options.encoding is None else options.encoding,
            skip_lines=options.skip_lines,
        ),
        header=names,
        field_count=len(names),
        shapes=frozenset(),
        has_row_names=False,
        notices=(),
        reason="jsonl: each line is a JSON object",
    )


def collect_names(head: bytes, *, is_whole: bool, table_columns: Collection[str]) -> tuple[str, ...]:
    """Return the names in a sample's records, in the order in which they first appear.

    Of names that differ only in case or in surrounding blanks, the result has those that are exactly columns, or else
    the first.
    """
    end = len(head) if is_whole else head.rfind(b"\n") + 1
    found = _native.find_json_types([(head, 0, end)], wanted=0)
    return unite_names([], [name.decode(errors="replace") for name, _ in found], table_columns=table_columns)


def unite_names(known: Collection[str], names: Collection[str], *, table_columns: Collection[str]) -> tuple[str, ...]:
    """Return `known` and `names` together.

    Of names that differ only in case or in surrounding blanks, the result has those that are exactly columns, or else
    the first.

    >>> unite_names(["id"], ["ID", "C", "b", " B", "c"], table_columns=["b", " B", "c"])
    ('id', 'c', 'b', ' B')
    """
    exact, by_fold = set(table_columns), dict[str, list[str]]()
    for name in known:
        by_fold.setdefault(fold(name), []).append(name)
    for name in names:
        alike = by_fold.setdefault(fold(name), [])
        if name in exact and name not in alike:
            alike[:] = [*(each for each in alike if each in exact), name]
        elif not alike:
            alike.append(name)
    return tuple(name for alike in by_fold.values() for name in alike)


def fold(name: str) -> str:
    """Return a name in lower case and without blanks around it.

    Names that are not exactly columns are compared in this form. Source: rust/src/json_lines.rs.
    """
    return name.strip(" \t\n\f\r").lower()


class JsonLines(Textual):
    """The format JSON Lines. Records are converted to COPY text (rust/src/json_lines.rs)."""

    name = "jsonl"
    is_by_name = True

    def recognize(self, head: bytes, options: DialectOptions, *, is_whole: bool) -> bool:
        if options.format is not None:
            return options.format == "jsonl"
        return recognize(head, is_whole=is_whole) is JSON_LINES

    def is_cut(self, head: bytes) -> bool:
        text = head.lstrip()
        return text.startswith(b"{") and b"\n" not in text

    def check_content(self, sample: ObjectSample, options: DialectOptions) -> None:
        refuse_document(sample.head, is_whole=sample.is_whole, uri=sample.source.uri, compression=sample.compression)

    def probe(
        self, sample: ObjectSample, job: TargetJob, facts: TableFacts | None, *, server: ServerFacts, rejects: bool
    ) -> ProbeResult:
        """Return what `Format.probe` returns.

        Raises its errors, and DataError if a table is to be created and no record has a name.
        """
        uri = sample.source.uri
        found = probe_json_lines(
            sample.head,
            options=job.dialect,
            is_whole=sample.is_whole,
            table_columns=() if facts is None else [column.name for column in facts.columns],
            uri=uri,
            first_line=sample.first_line,
            rejects=rejects,
            compression=sample.compression,
        )
        names = name_records(found.header or (), job)
        if facts is not None and job.transform is None:
            return replace(found, notices=_find_whole_notices(names, job, facts, uri=uri))
        refuse_many_names(len(find_loaded(names, job)), uri=uri)
        if not names:
            raise DataError(
                "no record names a column",
                detail=f"{uri}: its first block has no JSON object with a name.",
                hint="Name the columns with --columns.",
            )
        return found

    def check_sample(self, sample: ObjectSample, target: TargetPlan, warnings: WarningLog, *, depth: Depth) -> None:
        """Check nothing, because each record of JSON Lines may lack any of the names."""

    def map_first(self, sample: ObjectSample, target: TargetPlan, *, rejects: bool) -> ColumnMap:
        # With --only, records have no unknown names that could be rejected.
        if not rejects or target.job.only:
            table = table_after_creation(target)
            refuse_unknown_names(target.header or (), job=target.job, table=table, uri=sample.source.uri)
        return super().map_first(sample, target, rejects=rejects)

    def map_object(self, header: Sequence[str] | None, target: TargetPlan, *, uri: str) -> ColumnMap:
        return map_names(header or (), job=target.job, table=table_after_creation(target), uri=uri)

    def find_header(self, sample: ObjectSample, target: TargetPlan) -> Sequence[str] | None:
        columns = [column.name for column in table_after_creation(target).columns]
        return collect_names(sample.head, is_whole=sample.is_whole, table_columns=columns)


def _find_whole_notices(names: Sequence[str], job: TargetJob, facts: TableFacts, *, uri: str) -> tuple[Notice, ...]:
    """Warn if records are stored whole although all their names are columns of the table."""
    whole = find_whole_column(job, facts)
    if whole is None or not names or any(facts.column(name) is None for name in names):
        return ()
    message = f'each record is stored whole in column "{whole}", although its names are columns of the table'
    hint = f"Use --columns {','.join(names)} to load the values of these names."
    return (Notice(code="column-names", message=message, uri=uri, hint=hint),)
