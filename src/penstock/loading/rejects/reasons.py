"""Describes why records were refused, and says which errors a record itself causes. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.loading.rejects.explain import BAD_FORMAT, is_types_refusal, shorten_message
from penstock.model.load.reject import Reason
from penstock.server.connect.errors import DATA_CLASSES, NOT_DATA

if TYPE_CHECKING:
    from penstock.server.copy.copy import CopyFailed

# Errors that triggers raise (P0: PL/pgSQL, mostly on purpose; 38: other languages; 09: a triggered action), rows that
# violate a view's check option (44), values that are too large for an index or a page (54000), and values that are
# nested too deep to be read (54001). Other program limits (54011: columns of a table) are not a record's.
_OWN_CODES = ("P0", "38", "09", "44", "54000", "54001")

# The classes of SQLSTATEs that PostgreSQL raises. A code of any other class, such as 45000, is one that a trigger has
# chosen for its errors. Source: src/backend/utils/errcodes.txt
_SERVERS_CLASSES = (
    *("00", "01", "02", "03", "08", "09", "0A", "0B", "0F", "0L", "0P", "0Z", "10", "20", "21", "22", "23", "24"),
    *("25", "26", "27", "28", "2B", "2D", "2F", "34", "38", "39", "3B", "3D", "3F", "40", "42", "44", "53", "54"),
    *("55", "57", "58", "72", "F0", "HV", "P0", "XX"),
)

_INVALID_PARAMETER = "22023"

# The beginnings of the SQLSTATEs of errors that a record itself causes, as patterns of Python and PostgreSQL.
RECORD_CODES = (*DATA_CLASSES, *_OWN_CODES, f"(?!{'|'.join(_SERVERS_CLASSES)})")

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
    return is_own_code(sqlstate, RECORD_CODES) or is_types_refusal(failure)


def is_own_code(sqlstate: str, own_codes: Sequence[str]) -> bool:
    """Whether one of the patterns in `own_codes` matches the beginning of an SQLSTATE, and it is about a record.

    >>> [is_own_code(code, RECORD_CODES) for code in ("22P02", "P0001", "45000", "54001", "42P01", "53100", "2200H")]
    [True, True, True, True, False, False, False]
    """
    return re.match("|".join(own_codes), sqlstate) is not None and sqlstate not in NOT_DATA


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
