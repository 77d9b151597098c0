"""One COPY session: a connection that streams payloads into COPY commands inside one transaction.

A failure leaves as CopyFailed with what the server reported and the place it named within the command; what that line
is in the file is for those who know the blocks (loading).
"""

from __future__ import annotations

import contextlib
import re
import select
import time
from typing import TYPE_CHECKING, Any, Final, LiteralString, TypeAlias

import psycopg
from psycopg import sql
from psycopg.pq import ConnStatus, ExecStatus

from penstock.model.server.table import TableName
from penstock.server.connect.copy_context import CopyContext, parse_copy_context
from penstock.server.connect.errors import ServerReport, read_report
from penstock.server.connect.search_path import TO_OWN_PATH, TO_USERS_PATH
from penstock.server.table.identity import check_look, compose_look, send_check

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from psycopg.errors import Diagnostic
    from psycopg.pq.abc import PGresult

    from penstock.model.source.block import CopySpec
    from penstock.server.table.identity import LoadedTable

# A statement with all its values in it, for those who pass one on.
Statement: TypeAlias = sql.Composed

# One CopyData message. libpq holds a copy of it until it is sent, and the server one until it is parsed: at this size
# both stay in the processors' caches (with messages as long as a block, backends took 3 % more CPU). With its header of
# 5 bytes it fills libpq's buffer of 8 KiB some times over: what is left over would be a system call of its own.
_MESSAGE_BYTES = 64 * 1024 - 5

# How often a wait looks up to see whether it was called off.
_LOOK_UP_MS = 500

_CANCEL_TIMEOUT_S = 5.0

# From this version on COPY can leave out rows whose values their types refuse, and say so of each
# (release notes of 17, "COPY ... ON_ERROR ignore").
_IGNORES_SINCE = 170_000

# Where the notice of a row left out comes from; a trigger's come from elsewhere.
_COPY_PARSER: Final = "copyfromparse.c"

_NUMBER = re.compile(r"\d+")

# Before the next COPY command, by what became of the savepoint; and before any other statement.
_SAVEPOINTS: Final[dict[str, LiteralString]] = {
    "none": "SAVEPOINT penstock",
    "kept": "RELEASE SAVEPOINT penstock; SAVEPOINT penstock",
    "broken": "ROLLBACK TO SAVEPOINT penstock",
}


# Deferred checks would fail at the commit, when nobody can tell any more by which record.
_PROTECTION: Final = "SET CONSTRAINTS ALL IMMEDIATE; SET LOCAL client_min_messages = notice"


class CopyFailed(Exception):
    """The server refused a session's work, or the connection to it broke.

    `place` counts lines within the COPY command that was running; `is_disconnect` tells that the session is gone.
    """

    def __init__(self, report: ServerReport, place: CopyContext, *, is_disconnect: bool) -> None:
        super().__init__(report.message)
        self.report = report
        self.place = place
        self.is_disconnect = is_disconnect


class Superseded(Exception):
    """The load's claim is not the newest any more: this session may write nothing."""


def compose_table(spec: CopySpec) -> sql.Identifier:
    """Return the name of the table that a spec copies into; without a schema the search path finds it."""
    return sql.Identifier(spec.schema, spec.table) if spec.schema else sql.Identifier(spec.table)


def copy_statement(spec: CopySpec, *, ignores_types: bool = False) -> sql.Composed:
    """Return `COPY table (columns) FROM STDIN WITH (...)` for a spec, every name and value composed.

    With `ignores_types` rows are left out whose values their types refuse, each with a notice; PostgreSQL 17+.
    """
    options: list[sql.Composable] = [
        sql.SQL("FORMAT {}").format(sql.SQL(spec.format)),
        sql.SQL("DELIMITER {}").format(sql.Literal(spec.delimiter)),
        sql.SQL("NULL {}").format(sql.Literal(spec.null)),
        sql.SQL("ENCODING {}").format(sql.Literal(spec.encoding)),
    ]
    if spec.format == "csv":
        options.append(sql.SQL("QUOTE {}").format(sql.Literal(spec.quote)))
        options.append(sql.SQL("ESCAPE {}").format(sql.Literal(spec.escape)))
    if spec.force_null:
        names = sql.SQL(", ").join(map(sql.Identifier, spec.force_null))
        options.append(sql.SQL("FORCE_NULL ({})").format(names))
    if ignores_types:
        options.append(sql.SQL("ON_ERROR ignore, LOG_VERBOSITY verbose"))
    columns = sql.SQL(", ").join(map(sql.Identifier, spec.columns))
    return sql.SQL("COPY {} ({}) FROM STDIN WITH ({})").format(
        compose_table(spec), columns, sql.SQL(", ").join(options)
    )


class CopySession:
    """A connection, its open transaction and at most one COPY in progress; used by one thread.

    `cancel` alone may be called from another thread. Methods raise CopyFailed. Needs INSERT on the table.

    `fence` is a query that every transaction begins with, and that must find a row: else Superseded is raised.

    A session that `is_protected` runs each COPY command under a savepoint, so that a failed one takes nothing along and
    another may follow; constraints are checked at each command's end. Where the server can, it leaves rows out whose
    values their types refuse: `skipped` are those of the last command.

    `tables` are those that must be what they were when the load began, by the names that CopySpecs have: each COPY
    command looks under its own lock, and raises TargetError if its name means another one by then.

    `transaction` counts those that were opened.

    COPY is spoken through libpq's own calls: while it sends, psycopg's Copy waits only until it can write, and a server
    that waits for its notices to be read (a trigger's warnings) never lets it.
    """

    def __init__(
        self,
        connection: psycopg.Connection[Any],
        *,
        fence: sql.Composed | None = None,
        is_protected: bool = False,
        tables: Mapping[TableName, LoadedTable] | None = None,
    ) -> None:
        self._connection = connection
        self._tables = tables or {}
        self._pgconn = connection.pgconn
        self._fence = fence
        self._is_protected = is_protected
        self._savepoint = "none"
        self.ignores_types = is_protected and connection.info.server_version >= _IGNORES_SINCE
        self.skipped: list[int] = []
        if is_protected:
            connection.add_notice_handler(self._hear)
        self._is_open = False
        self.transaction = 0
        self._composed: tuple[tuple[CopySpec, bool], bytes] | None = None
        self._tells_rows = False
        self._has_users_path = False
        self._spec: CopySpec | None = None
        self._is_copying = False
        self._has_heard = False
        self._cancelled_s: float | None = None
        self.round_trip_s = 0.0
        self.commit_s = 0.0

    @property
    def backend_pid(self) -> int:
        """Return the backend's process id, as pg_stat_activity shows it."""
        return self._connection.info.backend_pid

    def begin(self) -> None:
        """Open a transaction, if none is open."""
        if not self._is_open:
            with self._failures():
                self._pgconn.send_query(self._opening().as_bytes(self._connection))
                self._flush()
                self._take_opening()
                self._expect_end()
            self._is_open = True
            self.transaction += 1

    def start_copy(self, spec: CopySpec) -> None:
        """Begin a COPY command, in one round trip with its transaction; how long that took becomes `round_trip_s`.

        It runs with the user's search_path, since triggers, defaults and types may need it.
        """
        self._spec = spec
        began = time.perf_counter()
        parts = [] if self._is_open else [self._opening().as_bytes(self._connection)]
        savepoints = _SAVEPOINTS[self._savepoint] if self._is_protected else ""
        parts += [savepoints.encode()] if savepoints else []
        parts += [TO_USERS_PATH.encode(), self._compose_copy(spec)]
        self.skipped = []
        self._tells_rows = self.ignores_types
        with self._failures():
            self._pgconn.send_query(b"; ".join(parts))
            self._flush()
            if not self._is_open:
                self._take_opening()
            for _ in filter(None, savepoints.split(";")):
                self._take(ExecStatus.COMMAND_OK)
            self._take(ExecStatus.COMMAND_OK)
            self._has_users_path = True
            self._expect(ExecStatus.COPY_IN)
        self.transaction += not self._is_open
        self._is_open, self._is_copying, self._has_heard = True, True, False
        if self._is_protected:
            # Until the command has ended well.
            self._savepoint = "broken"
        self.round_trip_s = time.perf_counter() - began

    def _compose_copy(self, spec: CopySpec) -> bytes:
        """Return the COPY command; made once for many, since composing takes as long as a small command."""
        key = spec, self.ignores_types
        if self._composed is None or self._composed[0] != key:
            statement = copy_statement(spec, ignores_types=self.ignores_types)
            if (table := self._find_table(spec)) is not None:
                # Runs when the COPY has ended, and has its lock.
                statement = sql.SQL("{}; {}").format(statement, compose_look(table, spec.columns))
            self._composed = key, statement.as_bytes(self._connection)
        return self._composed[1]

    def _opening(self) -> sql.Composed:
        """Return what a transaction begins with: it waits for no disk, since the load's end does so for all of them."""
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
        """Send a payload; returns when it has been handed to the kernel."""
        with self._failures():
            for part in parts:
                view = memoryview(part)
                for start in range(0, len(view), _MESSAGE_BYTES):
                    message = view[start : start + _MESSAGE_BYTES]
                    while not self._pgconn.put_copy_data(message):
                        self._wait(select.POLLIN | select.POLLOUT)
                    self._flush()

    def has_answer(self) -> bool:
        """Whether the server said something in the middle of a COPY: an error as a rule, which `finish_copy` raises.

        COPY has no other way to learn of an error early: the server reads on to the end of the command and drops it
        (protocol documentation, "COPY Operations").
        """
        if self._tells_rows:
            # Notices of rows left out are no reason to end a command, and what else there is cannot be told from them.
            return False
        return self._has_heard or bool(self._poll(select.POLLIN, 0))

    def _find_table(self, spec: CopySpec) -> LoadedTable | None:
        return self._tables.get(TableName(schema=spec.schema, name=spec.table))

    def check_table(self, spec: CopySpec) -> None:
        """Look as COPY does, after other statements have written to a spec's table. Raises TargetError."""
        if (table := self._find_table(spec)) is not None:
            with self.between_copies() as connection:
                send_check(connection, table, spec.columns)()

    def finish_copy(self) -> int:
        """End the COPY command and return the rows it reported. Raises TargetError if `tables` has another table."""
        assert self._spec is not None
        self._is_copying, table = False, self._find_table(self._spec)
        with self._failures():
            while not self._pgconn.put_copy_end():
                self._wait(select.POLLIN | select.POLLOUT)
            self._flush()
            reported = self._take(ExecStatus.COMMAND_OK).command_tuples or 0
            found = None if table is None else self._take(ExecStatus.TUPLES_OK)
            self._expect_end()
            if table is not None and found is not None:
                oid, columns = (found.get_value(0, column) or b"" for column in (0, 1))
                check_look(self._connection, table, self._spec.columns, int(oid or 0), columns.decode("ascii"))
        if self._is_protected:
            self._savepoint = "kept"
        return reported

    def undo_copy(self) -> None:
        """Have the COPY command that ended last undone before anything else is done; needs `is_protected`."""
        assert self._is_protected
        self._savepoint = "broken"

    def seal(self, statement: sql.Composed | None) -> None:
        """Run the transaction's last statement, and do what can still fail so that the commit hardly can.

        Deferred triggers run with the user's search_path.
        """
        self.begin()
        checks = sql.SQL(f"{TO_USERS_PATH}; SET CONSTRAINTS ALL IMMEDIATE; {TO_OWN_PATH}")
        self.execute(checks if statement is None else sql.SQL("{}; {}").format(checks, statement))

    def commit(self, statement: sql.Composed | None = None) -> None:
        """Commit, after a last statement; how long it took is kept as `commit_s`.

        Deferred triggers run with the user's search_path.
        """
        began = time.perf_counter()
        commit = sql.SQL(f"{TO_USERS_PATH}; COMMIT")
        if statement is None:
            self.execute(commit)
        else:
            self.begin()
            self.execute(sql.SQL("{}; {}").format(statement, commit))
        self._note_end()
        self.commit_s = time.perf_counter() - began

    def roll_back(self) -> None:
        """Roll back what is open."""
        self._note_end()
        self.execute(sql.SQL("ROLLBACK"))

    def _note_end(self) -> None:
        self._is_open, self._savepoint, self._has_users_path = False, "none", False

    def execute(self, statement: sql.Composable) -> None:
        """Run a statement outside of COPY, in one round trip."""
        with self._failures():
            self._connection.execute(sql.SQL("{}{}").format(sql.SQL(self._leave_copy()), statement))

    @contextlib.contextmanager
    def between_copies(self) -> Iterator[psycopg.Connection[Any]]:
        """Provide the connection for statements in the transaction; a COPY command that failed is undone first."""
        with self._failures():
            if before := self._leave_copy():
                self._connection.execute(before)
            yield self._connection

    def _leave_copy(self) -> LiteralString:
        """Return what is run before anything but COPY: what failed is undone, and search_path is penstock's own."""
        # Which path there was before the savepoint is not known.
        is_broken, has_users_path = self._savepoint == "broken", self._has_users_path
        self._has_users_path = False
        if is_broken:
            self._savepoint = "kept"
            return f"{_SAVEPOINTS['broken']}; {TO_OWN_PATH}; "
        return f"{TO_OWN_PATH}; " if has_users_path else ""

    def cancel(self) -> None:
        """Ask the server to stop what this session is doing; safe from another thread, and more than once.

        Whoever waits for a server that does not answer that gives up after a few seconds.
        """
        if self._cancelled_s is None:
            self._cancelled_s = time.monotonic()
        with contextlib.suppress(psycopg.Error):
            self._connection.cancel_safe(timeout=_CANCEL_TIMEOUT_S)

    def abandon(self) -> None:
        """Fail a COPY in progress and close, which rolls back; never waits or raises, for the way out of an error."""
        with contextlib.suppress(psycopg.Error, OSError):
            if self._is_copying:
                self._pgconn.put_copy_end(b"load abandoned")
        self.close()

    def close(self) -> None:
        """Close the connection; what was not committed is gone."""
        self._connection.close()

    # ---------------------------------------------------------------- libpq, never blocking inside it

    def _hear(self, notice: Diagnostic) -> None:
        """Take note of a row that COPY left out: the first number of the notice is its line."""
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
        """Wait until the socket is ready, and take in what the server sent."""
        while not (ready := self._poll(events, _LOOK_UP_MS)):
            given_up = self._cancelled_s is not None and time.monotonic() - self._cancelled_s > _CANCEL_TIMEOUT_S
            if given_up:
                raise psycopg.OperationalError("the server did not answer a request to cancel")
        if any(found & ~select.POLLOUT for _, found in ready):
            self._has_heard = True
            self._pgconn.consume_input()

    def _poll(self, events: int, timeout_ms: int) -> list[tuple[int, int]]:
        waiting = select.poll()
        waiting.register(self._pgconn.socket, events)
        return waiting.poll(timeout_ms)

    def _take(self, expected: ExecStatus) -> PGresult:
        """Return the next of several results; take in the rest before raising another's error."""
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

    def _expect(self, expected: ExecStatus) -> PGresult:
        """Return the result of that status; take in all the server has to say before raising another's error."""
        result = self._await_result()
        if result is None:
            raise psycopg.OperationalError("the server gave no answer")
        if result.status != ExecStatus.COPY_IN:
            while self._await_result() is not None:
                pass
        if result.status != expected:
            raise psycopg.errors.error_from_result(result)
        return result

    @contextlib.contextmanager
    def _failures(self) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as error:
            report = read_report(self._last_words() or error)
            spec = self._spec
            table, columns = (spec.table, spec.columns) if spec else (None, ())
            place = parse_copy_context(report.context, table=table, columns=columns)
            is_disconnect = self._connection.broken or self._pgconn.status != ConnStatus.OK
            raise CopyFailed(report, place, is_disconnect=is_disconnect) from error

    def _last_words(self) -> psycopg.Error | None:
        """Return the error with which the server ended the connection, if it has and said why."""
        if self._pgconn.status == ConnStatus.OK:
            return None
        with contextlib.suppress(psycopg.Error):
            while (result := self._pgconn.get_result()) is not None and result.status != ExecStatus.COPY_IN:
                error = psycopg.errors.error_from_result(result)
                if error.sqlstate is not None:
                    return error
        return None
