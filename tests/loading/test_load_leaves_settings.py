"""Settings of sessions, roles, databases and servers are no load's to change, but within its own transactions."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import psycopg
import pytest

from penstock.core.connect.connection import ConnectionFactory
from penstock.core.errors import DataError
from penstock.core.values.job import LoadJob
from penstock.loading.loader import Loader
from support.loads import AGAIN, Loads, target

if TYPE_CHECKING:
    from pathlib import Path

_SEEN = """
    CREATE TABLE t (a int);
    CREATE TABLE seen (setting text);
    CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS
        'BEGIN INSERT INTO seen VALUES (current_setting(''synchronous_commit'')); RETURN NULL; END';
    CREATE TRIGGER see AFTER INSERT ON t EXECUTE FUNCTION see();
"""

# Settings of a session that a user would open. The last one shows postgresql.conf and postgresql.auto.conf.
_STATE = (
    "SELECT setdatabase, setrole, setconfig FROM pg_db_role_setting ORDER BY 1, 2",
    "SELECT name, setting, source, reset_val FROM pg_settings WHERE name <> 'application_name' ORDER BY name",
    "SELECT name, setting, applied FROM pg_file_settings ORDER BY seqno",
)


def state(conninfo: str) -> list[list[tuple[object, ...]]]:
    """Return every setting there is."""
    with psycopg.connect(conninfo) as connection:
        return [connection.execute(query).fetchall() for query in _STATE]


def write_numbers(path: Path) -> Path:
    """Make a file of two thousand records."""
    path.write_text("a\n" + "".join(f"{number}\n" for number in range(2000)))
    return path


def test_settings_are_the_same_before_and_after(database: str, tmp_path: Path) -> None:
    """By pg_db_role_setting, pg_settings and pg_file_settings; and so they are after a load that failed."""
    loads = Loads(database, setup=_SEEN)
    before = state(database)
    loads.run(target(write_numbers(tmp_path / "numbers.csv")), rules=replace(AGAIN, checkpoint=True, vacuum=True))
    assert state(database) == before
    bad = tmp_path / "bad.csv"
    bad.write_text("a\n1\nx\n")
    with pytest.raises(DataError):
        loads.run(target(bad))
    assert state(database) == before


def test_loading_transactions_alone_commit_asynchronously(database: str, tmp_path: Path) -> None:
    """What their session does next does not."""
    loads = Loads(database, setup=_SEEN)
    connect = ConnectionFactory(database)
    with Loader(connect) as loader:
        job = LoadJob(targets=(target(write_numbers(tmp_path / "numbers.csv")),), sessions=2)
        loader.run(loader.plan(job))
        with connect.borrow() as connection:
            assert connection.execute("SHOW synchronous_commit").fetchone() == ("on",)
    assert set(loads.execute("SELECT setting FROM seen")) == {("off",)}
