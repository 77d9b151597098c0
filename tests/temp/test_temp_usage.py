"""Temporary work as `penstock temp usage` reads it from real servers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest

from penstock.server.connect.connection import ConnectionFactory
from penstock.server.temp.usage import read_usage
from penstock.temp.usage.compare import compare_readings
from support.servers import majors_to_test

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.lab import EmbeddedServer

SORT = "SELECT md5(g::text) FROM generate_series(1, 200000) AS g ORDER BY 1 OFFSET 199999"


def test_spills_of_a_database_are_those_within_the_interval(database: str) -> None:
    """What was spilled before the first reading is no part of the rate; what is missing is named."""
    with psycopg.connect(database, autocommit=True) as other, ConnectionFactory(database).connect() as watching:
        other.execute("SET work_mem = '64kB'")
        other.execute(SORT)
        _flush(other)
        before = read_usage(watching)
        idle = compare_readings(before, read_usage(watching), top=3)
        other.execute(SORT)
        _flush(other)
        report = compare_readings(before, read_usage(watching), top=3)
        name = other.info.dbname
    assert [each.bytes_per_s for each in idle.databases if each.name == name] == [0]
    assert [each.bytes_per_s > 0 for each in report.databases if each.name == name] == [True]
    assert "pg_default" in [each.name for each in report.tablespaces]
    assert any("CREATE EXTENSION pg_stat_statements" in text for text in report.missing)


def test_spills_and_temporary_tables_are_counted_apart(new_server: Callable[..., EmbeddedServer]) -> None:
    """A sort has temp blocks alone; a temporary table beyond temp_buffers has local ones."""
    if 15 not in majors_to_test():
        pytest.skip("Debian's PostgreSQL 15 with contrib is not installed")
    conninfo = new_server(15, shared_preload_libraries="pg_stat_statements").ensure_running()
    with psycopg.connect(conninfo, autocommit=True) as other, ConnectionFactory(conninfo).connect() as watching:
        other.execute("CREATE SCHEMA ext; CREATE EXTENSION pg_stat_statements SCHEMA ext")
        other.execute("SET temp_buffers = '800kB'; SET work_mem = '64kB'")
        other.execute(SORT)
        before = read_usage(watching)
        other.execute(SORT)
        other.execute("CREATE TEMPORARY TABLE kept AS SELECT md5(g::text) FROM generate_series(1, 200000) AS g")
        report = compare_readings(before, read_usage(watching), top=10)
    (sort,) = [each for each in report.statements if each.query.startswith("SELECT md5")]
    (table,) = [each for each in report.statements if each.query.startswith("CREATE TEMPORARY")]
    assert sort.calls == 1
    assert sort.temp_written_bytes > 0
    assert sort.local_written_bytes == 0
    assert table.local_written_bytes > 0


def _flush(connection: psycopg.Connection) -> None:
    """Have the session report its counters now: up to 14 a collector takes them, later ones write them when asked."""
    if connection.info.server_version >= 150000:
        connection.execute("SELECT pg_stat_force_next_flush()")
        connection.execute("SELECT 1")
    else:
        pytest.skip("counters of PostgreSQL 14 arrive when its collector sends them")
