"""`penstock demo` shows the comparison, leaves its tables in a database of its own, and touches no other."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import pytest

from support.command import Finished, run_process

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.servers import ServerPool

SMALL = ("--scale", "0.00005", "--rounds", "1")


@pytest.fixture(scope="module")
def home(servers: ServerPool) -> Iterator[dict[str, str]]:
    """Provide the environment in which this module has an embedded server of its own."""
    environment = {"PENSTOCK_HOME": str(servers.new_home())}
    yield environment
    run_process("server", "stop", "--mode", "immediate", environment=environment)


def psql(home: dict[str, str], statement: str, database: str = "postgres") -> Finished:
    """Run one statement on the embedded server; only its rows are printed."""
    return run_process("server", "psql", database, "-XAt", "-c", statement, environment=home)


@pytest.mark.part("rest")
def test_demo_compares_and_leaves_the_rows(home: dict[str, str]) -> None:
    """A line for each way with the article's figures, and the tables to look at by the query that is shown."""
    shown = run_process("demo", *SMALL, environment=home)
    assert shown.code == 0, shown.err
    lines = [line.split() for line in shown.out.splitlines() if line.startswith("  seven files")]
    assert [line[-2] for line in lines[:3]] == ["129", "57", "-"]
    assert all("9,300" in line for line in lines[:3])
    (query,) = [line.removeprefix("query:") for line in shown.out.splitlines() if line.startswith("query:")]
    looked = run_process(*shlex.split(query)[1:], environment=home)
    assert "(5 rows)" in looked.out


def test_demo_prints_one_object(home: dict[str, str]) -> None:
    """Every run's seconds are in it."""
    shown = run_process("demo", *SMALL, "--json", environment=home)
    assert shown.object["rows"] == 9300
    (target,) = shown.object["targets"]
    assert [len(step["runs"]) for step in target["steps"]] == [1, 1, 1]


@pytest.mark.part("rest")
def test_ledgers_of_other_versions_do_not_concern_a_demo(home: dict[str, str]) -> None:
    """After an upgrade: an older penstock left its ledger where users load, and one in the demo's database."""
    assert run_process("demo", *SMALL, environment=home).code == 0
    for database in ("postgres", "penstock_demo"):
        old = "CREATE TABLE penstock.loads (); COMMENT ON TABLE penstock.loads IS 'penstock ledger, version 1'"
        made = psql(home, f"DROP SCHEMA IF EXISTS penstock CASCADE; CREATE SCHEMA penstock; {old}", database)
        assert made.code == 0, made.err
    again = run_process("demo", *SMALL, environment=home)
    assert again.code == 0, again.err
    assert psql(home, "SELECT obj_description('penstock.loads'::regclass)").out == "penstock ledger, version 1\n"
    psql(home, "DROP SCHEMA penstock CASCADE")


@pytest.mark.part("rest")
def test_demo_refuses_a_database_that_is_not_its_own(home: dict[str, str]) -> None:
    """It would drop it; the hint says what to do."""
    psql(home, "DROP DATABASE IF EXISTS penstock_demo")
    psql(home, "CREATE DATABASE penstock_demo")
    refused = run_process("demo", *SMALL, environment=home)
    assert refused.code == 6
    assert 'database "penstock_demo" already exists' in refused.err
    assert "HINT:" in refused.err
