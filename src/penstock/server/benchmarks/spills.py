"""The spilling experiment on one server: sysbench's tables, and a timed query in many concurrent sessions."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

from psycopg import sql

from penstock.frozen import frozen
from penstock.model.server.server import ServerFacts
from penstock.server.benchmarks.schema import SCHEMA, own_schema
from penstock.server.connect.connection import Connection, ConnectionFactory
from penstock.server.connect.errors import translate_errors
from penstock.server.facts.facts import read_server_facts
from penstock.server.sql.queries import fetch_one

_START_TIMEOUT_S = 60


@frozen
class SpillRun:
    """One query in concurrent sessions. Sums are over all plans."""

    # From the first start to the last end.
    elapsed_s: float
    temp_bytes: int
    workers_planned: int
    workers_launched: int


class SpillExperiment:
    """The tables of the experiment on one server. `spill_experiment` creates it."""

    def __init__(self, factory: ConnectionFactory, control: Connection) -> None:
        self._factory = factory
        self._control = control

    def facts(self) -> ServerFacts:
        """Return the server's facts. Raises ServerError."""
        return read_server_facts(self._control)

    def finish_tables(self, tables: Sequence[str]) -> None:
        """Build the keys and indexes that sysbench creates after it inserts rows. Raises ServerError."""
        with translate_errors("building the indexes of the experiment"):
            for table in tables:
                name = sql.Identifier(SCHEMA, table)
                self._control.execute(sql.SQL("ALTER TABLE {} ADD PRIMARY KEY (id)").format(name))
                self._control.execute(sql.SQL("CREATE INDEX ON {} (k)").format(name))
                self._control.execute(sql.SQL("VACUUM (ANALYZE) {}").format(name))

    def create_tablespace(self, name: str, directory: str) -> None:
        """Create a tablespace in a directory of the server's machine. Needs a superuser. Raises ServerError."""
        with translate_errors("creating a tablespace"):
            statement = sql.SQL("CREATE TABLESPACE {} LOCATION {}")
            self._control.execute(statement.format(sql.Identifier(name), sql.Literal(directory)))

    def warm(self, table: str) -> None:
        """Read a table, so that as much of it as fits is in the cache for the next run. Raises ServerError."""
        with translate_errors("reading a table of the experiment"):
            # pad has no index. count(*) would read only the primary key's index.
            name = sql.Identifier(SCHEMA, table)
            self._control.execute(sql.SQL("SELECT pg_catalog.count(pad) FROM {}").format(name))

    def run(self, query: str, *, sessions: int, tablespace: str) -> SpillRun:
        """Run the query in all sessions at the same time, spilling to a tablespace. Raises ServerError."""
        start = threading.Barrier(sessions + 1)
        with ExitStack() as stack:
            opened = [stack.enter_context(self._factory.connect(label="bench")) for _ in range(sessions)]
            for connection in opened:
                with translate_errors("setting temp_tablespaces"):
                    connection.execute("SELECT pg_catalog.set_config('temp_tablespaces', %s, false)", [tablespace])
            with ThreadPoolExecutor(max_workers=sessions) as pool:
                runs = [pool.submit(_explain, connection, query, start) for connection in opened]
                start.wait(_START_TIMEOUT_S)
                began_s = time.perf_counter()
                plans = [run.result() for run in runs]
                elapsed_s = time.perf_counter() - began_s
        # The block counts of a plan's top node include all nodes below it.
        block_bytes = self._block_bytes()
        return SpillRun(
            elapsed_s=elapsed_s,
            temp_bytes=block_bytes * sum(plan.get("Temp Written Blocks", 0) for plan in plans),
            workers_planned=sum(_sum(plan, "Workers Planned") for plan in plans),
            workers_launched=sum(_sum(plan, "Workers Launched") for plan in plans),
        )

    def _block_bytes(self) -> int:
        with translate_errors("reading block_size"):
            return int(fetch_one(self._control, "SELECT pg_catalog.current_setting('block_size')::int")[0])


@contextmanager
def spill_experiment(factory: ConnectionFactory, *, setup: str) -> Iterator[SpillExperiment]:
    """Create the tables of `setup` in their own schema, and drop it in every case. own_schema explains the errors."""
    with own_schema(factory, purpose="measure queries that spill", setup=setup) as control:
        yield SpillExperiment(factory, control)


def _explain(connection: Connection, query: str, start: threading.Barrier) -> dict[str, Any]:
    """Run a query without sending its rows, as the article does. Return the top node of its plan."""
    start.wait(_START_TIMEOUT_S)
    with translate_errors("running a query of the experiment"):
        row = fetch_one(connection, f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {query}".encode())
    plan: dict[str, Any] = row[0][0]["Plan"]
    return plan


def _sum(plan: dict[str, Any], field: str) -> int:
    return int(plan.get(field, 0)) + sum(_sum(below, field) for below in plan.get("Plans", ()))
