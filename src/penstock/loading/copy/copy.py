"""One COPY session: a connection that streams payloads into COPY commands inside one transaction.

A failure raises CopyFailed with the server's report and its position within the COPY command. The caller knows the
blocks, and converts that position to a line of the file.
"""

from __future__ import annotations

import contextlib
import re
import select
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, LiteralString, TypeAlias

import psycopg
from psycopg import sql
from psycopg.pq import ConnStatus, ExecStatus

from penstock.core.catalogue.tables import LoadedTable, check_look, compose_look, send_check, truncate_empty
from penstock.core.connect.connection import CAN_FLUSH_STATISTICS
from penstock.core.connect.errors import CopyContext, ServerReport, parse_copy_context, read_report
from penstock.core.connect.search_path import SETTINGS_RESULTS, TO_OWN_SETTINGS, TO_USERS_SETTINGS
from penstock.core.connect.waiting import waiting
from penstock.core.errors import FileLocation
from penstock.core.sql import list_identifiers
from penstock.core.values.table import TableName
from penstock.loading.values.objects import CopySpec

if TYPE_CHECKING:
    from psycopg.errors import Diagnostic
    from psycopg.pq.abc import PGresult


# A complete statement that contains all its values. Other modules use this type to pass statements on.
Statement: TypeAlias = sql.Composed

# The length of one CopyData message. libpq keeps a copy of a message until the message is sent, and the server keeps
# one until it has parsed the message. Copies of this length stay in the CPU caches: with messages as long as a block,
# backends used 3 % more CPU. With its 5-byte header, a message fills libpq's 8 KiB buffer a whole number of times. A
# remainder would cost a system call of its own.
_MESSAGE_BYTES = 64 * 1024 - 5

# How many milliseconds a wait lasts before it checks whether it was cancelled.
_CANCEL_CHECK_MS = 500

_CANCEL_TIMEOUT_S = 5.0

# The signature, no flags, and no extension (documentation of COPY, "Binary Format"). The end of the data needs no mark.
_BINARY_HEADER: Final = b"PGCOPY\n\xff\r\n\x00" + bytes(8)

# Since PostgreSQL 17, COPY can skip rows with values that their types refuse, and reports each skipped row in a notice
# (release notes of 17, "COPY ... ON_ERROR ignore").
_IGNORES_SINCE = 170_000

# The source file of the notice about a skipped row. Notices of triggers come from other files.
_COPY_PARSER: Final = "copyfromparse.c"

_NUMBER = re.compile(r"\d+")

# The SQL to run before the next COPY command, by the state of the savepoint. In state "broken", it runs before any
# other statement too.
_SAVEPOINTS: Final[dict[str, LiteralString]] = {
    "none": "SAVEPOINT penstock",
    "kept": "RELEASE SAVEPOINT penstock; SAVEPOINT penstock",
    "broken": "ROLLBACK TO SAVEPOINT penstock",
}


# Makes a session report its statistics at once. Without this, the session reports them at most once a second, which is
# too late for a short load.
_REPORT: Final = "SELECT pg_catalog.pg_stat_force_next_flush(); "

# This runs at the start of a protected transaction. Constraints are not deferred, because one that fails at the commit
# does not show which record violates it. Notices report the rows that COPY skips.
_PROTECTION: Final = "SET CONSTRAINTS ALL IMMEDIATE; SET LOCAL client_min_messages = notice"


class CopyFailed(Exception):
    """The server refused a statement of a session, or the connection to it broke.

    The attribute `location` is the position of the refused record in its file, or None if the caller has not found it.
    """

    def __init__(
        self,
        report: ServerReport,
        # The position within the COPY command that was running.
        context: CopyContext,
        *,
        # Whether the session is lost.
        is_disconnect: bool,
    ) -> None:
        super().__init__(report.message)
        self.location: FileLocation | None = None
        self.report = report
        self.context = context
        self.is_disconnect = is_disconnect


class OtherTypes(Exception):
    """The columns do not have the types for which rows were encoded in the binary format.

    The rows that COPY stored are wrong.
    """


class Superseded(Exception):
    """Another process has taken over the load, so this session must not write."""


def compose_table(spec: CopySpec) -> sql.Identifier:
    """Return the quoted name of the table that COPY fills. Without a schema, search_path applies."""
    return sql.Identifier(spec.schema, spec.table) if spec.schema else sql.Identifier(spec.table)


def copy_statement(spec: CopySpec, *, ignores_types: bool = False) -> sql.Composed:
    """Return `COPY table (columns) FROM STDIN WITH (...)`, with every name and value quoted.

    With `ignores_types`, COPY skips rows with values that are not valid for their types, and reports each in a notice.
    This needs PostgreSQL 17.
    """
    options = copy_options(spec)
    if ignores_types:
        options.append(sql.SQL("ON_ERROR ignore, LOG_VERBOSITY verbose"))
    return sql.SQL("COPY {} ({}) FROM STDIN WITH ({})").format(
        compose_table(spec), list_identifiers(spec.columns), sql.SQL(", ").join(options)
    )


def copy_options(spec: CopySpec) -> list[sql.Composable]:
    """Return the options in the parentheses after WITH, with every name and value quoted.

    A value with a backslash is written E'...', which does not depend on standard_conforming_strings.
    """
    options: list[sql.Composable] = [sql.SQL("FORMAT {}").format(sql.SQL(spec.format))]
    options += [sql.SQL("FREEZE")] if spec.freezes else []
    text_options = [
        sql.SQL("DELIMITER {}").format(sql.Literal(spec.delimiter)),
        sql.SQL("NULL {}").format(sql.Literal(spec.null)),
        sql.SQL("ENCODING {}").format(sql.Literal(spec.encoding)),
    ]
    if spec.format != "binary":
        # In format binary, texts are in client_encoding.
        options += text_options
    if spec.format == "csv":
        options.append(sql.SQL("QUOTE {}").format(sql.Literal(spec.quote)))
        options.append(sql.SQL("ESCAPE {}").format(sql.Literal(spec.escape)))
    if spec.force_null:
        options.append(sql.SQL("FORCE_NULL ({})").format(list_identifiers(spec.force_null)))
    return options


def _check_types(spec: CopySpec, found: str) -> None:
    """Raise OtherTypes if columns have other types than a spec says. `found` is the result of `compose_look`.

    COPY does not check types in the binary format: it stores a bigint as double precision, for example.
    """
    oids = tuple(int(column.split()[1]) for column in found.split(",") if column)
    if spec.type_oids and oids != spec.type_oids:
        raise OtherTypes


class CopySession:
    """A connection, its open transaction and at most one COPY in progress. One thread uses it.

    Only `cancel` may be called from another thread. Methods raise CopyFailed, and Superseded if the fence of a new
    transaction finds that another process has taken over the load. Needs INSERT on the table.

    The attribute `skipped` has the line numbers of the rows that the last COPY command skipped, counted from 1 in the
    data of that command. `transaction` counts the transactions that were opened. Times are in seconds.

    The session calls libpq's functions for COPY itself. psycopg's Copy does not read while it waits until it can write.
    If the server then waits until its notices (such as a trigger's warnings) are read, both sides wait for ever.
    """

    def __init__(
        self,
        connection: psycopg.Connection[Any],
        *,
        # A query that runs at the start of every transaction. If it returns no row, Superseded is raised.
        fence: sql.Composed | None = None,
        # Whether each COPY command runs under a savepoint, so that another COPY may follow after one fails. Constraints
        # are then checked at each command's end, and if the server can, it skips rows with values that their types
        # refuse.
        is_protected: bool = False,
        # The tables, by their names in CopySpecs, whose rows COPY freezes if they are empty: the transaction truncates
        # them first.
        frozen: Collection[TableName] = (),
        # The tables at the start of the load, by their names in CopySpecs. Each COPY command checks, under its own
        # lock, that the name still belongs to the same table. If it does not, TargetError is raised.
        tables: Mapping[TableName, LoadedTable] | None = None,
    ) -> None:
        self._connection = connection
        self._tables = tables or {}
        self._pgconn = connection.pgconn
        # The backend's process id. It is known even after the session is closed.
        self.backend_pid = connection.info.backend_pid
        self._fence = fence
        self._is_protected = is_protected
        self._frozen = frozen
        # Whether the transaction has truncated a table, by its name.
        self._truncated: dict[TableName, bool] = {}
        self._savepoint = "none"
        self.ignores_types = is_protected and connection.info.server_version >= _IGNORES_SINCE
        self.skipped: list[int] = []
        if is_protected:
            connection.add_notice_handler(self._record_skipped)
        self._is_open = False
        self.transaction = 0
        self._composed: tuple[tuple[CopySpec, bool], bytes] | None = None
        self._reports_skipped = False
        self._has_users_settings = False
        self._spec: CopySpec | None = None
        self._is_copying = False
        self._has_input = False
        self._cancelled_s: float | None = None
        # Whether the session was cancelled because it waited for another session of the load.
        self.is_in_conflict = False
        self.round_trip_s = 0.0
        self.commit_s = 0.0

    def begin(self) -> None:
        """Open a transaction if none is open."""
        if not self._is_open:
            with self._failures():
                self._pgconn.send_query(self._opening().as_bytes(self._connection))
                self._flush()
                self._take_opening()
                self._expect_end()
            self._is_open = True
            self.transaction += 1

    def start_copy(self, spec: CopySpec) -> None:
        """Start a COPY command, and a transaction if none is open, in one round trip.

        The attribute `round_trip_s` is set to the seconds that this takes. The command runs with the user's
        search_path, because triggers, defaults and types may need it.
        """
        if self._frozen and self._is_truncated(spec):
            spec = replace(spec, freezes=True)
        self._spec = spec
        began = time.perf_counter()
        parts = [] if self._is_open else [self._opening().as_bytes(self._connection)]
        savepoints = _SAVEPOINTS[self._savepoint] if self._is_protected else ""
        parts += [savepoints.encode()] if savepoints else []
        parts += [TO_USERS_SETTINGS.encode(), self._compose_copy(spec)]
        self.skipped = []
        self._reports_skipped = self.ignores_types
        with self._failures():
            self._pgconn.send_query(b"; ".join(parts))
            self._flush()
            if not self._is_open:
                self._take_opening()
            for _ in filter(None, savepoints.split(";")):
                self._take(ExecStatus.COMMAND_OK)
            self._take_users_settings()
            self._take(ExecStatus.COPY_IN)
        self.transaction += not self._is_open
        self._is_open, self._is_copying, self._has_input = True, True, False
        if self._is_protected:
            # The savepoint counts as broken until finish_copy, so that a failed command is undone.
            self._savepoint = "broken"
        self.round_trip_s = time.perf_counter() - began
        if spec.format == "binary":
            self.send([_BINARY_HEADER])

    def _is_truncated(self, spec: CopySpec) -> bool:
        """Return whether the transaction has truncated a spec's table. If not, truncate the table if it is empty."""
        name = TableName(schema=spec.schema, name=spec.table)
        table = self._tables.get(name)
        if name in self._frozen and name not in self._truncated and table is not None:
            self.begin()
            with self.between_copies() as connection:
                self._truncated[name] = truncate_empty(connection, table)
        return self._truncated.get(name, False)

    def _compose_copy(self, spec: CopySpec) -> bytes:
        """Return the COPY command. It is cached, because composing it takes as long as a small command."""
        key = spec, self.ignores_types
        if self._composed is None or self._composed[0] != key:
            statement = copy_statement(spec, ignores_types=self.ignores_types)
            if (table := self._find_table(spec)) is not None:
                # The check runs after the COPY, while the transaction still holds the table's lock.
                statement = sql.SQL("{}; {}").format(statement, compose_look(table, spec.columns))
            self._composed = key, statement.as_bytes(self._connection)
        return self._composed[1]

    def _opening(self) -> sql.Composed:
        """Return the statements that begin a transaction.

        With a fence, the commit does not wait until WAL is on disk. The load's last commit makes all commits durable.
        """
        parts: list[sql.Composable] = [sql.SQL("BEGIN")]
        if self._fence is not None:
            parts += [sql.SQL("SET LOCAL synchronous_commit = off"), self._fence]
        if self._is_protected:
            parts.append(sql.SQL(_PROTECTION))
        return sql.SQL("; ").join(parts)

    def _take_opening(self) -> None:
        self._take(ExecStatus.COMMAND_OK)
        if self._fence is not None:
            self._take(ExecStatus.COMMAND_OK)
            if self._take(ExecStatus.TUPLES_OK).ntuples == 0:
                self.abandon()
                raise Superseded
        if self._is_protected:
            self._take(ExecStatus.COMMAND_OK)
            self._take(ExecStatus.COMMAND_OK)

    def send(self, parts: Iterable[bytes | memoryview]) -> None:
        """Send data of the COPY command. Returns when the operating system has taken all of it."""
        with self._failures():
            for part in parts:
                view = memoryview(part)
                for start in range(0, len(view), _MESSAGE_BYTES):
                    message = view[start : start + _MESSAGE_BYTES]
                    while not self._pgconn.put_copy_data(message):
                        self._wait(select.POLLIN | select.POLLOUT)
                    self._flush()

    def has_answer(self) -> bool:
        """Return whether the server has sent something during a COPY.

        Usually this is an error, which `finish_copy` raises. Without this call, an error is noticed only at the end:
        after an error, the server reads and discards data until the command ends (protocol documentation, "COPY
        Operations"). The result is always false while the server may send notices about skipped rows.
        """
        if self._reports_skipped:
            # The server may have sent a notice about a skipped row, which does not end the command. Here the notice
            # cannot be distinguished from an error.
            return False
        return self._has_input or bool(self._poll(select.POLLIN, 0))

    def _take_users_settings(self) -> None:
        for _ in range(SETTINGS_RESULTS):
            self._take(ExecStatus.COMMAND_OK)
        self._has_users_settings = True

    def _find_table(self, spec: CopySpec) -> LoadedTable | None:
        return self._tables.get(TableName(schema=spec.schema, name=spec.table))

    def check_table(self, spec: CopySpec) -> None:
        """Check that the table's name still belongs to the same table as when the load began.

        Each COPY command checks this by itself. Call this after other statements have written to the table. Raises
        TargetError.
        """
        if (table := self._find_table(spec)) is not None:
            with self.between_copies() as connection:
                send_check(connection, table, spec.columns)()

    def finish_copy(self) -> int:
        """End the COPY command, and return the number of rows that it has copied.

        Raises TargetError if the name now belongs to a table other than the one in `tables`. Raises OtherTypes if the
        columns do not have the types for which the rows were encoded.
        """
        assert self._spec is not None
        self._is_copying, table = False, self._find_table(self._spec)
        with self._failures():
            while not self._pgconn.put_copy_end():
                self._wait(select.POLLIN | select.POLLOUT)
            self._flush()
            reported = self._take(ExecStatus.COMMAND_OK).command_tuples or 0
            columns = self._take_look(table, self._spec)
            _check_types(self._spec, columns)
        if self._is_protected:
            self._savepoint = "kept"
        return reported

    def _take_look(self, table: LoadedTable | None, spec: CopySpec) -> str:
        """Read the last result, which is that of `compose_look` if there is a table.

        Return the numbers and types of the columns in the result. Raises TargetError.
        """
        found = None if table is None else self._take(ExecStatus.TUPLES_OK)
        self._expect_end()
        if table is None or found is None:
            return ""
        oid, columns = (found.get_value(0, column) or b"" for column in (0, 1))
        check_look(self._connection, table, spec.columns, int(oid or 0), columns.decode("ascii"))
        return columns.decode("ascii")

    def undo_copy(self) -> None:
        """Undo the last COPY command when the next statement is sent.

        The session must be protected (`is_protected`).
        """
        assert self._is_protected
        self._savepoint = "broken"

    def seal(self, statement: sql.Composed | None) -> None:
        """Run the transaction's last statement and the deferred checks, so that the commit can hardly fail.

        Deferred triggers run with the user's search_path.
        """
        self.begin()
        checks = sql.SQL(f"{TO_USERS_SETTINGS}; SET CONSTRAINTS ALL IMMEDIATE; {TO_OWN_SETTINGS}")
        self.execute(checks if statement is None else sql.SQL("{}; {}").format(checks, statement))

    def commit(self, statement: sql.Composed | None = None) -> None:
        """Run a last statement, if given, and commit. Have the backend report its statistics at once.

        The attribute `commit_s` is set to the seconds that this takes. Deferred triggers run with the user's
        search_path.
        """
        began = time.perf_counter()
        report = _REPORT if self._connection.info.server_version >= CAN_FLUSH_STATISTICS else ""
        commit = sql.SQL(f"{report}{TO_USERS_SETTINGS}; COMMIT")
        if statement is None:
            self.execute(commit)
        else:
            self.begin()
            self.execute(sql.SQL("{}; {}").format(statement, commit))
        self._note_end()
        self.commit_s = time.perf_counter() - began

    def roll_back(self) -> None:
        """Roll back the open transaction. If the connection is lost, the server has rolled it back."""
        self._note_end()
        try:
            self.execute(sql.SQL("ROLLBACK"))
        except CopyFailed as failure:
            if not failure.is_disconnect:
                raise

    def _note_end(self) -> None:
        self._is_open, self._savepoint, self._has_users_settings = False, "none", False
        self._truncated.clear()

    def execute(self, statement: sql.Composable) -> None:
        """Run a statement when no COPY is in progress, in one round trip."""
        with self._failures():
            self._connection.execute(sql.SQL("{}{}").format(sql.SQL(self._leave_copy()), statement))

    @contextlib.contextmanager
    def between_copies(self) -> Iterator[psycopg.Connection[Any]]:
        """Provide the connection for other statements in the same transaction, while no COPY is in progress.

        If the last COPY command failed, it is first undone by a rollback to the savepoint. penstock's search_path is
        set.
        """
        with self._failures():
            if before := self._leave_copy():
                self._connection.execute(before)
            yield self._connection

    def _leave_copy(self) -> LiteralString:
        """Return the SQL before a statement other than COPY: undo a failed COPY and set penstock's search_path."""
        # A rollback to the savepoint also restores the search_path that was set at the savepoint. This class does not
        # keep what was set there.
        is_broken, has_users_settings = self._savepoint == "broken", self._has_users_settings
        self._has_users_settings = False
        if is_broken:
            self._savepoint = "kept"
            return f"{_SAVEPOINTS['broken']}; {TO_OWN_SETTINGS}; "
        return f"{TO_OWN_SETTINGS}; " if has_users_settings else ""

    def cancel(self) -> None:
        """Ask the server to cancel the statement that this session runs. Any thread may call this, more than once.

        If the server does not answer the cancel request, this ends after _CANCEL_TIMEOUT_S.
        """
        if self._cancelled_s is None:
            self._cancelled_s = time.monotonic()
        with contextlib.suppress(psycopg.Error):
            self._connection.cancel_safe(timeout=_CANCEL_TIMEOUT_S)

    def _cancel_conflict(self) -> None:
        self.is_in_conflict = True
        self.cancel()

    def abandon(self) -> None:
        """End a COPY in progress with an error and close the connection, which rolls back.

        This method is for error paths. It never waits, and raises no error.
        """
        with contextlib.suppress(psycopg.Error, OSError):
            if self._is_copying:
                self._pgconn.put_copy_end(b"load abandoned")
        self.close()

    def close(self) -> None:
        """Close the connection. Uncommitted work is lost."""
        self._connection.close()

    # ---------------------------------------------------------------- libpq, without blocking calls

    def _record_skipped(self, notice: Diagnostic) -> None:
        """Record a row that COPY skipped. The first number in the notice is the row's line number."""
        words = notice.message_primary or ""
        if notice.source_file == _COPY_PARSER and (number := _NUMBER.search(words)) is not None:
            self.skipped.append(int(number[0]))

    def _flush(self) -> None:
        while self._pgconn.flush():
            self._wait(select.POLLIN | select.POLLOUT)

    def _await_result(self) -> PGresult | None:
        while self._pgconn.is_busy():
            self._wait(select.POLLIN)
        return self._pgconn.get_result()

    def _wait(self, events: int) -> None:
        """Wait until the socket is ready, and read what the server sent."""
        while not (ready := self._poll(events, _CANCEL_CHECK_MS)):
            given_up = self._cancelled_s is not None and time.monotonic() - self._cancelled_s > _CANCEL_TIMEOUT_S
            if given_up:
                raise psycopg.OperationalError("the server did not answer a request to cancel")
        if any(found & ~select.POLLOUT for _, found in ready):
            self._has_input = True
            self._pgconn.consume_input()

    def _poll(self, events: int, timeout_ms: int) -> list[tuple[int, int]]:
        waiting = select.poll()
        waiting.register(self._pgconn.socket, events)
        return waiting.poll(timeout_ms)

    def _take(self, expected: ExecStatus) -> PGresult:
        """Return the next of several results. If its status is not `expected`, read the rest and raise its error."""
        result = self._await_result()
        if result is None:
            raise psycopg.OperationalError("the server gave no answer")
        if result.status != expected:
            self._expect_end()
            raise psycopg.errors.error_from_result(result)
        return result

    def _expect_end(self) -> None:
        while (result := self._await_result()) is not None and result.status != ExecStatus.COPY_IN:
            pass

    @contextlib.contextmanager
    def _failures(self) -> Iterator[None]:
        try:
            with waiting(self._connection, self._cancel_conflict):
                yield
        except psycopg.Error as error:
            report = read_report(self._find_final_error() or error)
            spec = self._spec
            table, columns = (spec.table, spec.columns) if spec else (None, ())
            context = parse_copy_context(report.context, table=table, columns=columns)
            is_disconnect = self._connection.broken or self._pgconn.status != ConnStatus.OK
            raise CopyFailed(report, context, is_disconnect=is_disconnect) from error

    def _find_final_error(self) -> psycopg.Error | None:
        """Return the error with which the server ended the connection, if it reported one."""
        if self._pgconn.status == ConnStatus.OK:
            return None
        with contextlib.suppress(psycopg.Error):
            while (result := self._pgconn.get_result()) is not None and result.status != ExecStatus.COPY_IN:
                error = psycopg.errors.error_from_result(result)
                if error.sqlstate is not None:
                    return error
        return None
