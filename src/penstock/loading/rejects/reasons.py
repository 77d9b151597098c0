"""Describes why records were refused, and says which errors a record itself causes. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.errors import DataError
from penstock.loading.rejects.explain import BAD_FORMAT, is_types_refusal, shorten_message
from penstock.model.load.reject import Reason
from penstock.server.connect.errors import DATA_CLASSES, choose_class

if TYPE_CHECKING:
    from penstock.server.copy.copy import CopyFailed

# Errors of functions in PL/pgSQL, mostly raised on purpose (P0), rows that violate a view's check option (44), and
# values that are too large for an index or a page (54000).
_OWN_CODES = ("P0", "44", "54000")

_INVALID_PARAMETER = "22023"

# The beginnings of the SQLSTATEs of errors that a record itself causes.
RECORD_CODES = (*DATA_CLASSES, *_OWN_CODES)

_BAD_BYTES = "22021"


def is_records_fault(failure: CopyFailed) -> bool:
    """Whether a COPY failed because of one of its records, so that the others can be stored.

    A missing table or privilege, a full disk, a lost connection or a deadlock would stop the other records too.
    """
    sqlstate = failure.report.sqlstate
    if failure.is_disconnect or sqlstate is None:
        return False
    if sqlstate == _INVALID_PARAMETER:
        # An option of the command is wrong, unless the error names a line: some types use this code for a value (bytea
        # before PostgreSQL 17).
        return failure.context.line is not None
    return choose_class(sqlstate) is DataError or sqlstate.startswith(_OWN_CODES) or is_types_refusal(failure)


def describe_failure(failure: CopyFailed) -> Reason:
    """Return the reason for a record that COPY could not read."""
    report = failure.report
    return shorten_reason(Reason(message=report.message, sqlstate=report.sqlstate, detail=report.detail))


def describe_unwritable(error: ValueError) -> Reason:
    """Return the reason for a record that cannot be encoded for COPY, or that has bytes that are not valid UTF-8."""
    if isinstance(error, UnicodeDecodeError):
        return Reason(message='invalid byte sequence for encoding "UTF8"', sqlstate=_BAD_BYTES)
    return Reason(message=error.args[0], sqlstate=BAD_FORMAT)


def shorten_reason(reason: Reason) -> Reason:
    """Return a reason with long quoted values shortened."""
    detail = None if reason.detail is None else shorten_message(reason.detail)
    return replace(reason, message=shorten_message(reason.message), detail=detail)
