"""Makes of a pandas frame what is stored: named indexes are columns, and each column has one name and kind of values.

Arrow's own conversion loses a range index with a name, adds columns for indexes without names, and converts some values
of other types silently. pandas is not imported here: a frame exists only if the caller has imported it.
"""

from __future__ import annotations

import datetime as dt
import sys
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, filterfalse
from math import isnan
from numbers import Number
from operator import itemgetter
from typing import Any, Final

from penstock.core.errors import DataError, FileLocation, SourceError

# Kinds of values that Arrow converts into each other without an error, with a loss. datetime is a subclass of date.
_KINDS: Final = (bool, Number, dt.datetime, dt.date, str, bytes, dict)
_NULLS: Final = ("NoneType", "NAType", "NaTType")


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
    """Return a frame of polars with texts for nulls that have no type, of which it streams a buffer too many.

    Return any other source as it is. Raises SourceError if a column has Python objects: their addresses would be sent.
    """
    polars = sys.modules.get("polars")
    if polars is None or not isinstance(source, polars.DataFrame):
        return source
    for name, kind in source.schema.items():
        if kind == polars.Object:
            raise SourceError(f'column "{name}" of a DataFrame has type Object, which cannot be loaded')
    kinds = {name: _without_null(kind) for name, kind in source.schema.items()}
    return source.cast({name: kind for name, kind in kinds.items() if kind != source.schema[name]})


def _without_null(kind: Any) -> Any:
    """Return a type of polars with String for Null, in lists and structs too."""
    polars = sys.modules["polars"]
    if kind == polars.Struct:
        return polars.Struct({field.name: _without_null(field.dtype) for field in kind.fields})
    if kind == polars.List:
        return polars.List(_without_null(kind.inner))
    if kind == polars.Array:
        return polars.Array(_without_null(kind.inner), kind.size)
    return polars.String if kind == polars.Null else kind


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
    # jsonb reads no text of a dict by Python.
    text = '.map(json.dumps, na_action="ignore")' if isinstance(value, (dict, list)) else ".astype(str)"
    return DataError(
        f'column "{column}" of a table has a value of type {type(value).__name__}, which cannot be loaded'
        if is_alone
        else f'column "{column}" of a table has values of several types',
        detail=f'{kind}{"" if row is None else f" row {row}"}, column "{column}"{shown}. {reason}'.strip(),
        hint=f"Give all values of the column one type, as by frame[{column!r}]{text}.",
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
    # Arrow ends the process for some mixed values, so they are not given to it.
    if _is_mixed(values):
        return False
    pandas = sys.modules["pandas"]
    try:
        pandas.DataFrame({"c": pandas.Series(values, dtype=object)}).__arrow_c_stream__()
    except (NotImplementedError, TypeError, ValueError, OverflowError):
        return False
    return True


def _is_null(value: object) -> bool:
    return type(value).__name__ in _NULLS or (isinstance(value, float) and isnan(value))


def _is_mixed(values: Iterable[Any]) -> bool:
    """Return whether Arrow would change a value without an error. Values may be null, in lists and dicts too.

    It converts values of several types, such as times with and without a zone, adds nulls to dicts with different keys,
    and cuts off the nanoseconds of a Timestamp.
    """
    values = list(values)
    kinds = set(map(_kind, set(map(type, values))))
    if len(kinds) > 1 and not kinds <= {Number, type(None)}:
        values = list(filterfalse(_is_null, values))
        kinds = set(map(_kind, set(map(type, values))))
    if kinds == {dict}:
        keys = set(map(frozenset, values))
        return len(keys) > 1 or any(_is_mixed(map(itemgetter(key), values)) for key in keys.pop())
    if kinds == {list}:
        return _is_mixed(chain.from_iterable(_lists(values)))
    if kinds == {dt.datetime}:
        is_exact = not any(getattr(value, "nanosecond", 0) for value in values)
        return not is_exact or len({value.tzinfo is None for value in values}) > 1
    return len(kinds - {type(None)}) > 1


def _lists(values: Iterable[Any]) -> Iterator[Any]:
    """Yield lists, but of arrays of numpy whose items have one type only one item of each type."""
    found = set()
    for value in values:
        dtype = getattr(value, "dtype", None)
        if dtype is None:
            yield value
        elif dtype.kind == "O":
            yield value.ravel()
        elif value.size and dtype.type not in found:
            found.add(dtype.type)
            yield value.ravel()[:1]


def _kind(kind: type) -> type:
    if issubclass(kind, (list, tuple, set)) or kind.__name__ == "ndarray":
        return list
    if kind.__name__ in _NULLS:
        return type(None)
    if kind.__name__ == "float16":
        return kind
    # Numbers of other types are converted without a loss, or with an error.
    known = (each for each in _KINDS if issubclass(kind, each) or kind.__name__.rstrip("_") == each.__name__)
    return next(known, kind)
