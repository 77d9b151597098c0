"""What the server counts of the I/O and the WAL of a load's sessions, in the load's accounts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg import sql

from penstock.core.values.job import LoadJob
from penstock.watch.recordings import read_recording
from support.loads import Loads, target, write_csv

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.core.values.accounts import BackendIo

ROWS = 20_000
SETUP = "CREATE TABLE t (a int, b text); CREATE TABLE others (pad text)"


def load_beside_others(conninfo: str, folder: Path) -> BackendIo:
    """Return what is counted of a load, while a client that is none of its sessions writes 40 MB."""
    loads = Loads(conninfo, setup=SETUP)
    path = write_csv(folder / "rows.csv", [f"{number},{'x' * 100}" for number in range(ROWS)])
    written: list[int] = []

    def write(_: object) -> None:
        if not written:
            with psycopg.connect(conninfo, autocommit=True) as other:
                other.execute("INSERT INTO others SELECT repeat('y', 1000) FROM generate_series(1, 40000)")
                written.append(1)

    # Progress is reported before the first row too.
    outcome = loads.run(target(path), on_progress=write)
    assert written
    assert outcome.accounts is not None
    assert outcome.accounts.io is not None
    return outcome.accounts.io


@pytest.mark.pg(">= 18")
def test_io_is_that_of_the_loads_sessions_alone(database: str, tmp_path: Path) -> None:
    """WAL and new blocks are those of 20,000 rows of 100 bytes, also in a load of less than a second."""
    io = load_beside_others(database, tmp_path)
    assert io.is_exact
    assert io.wal_bytes is not None
    assert io.extend_bytes is not None
    assert ROWS * 100 < io.wal_bytes < ROWS * 300
    assert ROWS * 100 < io.extend_bytes < ROWS * 300


def test_io_of_a_second_load_does_not_include_the_first(database18: str, tmp_path: Path) -> None:
    """Although a session of the first load is kept for the second."""
    loads = Loads(database18, setup=SETUP)
    large = write_csv(tmp_path / "large.csv", [f"{number},{'x' * 100}" for number in range(ROWS)])
    small = write_csv(tmp_path / "small.csv", ["1,x"])
    with loads.loader() as loader:
        found = []
        for path in (large, small):
            outcome = loader.run(loader.plan(LoadJob(targets=(target(path),))))
            assert outcome.accounts is not None
            assert outcome.accounts.io is not None
            found.append(outcome.accounts.io.wal_bytes or 0)
    assert found[0] > ROWS * 100
    assert found[1] < ROWS * 10


@pytest.mark.part("rest")
@pytest.mark.pg("< 18")
def test_before_18_io_is_that_of_the_server_and_says_so(database: str, tmp_path: Path) -> None:
    """PostgreSQL 14 and 15 count WAL only."""
    io = load_beside_others(database, tmp_path)
    with psycopg.connect(database) as connection:
        major = connection.info.server_version // 10_000
    assert not io.is_exact
    # PostgreSQL 14 reports half a second later.
    assert (io.wal_bytes or 0) >= (ROWS * 100 if major > 14 else 0)
    assert (io.extend_bytes is None) == (major < 16)


def test_recording_has_the_io(database18: str, tmp_path: Path) -> None:
    """And it is read as it was written."""
    loads = Loads(database18, setup=SETUP, record=tmp_path / "r")
    outcome = loads.run(target(write_csv(tmp_path / "rows.csv", ["1,x"])))
    recording = read_recording(tmp_path / "r")
    assert list(recording.samples)
    assert recording.load is not None
    assert outcome.accounts is not None
    assert recording.load.accounts.io == outcome.accounts.io is not None


@pytest.mark.pg(">= 18")
def test_load_that_may_not_read_statistics_is_loaded(
    database: str, user_conninfo: str, user_name: str, tmp_path: Path
) -> None:
    """Its accounts have no I/O."""
    with psycopg.connect(database, autocommit=True) as admin:
        role, name = sql.Identifier(user_name), sql.Identifier(admin.info.dbname)
        admin.execute("REVOKE EXECUTE ON FUNCTION pg_catalog.pg_stat_get_backend_io(int) FROM PUBLIC")
        admin.execute(sql.SQL("GRANT CREATE ON DATABASE {} TO {}").format(name, role))
        admin.execute(sql.SQL("GRANT ALL ON SCHEMA public TO {}").format(role))
    outcome = Loads(user_conninfo, setup=SETUP).run(target(write_csv(tmp_path / "rows.csv", ["1,x"])))
    assert outcome.rows == 1
    assert outcome.accounts is not None
    assert outcome.accounts.io is None
