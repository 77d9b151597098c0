"""Several unique indexes over the same columns: a foreign key that is added takes the one with the lowest OID."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from penstock.core.connect.connection import ConnectionFactory
from penstock.core.errors import PenstockError
from penstock.core.values.job import LoadRules
from penstock.restore.repair import Repairer
from support.files import write_to
from support.loads import Loads, target
from support.modes import Killed, killing_at

if TYPE_CHECKING:
    from pathlib import Path

    from support.servers import PgServer

TABLES = 5
KILLS_PER_TABLE = 4
RULES = LoadRules(retry_for=0.0, indexes="rebuild", emptied="load", vacuum=False)

# Unique indexes among which a foreign key to (a, b) may choose, and others beside them.
INDEXES = (
    "ALTER TABLE t ADD PRIMARY KEY (a, b)",
    "ALTER TABLE t ADD UNIQUE (b, a)",
    "CREATE UNIQUE INDEX u_included ON t (a, b) INCLUDE (v)",
    "CREATE UNIQUE INDEX u_turned ON t (b, a)",
    "CREATE UNIQUE INDEX u_clustered ON t (a, b); ALTER TABLE t CLUSTER ON u_clustered",
    "ALTER TABLE t ADD CONSTRAINT u_later UNIQUE (a, b) DEFERRABLE",
    "CREATE UNIQUE INDEX u_partial ON t (a, b) WHERE a > 0",
    "CREATE INDEX i ON t (v)",
)
KEYS = "FOREIGN KEY (a, b) REFERENCES t (a, b)", "FOREIGN KEY (b, a) REFERENCES t (b, a)"

_STATE = (
    "SELECT array(SELECT indexrelid::regclass::text FROM pg_index WHERE indrelid = 't'::regclass ORDER BY 1),"
    " array(SELECT (conname, conindid::regclass, convalidated)::text FROM pg_constraint"
    " WHERE conrelid = 'c'::regclass ORDER BY 1)"
)


def make_tables(loads: Loads, rng: random.Random) -> list[str]:
    """Create a table with indexes in random order, and one that refers to it. Return the statements."""
    indexes = rng.sample(INDEXES, rng.randint(2, len(INDEXES)))
    # A foreign key needs one that is neither partial nor deferrable.
    indexes += [INDEXES[3]] if not set(indexes) & set(INDEXES[:5]) else []
    statements = [
        "DROP TABLE IF EXISTS c, t",
        "CREATE TABLE t (a int NOT NULL, b int NOT NULL, v text)",
        *indexes,
        "CREATE TABLE c (a int, b int)",
        *(f"ALTER TABLE c ADD {key}" for key in rng.sample(KEYS, rng.randint(1, 2))),
    ]
    loads.execute("; ".join(statements))
    return statements


def repair(loads: Loads) -> None:
    """Repair as from another host; nothing may be left."""
    with Repairer(ConnectionFactory(loads.conninfo)) as repairer:
        assert repairer.run().errors == []
    assert loads.execute("SELECT count(*) FROM penstock.changes") == [(0,)]


def state_of(loads: Loads) -> Any:
    """Return the indexes, and the foreign keys with the index that each depends on."""
    return loads.execute(_STATE)[0]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Provide a csv file."""
    return write_to(tmp_path / "rows.csv", "a,b,v\n" + "".join(f"{n},{n % 7},row {n}\n" for n in range(2000)))


@pytest.mark.part("rest")
def test_foreign_keys_depend_on_the_same_index_after_each_rebuild(pg: PgServer, seed: int, path: Path) -> None:
    """Random tables, loaded and killed at random statements: what is rebuilt is what was dropped."""
    rng = random.Random(f"{seed} {pg.major}")
    loads = Loads(pg.fresh_database())
    for _ in range(TABLES):
        statements = make_tables(loads, rng)
        before = state_of(loads)
        assert loads.run(target(path), rules=RULES).rows == 2000
        assert state_of(loads) == before, statements
        for _ in range(KILLS_PER_TABLE):
            loads.execute("TRUNCATE t, c; DELETE FROM penstock.loads")
            with killing_at(rng.randrange(10, 150)), suppress(Killed, PenstockError):
                loads.run(target(path), rules=RULES)
            repair(loads)
            assert state_of(loads) == before, statements


def test_repair_completes_a_foreign_key_that_took_another_index(loads18: Loads, path: Path) -> None:
    """Earlier versions left it NOT VALID, with its record, and every repair ended with an error."""
    loads18.execute(
        "CREATE TABLE t (a int, b int, v text, PRIMARY KEY (a, b)); CREATE UNIQUE INDEX u ON t (b, a);"
        "CREATE TABLE c (a int, b int, CONSTRAINT fk FOREIGN KEY (a, b) REFERENCES t (a, b))"
    )

    def die_after_the_drop(_piece: int) -> None:
        if not loads18.indexes():
            raise Killed

    loads18.at_piece = die_after_the_drop
    with pytest.raises(Killed):
        loads18.run(target(path), rules=RULES)
    loads18.execute(
        "CREATE UNIQUE INDEX u ON t (b, a); ALTER TABLE t ADD PRIMARY KEY (a, b);"
        "ALTER TABLE c ADD CONSTRAINT fk FOREIGN KEY (a, b) REFERENCES t (a, b) NOT VALID"
    )
    repair(loads18)
    assert state_of(loads18) == (["t_pkey", "u"], ["(fk,u,t)"])


@pytest.fixture
def loads18(database18: str) -> Loads:
    """Provide loads into an empty database."""
    return Loads(database18, piece_bytes=64)
