"""Loaders that die while they put aside what a key cannot be rebuilt for: run again, they end in the same."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from penstock.api.repair import Repairer
from penstock.loading.late_rejects import LateRejects
from penstock.model.job import LoadRules
from penstock.server.connection import ConnectionFactory
from support.loads import Loads, target
from support.modes import Killed, killing_at

if TYPE_CHECKING:
    import random
    from pathlib import Path

    import psycopg

    from penstock.model.job import TargetJob

RULES = LoadRules(retry_for_s=0.0, indexes="rebuild", on_error="reject")
POINTS = 6

_SETUP = """
    CREATE TABLE p (a int PRIMARY KEY, b int UNIQUE, c int REFERENCES p);
    CREATE TABLE t (a int PRIMARY KEY, b int REFERENCES p, c int REFERENCES p (b));
"""
_PARENTS = ["10,1,", "11,2,10", "10,3,", "12,2,", "13,4,99", "14,5,13", "15,6,14", "13,7,10", "x,8,", "16,9,16"]
_CHILDREN = ["1,10,1", "2,13,", "3,15,", "1,11,", "4,12,", "5,,4", "6,,9", "7,,7", "8,x,"]


@pytest.fixture
def loads(database: str) -> Loads:
    """Provide loads into a database with two tables."""
    loads = Loads(database, piece_bytes=30)
    loads.execute(_SETUP)
    return loads


@pytest.fixture
def targets(tmp_path: Path) -> list[TargetJob]:
    """Return targets with duplicate keys and references to nothing, the children first."""
    children, parents = tmp_path / "t.csv", tmp_path / "p.csv"
    children.write_text("".join(f"{record}\n" for record in _CHILDREN))
    parents.write_text("".join(f"{record}\n" for record in _PARENTS))
    return [
        target(children, columns=("a", "b", "c"), format="csv", has_header=False),
        target(parents, into="p", columns=("a", "b", "c"), format="csv", has_header=False),
    ]


def state(loads: Loads) -> dict[str, list[Any]]:
    """Return what a load has led to."""
    queries = {
        "p": "SELECT * FROM p ORDER BY a",
        "t": "SELECT * FROM t ORDER BY a",
        "rejects": "SELECT object, start, line, sqlstate, message, detail, raw FROM penstock.rejects ORDER BY 1, 2",
        "counts": "SELECT object, sum(records), sum(rows), sum(rejected) FROM penstock.ranges GROUP BY 1 ORDER BY 1",
        "loads": "SELECT state, rows FROM penstock.loads",
        "changes": "SELECT name FROM penstock.changes",
        "constraints": "SELECT conname, convalidated FROM pg_constraint"
        " WHERE conrelid IN ('p'::regclass, 't'::regclass) AND contype IN ('p', 'u', 'f') ORDER BY 1",
    }
    return {name: loads.execute(query) for name, query in queries.items()}


def test_a_load_that_dies_anywhere_ends_in_the_same(
    loads: Loads, targets: list[TargetJob], rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At statements chosen by the seed, from the first search for what breaks a key on."""
    settle = LateRejects.settle
    begun: list[int] = []

    def note(self: LateRejects, connection: psycopg.Connection[Any], misfit: Any) -> bool:
        begun.append(sent[0])
        return settle(self, connection, misfit)

    monkeypatch.setattr(LateRejects, "settle", note)
    with killing_at(-1) as sent:
        loads.run(*targets, rules=RULES, sessions=1)
    expected = state(loads)
    assert len(expected["constraints"]) == 6
    assert expected["changes"] == []
    assert {row[3] for row in expected["rejects"]} == {"22P02", "23503", "23505"}
    assert len(begun) >= 3
    for point in sorted(rng.sample(range(begun[0], sent[0]), POINTS)):
        loads.execute("TRUNCATE p, t; DELETE FROM penstock.loads")
        # Sessions that rebuild side by side send some statements more or less: it may have ended before.
        with killing_at(point), suppress(Killed):
            loads.run(*targets, rules=RULES, sessions=1)
        unaccounted = "SELECT count(*) FROM penstock.ranges WHERE records <> rows + suppressed + rejected"
        assert loads.execute(unaccounted) == [(0,)]
        stored = loads.execute("SELECT (SELECT count(*) FROM p) + (SELECT count(*) FROM t)")
        assert stored == loads.execute("SELECT sum(rows)::bigint FROM penstock.ranges"), f"killed at {point}"
        loads.run(*targets, rules=RULES, sessions=1)
        assert state(loads) == expected, f"killed at {point}"


def test_a_repair_in_between_takes_nothing_away(loads: Loads, targets: list[TargetJob]) -> None:
    """It cannot rebuild what records break, and the load then goes on where it was."""
    with killing_at(-1) as sent:
        loads.run(*targets, rules=RULES, sessions=1)
    expected = state(loads)
    loads.execute("TRUNCATE p, t; DELETE FROM penstock.loads")
    settled: list[int] = []

    def die(*_: Any) -> bool:
        settled.append(sent[0])
        raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LateRejects, "settle", die)
        with pytest.raises(Killed):
            loads.run(*targets, rules=RULES, sessions=1)
    with Repairer(ConnectionFactory(loads.conninfo)) as repairer:
        assert {error.sqlstate for error in repairer.run().errors} == {"23505"}
    loads.run(*targets, rules=RULES, sessions=1)
    assert state(loads) == expected
