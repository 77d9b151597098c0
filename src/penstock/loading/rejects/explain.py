"""Turns an error of the server into one about the file: object, line, column, value, SQLSTATE and hint. Pure."""

from __future__ import annotations

import re
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from penstock import _native
from penstock.core.connect.errors import (
    DATA_CLASSES,
    NOT_DATA,
    ServerReport,
    choose_class,
    hint_for,
    hint_right,
    is_passing,
)
from penstock.core.errors import DataError, FileLocation, PenstockError
from penstock.core.units import count_nouns
from penstock.ledger.rejects import FOREIGN_KEY_VIOLATION, Reason, Reject
from penstock.loading.copy.copy import CopyFailed
from penstock.loading.formats import format_of
from penstock.loading.formats.columns import DATE_OIDS, NUMBER_OIDS
from penstock.loading.formats.probe.mangling import explain_misfit
from penstock.loading.plan.modes import (
    compose_alter,
    notation_options,
    null_option,
    solve_notation,
    solve_null,
    suggest_change,
)
from penstock.loading.values.plan import TargetPlan, table_after_creation
from penstock.loading.values.types import KEPT, NOTATED, NULL_WORDS, ORDERS, is_zero_date, list_notations

# How many characters of a value an error quotes.
_VALUE_SHOWN = 100

# Matches a quoted part of the server's message that is too long to read.
_LONG_QUOTATION = re.compile(rf'(["(])((?:(?!["(]).){{{_VALUE_SHOWN}}})[^"]*(?=[")])', re.DOTALL)
_MESSAGE_SHOWN = 400

# SQLSTATE classes of a session that was ended from outside: the record that it was sending is not the cause.
_ENDED_CLASSES = ("08", "57")

_INVALID_VALUE = "22P02"
# The SQLSTATEs of a value that does not fit the type: invalid text, number out of range, invalid date or time, date or
# time out of range.
_UNFIT = ("22P02", "22003", "22007", "22008")
# The SQLSTATE of a date or time out of range, for which the server's hint names DateStyle. The options of penstock that
# are in its own hint do not depend on DateStyle.
_FIELD_OVERFLOW = "22008"
# The SQLSTATE "bad copy file format", for too few or too many fields.
BAD_FORMAT = "22P04"

# The server's mark at the end of a record that is too long to show.
_SHORTENED = "..."


def rename(text: str, names: Iterable[tuple[str, str]]) -> str:
    """Return a message of the server in which each quoted working name is replaced by the final name of the object.

    `names` are pairs of a working name and a final name.

    >>> rename('duplicate key value violates unique constraint "penstock_1_i"', [("penstock_1_i", "t_pkey")])
    'duplicate key value violates unique constraint "t_pkey"'
    """
    for working, name in names:
        text = text.replace(f'"{working}"', f'"{name}"')
    return text


def explain_miscount(uri: str, *, reported: int, records: int) -> DataError:
    """Return the error for a COPY command that reports another number of rows than records were sent.

    `uri` is the object that the records come from.
    """
    return DataError(
        f"COPY reported {count_nouns(reported, 'row')} for {count_nouns(records, 'record')}",
        detail=f"{uri}: the server and penstock do not agree on where records end.",
        hint="Check --format, --quote and --escape; please report this as a bug if they are right.",
    )


def explain_failure(
    failure: CopyFailed,
    *,
    where: FileLocation | str | None,
    constants: Collection[str] = (),
    working_names: Sequence[tuple[str, str]] = (),
    target: TargetPlan | None = None,
    is_in_conflict: bool = False,
) -> PenstockError:
    """Return the error to raise for a failed COPY. `where` is the position in the files, None if it is not known.

    `constants` are the columns with a value from --set. `working_names` are the names to replace in messages (see
    `rename`). `target` has the dialect and columns of the files, which the hint needs. `is_in_conflict` says whether
    the session was cancelled because it waited for another session of the same load.
    """
    report, context = _reword(failure.report, is_in_conflict=is_in_conflict), failure.context
    is_ended = failure.is_disconnect or (not is_in_conflict and (report.sqlstate or "").startswith(_ENDED_CLASSES))
    if context.column in constants:
        where = f"--set {context.column}"
    facts = [str(where)] if where and not is_ended else []
    if context.column and not is_ended and context.column not in constants:
        facts.append(f'column "{context.column}"')
    detail = ", ".join(facts)
    if detail and context.value is not None:
        detail += f': "{shorten(context.value)}"'
        detail += "" if target is None else _name_notation(context.column, target)
    lines = [f"{detail}." if detail else "", shorten_message(rename(report.detail or "", working_names))]
    lines.append(f"SQLSTATE {report.sqlstate}." if report.sqlstate else "")
    is_value = is_types_refusal(failure)
    error_class = DataError if is_value else choose_class(report.sqlstate)
    code = _INVALID_VALUE if is_value else report.sqlstate
    is_known = target is not None and context.column not in constants
    own, options = _find_own_hint(failure, target, where) if target is not None and is_known else (None, None)
    error = error_class(
        shorten_message(rename(report.message, working_names)),
        detail="\n".join(line for line in lines if line) or None,
        hint=(own if report.sqlstate == _FIELD_OVERFLOW else None)
        or report.hint
        or own
        or hint_right(report)
        or hint_for(code or ("08006" if failure.is_disconnect else None)),
        sqlstate=report.sqlstate,
        is_transient=is_in_conflict or is_passing(report.sqlstate, is_disconnect=failure.is_disconnect),
        location=replace(where, column=context.column) if isinstance(where, FileLocation) and not is_ended else None,
    )
    error.options = options
    return error


# A hint, and the options in it as fields of DialectOptions, None if it has no option for the files.
_Hint: TypeAlias = tuple[str | None, Mapping[str, Any] | None]


def _find_own_hint(failure: CopyFailed, target: TargetPlan, where: FileLocation | str | None) -> _Hint:
    """Return the hint for a value or a record with a known cause, such as a word for null or one field too many.

    `where` is the position of the value or record in the files.
    """
    value, column, sqlstate = failure.context.value, failure.context.column, failure.report.sqlstate
    found = format_of(target)
    if (hint := found.hints.get(sqlstate or "")) is not None:
        return hint, None
    dialect, field_count = target.dialect, target.column_map.field_count
    if value is None:
        return None, None
    may_be_null = value in NULL_WORDS or is_zero_date(value)
    if column is not None and found.is_delimited and may_be_null and (sqlstate or "").startswith("22"):
        return _solve_word(column, value, target)
    if column is not None and sqlstate in _UNFIT:
        return _explain_notation(column, value, target) or (_suggest_type(column, value, target), None)
    if sqlstate != BAD_FORMAT or field_count is None or not found.is_delimited or value.endswith(_SHORTENED):
        return None, None
    uri = where.file if isinstance(where, FileLocation) else str(where)
    return explain_misfit(
        value.encode(), dialect, field_count=field_count, uri=uri, compression=target.sample.compression
    ), None


# Matches the Rust core's refusal of a value that is not in the notation of its column (rust/src/notation.rs).
_UNWRITTEN = re.compile(r'value "(.*)" of column "(.*)" is not written as .*', re.DOTALL)


def solve_unwritten(message: str, target: TargetPlan) -> _Hint | None:
    """Return the hint to load a value as null, if it is a word for null that is not in the notation of its column.

    `message` is the message of the error that refused the value. Return None for any other value or error.
    """
    found = _UNWRITTEN.fullmatch(message)
    return None if found is None or found[1] not in NULL_WORDS else _solve_word(found[2], found[1], target)


def _solve_word(column: str, word: str, target: TargetPlan) -> _Hint:
    hint = f"Use {null_option(word, column, target.dialect)}, or correct the value in the file."
    return hint, solve_null(word, [column], target.dialect)


def _explain_notation(name: str, value: str, target: TargetPlan) -> _Hint | None:
    """Return the hint for a number or a date in another notation, None for other values and columns."""
    column = table_after_creation(target).column(name)
    notations = list_notations(_native.recognize(value.encode(), NOTATED)[0])
    if column is None or not notations or not format_of(target).is_delimited:
        return None
    is_fit = column.base.oid in (DATE_OIDS if notations[0] in ORDERS else NUMBER_OIDS)
    hint = f"Use {notation_options(name, notations)}, or correct the value in the file."
    return (hint, solve_notation(name, notations)) if is_fit else None


def _name_notation(name: str | None, target: TargetPlan) -> str:
    """Return words that say in which notation the file has a value of a column, "" if it is sent as it is."""
    pairs = zip(target.column_map.columns, target.column_map.notations, strict=False)
    notation = next((notation for column, notation in pairs if column == name), None)
    return "" if notation is None else f" (in the file written as {notation})"


_REJECT = "load the other records with --on-error reject"


def _suggest_type(name: str, value: str, target: TargetPlan) -> str | None:
    """Return a hint with an ALTER TABLE that makes the column accept the value, None if no such type is known.

    A table that the load was to create does not exist after its failure.
    """
    column = table_after_creation(target).column(name)
    change = None if column is None else suggest_change(column, value)
    if change is None:
        return None
    if target.facts is None:
        return f"Correct the value in the file, or {_REJECT}."
    can_widen = change.was in KEPT and not format_of(target).is_typed and target.job.types != "widen"
    widen = " --types widen does so before the load." if can_widen else ""
    return f"Correct the value in the file, {_REJECT}, or run: {compose_alter(target.table, [change])};{widen}"


def is_types_refusal(failure: CopyFailed) -> bool:
    """Return whether a type refused a value with a SQLSTATE that usually means that a statement is wrong.

    COPY names a column only while it reads a value. So if the error names a column, the SQLSTATE of a syntax error
    means an invalid tsvector or jsonpath value. That of a missing object means an unknown regclass value, that of an
    invalid parameter an unknown time zone, and that of "stack depth limit exceeded" a value that is nested too deep.
    """
    sqlstate = failure.report.sqlstate or ""
    may_be = sqlstate in ("22023", "54001") or (sqlstate.startswith("42") and sqlstate != "42501")
    return may_be and failure.context.column is not None


def _reword(report: ServerReport, *, is_in_conflict: bool) -> ServerReport:
    """Return the report with the message for sessions of this load that waited for each other.

    The server's own message says only that the statement was cancelled.
    """
    if report.sqlstate == "40P01":
        return replace(report, hint="With --sessions 1 no record of the load waits for another.")
    if not is_in_conflict:
        return report
    return replace(
        report,
        message="sessions of this load wait for each other",
        detail="A record has a key that another session's record has, a trigger changes a row that both need, or "
        "somebody else waits for the table between them.",
        hint="Remove duplicates from the files; with --sessions 1 the server names them, and triggers do not wait.",
    )


def shorten(value: str) -> str:
    """Return the beginning of a value as one line, to quote it in an error."""
    flat = value.replace("\n", "\\n").replace("\r", "\\r")
    return flat if len(flat) <= _VALUE_SHOWN else f"{flat[:_VALUE_SHOWN]}..."


def shorten_message(message: str) -> str:
    """Return a message of the server with long quoted values shortened, and with the whole cut off if it is too long.

    >>> shorten_message('invalid input: "' + "x" * 5000 + '"')[-8:]
    'xxxx..."'
    """
    if len(message) <= _MESSAGE_SHOWN:
        return message
    shown = _LONG_QUOTATION.sub(r"\1\2...", message)
    return shown if len(shown) <= 2 * _MESSAGE_SHOWN else f"{shown[:_MESSAGE_SHOWN]}..."


# Further SQLSTATEs of errors that a record itself causes: errors that triggers raise (P0: PL/pgSQL, mostly on purpose;
# 38: other languages; 09: a triggered action), rows that violate a view's check option (44), values that are too large
# for an index or a page (54000), and values that are nested too deep to be read (54001). Other program limits (54011:
# columns of a table) are not caused by a record.
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
    """Return whether a COPY failed because of one of its records, so that the other records can be stored.

    A missing table or privilege, a full disk, a lost connection or a deadlock would stop the other records too.
    """
    sqlstate = failure.report.sqlstate
    if failure.is_disconnect or sqlstate is None:
        return False
    if sqlstate == _INVALID_PARAMETER:
        # This code usually means a wrong option of the command. But some types use it for a value (bytea before
        # PostgreSQL 17), and then the error names a line.
        return failure.context.line is not None
    return is_own_code(sqlstate, RECORD_CODES) or is_types_refusal(failure)


def is_own_code(sqlstate: str, own_codes: Sequence[str]) -> bool:
    """Return whether an SQLSTATE is about a record, not about the table or the server.

    It is if a regular expression in `own_codes` matches its beginning, unless it is one of NOT_DATA.

    >>> [is_own_code(code, RECORD_CODES) for code in ("22P02", "P0001", "45000", "54001", "42P01", "53100", "2200H")]
    [True, True, True, True, False, False, False]
    """
    return re.match("|".join(own_codes), sqlstate) is not None and sqlstate not in NOT_DATA


def describe_failure(failure: CopyFailed) -> Reason:
    """Return the reason why a record is rejected that COPY could not read: the server's error."""
    report = failure.report
    return shorten_reason(Reason(message=report.message, sqlstate=report.sqlstate, detail=report.detail))


def describe_unwritable(error: ValueError) -> Reason:
    """Return the reason why a record is rejected that cannot be encoded for COPY or is not valid UTF-8.

    `error` is the RecordError or UnicodeDecodeError.
    """
    if isinstance(error, UnicodeDecodeError):
        return Reason(message='invalid byte sequence for encoding "UTF8"', sqlstate=_BAD_BYTES)
    return Reason(message=error.args[0], sqlstate=BAD_FORMAT)


def shorten_reason(reason: Reason) -> Reason:
    """Return a reason with long quoted values in its message and detail shortened."""
    detail = None if reason.detail is None else shorten_message(reason.detail)
    return replace(reason, message=shorten_message(reason.message), detail=detail)


# How many rejected records an error quotes.
_SHOWN = 3


class RejectLimit:
    """Counts the rejected records of a load against --max-rejects. Any thread may call its methods.

    `limit` is None for any number. `before` is the count of earlier runs. Records that violate a foreign key are not
    counted here, because the referenced row may still come. They are counted at the load's end.
    """

    def __init__(self, limit: int | None, *, before: int = 0) -> None:
        self._limit = limit
        self._count = before
        self._lock = threading.Lock()

    def note(self, rejects: Sequence[Reject], *, uris: dict[int, str]) -> None:
        """Count rejected records. Raises DataError if they exceed the limit. `uris` has each object's URI by number."""
        final = [reject for reject in rejects if reject.reason.sqlstate != FOREIGN_KEY_VIOLATION]
        with self._lock:
            self._count += len(final)
            is_over = self._limit is not None and self._count > self._limit
        if is_over and final:
            assert self._limit is not None
            raise too_many_rejects(self._limit, final, uris=uris)


def too_many_rejects(limit: int, rejects: Sequence[Reject], *, uris: dict[int, str]) -> DataError:
    """Return the error for a load that has rejected more records than `limit`. It shows the first of `rejects`.

    `uris` has the URI of each object by its number.
    """
    first = rejects[0]
    records = "record was" if limit == 1 else "records were"
    return DataError(
        f"more than {limit} {records} rejected",
        detail="\n".join(describe_reject(reject, uri=uris[reject.object_number]) for reject in rejects[:_SHOWN]),
        hint="Correct the file or the options, or raise --max-rejects.",
        sqlstate=first.reason.sqlstate,
        location=FileLocation(file=uris[first.object_number], line=first.line, column=first.reason.column),
    )


def describe_reject(reject: Reject, *, uri: str) -> str:
    """Return a line with the object, line and column of a rejected record, and the reason. `uri` is the object's."""
    column = "" if reject.reason.column is None else f', column "{reject.reason.column}"'
    detail = "" if reject.reason.detail is None else f" ({reject.reason.detail})"
    return f"{uri} line {reject.line}{column}: {reject.reason.message}{detail}"
