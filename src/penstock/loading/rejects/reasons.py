"""Why records were refused, and which failures are a record's own. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.errors import DataError
from penstock.loading.rejects.explain import BAD_FORMAT, is_types_refusal, shorten_message
from penstock.model.load.reject import Reason
from penstock.server.connect.errors import DATA_CLASSES, choose_class

if TYPE_CHECKING:
    from penstock.server.copy.copy import CopyFailed
    from penstock.server.copy.sorting import RefusedRow
    from penstock.server.merge.merge_refused import RefusedRecord

# What a trigger or function raises on purpose (P0001, P0004), rows that break a view's check option, and values that
# are too large for an index or a page (54000).
_OWN_CODES = ("P0", "44", "54000")

_INVALID_PARAMETER = "22023"

# How the SQLSTATEs of errors begin that are a record's own.
RECORD_CODES = (*DATA_CLASSES, *_OWN_CODES)

_BAD_BYTES = "22021"


def is_records_fault(failure: CopyFailed) -> bool:
    """Whether a COPY was refused for what one of its records is, so that the others may go in.

    A missing table or privilege, a full disk, a lost connection or a deadlock would meet any other record as well.
    """
    sqlstate = failure.report.sqlstate
    if failure.is_disconnect or sqlstate is None:
        return False
    if sqlstate == _INVALID_PARAMETER:
        # Of an option of the command, unless it speaks of a line: some types say so of a value (bytea before 17).
        return failure.place.line is not None
    return choose_class(sqlstate) is DataError or sqlstate.startswith(_OWN_CODES) or is_types_refusal(failure)


def describe_failure(failure: CopyFailed) -> Reason:
    """Return why the record was refused that a COPY could not read."""
    report = failure.report
    return Reason(
        message=shorten_message(report.message),
        sqlstate=report.sqlstate,
        detail=None if report.detail is None else shorten_message(report.detail),
    )


def describe_unwritable(error: ValueError) -> Reason:
    """Return why a record was refused that cannot be written for COPY, or has bytes that are no characters."""
    if isinstance(error, UnicodeDecodeError):
        return Reason(message='invalid byte sequence for encoding "UTF8"', sqlstate=_BAD_BYTES)
    return Reason(message=error.args[0], sqlstate=BAD_FORMAT)


def describe_refused(row: RefusedRow | RefusedRecord) -> Reason:
    """Return why a table refused what was sorted out row by row."""
    return Reason(
        message=shorten_message(row.message),
        sqlstate=row.sqlstate,
        detail=None if row.detail is None else shorten_message(row.detail),
        column=row.column,
    )
