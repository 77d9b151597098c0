"""Makes of a pandas frame what is stored: named indexes are columns, and each column has one name and kind of values.

Arrow's own conversion loses a range index with a name, adds columns for indexes without names, and converts some values
of other types silently. pandas is not imported here: a frame exists only if the caller has imported it.
"""

from __future__ import annotations

import datetime as dt
import sys
from bisect import bisect_left
from collections.abc import Sequence
from math import isnan
from typing import Any, Final

from penstock.core.errors import DataError, FileLocation, SourceError

# Kinds of values that Arrow converts into each other without an error, with a loss. datetime is a subclass of date.
_KINDS: Final = (bool, dt.datetime, dt.date, str, bytes)


def plain_frame(source: Any, *, joins_levels: bool) -> Any:
    """Return a frame of pandas with its named indexes as columns. Return any other source as it is.

    An index that only numbers the rows, without a name, is no data. With `joins_levels`, the names of several levels
    are joined by an underscore. Raises SourceError if an index or a column has no name of its own, or if a column of
    polars has objects, and DataError if an object column has values of several types.
    """
    source = _plain_polars(source)
    if not _is_frame(source):
        return source
    pandas = sys.modules["pandas"]
    levels = [source.index.get_level_values(number) for number in range(source.index.nlevels)]
    if len(levels) == 1 and levels[0].name is None and (len(source) == 0 or levels[0].dtype.kind in "iu"):
        levels = []
    labels = list(source.columns)
    levels = [
        level for level in levels if not (level.name in labels and level.equals(pandas.Index(source[level.name])))
    ]
    for level in levels:
        if level.name is None:
            raise SourceError(
                "an index of a DataFrame has no name",
                detail=f"Its first value is {level[0]!r}.",
                hint='Name it, as by frame.rename_axis("name"), or remove it by frame.reset_index(drop=True).',
            )
    names = [_name(label, joins_levels=joins_levels) for label in (*(level.name for level in levels), *labels)]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise SourceError(
            f'a DataFrame has two columns or indexes with the name "{twice}"', hint="Give one of them another name."
        )
    frame = source.copy(deep=False)
    frame.index, frame.columns = pandas.RangeIndex(len(source)), names[len(levels) :]
    for number, level in enumerate(levels):
        frame.insert(number, names[number], level)
    for name in _object_columns(frame):
        if _is_mixed(frame[name].dropna()):
            raise refuse_values(frame, name, "")
    return frame


def find_refused(source: Any) -> str | None:
    """Return the first column of a frame of pandas whose values Arrow cannot convert; None for any other source."""
    return next((name for name in _object_columns(source) if not _fits(list(source[name]))), None)


def _is_frame(source: Any) -> bool:
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(source, pandas.DataFrame)


def _plain_polars(source: Any) -> Any:
    """Return a frame of polars with texts for columns of nulls alone, of which it streams a buffer too many.

    Return any other source as it is. Raises SourceError if a column has Python objects: their addresses would be sent.
    """
    polars = sys.modules.get("polars")
    if polars is None or not isinstance(source, polars.DataFrame):
        return source
    for name, kind in source.schema.items():
        if kind == polars.Object:
            raise SourceError(f'column "{name}" of a DataFrame has type Object, which cannot be loaded')
    return source.cast({polars.Null: polars.String, polars.List(polars.Null): polars.List(polars.String)})


def _object_columns(source: Any) -> list[str]:
    """Return the columns of a frame that may have values of any types."""
    return [name for name, kind in source.dtypes.items() if kind.name == "object"] if _is_frame(source) else []


def _name(label: Any, *, joins_levels: bool) -> str:
    parts = [part for part in label if part != ""] if isinstance(label, tuple) else [label]
    if not parts or any(_is_null(part) or part == "" for part in parts):
        raise SourceError(
            "a column of a DataFrame has no name",
            detail=f"Its label is {label!r}.",
            hint="Name it by frame.columns = [...].",
        )
    if len(parts) > 1 and not joins_levels:
        raise SourceError(
            f"column {label!r} of a DataFrame has names of several levels",
            hint='Use names="snake", which joins them by _, or name the columns by frame.columns = [...].',
        )
    return "_".join(map(str, parts))


def refuse_values(source: Any, column: str, reason: str) -> DataError:
    """Return the error for a column with a value that Arrow cannot convert, or only together with those before it."""
    kind = type(source).__name__
    row, value = _find_value(source, column)
    shown = "" if row is None else f": {value!r:.100}"
    is_alone = row is not None and not _fits([value])
    return DataError(
        f'column "{column}" of a table has a value of type {type(value).__name__}, which cannot be loaded'
        if is_alone
        else f'column "{column}" of a table has values of several types',
        detail=f'{kind}{"" if row is None else f" row {row}"}, column "{column}"{shown}. {reason}'.strip(),
        hint=f"Give all values of the column one type, as by frame[{column!r}].astype(str).",
        location=FileLocation(file=kind, line=row, column=column),
    )


def _find_value(source: Any, column: str) -> tuple[int | None, object]:
    """Return the first value with another type than the values before it, and the value's row, counted from 1."""
    try:
        values = list(source[column])
    except (KeyError, TypeError, ValueError):
        return None, None
    first = bisect_left(range(len(values) + 1), True, key=lambda count: not _fits(values[:count]))
    return (first, values[first - 1]) if 0 < first <= len(values) else (None, None)


def _fits(values: Sequence[object]) -> bool:
    pandas = sys.modules["pandas"]
    try:
        pandas.DataFrame({"c": pandas.Series(values, dtype=object)}).__arrow_c_stream__()
    except (NotImplementedError, TypeError, ValueError, OverflowError):
        return False
    return not _is_mixed([value for value, is_null in zip(values, map(_is_null, values), strict=True) if not is_null])


def _is_null(value: object) -> bool:
    is_nan = isinstance(value, float) and isnan(value)
    return value is None or is_nan or type(value).__name__ in ("NAType", "NaTType")


def _is_mixed(values: Any) -> bool:
    """Return whether values have several types of which Arrow would convert one into another.

    Times with and without a zone are such types.
    """
    kinds = {_kind(each) for each in set(map(type, values))}
    return len(kinds) > 1 or (kinds == {dt.datetime} and len({value.tzinfo is None for value in values}) > 1)


def _kind(kind: type) -> type:
    return next((each for each in _KINDS if issubclass(kind, each) or kind.__name__ == f"{each.__name__}_"), object)
