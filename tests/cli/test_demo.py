"""`penstock demo` shows the comparison, leaves its tables, and touches nobody else's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cli.conftest import Finished, run_process

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


def psql(home: dict[str, str], statement: str) -> Finished:
    """Run one statement on the embedded server; only its rows are printed."""
    return run_process("server", "psql", "-XAt", "-c", statement, environment=home)


def test_demo_compares_and_leaves_the_rows(home: dict[str, str]) -> None:
    """A line for each way with the article's figures, and the tables to look at; a second run replaces them."""
    for _ in range(2):
        shown = run_process("demo", *SMALL, environment=home)
        assert shown.code == 0, shown.err
    lines = [line.split() for line in shown.out.splitlines() if line.startswith("  seven files")]
    assert [line[-2] for line in lines[:3]] == ["129", "57", "-"]
    assert all("9,300" in line for line in lines[:3])
    assert psql(home, "SELECT count(*) FROM demo.title_principals").out == "4500\n"


def test_demo_prints_one_object(home: dict[str, str]) -> None:
    """Every run's seconds are in it."""
    shown = run_process("demo", *SMALL, "--schema", "other", "--json", environment=home)
    assert shown.object["rows"] == 9300
    (target,) = shown.object["targets"]
    assert [len(step["runs"]) for step in target["steps"]] == [1, 1, 1]


def test_demo_refuses_a_table_that_is_not_its_own(home: dict[str, str]) -> None:
    """The hint says what to do."""
    psql(home, "CREATE SCHEMA mine; CREATE TABLE mine.title_crew ()")
    refused = run_process("demo", *SMALL, "--schema", "mine", environment=home)
    assert refused.code == 6
    assert 'relation "mine.title_crew" already exists' in refused.err
    assert "--schema" in refused.err
