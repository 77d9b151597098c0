"""Copies a table in memory (anything with the Arrow C stream interface) to an Arrow IPC file, which is then loaded."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

from penstock import _native
from penstock.core.errors import PenstockError, SourceError
from penstock.loading.files.columnar.frames import find_refused, plain_frame, refuse_values

# Finds the column's name in the error of a failed conversion from pandas.
_COLUMN: Final = re.compile("Conversion failed for column (.*) with type")


def write_stream(source: Any, path: Path, *, joins_levels: bool = False) -> None:
    """Write the rows of an object with `__arrow_c_stream__` to a new file. Raises DataError, SourceError.

    `joins_levels` is about names of columns in several levels (see `plain_frame`).
    """
    source = plain_frame(source, joins_levels=joins_levels)
    try:
        _native.write_stream(source.__arrow_c_stream__(), path)
    except (ImportError, NotImplementedError, OSError, OverflowError, TypeError, ValueError) as exc:
        # The library's own errors are not attached as causes, because the message quotes them.
        raise _explain(source, exc) from None


def _explain(source: Any, exc: Exception) -> PenstockError:
    """Return the error for a table that cannot be copied. If it is about a column of pandas, it names the value."""
    reason, kind = str(exc.args[0]) if exc.args else f"{exc}", type(source).__name__
    named = _COLUMN.search(" ".join(map(str, exc.args)))
    column = find_refused(source) if named is None else named[1]
    if column is not None:
        return refuse_values(source, column, reason)
    hint = None
    if "ictionary" in reason:
        hint = "Decode the dictionaries in the values of that column, because a file has only one dictionary for each."
    if hasattr(source, "to_frame"):
        hint = f"A {kind} is one column: load its to_frame()."
    return SourceError(f"could not copy a table of type {kind} to a temporary file", detail=reason, hint=hint)
