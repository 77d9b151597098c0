"""Experiment A in small, on a real server: every way stores the same rows, and only our tables are replaced."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING

import psycopg
import pytest

from penstock.bench.bulk_load import MARK, RunStarted, compare_ways
from penstock.bench.ways import WAYS, LoadSetting, staging_tables
from penstock.errors import LabError, TargetError
from penstock.lab.datasets.imdb import write_imdb
from penstock.lab.psql_copy import copy_with_psql
from penstock.server.benchmarks.tables import make_staging
from penstock.server.connect.connection import ConnectionFactory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from penstock.bench.ways import Way
    from penstock.lab import EmbeddedServer
    from penstock.lab.datasets.datafiles import DataFile

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


def test_ways_are_interleaved_and_the_last_ones_tables_stay(
    server: EmbeddedServer, connection: psycopg.Connection, files: tuple[DataFile, ...]
) -> None:
    """A round after the other, the first as a warm-up that is not counted."""
    seen: list[RunStarted] = []
    result = compare_ways(server, files, schema=SCHEMA, rounds=1, on_run=seen.append)
    assert [(run.round, run.way) for run in seen] == [(number, way.name) for number in (0, 1) for way in WAYS]
    assert [len(way.runs_s) for way in result.ways] == [1, 1, 1]
    counts = [connection.execute(f"SELECT count(*) FROM {SCHEMA}.{table}").fetchone() for table in result.tables]
    assert counts == [(file.rows,) for file in files]


@pytest.mark.parametrize("way", WAYS[1:], ids=lambda way: way.name)
def test_every_way_stores_what_the_first_stores(
    server: EmbeddedServer, connection: psycopg.Connection, files: tuple[DataFile, ...], way: Way
) -> None:
    """The ways differ in time alone: quotes, backslashes and nulls too are the same."""
    setting = LoadSetting(files=files, schema=SCHEMA, server=server, connect=ConnectionFactory(server.conninfo()))
    sums = []
    for one in (WAYS[0], way):
        make_staging(connection, SCHEMA, staging_tables(files), mark=MARK)
        one.run(setting)
        sums.append(connection.execute(CHECKSUM).fetchone())
    assert sums[0] == sums[1] != (None,)


def test_nobody_elses_table_is_replaced(
    server: EmbeddedServer, connection: psycopg.Connection, files: tuple[DataFile, ...]
) -> None:
    """The demo's names may be taken by real data."""
    connection.execute(f"CREATE SCHEMA {SCHEMA}")
    connection.execute(f"CREATE TABLE {SCHEMA}.title_ratings AS SELECT 1 AS mine")
    with pytest.raises(TargetError, match=r'"staging\.title_ratings" already exists') as caught:
        compare_ways(server, files, schema=SCHEMA, rounds=1)
    assert caught.value.hint is not None
    assert connection.execute(f"TABLE {SCHEMA}.title_ratings").fetchall() == [(1,)]
    assert connection.execute("SELECT to_regclass('staging.title_crew')").fetchone() == (None,)


def test_other_tables_of_the_schema_are_left_alone(
    server: EmbeddedServer, connection: psycopg.Connection, files: tuple[DataFile, ...]
) -> None:
    """A schema named staging is common."""
    connection.execute(f"CREATE SCHEMA {SCHEMA}")
    connection.execute(f"CREATE TABLE {SCHEMA}.orders AS SELECT 1 AS mine")
    compare_ways(server, files, schema=SCHEMA, rounds=1, ways=WAYS[2:])
    assert connection.execute(f"TABLE {SCHEMA}.orders").fetchall() == [(1,)]


def test_psqls_error_is_told(server: EmbeddedServer, files: tuple[DataFile, ...]) -> None:
    """The server's message is the detail."""
    with pytest.raises(LabError, match="could not load") as caught:
        copy_with_psql(server, files[0].path, "COPY nowhere FROM STDIN")
    assert '"nowhere" does not exist' in str(caught.value.detail)


def test_cut_gzip_file_is_told(server: EmbeddedServer, connection: psycopg.Connection, tmp_path: Path) -> None:
    """Alone, psql would take what came for all there is."""
    connection.execute("CREATE TABLE t (line text)")
    path = tmp_path / "cut.gz"
    path.write_bytes(gzip.compress(b"line\n" * 1000)[:-8])
    with pytest.raises(LabError, match="could not decompress"):
        copy_with_psql(server, path, "COPY t FROM STDIN")
