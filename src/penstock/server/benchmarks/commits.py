"""The commit experiment on one server: the article's table and procedure, a timed call, and what the server counted."""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from psycopg import sql

from penstock.errors import ServerError, TargetError
from penstock.server.connect.connection import is_usable
from penstock.server.connect.errors import in_transaction, translate_errors
from penstock.server.facts.facts import read_server_facts
from penstock.server.sql.queries import fetch_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.model.server.server import ServerFacts
    from penstock.server.connect.connection import Connection, ConnectionFactory

SCHEMA = "penstock_bench"

# The comment by which the schema is known as ours.
_MARK = "made by penstock bench commits, which drops it"

# "commi" in ASCII: one experiment at a time in a database.
_LOCK = 0x636F6D6D69

# Does what the article's does, with its names and arguments.
MY_INSERT = """
create table demo (id int primary key,n int);
create procedure my_insert(rows_per_call int,rows_per_xact int) as $$
declare
 row_counter int :=0;
begin for i in 1..rows_per_call loop
  insert into demo values (i,i);
  row_counter:=row_counter+1;
  if row_counter>=rows_per_xact then commit; row_counter:=0; end if;
 end loop; commit; end;
$$ language plpgsql;
"""

# A session that ends has told its counters by then, also to PostgreSQL 14's collector.
_COUNTED_TIMEOUT_S = 15
_POLL_S = 0.2
_CANCEL_TIMEOUT_S = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseCounters:
    """The row of database_counters.sql."""

    xact_commit: int
    tup_inserted: int

    def since(self, before: DatabaseCounters) -> DatabaseCounters:
        """Return what was added."""
        return DatabaseCounters(
            xact_commit=self.xact_commit - before.xact_commit, tup_inserted=self.tup_inserted - before.tup_inserted
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CallResult:
    """A call of my_insert: how long it took, and what the database counted meanwhile, others' work too.

    `rows` are in the table now, from so many transactions (`commits`); `pid` was the backend.
    """

    pid: int
    elapsed_s: float
    rows: int
    commits: int
    counted: DatabaseCounters


class CommitExperiment:
    """The table and procedure on one server, from `experiment`."""

    def __init__(self, factory: ConnectionFactory, control: Connection) -> None:
        self._factory = factory
        self._control = control

    def facts(self) -> ServerFacts:
        """Return what server this is. Raises ServerError."""
        return read_server_facts(self._control)

    def watch_background(self, seconds: float) -> DatabaseCounters:
        """Return what others commit and insert in so many seconds. Raises ServerError."""
        before = self._read_counters()
        time.sleep(seconds)
        return self._read_counters().since(before)

    def call(self, *, rows: int, rows_per_commit: int, clock: Callable[[], float] = time.perf_counter) -> CallResult:
        """Empty the table, insert `rows` with a commit every so many, and count. Raises ServerError."""
        with translate_errors("emptying the table of the experiment"):
            self._control.execute(f"TRUNCATE {SCHEMA}.demo".encode())
            self._control.execute(f"VACUUM {SCHEMA}.demo".encode())
        before = self._read_counters()
        pid, elapsed_s = self._time_call(rows, rows_per_commit, clock)
        counted = self._await_counted(before, rows)
        found_rows, commits = self._count_rows()
        return CallResult(pid=pid, elapsed_s=elapsed_s, rows=found_rows, commits=commits, counted=counted)

    def drop(self) -> None:
        """Drop the schema with all that is in it. Raises ServerError."""
        with translate_errors(f"dropping schema {SCHEMA}"):
            self._control.execute(f"DROP SCHEMA {SCHEMA} CASCADE".encode())

    def _time_call(self, rows: int, rows_per_commit: int, clock: Callable[[], float]) -> tuple[int, float]:
        # Its end has the session's counters told: while the call runs, they stand still.
        with self._factory.connect(label="bench") as connection, translate_errors("calling my_insert"):
            # The procedure names its table as the article does. One with a SET clause could not commit.
            connection.execute(f"SET search_path = {SCHEMA}".encode())
            began_s = clock()
            try:
                connection.execute("CALL my_insert(%s::int, %s::int)", [rows, rows_per_commit])
            except BaseException:
                if not is_usable(connection):
                    # The server would go on with it, and hold the schema.
                    connection.cancel_safe(timeout=_CANCEL_TIMEOUT_S)
                raise
            return connection.info.backend_pid, clock() - began_s

    def _count_rows(self) -> tuple[int, int]:
        """Return the rows and the transactions that they came with: each row has the number of its own."""
        query = sql.SQL("SELECT pg_catalog.count(*), pg_catalog.count(DISTINCT xmin::text::int8) FROM {}").format(
            sql.Identifier(SCHEMA, "demo")
        )
        with translate_errors("counting the rows of the experiment"):
            row = self._control.execute(query).fetchone()
        assert row is not None
        return int(row[0]), int(row[1])

    def _read_counters(self) -> DatabaseCounters:
        with translate_errors("reading pg_stat_database"):
            return fetch_rows(self._control, "database_counters", DatabaseCounters)[0]

    def _await_counted(self, before: DatabaseCounters, rows: int) -> DatabaseCounters:
        deadline_s = time.monotonic() + _COUNTED_TIMEOUT_S
        while (counted := self._read_counters().since(before)).tup_inserted < rows and time.monotonic() < deadline_s:
            time.sleep(_POLL_S)
        return counted


@contextmanager
def experiment(factory: ConnectionFactory) -> Iterator[CommitExperiment]:
    """Provide the experiment in a schema of its own, dropped on every way out.

    One that a killed run has left is replaced. Needs CREATE on the database. Raises TargetError for somebody else's
    schema of that name, ServerError for a pooler, a standby, and an experiment that runs already.
    """
    with factory.connect(label="bench") as control:
        factory.refuse_unwritable("measure commits")
        if read_server_facts(control).is_in_recovery:
            raise ServerError("cannot measure commits on a standby", hint="Name the primary in --to.")
        made = CommitExperiment(factory, control)
        _create(control)
        try:
            yield made
        finally:
            made.drop()


def _create(control: Connection) -> None:
    with in_transaction(control, f"creating schema {SCHEMA}"):
        row = control.execute(
            "SELECT pg_catalog.pg_try_advisory_lock(%s), pg_catalog.to_regnamespace(%s)::oid,"
            " pg_catalog.obj_description(pg_catalog.to_regnamespace(%s)::oid, 'pg_namespace')",
            [_LOCK, SCHEMA, SCHEMA],
        ).fetchone()
        assert row is not None
        is_alone, oid, comment = row
        if not is_alone:
            raise ServerError("another penstock bench commits runs in this database", hint="Wait until it ends.")
        if oid is not None and comment != _MARK:
            raise TargetError(
                f'schema "{SCHEMA}" already exists and was not created by penstock',
                detail="It lacks the comment of penstock bench commits.",
                hint="Name another database in --to, or rename the schema.",
            )
        if oid is not None:
            control.execute(f"DROP SCHEMA {SCHEMA} CASCADE".encode())
        control.execute(f"CREATE SCHEMA {SCHEMA}".encode())
        control.execute(f"COMMENT ON SCHEMA {SCHEMA} IS '{_MARK}'".encode())
        control.execute(f"SET LOCAL search_path = {SCHEMA}; {MY_INSERT}".encode())
