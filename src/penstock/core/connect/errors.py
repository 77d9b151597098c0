"""Converts the server's errors to penstock's by SQLSTATE, and finds the place in a file by the context of COPY.

The message stays the server's own, so that users can search for it. Detail and hint say what to do. Package loading
knows the records of each COPY, so it adds the line numbers of files. Transactions are opened here too, so that a
connection that is lost at BEGIN or COMMIT raises the same errors.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from typing import Any

import psycopg

from penstock.core.errors import DataError, PenstockError, ServerError, TargetError
from penstock.core.slotted import slotted
from penstock.core.values.names import quote_text

# Classes of SQLSTATEs that a record causes: data exception (22, with 22P04 bad copy file format) and integrity
# constraint violation (23).
DATA_CLASSES = ("22", "23")
# Codes of class 22 that are about a setting or a sequence, not about a record.
NOT_DATA = frozenset(("22023", "2200H"))
# SQLSTATEs that the target causes: syntax error or access rule violation (42: missing table or column, no privilege),
# invalid schema name (3F), feature not supported (0A: a view without INSTEAD OF trigger, or another relation that COPY
# refuses), object not in the required state (55000), more columns than a table can have (54011), read-only transaction
# (25006: a standby).
_TARGET_CLASSES = ("42", "3F", "0A")
_TARGET_STATES = {"55000", "54011", "25006"}

_INSUFFICIENT_PRIVILEGE = "42501"
NOT_NULL_VIOLATION = "23502"
TOO_MANY_CONNECTIONS = "53300"

_DATE_HINT = "Correct the value in the file, or set DateStyle for the role to the order that the file's dates have."

# The server's source files that report what the file system refuses. It does so with the SQLSTATE of a privilege.
_FILE_SOURCES = frozenset(("copydir.c", "dbsize.c", "fd.c", "genfile.c", "md.c", "misc.c", "tablespace.c"))
_FILE_HINT = (
    "The file system refuses this to the server's account: check owner and mode of the directory. If it is that of "
    "temporary work, see penstock temp check."
)

# The hint of an error that names the sessions which hold a lock.
_END_HOLDERS = "Wait for these sessions, or end them with pg_terminate_backend(pid), and run the command again."

# The hint for a missing privilege on an object for which no other hint is written, such as a function or a tablespace.
_RIGHT = "Have an administrator grant the privilege, or use --role."

_HINTS = {
    "22": "Correct the value in the file, or give the column a type that accepts it.",
    "22001": "Widen the column, or correct the value in the file.",
    "22007": _DATE_HINT,
    "22008": _DATE_HINT,
    "22021": "Name the file's encoding with --encoding; bytes that are zero (0x00) have to be removed from it.",
    "22023": "Check the value in the message: another version of PostgreSQL may have other settings and values.",
    "22P04": "Correct the record, or check format, delimiter, quote and columns against the file's first lines.",
    "22P05": "Correct the value: no text has \\u0000; for other characters, load into a database with encoding UTF8.",
    "23": "Correct the record in the file, or the table's constraint.",
    "23514": "Correct the record in the file, or the constraint (penstock_bounds: the bounds of the partition), "
    "or create the partition that is missing.",
    "23502": "Name the text that stands for null with --null, or give the column a value with --set.",
    "23503": "Load the referenced table first, or correct the record in the file.",
    "23505": "Check whether the file, or a part of it, has been loaded before.",
    "25006": "Connect to the primary: list all hosts, with target_session_attrs=read-write.",
    "28": "Check user, password and the server's pg_hba.conf.",
    "28000": "Name a role that exists and may log in as user, and see the server's pg_hba.conf for what it accepts.",
    "28P01": "Give the right password in PGPASSWORD or ~/.pgpass.",
    "3D000": "Name an existing database in --to, or create it with createdb.",
    "3F000": "Create the schema first, or name the table with its schema.",
    "42501": "Have the owner grant USAGE on the schema and INSERT on the table, or use --role.",
    "42703": "Compare the file's header with the table's columns; --columns and --skip adjust it.",
    "42P01": "Create the table first, or use --create to create it with text columns.",
    "53100": "Free or add space on the server's volume, then run it again.",
    "53200": "Lower --sessions, or raise the memory the server has.",
    "53300": "Lower --sessions, or raise max_connections or the role's connection limit.",
    "55P03": "Another session holds a lock on the table: see pg_locks, or raise lock_timeout.",
    "57014": "The statement was cancelled; run it again.",
    "57P": "The server is stopping or starting: run it again when it accepts connections.",
    "58": "The server's system failed: see its log and its disks before running it again.",
    "XX": "The server reports corruption or a bug: see its log before anything else.",
    "08": "The connection broke: look in the server's log for a crash or restart, then run it again.",
    "40": "Another transaction conflicted: run it again.",
}


@slotted
class ServerReport:
    """An error as the server reported it. Every field except the message is None if the server did not send it."""

    message: str
    sqlstate: str | None = None
    detail: str | None = None
    hint: str | None = None
    context: str | None = None
    schema: str | None = None
    table: str | None = None
    column: str | None = None
    constraint: str | None = None
    datatype: str | None = None
    # The server's own source file that reported the error.
    source_file: str | None = None


class LockWaitOver(psycopg.errors.QueryCanceled):
    """A statement was cancelled, because it had waited for a lock of other sessions for longer than `limit_s` seconds.

    It is no transient error: the time for which the user wants to wait is over.
    """

    def __init__(self, limit_s: float, holders: Iterable[str], gids: Iterable[str] = ()) -> None:
        super().__init__(f"could not get a lock within {limit_s:g} s")
        self.detail = "\n".join(f"It is held by {holder}." for holder in holders)
        self.hint = explain_end(gids)


def explain_end(gids: Iterable[str]) -> str:
    """Return the hint how to end the holders of a lock: the prepared transactions `gids`, or sessions if it is empty.

    >>> explain_end(["tx1"]).partition(", or")[0]
    "End the prepared transaction, in its database: ROLLBACK PREPARED 'tx1'"
    """
    ends = "; ".join(f"ROLLBACK PREPARED {quote_text(gid)}" for gid in sorted(set(gids)))
    if not ends:
        return _END_HOLDERS
    return (
        f"End the prepared transaction, in its database: {ends}, or COMMIT PREPARED if the other servers of its "
        "transaction have committed. Then run the command again."
    )


def read_report(error: psycopg.Error) -> ServerReport:
    """Return the fields of the server's error, or libpq's own message if no server sent one."""
    diag = error.diag
    if isinstance(error, LockWaitOver):
        return ServerReport(message=str(error), sqlstate=error.sqlstate, detail=error.detail, hint=error.hint)
    return ServerReport(
        message=diag.message_primary or " ".join(str(error).split()) or type(error).__name__,
        sqlstate=diag.sqlstate or error.sqlstate,
        detail=diag.message_detail,
        hint=diag.message_hint,
        context=diag.context,
        schema=diag.schema_name,
        table=diag.table_name,
        column=diag.column_name,
        constraint=diag.constraint_name,
        datatype=diag.datatype_name,
        source_file=diag.source_file,
    )


def to_penstock_error(error: psycopg.Error, what: str) -> PenstockError:
    """Return the DataError, TargetError or ServerError for an error of psycopg, chosen by its SQLSTATE.

    `what` is the action that failed, such as "reading x".
    """
    report = read_report(error)
    hint = report.hint or hint_right(report) or hint_for(report.sqlstate)
    detail = describe_report(report, what)
    # Two sessions have created an object of one name at the same time. It exists when the statement is retried.
    is_race = report.sqlstate == "23505" and report.schema == "pg_catalog"
    error_class = ServerError if is_race else choose_class(report.sqlstate)
    if is_race:
        hint = "Another session has created the same object at this moment: try again."
    if error_class is ServerError:
        is_disconnect = report.sqlstate is None and isinstance(error, psycopg.OperationalError)
        hint = hint or (_HINTS["08"] if is_disconnect else None)
        return ServerError(
            report.message,
            detail=detail,
            hint=hint,
            sqlstate=report.sqlstate,
            is_transient=is_race or is_passing(report.sqlstate, is_disconnect=is_disconnect),
        )
    return error_class(report.message, detail=detail, hint=hint, sqlstate=report.sqlstate)


def hint_right(report: ServerReport) -> str | None:
    """Return the hint for a missing privilege on an object that is not a table; None for any other error.

    Only English messages are recognised, except refusals of the file system, which the server's source file shows.
    """
    if report.sqlstate == _INSUFFICIENT_PRIVILEGE and report.source_file in _FILE_SOURCES:
        return _FILE_HINT
    lacking = "permission denied for "
    is_other = report.message.startswith(lacking) and not report.message.startswith(
        tuple(f"{lacking}{kind} " for kind in ("table", "relation", "schema", "view"))
    )
    return _RIGHT if is_other else None


@contextmanager
def translate_errors(what: str) -> Iterator[None]:
    """Raise what `to_penstock_error` returns in place of an error of psycopg in the block.

    `what` is the action of the block, such as "reading x".
    """
    try:
        yield
    except psycopg.Error as error:
        raise to_penstock_error(error, what) from error


@contextmanager
def in_transaction(connection: psycopg.Connection[Any], what: str | None = None) -> Iterator[psycopg.Transaction]:
    """Run the block in a transaction, or in a savepoint of the caller's transaction.

    With `what`, psycopg's errors are converted as by `translate_errors`, also those of BEGIN and COMMIT. Without
    `what`, they stay psycopg's, so that the caller can convert them itself.
    """
    with nullcontext() if what is None else translate_errors(what), connection.transaction() as transaction:
        yield transaction


@contextmanager
def rolled_back(connection: psycopg.Connection[Any]) -> Iterator[None]:
    """Run the block in a transaction that is always rolled back at its end. Errors stay psycopg's."""
    with connection.transaction(force_rollback=True):
        yield


@contextmanager
def in_pipeline(connection: psycopg.Connection[Any]) -> Iterator[None]:
    """Run the block in a pipeline and raise only its first error. psycopg logs the errors that follow from it."""
    first: psycopg.Error | None = None
    try:
        with connection.pipeline():
            try:
                yield
            except psycopg.Error as error:
                first = error
    except psycopg.Error as error:
        raise first or error from None
    if first is not None:
        raise first


@contextmanager
def at_once(connection: psycopg.Connection[Any]) -> Iterator[None]:
    """Run the block's statements in one round trip and in one transaction: the caller's if it has one open.

    Errors stay psycopg's.
    """
    is_own = connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
    try:
        with connection.pipeline():
            if is_own:
                connection.execute("BEGIN")
            yield
            if is_own:
                connection.execute("COMMIT")
    except BaseException:
        if is_own and not connection.closed:
            connection.rollback()
        raise


def choose_class(sqlstate: str | None) -> type[DataError | TargetError | ServerError]:
    """Return the error class for an SQLSTATE: for a fault of the data, of the target, or otherwise of the server."""
    if sqlstate is None:
        return ServerError
    if sqlstate.startswith(DATA_CLASSES) and sqlstate not in NOT_DATA:
        return DataError
    if sqlstate.startswith(_TARGET_CLASSES) or sqlstate in _TARGET_STATES:
        return TargetError
    return ServerError


# SQLSTATEs, or their classes, of errors that may be temporary: connection lost (08), serialization failure or deadlock
# (40), insufficient resources such as a full disk (53), lock not available (55P03), server shutting down or starting
# (57P), system error such as a failed write (58), a standby that is not promoted yet (25006).
_TRANSIENT_CLASSES = ("08", "40", "53", "55P03", "57P01", "57P02", "57P03", "57P05", "58", "25006")


def is_passing(sqlstate: str | None, *, is_disconnect: bool) -> bool:
    """Return whether a retry may succeed, because the SQLSTATE is of a temporary error or the connection was lost."""
    return is_disconnect or (sqlstate is not None and sqlstate.startswith(_TRANSIENT_CLASSES))


def hint_for(sqlstate: str | None) -> str | None:
    """Return the hint for an SQLSTATE. If the code itself has no hint, return the hint for the code's class."""
    if sqlstate is None:
        return None
    return next((_HINTS[sqlstate[:length]] for length in (5, 3, 2) if sqlstate[:length] in _HINTS), None)


def hint_missing_right(error: PenstockError, hint: str) -> None:
    """If an error of `to_penstock_error` reports a missing privilege, set its hint, unless the server sent a hint."""
    cause = error.__cause__
    has_own = isinstance(cause, psycopg.Error) and bool(cause.diag.message_hint)
    if error.sqlstate == _INSUFFICIENT_PRIVILEGE and not has_own and not is_of_file_system(error):
        error.hint = hint


def is_of_file_system(error: PenstockError) -> bool:
    """Return whether an error of `to_penstock_error` reports that the file system denies the server a file."""
    cause = error.__cause__
    is_denied = error.sqlstate == _INSUFFICIENT_PRIVILEGE
    return is_denied and isinstance(cause, psycopg.Error) and cause.diag.source_file in _FILE_SOURCES


def describe_report(report: ServerReport, what: str) -> str:
    """Return the facts of an error on a few lines: the server's detail, the action that failed, the context."""
    code = f" (SQLSTATE {report.sqlstate})" if report.sqlstate else ""
    lines = [report.detail, f"While {what}{code}.", report.context]
    return "\n".join(line for line in lines if line)


# Matches the line that COPY adds to an error's context, up to the line number. It begins with "COPY t, line 5" in most
# languages, with "tのCOPY、行 5" in Japanese, and with "t 복사, 5번째 줄" in Korean. It need not be the context's first
# line, because the lines of triggers and functions come before it.
_HEAD = r"^(?:COPY )?{table}(?:のCOPY| 복사)?[,、]\s?[^\d,:\"]{{0,30}}?(?P<line>\d+)(?P<rest>.*)"
# Matches the text that follows the line number: in Korean a counter word, then the column, a colon and the value.
_REST = re.compile(r"(?P<counter>[^,、:]*?)(?:[,、]\s?(?P<place>.*?))?(?:\s?:\s(?P<value>.*))?", re.DOTALL)
# Match a column and its value: with "age 열" as the column in Korean, with "column age" in other languages.
_COLUMNS = (
    r"(?P<column>{name})\s열(?:\s?:\s(?P<value>.*))?",
    r"(?:[^\s:]+\s)?(?P<column>{name})(?:\s?:\s(?P<value>.*))?",
)
_QUOTED = re.compile(r"\"(.*)\"|»(.*)«|«\s?(.*?)\s?»|„(.*)[“”]|“(.*)”|「(.*)」", re.DOTALL)


@slotted
class CopyContext:
    """A position in COPY's input. A part is None if the server did not report it."""

    # The number of the line, counted from 1 within this COPY command.
    line: int | None = None
    column: str | None = None
    # The text of the column, or of the whole record if no column is reported. The server may have shortened it. None
    # also if the column is null.
    value: str | None = None


def parse_copy_context(context: str | None, *, table: str | None = None, columns: Iterable[str] = ()) -> CopyContext:
    """Return the position that an error's CONTEXT reports.

    `table` is the bare name of COPY's target and `columns` are its columns. Without them, names that contain commas,
    colons or digits can be misread.

    >>> parse_copy_context('COPY t, line 5, column age: "abc"')
    CopyContext(line=5, column='age', value='abc')
    """
    head = _head_pattern(table).search(context or "")
    if head is None:
        return CopyContext()
    line = int(head["line"])
    rest = _REST.fullmatch(head["rest"])
    if rest is None:
        return CopyContext(line=line)
    if rest["place"] is None:
        return CopyContext(line=line, value=_unquote(rest["value"]))
    column, value = _split_column(head["rest"][rest.start("place") :], columns)
    return CopyContext(line=line, column=column, value=_unquote(value))


@cache
def _head_pattern(table: str | None) -> re.Pattern[str]:
    name = r".+?" if table is None else re.escape(table)
    return re.compile(_HEAD.format(table=name), re.MULTILINE | re.DOTALL)


def _split_column(text: str, columns: Iterable[str]) -> tuple[str | None, str | None]:
    """Return column and quoted value of `column age: "abc"`. Known columns are tried first, the longest first."""
    known = [re.escape(column) for column in sorted(columns, key=len, reverse=True)]
    for name in [*known, r".+?"]:
        for form in _COLUMNS:
            if match := re.fullmatch(form.format(name=name), text, re.DOTALL):
                return match["column"], match["value"]
    return None, None


def _unquote(text: str | None) -> str | None:
    """Return the text between quotation marks of any language. None if there are none, as for a null."""
    match = _QUOTED.fullmatch(text) if text is not None else None
    return next((group for group in match.groups() if group is not None), None) if match else None
