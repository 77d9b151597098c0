"""One COPY session: a connection that streams payloads into COPY commands inside one transaction.

A failure leaves as CopyFailed with what the server reported and the place it named within the command; what that line
is in the file is for those who know the blocks (loading).
"""

from __future__ import annotations

import contextlib
import select
import time
from typing import TYPE_CHECKING, Any, LiteralString

import psycopg
from psycopg import sql
from psycopg.pq import ConnStatus, ExecStatus

from penstock.server.copy_context import CopyContext, parse_copy_context
from penstock.server.errors import ServerReport, read_report

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from psycopg.pq.abc import PGresult

    from penstock.model.block import CopySpec

# One CopyData message of libpq, which holds a copy of it until it is sent.
_MESSAGE_BYTES = 1024 * 1024

# How often a wait looks up to see whether it was called off.
_LOOK_UP_MS = 500

_CANCEL_TIMEOUT_S = 5.0


class CopyFailed(Exception):
    """The server refused a session's work, or the connection to it broke.

    `place` counts lines within the COPY command that was running; `is_disconnect` tells that the session is gone.
    """

    def __init__(self, report: ServerReport, place: CopyContext, *, is_disconnect: bool) -> None:
        super().__init__(report.message)
        self.report = report
        self.place = place
        self.is_disconnect = is_disconnect


def copy_statement(spec: CopySpec) -> sql.Composed:
    """Return `COPY table (columns) FROM STDIN WITH (...)` for a spec, every name and value composed."""
    table = sql.Identifier(spec.schema, spec.table) if spec.schema else sql.Identifier(spec.table)
    options = [
        sql.SQL("FORMAT {}").format(sql.SQL(spec.format)),
        sql.SQL("DELIMITER {}").format(sql.Literal(spec.delimiter)),
        sql.SQL("NULL {}").format(sql.Literal(spec.null)),
        sql.SQL("ENCODING {}").format(sql.Literal(spec.encoding)),
    ]
    if spec.format == "csv":
        options.append(sql.SQL("QUOTE {}").format(sql.Literal(spec.quote)))
        options.append(sql.SQL("ESCAPE {}").format(sql.Literal(spec.escape)))
    columns = sql.SQL(", ").join(map(sql.Identifier, spec.columns))
    return sql.SQL("COPY {} ({}) FROM STDIN WITH ({})").format(table, columns, sql.SQL(", ").join(options))


class CopySession:
    """A connection, its open transaction and at most one COPY in progress; used by one thread.

    `cancel` alone may be called from another thread. Methods raise CopyFailed. Needs INSERT on the table.

    COPY is spoken through libpq's own calls: while it sends, psycopg's Copy waits only until it can write, and a server
    that waits for its notices to be read (a trigger's warnings) never lets it.
    """

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection
        self._pgconn = connection.pgconn
        self._spec: CopySpec | None = None
        self._is_copying = False
        self._has_heard = False
        self._cancelled_s: float | None = None
        self.round_trip_s = 0.0
        self.is_committed = False

    @property
    def backend_pid(self) -> int:
        """Return the backend's process id, as pg_stat_activity shows it."""
        return self._connection.info.backend_pid

    def begin(self) -> None:
        """Open the transaction that all COPY commands of this session share."""
        self.execute("BEGIN")

    def start_copy(self, spec: CopySpec) -> None:
        """Begin a COPY command; how long the server took to answer is kept as `round_trip_s`."""
        self._spec = spec
        began = time.perf_counter()
        with self._failures():
            self._pgconn.send_query(copy_statement(spec).as_bytes(self._connection))
            self._flush()
            self._expect(ExecStatus.COPY_IN)
        self._is_copying, self._has_heard = True, False
        self.round_trip_s = time.perf_counter() - began

    def send(self, parts: Iterable[bytes | memoryview]) -> None:
        """Send a payload; returns when it has been handed to the kernel."""
        with self._failures():
            for part in parts:
                for start in range(0, len(part), _MESSAGE_BYTES):
                    message = part if len(part) <= _MESSAGE_BYTES else part[start : start + _MESSAGE_BYTES]
                    while not self._pgconn.put_copy_data(message):
                        self._wait(select.POLLIN | select.POLLOUT)
                    self._flush()

    def has_answer(self) -> bool:
        """Whether the server said something in the middle of a COPY: an error as a rule, which `finish_copy` raises.

        COPY has no other way to learn of an error early: the server reads on to the end of the command and drops it
        (protocol documentation, "COPY Operations").
        """
        return self._has_heard or bool(self._poll(select.POLLIN, 0))

    def finish_copy(self) -> int:
        """End the COPY command and return the rows it reported."""
        self._is_copying = False
        with self._failures():
            while not self._pgconn.put_copy_end():
                self._wait(select.POLLIN | select.POLLOUT)
            self._flush()
            return self._expect(ExecStatus.COMMAND_OK).command_tuples or 0

    def prepare_commit(self) -> None:
        """Do what can still fail, so that the commit hardly can: check deferred constraints, ask for durability.

        Where synchronous_commit is off, the commit would be said to be done before it is safe.
        """
        self.execute(
            "SET CONSTRAINTS ALL IMMEDIATE;"
            " SELECT pg_catalog.set_config('synchronous_commit', 'on', true)"
            " WHERE pg_catalog.current_setting('synchronous_commit') = 'off'"
        )

    def commit(self) -> None:
        """Commit; the server's own synchronous_commit decides what that waits for."""
        self.execute("COMMIT")
        self.is_committed = True

    def execute(self, statement: LiteralString | sql.Composed) -> None:
        """Run a statement outside of COPY."""
        with self._failures():
            self._connection.execute(statement)

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
