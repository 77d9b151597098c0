"""Faults before the first row and after the last: a load waits only if a connection has worked before."""

from __future__ import annotations

import re
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from penstock.core.connect.connection import ConnectionFactory
from penstock.core.errors import ServerError
from penstock.core.values.job import Housekeeping, LoadJob, LoadRules
from penstock.loading.loader import Loader
from penstock.loading.values.plan import ForeseenLoad
from penstock_lab.topology.relay import Relay
from support.codes import has_code
from support.loads import Loads, target
from support.modes import mode_target
from support.parts import rest

if TYPE_CHECKING:
    from collections.abc import Iterator

# Behind the packets of a handshake, and long before a plan is made.
_IN_PLANNING = 12


@pytest.fixture
def relay(database18: str) -> Iterator[Relay]:
    """Provide a relay to the server."""
    given = conninfo_to_dict(database18)
    relay = Relay(Path(f"{given['host']}/.s.PGSQL.{given['port']}"))
    yield relay
    relay.close()


@pytest.fixture
def job(database18: str, tmp_path: Path) -> LoadJob:
    """Provide a load that waits for half a minute, of one row into table t."""
    Loads(database18).execute("CREATE TABLE t (a int)")
    path = tmp_path / "rows.csv"
    path.write_text("a\n1\n")
    return LoadJob(targets=(target(path),), rules=LoadRules(retry_for=30.0))


def through(relay: Relay, conninfo: str) -> ConnectionFactory:
    """Return the factory for connections through the relay."""
    return ConnectionFactory(make_conninfo(conninfo, host="127.0.0.1", port=relay.port, sslmode="disable"))


def test_a_connection_lost_while_planning_is_waited_out(relay: Relay, database18: str, job: LoadJob) -> None:
    """It is said, and planned again."""
    notices: list[str] = []
    with Loader(through(relay, database18), Housekeeping(no_record=True)) as loader:
        relay.cut_at(_IN_PLANNING)
        plan = loader.plan(job, on_notice=notices.append)
        assert loader.run(plan).rows == 1
    assert len(notices) == 1
    assert notices[0].endswith(": retrying in 0.5 s")


@contextmanager
def counting_trips() -> Iterator[list[int]]:
    """Count round trips to the server: a statement outside a pipeline is one, and so is a pipeline."""
    trips = [0]
    execute, leave = psycopg.Cursor.execute, psycopg.Pipeline.__exit__

    def count_statement(self: psycopg.Cursor, *arguments: Any, **options: Any) -> Any:
        trips[0] += self.connection.pgconn.pipeline_status == psycopg.pq.PipelineStatus.OFF
        return execute(self, *arguments, **options)

    def count_pipeline(self: psycopg.Pipeline, *arguments: Any) -> None:
        trips[0] += 1
        leave(self, *arguments)

    with (
        patch.object(psycopg.Cursor, "execute", count_statement),
        patch.object(psycopg.Pipeline, "__exit__", count_pipeline),
    ):
        yield trips


def test_a_ledger_costs_the_plan_of_one_file_two_round_trips(database18: str, job: LoadJob) -> None:
    """It reads what loads have changed, all in one pipeline, and whether the file has changed since it was loaded."""

    def count_trips() -> int:
        with counting_trips() as trips, Loader(ConnectionFactory(database18), Housekeeping(no_record=True)) as loader:
            loader.plan(job)
        return trips[0]

    before = count_trips()
    with Loader(ConnectionFactory(database18), Housekeeping(no_record=True)) as loader:
        loader.run(loader.plan(job))
    assert before > 2
    assert count_trips() == before + 2


@pytest.mark.parametrize("step", ["space", "lease"])
def test_a_connection_lost_at_a_look_before_the_load_is_waited_out(
    relay: Relay, database18: str, job: LoadJob, step: str
) -> None:
    """Room on disks, and the server's settings."""
    with Loader(through(relay, database18), Housekeeping(settings="bulk-load", no_record=True)) as loader:
        plan = loader.plan(job)
        relay.cut_at(3)
        if step == "space":
            assert loader.forecast_volume(ForeseenLoad(plan=plan), device="disk", free_bytes=0).is_short
        else:
            assert loader.foresee(plan).steps["settings"]


def test_a_server_that_never_answered_is_told_at_once(database18: str, job: LoadJob) -> None:
    """A mistyped port, or database, is not waited for."""
    for conninfo in ("host=127.0.0.1 port=1", make_conninfo(database18, dbname="no such database")):
        notices: list[str] = []
        with Loader(ConnectionFactory(conninfo)) as loader, pytest.raises(ServerError) as caught:
            loader.plan(job, on_notice=notices.append)
        assert (notices, caught.value.is_transient) == ([], False)


def test_a_server_that_went_away_is_waited_for(relay: Relay, database18: str) -> None:
    """Where a session had stood; and one in another database of the same server goes by that."""
    factory = through(relay, database18)
    factory.connect().close()
    relay.close()
    for known in (factory, factory.in_database("postgres")):
        with pytest.raises(ServerError) as caught:
            known.connect()
        assert caught.value.is_transient


@pytest.mark.parametrize(("code", "passes"), [("57P03", True), ("3D000", False), ("28000", False)])
def test_a_server_that_is_starting_is_waited_for(code: str, passes: bool) -> None:
    """It says so itself, also to a first connection; another refusal will not pass."""
    with refusing_server(code) as port, pytest.raises(ServerError) as caught:
        ConnectionFactory(f"host=127.0.0.1 port={port} sslmode=disable gssencmode=disable").connect()
    assert caught.value.is_transient == passes


# A process of its own: libpq asks whether a server is there without letting other threads run.
_REFUSING = """
import socket, struct, sys
fields = b"SFATAL\\0C" + sys.argv[1].encode() + b"\\0Mno\\0"
with socket.create_server(("127.0.0.1", 0)) as listener:
    print(listener.getsockname()[1], flush=True)
    while True:
        client, _ = listener.accept()
        client.recv(4096)
        client.sendall(b"E" + struct.pack("!i", 5 + len(fields)) + fields + b"\\0")
        client.close()
"""


@contextmanager
def refusing_server(code: str) -> Iterator[int]:
    """Provide the port of a server that refuses every connection with one SQLSTATE."""
    with subprocess.Popen([sys.executable, "-c", _REFUSING, code], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        yield int(server.stdout.readline())
        server.kill()


@pytest.mark.part("rest")
@pytest.mark.parametrize("mode", ["append", rest("replace")])
def test_plan_names_who_keeps_readers_out(database: str, tmp_path: Path, mode: str) -> None:
    """A table whose definition cannot be read is waited for, which is said, and not longer than --retry-for."""
    Loads(database).execute("CREATE TABLE t (a int PRIMARY KEY)")
    path = tmp_path / "rows.csv"
    path.write_text("a\n1\n")
    job = LoadJob(targets=(mode_target(path, mode),), rules=LoadRules(retry_for=2.2))
    notices: list[str] = []
    with psycopg.connect(database) as holder, Loader(ConnectionFactory(database)) as loader:
        holder.execute("LOCK TABLE t")
        # A replaced table is first looked into, where the watch of locks cancels the statement.
        code = "57014" if mode == "replace" else "55P03"
        with pytest.raises(ServerError, match=r"could not get a lock within 2\.2 s", check=has_code(code)) as caught:
            loader.plan(job, on_notice=notices.append)
        blocker = re.compile(rf"\b{holder.info.backend_pid}\b")
        assert blocker.search(str(caught.value.detail))
        assert [blocker.search(each) is not None for each in notices] == [True]
