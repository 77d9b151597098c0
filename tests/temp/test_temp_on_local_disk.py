"""Temporary work from where it spills to where it is placed, on the lab's own devices."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

from penstock.api.connect import connect_to
from penstock.cli.main import main
from penstock.core.errors import LabError
from penstock.core.host.disks import find_device, read_counters
from penstock.core.host.machine import memory_bytes
from penstock.temp.replay.replay import replay_statements
from penstock.temp.usage.usage import temp_usage
from penstock_lab.topology.lab import Lab, list_labs
from penstock_lab.volumes import PACKAGES, cgroup_of, check_machine
from support.changed_server import ChangedServer
from support.files import write_to
from support.placed import PlacedServer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.servers import ServerPool

pytestmark = pytest.mark.part("rest")

MIB = 1024 * 1024
DEBIAN = "/usr/lib/postgresql/15/bin"
ROWS = 200_000

# The article's, by their use cases.
QUERIES = {
    "SELECT DISTINCT pad FROM sbtest1 LIMIT 200000": {"grouping", "sort"},
    "SELECT c1.pad, sum(c1.c), avg(c1.k) FROM (SELECT pad, length(c) AS c, k FROM sbtest2 LIMIT 200000) AS c1"
    " GROUP BY c1.pad ORDER BY 3": {"sort", "grouping"},
    "SELECT k, length(pad) FROM sbtest3 ORDER BY pad LIMIT 100000": {"sort"},
}


@pytest.fixture
def lab(servers: ServerPool, debian15: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    """Provide a lab on a volume with local storage and little memory, with three tables; skip where none can be."""
    try:
        check_machine("volumes", PACKAGES)
        cgroup_of(Path("/"))
    except LabError as error:
        pytest.skip(str(error))
    home = servers.new_closed_home()
    monkeypatch.setenv("PENSTOCK_HOME", str(home))
    options = ["--volume", "gp3:2GiB:1000:60", "--local-storage", "1GiB", "--memory", "384MiB"]
    try:
        assert main(["lab", "up", "single", "--pg-bin", DEBIAN, "--parameters", "rds", *options]) == 0
        lab = Lab.named("lab", home)
        with psycopg.connect(lab.conninfo(), autocommit=True) as connection:
            connection.execute("CREATE EXTENSION pg_stat_statements")
            for table in ("sbtest1", "sbtest2", "sbtest3"):
                connection.execute(
                    f"CREATE TABLE {table} AS SELECT g AS id, hashint4(g) AS k, repeat(md5(g::text), 4) AS c,"
                    f" md5(g::text) || md5((-g)::text) AS pad FROM generate_series(1, {ROWS}) AS g".encode()
                )
                connection.execute(f"VACUUM ANALYZE {table}".encode())
            connection.execute("CHECKPOINT")
        yield lab
    finally:
        for each in list_labs(home):
            each.down()


def written_bytes(path: Path) -> int:
    """Return what the device below a path has written so far."""
    device = find_device(path)
    assert device is not None
    counters = read_counters(device)
    assert counters is not None
    return counters.write_bytes


def run_queries(conninfo: str) -> None:
    """Run the three queries, and forget what ran before."""
    with psycopg.connect(conninfo, autocommit=True) as connection:
        connection.execute("SELECT pg_stat_statements_reset()")
        for query in QUERIES:
            connection.execute(query.encode())


def spill_and_sync(conninfo: str, *places: Path) -> tuple[int, list[int]]:
    """Return what the queries have in temporary files while they are open, and what each place's device wrote.

    Files that are gone before the kernel writes them are never on any device.
    """
    subprocess.run(["sync", "--file-system", *places], check=True)
    before = [written_bytes(place) for place in places]
    with psycopg.connect(conninfo) as connection:
        for number, query in enumerate(QUERIES):
            connection.execute(f"DECLARE c{number} CURSOR FOR {query}".encode())
            connection.execute(f"FETCH 1 FROM c{number}".encode())
        row = connection.execute(
            "SELECT sum(f.size)::bigint FROM pg_tablespace AS t, LATERAL pg_ls_tmpdir(t.oid) AS f"
            " WHERE t.spcname <> 'pg_global'"
        ).fetchone()
        subprocess.run(["sync", "--file-system", *places], check=True)
        after = [written_bytes(place) for place in places]
    assert row is not None
    return row[0], [end - begin for end, begin in zip(after, before, strict=True)]


def test_what_spills_is_named_then_placed_on_the_local_device_and_removed(lab: Lab, tmp_path: Path) -> None:
    """At least 95 % of the bytes are written there, by its counters; afterwards all settings are as before."""
    conninfo = lab.conninfo()
    data = lab.files.folder / "primary" / "data"
    local = lab.files.folder / "local" / "temp"
    placed = PlacedServer(ChangedServer(conninfo, data, 15), local)
    before = placed.snapshot()
    spilled, (to_volume, to_local) = spill_and_sync(conninfo, data, local)
    assert (to_volume >= 0.95 * spilled, to_local) == (True, 0)
    run_queries(conninfo)
    report = temp_usage(connect_to(conninfo), interval_s=0, top=3)
    assert {each.query.partition(" LIMIT")[0]: set(each.use_case.names) for each in report.statements} == {
        query.partition(" LIMIT")[0]: uses for query, uses in QUERIES.items()
    }
    assert main(["temp", "place", str(local), "--to", conninfo]) == 0
    spilled, (to_volume, to_local) = spill_and_sync(conninfo, data, local)
    assert spilled > 20 * MIB
    assert to_local >= 0.95 * spilled
    assert to_volume <= 0.05 * to_local
    queries = write_to(tmp_path / "queries.sql", next(query for query in QUERIES if "sbtest3" in query))
    result = replay_statements(connect_to(conninfo), sql=queries, concurrencies=(1, 2, 4), allows_superuser=True)
    assert [each.failure for each in result.comparisons] == [None] * 3
    assert all(each.first[0].written_bytes > MIB for each in result.comparisons)
    assert main(["temp", "remove", "--to", conninfo]) == 0
    assert placed.snapshot() == before


def test_index_of_a_server_in_a_small_control_group_is_built_within_its_memory(lab: Lab, tmp_path: Path) -> None:
    """The machine has many times as much: what is not seen is the kernel's to kill."""
    conninfo = lab.conninfo()
    with psycopg.connect(conninfo, autocommit=True) as connection:
        assert memory_bytes(connection.info.backend_pid) == 384 * MIB
        connection.execute("CREATE TABLE t (id int, pad text); CREATE INDEX t_pad ON t (pad, id)")
        row = connection.execute("SELECT pg_postmaster_start_time(), pg_backend_pid()").fetchone()
    path = write_to(tmp_path / "t.csv", "".join(f"{n},{n * 7919 % 1_000_003:0100}\n" for n in range(1_500_000)))
    argv = [sys.executable, "-m", "penstock", "load", str(path), "--into", "t", "--no-header", "--indexes", "rebuild"]
    subprocess.run([*argv, "--to", conninfo, "--quiet"], check=True)
    with psycopg.connect(conninfo, autocommit=True) as connection:
        after = connection.execute("SELECT pg_postmaster_start_time(), count(*) FROM t").fetchone()
    assert row is not None
    assert after == (row[0], 1_500_000)
