"""Describes a columnar file as probing describes text: its column names are the header, its rows are COPY text.

Pure.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final
from urllib.parse import unquote

from penstock.core.errors import DataError, SourceError, UsageError
from penstock.core.units import count_nouns
from penstock.core.values.dialect import Dialect
from penstock.core.values.job import TargetJob
from penstock.core.values.source import FORMAT_NAMES, ColumnarSample
from penstock.core.values.table import ColumnMap
from penstock.core.words import list_names
from penstock.loading.formats.probe.form import refuse_text_options
from penstock.loading.formats.probe.probing import ProbeResult
from penstock.loading.values.plan import TargetPlan, table_after_creation

# The dialect of the rows that loading/files/columnar writes.
SENT_DIALECT: Final = Dialect(
    format="text", delimiter="\t", quote=None, escape=None, nulls=("\\N",), has_header=False, encoding="UTF8"
)

# Matches the types of columns that are filled from texts.
TEXT_TYPES: Final = re.compile(
    r'(text|character varying|character|bpchar|name|xml|tsvector|((\w+|"[^"]+")\.)?citext)(\(\d+\))?(\[\])?'
)


def probe_columnar(sample: ColumnarSample, job: TargetJob, *, uri: str) -> ProbeResult:
    """Return what probing a columnar file finds, in the form in which probing text returns it.

    Raises UsageError, DataError.
    """
    refuse_text_options(job.dialect, sample.format)
    if not sample.fields:
        raise DataError("there are no columns", detail=f"{uri}.")
    twice = next((name for name in sample.names if sample.names.count(name) > 1), None)
    if twice is not None:
        raise DataError(
            f'two columns have the name "{twice}"',
            detail=f"{uri}.",
            hint="Write one of them with another name.",
        )
    if job.columns is not None and len(job.columns) != len(sample.fields):
        raise UsageError(
            f"--columns names {count_nouns(len(job.columns), 'column')}, and there are {len(sample.fields)}",
            detail=f"{uri} has: {list_names(sample.names, quote='')}.",
            hint="Leave it out: the columns have names.",
        )
    return ProbeResult(
        dialect=SENT_DIALECT,
        header=sample.names,
        field_count=len(sample.fields),
        shapes=frozenset(),
        has_row_names=False,
        notices=(),
        reason=f"a {FORMAT_NAMES[sample.format]} file",
    )


def refuse_unsupported(sample: ColumnarSample, column_map: ColumnMap, target: TargetPlan, *, uri: str) -> None:
    """Raise SourceError if a column that is to be loaded has a type that cannot be loaded, or not into its column.

    A column of texts would get the hex digits of bytes. A transform may want these. BINARY without a logical type may
    have texts, which only its values tell.
    """
    kept = kept_fields(sample, column_map)
    refuse_types(sample, kept, uri=uri)
    table = table_after_creation(target) if target.job.transform is None and sample.rows else None
    for index, name in zip(kept, column_map.columns, strict=False):
        field, column = sample.fields[index], None if table is None else table.column(name)
        is_bytes = field.sql_type in ("bytea", "bytea[]") and not field.is_untold
        if is_bytes and column is not None and TEXT_TYPES.fullmatch(column.base.name):
            raise SourceError(
                f'column "{field.name}" has type {field.type_name}, and its column in the table is for text',
                detail=f"{uri}.",
                hint="Load it into a column of type bytea, or leave it out by --skip.",
            )


def refuse_types(sample: ColumnarSample, kept: Sequence[int], *, uri: str) -> None:
    """Raise SourceError if one of these columns of a file has a type that cannot be loaded."""
    for index in kept:
        field = sample.fields[index]
        if field.sql_type is None:
            raise SourceError(
                f'column "{field.name}" has type {field.type_name}, which cannot be loaded',
                detail=f"{uri}.",
                hint="Skip it with --skip, or write it with another type.",
            )


def kept_fields(sample: ColumnarSample, column_map: ColumnMap) -> list[int]:
    """Return the indexes of the columns of a file that are loaded."""
    if not column_map.columns:
        # No column is loaded. The map is empty if all files are loaded already and their columns no longer fit the
        # table.
        return []
    return list(range(len(sample.fields)) if column_map.keep is None else column_map.keep)


# The name of a folder for null, as Hive writes it.
_NULL: Final = "__HIVE_DEFAULT_PARTITION__"


def read_folder_values(uri: str) -> dict[str, str | None]:
    """Return the values in a path's folders by name, in the folders' order. None is null.

    >>> read_folder_values("s3://b/sales/year=2026/city=S%C3%A3o%20Paulo/day=__HIVE_DEFAULT_PARTITION__/0.parquet")
    {'year': '2026', 'city': 'São Paulo', 'day': None}
    """
    folders = uri.split("/")[:-1]
    if uri.startswith(("http://", "https://")):
        # Decode the URL's own encoding. Characters that Hive has encoded are encoded twice in a URL.
        folders = [_decode(folder) for folder in folders]
    stated = [folder.partition("=") for folder in folders if "=" in folder[1:]]
    return {_decode(name): None if value == _NULL else _decode(value) for name, _, value in stated}


def _decode(text: str) -> str:
    """Decode percent-encoded text.

    If the result is not UTF-8, Hive has not encoded the text, so return it unchanged.
    """
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        return text
