"""The table and the procedure of experiment C on one server, one call of the procedure, and what the call used.

Processors' time and WAL are counted around each call.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from psycopg import sql

from penstock.core.catalogue.catalog import read_server_facts
from penstock.core.connect.connection import Connection, ConnectionFactory, is_usable
from penstock.core.connect.errors import translate_errors
from penstock.core.errors import ServerError
from penstock.core.host.machine import busy_cpu_s
from penstock.core.host.process import process_cpu_s, server_cpu_s
from penstock.core.slotted import slotted
from penstock.core.sql import fetch_one, fetch_rows
from penstock.core.values.server import ServerFacts
from penstock.watch.values import Progress
from penstock_lab.bench.commits.plan import CallUse
from penstock_lab.bench.ways import SCHEMA, own_schema

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

# How long to wait until the database's counters include a session that has ended. On PostgreSQL 14 they pass through
# the statistics collector.
_COUNTED_TIMEOUT_S = 15
_POLL_S = 0.2
_CANCEL_TIMEOUT_S = 10


@slotted
class DatabaseCounters:
    """The row of database_counters.sql: commits and inserted rows of the database."""

    xact_commit: int
    tup_inserted: int

    def since(self, before: DatabaseCounters) -> DatabaseCounters:
        """Return by how much the counters have grown since an earlier reading."""
        return DatabaseCounters(
            xact_commit=self.xact_commit - before.xact_commit, tup_inserted=self.tup_inserted - before.tup_inserted
        )


@slotted
class CallResult:
    """What one call of procedure my_insert used, and the rows and commits that it made."""

    # The backend that ran the call.
    pid: int
    # Its rows and commits are those that the table has after the call.
    use: CallUse
    # How much the counters of the database grew during the call. They include what other sessions did.
    counted: DatabaseCounters


@slotted
class WalFlushes:
    """The row of wal_flushes.sql: how often the server has flushed WAL, as far as its processes have reported."""

    flushes: int


@slotted
class _Clocks:
    """The time, and the processors' seconds of a backend, of its server and of this machine. None if not known."""

    at_s: float
    backend_cpu_s: float | None
    server_cpu_s: float | None
    machine_cpu_s: float | None


class CommitExperiment:
    """The table and the procedure of the experiment on one server. The function `experiment` creates them."""

    def __init__(self, factory: ConnectionFactory, control: Connection) -> None:
        self._factory = factory
        self._control = control
        self.facts: ServerFacts = read_server_facts(control)

    def watch_background(self, seconds: float) -> DatabaseCounters:
        """Return how many commits and rows other sessions make in `seconds`. Raises ServerError."""
        before = self._read_counters()
        time.sleep(seconds)
        return self._read_counters().since(before)

    def call(self, *, rows: int, rows_per_commit: int) -> CallResult:
        """Empty the table, and insert `rows` with a commit after every `rows_per_commit`.

        Return what the call used, and what the table and the counters show. Raises ServerError.
        """
        with translate_errors("emptying the table of the experiment"):
            self._control.execute(f"TRUNCATE {SCHEMA}.demo".encode())
            self._control.execute(f"VACUUM {SCHEMA}.demo".encode())
        before, flushes_before = self._read_counters(), self._read_flushes()
        began_at_s, wal_before = time.time(), self._read_wal_position()
        pid, began, ended = self._time_call(rows, rows_per_commit)
        wal_bytes = self._read_wal_position() - wal_before
        counted = self._await_counted(before, rows)
        flushes = self._read_flushes()
        found_rows, commits = self._count_rows()
        use = CallUse(
            rows=found_rows,
            commits=commits,
            began_at_s=began_at_s,
            wal_bytes=wal_bytes,
            wal_flushes=None if flushes is None or flushes_before is None else flushes - flushes_before,
            elapsed_s=ended.at_s - began.at_s,
            backend_cpu_s=_subtract(ended.backend_cpu_s, began.backend_cpu_s),
            server_cpu_s=_subtract(ended.server_cpu_s, began.server_cpu_s),
            machine_cpu_s=_subtract(ended.machine_cpu_s, began.machine_cpu_s),
        )
        return CallResult(pid=pid, use=use, counted=counted)

    def _time_call(self, rows: int, rows_per_commit: int) -> tuple[int, _Clocks, _Clocks]:
        # The session reports its counters when the connection is closed, and not during the call.
        with self._factory.connect(label="bench") as connection, translate_errors("calling my_insert"):
            # my_insert names its table without a schema, as in the article. A SET clause of the procedure would forbid
            # COMMIT in it, so the session sets search_path.
            connection.execute(f"SET search_path = {SCHEMA}".encode())
            pid = connection.info.backend_pid
            began = self._read_clocks(pid)
            try:
                connection.execute("CALL my_insert(%s::int, %s::int)", [rows, rows_per_commit])
            except BaseException:
                if not is_usable(connection):
                    # If the call is not cancelled, the server continues it and keeps the schema locked.
                    connection.cancel_safe(timeout=_CANCEL_TIMEOUT_S)
                raise
            return pid, began, self._read_clocks(pid)

    def _read_clocks(self, pid: int) -> _Clocks:
        """Return the clocks of a backend. A server in a container has other pids, so only its own machine's count."""
        server_s = server_cpu_s(pid) if self.facts.is_local else None
        return _Clocks(
            at_s=time.perf_counter(),
            backend_cpu_s=None if server_s is None else process_cpu_s(pid),
            server_cpu_s=server_s,
            machine_cpu_s=busy_cpu_s() if self.facts.is_local else None,
        )

    def _read_wal_position(self) -> int:
        with translate_errors("reading the WAL position"):
            position = fetch_rows(self._control, "watch/progress", Progress)[0].wal_bytes
        return position or 0

    def _read_flushes(self) -> int | None:
        """Return how often the server has flushed WAL. Aurora has no such count: pg_stat_wal fails there."""
        if self.facts.is_aurora:
            return None
        with translate_errors("reading how often WAL was flushed"):
            return fetch_rows(self._control, "penstock_lab.bench/wal_flushes", WalFlushes)[0].flushes

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
            return fetch_rows(self._control, "penstock_lab.bench/database_counters", DatabaseCounters)[0]

    def _await_counted(self, before: DatabaseCounters, rows: int) -> DatabaseCounters:
        deadline_s = time.monotonic() + _COUNTED_TIMEOUT_S
        while (counted := self._read_counters().since(before)).tup_inserted < rows and time.monotonic() < deadline_s:
            time.sleep(_POLL_S)
        return counted


def _subtract(now: float | None, before: float | None) -> float | None:
    return None if now is None or before is None else now - before


@contextmanager
def experiment(factory: ConnectionFactory) -> Iterator[CommitExperiment]:
    """Create the experiment's table and procedure in their own schema, and drop the schema in every case.

    `own_schema` has the rights needed and the errors raised.
    """
    with own_schema(factory, purpose="measure commits", setup=MY_INSERT) as control:
        yield CommitExperiment(factory, control)


def check_sums(result: CallResult, *, rows: int, commits: int) -> None:
    """Raise ServerError if a run did not make the expected number of rows or commits.

    The counts from the table are exact. pg_stat_database includes other sessions, so its counts may only be higher.
    """
    counted, use = result.counted, result.use
    is_counted = counted.tup_inserted >= rows and counted.xact_commit >= commits
    if (use.rows, use.commits) == (rows, commits) and is_counted:
        return
    raise ServerError(
        "the rows and commits of a run do not match",
        detail=f"Asked for {rows:,} rows and {commits:,} commits; the table has {use.rows:,} rows of "
        f"{use.commits:,} transactions, pg_stat_database counted {counted.tup_inserted:,} and "
        f"{counted.xact_commit:,} commits.",
        hint="Measure while no other session uses this schema, and do not reset statistics.",
    )
