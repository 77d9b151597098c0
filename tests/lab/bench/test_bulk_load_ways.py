"""Experiment A in small, on a real server: every way stores the same rows."""

from __future__ import annotations

import gzip
import threading
import time
from typing import TYPE_CHECKING

import psycopg
import pytest

from penstock.core.connect.connection import ConnectionFactory
from penstock.core.errors import LabError, TargetError
from penstock.settings.backend import SystemSettings
from penstock_lab.bench.bulk_load.plan import BulkLoadExperiment
from penstock_lab.bench.bulk_load.run import (
    DEMO_DATABASE,
    LOAD_METHODS,
    embedded_target,
    make_tables,
    measure_bulk_load,
)
from penstock_lab.bench.ways import LoadTask, bulk_load_settings, own_schema
from penstock_lab.datasets.writer import write_imdb
from penstock_lab.programs import Psql

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from penstock.embedded.server import EmbeddedServer
    from penstock_lab.bench.bulk_load.plan import Load
    from penstock_lab.datasets.datafiles import DataFile

SCHEMA = "staging"
CHECKSUM = f"SELECT md5(string_agg(p::text, '|' ORDER BY p::text)) FROM {SCHEMA}.title_principals AS p"


@pytest.fixture
def files(tmp_path: Path) -> tuple[DataFile, ...]:
    """Provide a tiny set."""
    return write_imdb(tmp_path, scale=0.00002)


@pytest.fixture
def server(new_server: Callable[..., EmbeddedServer]) -> EmbeddedServer:
    """Provide a running server for the test alone: the ways use its database postgres."""
    made = new_server()
    made.ensure_running()
    return made


@pytest.fixture
def connection(server: EmbeddedServer) -> Iterator[psycopg.Connection]:
    """Provide a connection to it."""
    with psycopg.connect(server.conninfo(), autocommit=True) as opened:
        yield opened


@pytest.fixture
def setting(server: EmbeddedServer, files: tuple[DataFile, ...]) -> Iterator[LoadTask]:
    """Provide what every way loads."""
    connect = ConnectionFactory(server.conninfo())
    yield LoadTask(
        files=files,
        schema=SCHEMA,
        psql=psql_of(server),
        connect=connect,
        open_settings=lambda: SystemSettings(connect),
    )
    connect.close()


def psql_of(server: EmbeddedServer) -> Psql:
    """Return the server's own psql."""
    return Psql(program=server.spec.installation.program("psql"), conninfo=server.conninfo())


@pytest.mark.part("rest")
def test_steps_are_interleaved_and_the_last_ones_tables_stay(server: EmbeddedServer) -> None:
    """Each step once in each round, with every row of its files counted."""
    said: list[str] = []
    result = measure_bulk_load(
        BulkLoadExperiment(imdb_scale=0.00002, rounds=2),
        open_target=lambda files: embedded_target(server, files),
        say=said.append,
    )
    (target,) = result.targets
    names = [each.step.name for each in target.steps]
    assert [line.split("server, ")[1].rpartition(":")[0] for line in said[-6:]] == names * 2
    assert [[run.rows for run in each.runs] for each in target.steps] == [[result.rows] * 2] * 3
    with psycopg.connect(server.conninfo(), dbname=DEMO_DATABASE) as demo:
        assert demo.execute("SELECT count(*) > 0 FROM title_principals").fetchone() == (True,)


@pytest.mark.part("rest")
@pytest.mark.parametrize("load", ["psql in parallel", "penstock"])
def test_every_way_stores_what_the_first_stores(connection: psycopg.Connection, setting: LoadTask, load: Load) -> None:
    """The ways differ in time alone: quotes, backslashes and nulls too are the same."""
    sums = []
    for one in ("psql in turn", load):
        make_tables(setting)
        LOAD_METHODS[one](setting)
        sums.append(connection.execute(CHECKSUM).fetchone())
    assert sums[0] == sums[1] != (None,)


@pytest.mark.part("rest")
def test_settings_of_bulk_load_hold_during_the_load_alone(connection: psycopg.Connection, setting: LoadTask) -> None:
    """And are restored before the next step."""
    shown = "SELECT setting FROM pg_settings WHERE name = 'checkpoint_timeout'"
    before = connection.execute(shown).fetchone()
    with bulk_load_settings(setting), psycopg.connect(setting.psql.conninfo) as other:
        assert other.execute(shown).fetchone() == ("1800",)
    with psycopg.connect(setting.psql.conninfo) as other:
        assert other.execute(shown).fetchone() == before != ("1800",)


@pytest.mark.part("rest")
def test_psqls_error_is_told(server: EmbeddedServer, files: tuple[DataFile, ...]) -> None:
    """The server's message is the detail."""
    with pytest.raises(LabError, match="could not load") as caught:
        psql_of(server).copy(files[0].path, "COPY nowhere FROM STDIN")
    assert '"nowhere" does not exist' in str(caught.value.detail)


def test_cut_gzip_file_is_told(server: EmbeddedServer, connection: psycopg.Connection, tmp_path: Path) -> None:
    """Alone, psql would take what came for all there is."""
    connection.execute("CREATE TABLE t (line text)")
    path = tmp_path / "cut.gz"
    path.write_bytes(gzip.compress(b"line\n" * 1000)[:-8])
    with pytest.raises(LabError, match="could not decompress"):
        psql_of(server).copy(path, "COPY t FROM STDIN")


def test_a_publication_of_all_tables_is_refused(database18: str) -> None:
    """Its subscribers lack the benchmark's tables, and would stop."""
    with psycopg.connect(database18, autocommit=True) as connection:
        connection.execute("CREATE PUBLICATION p FOR ALL TABLES")
        with (
            pytest.raises(TargetError, match='publication "p"'),
            own_schema(ConnectionFactory(database18), purpose="measure", setup="SELECT"),
        ):
            pass
        assert connection.execute("SELECT to_regnamespace('penstock_bench')").fetchone() == (None,)


def test_schema_is_dropped_though_a_step_was_interrupted(database18: str) -> None:
    """Its statement runs on, and holds a lock in the schema."""
    ended: list[str | None] = []

    def hold() -> None:
        with psycopg.connect(database18, application_name="psql") as session:
            session.execute("LOCK TABLE penstock_bench.t")
            try:
                session.execute("SELECT pg_sleep(600)")
            except psycopg.errors.QueryCanceled as error:
                ended.append(error.sqlstate)

    def interrupt(control: psycopg.Connection) -> None:
        thread.start()
        sleeping = "SELECT FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND datname = current_database()"
        while control.execute(sleeping).fetchone() is None:
            time.sleep(0.02)
        raise KeyboardInterrupt

    thread = threading.Thread(target=hold)
    setup = "CREATE TABLE t (a int)"
    with (
        pytest.raises(KeyboardInterrupt),
        own_schema(ConnectionFactory(database18), purpose="measure", setup=setup) as control,
    ):
        interrupt(control)
    thread.join()
    assert ended == ["57014"]
    _assert_no_schema(database18)


def test_schema_is_dropped_though_its_session_was_lost(database18: str) -> None:
    """By another session; what was measured is not lost with it."""
    with (
        psycopg.connect(database18, autocommit=True) as admin,
        own_schema(ConnectionFactory(database18), purpose="measure", setup="CREATE TABLE t (a int)") as control,
    ):
        admin.execute("SELECT pg_terminate_backend(%s)", [control.info.backend_pid])
    _assert_no_schema(database18)


def _assert_no_schema(conninfo: str) -> None:
    with psycopg.connect(conninfo) as connection:
        assert connection.execute("SELECT to_regnamespace('penstock_bench')").fetchone() == (None,)
