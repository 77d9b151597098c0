"""The commit experiment on one server: the article's table and procedure, a timed call, and the server's counters."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from psycopg import sql

from penstock.frozen import frozen
from penstock.model.server.server import ServerFacts
from penstock.server.benchmarks.schema import SCHEMA, own_schema
from penstock.server.connect.connection import Connection, ConnectionFactory, is_usable
from penstock.server.connect.errors import translate_errors
from penstock.server.facts.facts import read_server_facts
from penstock.server.sql.queries import fetch_one, fetch_rows

# The article's procedure, with its names and arguments.
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

# How long to wait until a session that has ended has reported its counters, including to PostgreSQL 14's statistics
# collector.
_COUNTED_TIMEOUT_S = 15
_POLL_S = 0.2
_CANCEL_TIMEOUT_S = 10


@frozen
class DatabaseCounters:
    """The row of database_counters.sql."""

    xact_commit: int
    tup_inserted: int

    def since(self, before: DatabaseCounters) -> DatabaseCounters:
        """Return the difference to an earlier reading."""
        return DatabaseCounters(
            xact_commit=self.xact_commit - before.xact_commit, tup_inserted=self.tup_inserted - before.tup_inserted
        )


@frozen
class CallResult:
    """One timed call of my_insert, and its effects."""

    # The backend that ran the call.
    pid: int
    elapsed_s: float
    # The number of rows in the table after the call.
    rows: int
    # The number of transactions that inserted them.
    commits: int
    # What the database counted in this time, including other sessions.
    counted: DatabaseCounters


class CommitExperiment:
    """The table and procedure of the experiment on one server; `experiment` creates it."""

    def __init__(self, factory: ConnectionFactory, control: Connection) -> None:
        self._factory = factory
        self._control = control

    def facts(self) -> ServerFacts:
        """Return the server's facts. Raises ServerError."""
        return read_server_facts(self._control)

    def watch_background(self, seconds: float) -> DatabaseCounters:
        """Return what other sessions commit and insert in `seconds`. Raises ServerError."""
        before = self._read_counters()
        time.sleep(seconds)
        return self._read_counters().since(before)

    def call(self, *, rows: int, rows_per_commit: int, clock: Callable[[], float] = time.perf_counter) -> CallResult:
        """Empty the table, insert `rows` with a commit every `rows_per_commit`, and count. Raises ServerError."""
        with translate_errors("emptying the table of the experiment"):
            self._control.execute(f"TRUNCATE {SCHEMA}.demo".encode())
            self._control.execute(f"VACUUM {SCHEMA}.demo".encode())
        before = self._read_counters()
        pid, elapsed_s = self._time_call(rows, rows_per_commit, clock)
        counted = self._await_counted(before, rows)
        found_rows, commits = self._count_rows()
        return CallResult(pid=pid, elapsed_s=elapsed_s, rows=found_rows, commits=commits, counted=counted)

    def _time_call(self, rows: int, rows_per_commit: int, clock: Callable[[], float]) -> tuple[int, float]:
        # Closing the connection makes the session report its counters, which do not change during the call.
        with self._factory.connect(label="bench") as connection, translate_errors("calling my_insert"):
            # As in the article, the procedure uses the table's unqualified name. With a SET clause the procedure could
            # not commit.
            connection.execute(f"SET search_path = {SCHEMA}".encode())
            began_s = clock()
            try:
                connection.execute("CALL my_insert(%s::int, %s::int)", [rows, rows_per_commit])
            except BaseException:
                if not is_usable(connection):
                    # Otherwise the server would continue the call and keep the schema locked.
                    connection.cancel_safe(timeout=_CANCEL_TIMEOUT_S)
                raise
            return connection.info.backend_pid, clock() - began_s

    def _count_rows(self) -> tuple[int, int]:
        """Return the number of rows and of the transactions that inserted them, by the xmin of each row."""
        query = sql.SQL("SELECT pg_catalog.count(*), pg_catalog.count(DISTINCT xmin::text::int8) FROM {}").format(
            sql.Identifier(SCHEMA, "demo")
        )
        with translate_errors("counting the rows of the experiment"):
            row = fetch_one(self._control, query)
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
    """Create the experiment in its own schema, and drop it in every case. own_schema explains rights and errors."""
    with own_schema(factory, purpose="measure commits", setup=MY_INSERT) as control:
        yield CommitExperiment(factory, control)
