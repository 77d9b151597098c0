"""Why records were refused: which failures are a record's own, and what a row that COPY left out had in it. Pure."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from penstock.errors import DataError
from penstock.files.probe import split_record
from penstock.loading.explain import is_types_refusal, shorten_message
from penstock.model.dialect import Dialect
from penstock.model.reject import Reason
from penstock.server.errors import DATA_CLASSES, choose_class, is_passing

if TYPE_CHECKING:
    from penstock.model.block import CopySpec
    from penstock.server.copy import CopyFailed, SkippedRow
    from penstock.server.merge_refused import RefusedRecord
    from penstock.server.sorting import RefusedRow

# What a trigger or function raises on purpose (P0001, P0004), rows that break a view's check option, and values that
# are too large for an index or a page (54000).
_OWN_CODES = ("P0", "44", "54000")

INVALID_PARAMETER = "22023"

# Another row has the key, or one that excludes it.
KEY_TAKEN = frozenset(("23505", "23P01"))

# How the SQLSTATEs of errors begin that are a record's own.
RECORD_CODES = (*DATA_CLASSES, *_OWN_CODES)

# Somebody called the session off, or it is broken.
_STOP_CODES = ("57", "XX")

# Errors that COPY finds in a line before it looks at values: fields, bytes that the encodings do not have.
OF_A_LINE = frozenset(("22P04", "22021", "22P05"))

# What COPY's own parser says of a record of which nothing else is known.
UNKNOWN = Reason(message="a value does not have the form that its type needs", sqlstate="22P02")


def is_records_fault(failure: CopyFailed) -> bool:
    """Whether a COPY was refused for what one of its records is, so that the others may go in.

    A missing table or privilege, a full disk, a lost connection or a deadlock would meet any other record as well.
    """
    sqlstate = failure.report.sqlstate
    if failure.is_disconnect or sqlstate is None:
        return False
    if sqlstate == INVALID_PARAMETER:
        # Of an option of the command, unless it speaks of a line: some types say so of a value (bytea before 17).
        return failure.place.line is not None
    return choose_class(sqlstate) is DataError or sqlstate.startswith(_OWN_CODES) or is_types_refusal(failure)


def is_nobodys_fault(failure: CopyFailed) -> bool:
    """Whether whatever the session did would have failed: a lost connection, a full disk, a request to stop."""
    sqlstate = failure.report.sqlstate
    if sqlstate is None or is_passing(sqlstate, is_disconnect=failure.is_disconnect):
        return True
    return sqlstate.startswith(_STOP_CODES)


def describe_failure(failure: CopyFailed) -> Reason:
    """Return why the record was refused that a COPY failed for."""
    report = failure.report
    is_of_a_value = _is_of_a_value(report.sqlstate or "") or is_types_refusal(failure)
    return Reason(
        message=shorten_message(report.message),
        sqlstate=report.sqlstate,
        detail=None if report.detail is None else shorten_message(report.detail),
        column=report.column or (failure.place.column if is_of_a_value else None),
    )


def _is_of_a_value(sqlstate: str) -> bool:
    """Whether an error speaks of one value; of another PostgreSQL 18 may name the column that it read last."""
    return sqlstate.startswith("22") and sqlstate not in OF_A_LINE


class Value(NamedTuple):
    """A value of a record that was left out, for the server to judge by itself."""

    record: int
    column: str
    text: str


def suspect_values(record: int, payload: bytes, spec: CopySpec, *, row: SkippedRow | None = None) -> list[Value]:
    """Return the values of a record that its types may refuse: the column's that a notice names, else all."""
    try:
        fields = _split(payload.rstrip(b"\r\n"), spec)
    except DataError:
        return []
    named = None if row is None else _find_named(row.words, spec.columns)
    return [
        Value(record, column, text)
        for column, text in zip(spec.columns, fields, strict=False)
        if text is not None and (named is None or column == named)
    ]


def suspect_null(payload: bytes, spec: CopySpec, *, row: SkippedRow) -> str | None:
    """Return the column that a notice names, where the record has a null there."""
    try:
        fields = _split(payload.rstrip(b"\r\n"), spec)
    except DataError:
        return None
    named = _find_named(row.words, spec.columns)
    nulls = {column for column, text in zip(spec.columns, fields, strict=False) if text is None}
    return named if named in nulls else None


def _find_named(words: str, columns: tuple[str, ...]) -> str | None:
    """Return the column whose name comes first in a notice, whatever language the rest is in; a guess."""
    found = _name_pattern(columns).search(words)
    return found[0] if found else None


@lru_cache(maxsize=16)
def _name_pattern(columns: tuple[str, ...]) -> re.Pattern[str]:
    names = "|".join(map(re.escape, sorted(columns, key=len, reverse=True)))
    return re.compile(rf"(?<!\w)(?:{names})(?!\w)")


def _split(payload: bytes, spec: CopySpec) -> list[str | None]:
    if spec.encoding == "UTF8" and b"\\" not in payload and not (spec.quote and spec.quote.encode() in payload):
        return [None if field == spec.null else field for field in payload.decode().split(spec.delimiter)]
    return split_record(payload, _as_dialect(spec))


def _as_dialect(spec: CopySpec) -> Dialect:
    return Dialect(
        format=spec.format,
        delimiter=spec.delimiter,
        quote=spec.quote,
        escape=spec.escape,
        nulls=(spec.null,),
        has_header=False,
        encoding=spec.encoding,
    )


def describe_refused(row: RefusedRow | RefusedRecord) -> Reason:
    """Return why a table refused what was sorted out row by row."""
    return Reason(
        message=shorten_message(row.message),
        sqlstate=row.sqlstate,
        detail=None if row.detail is None else shorten_message(row.detail),
        column=row.column,
    )
