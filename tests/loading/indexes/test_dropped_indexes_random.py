"""Partitioned tables with indexes of random properties are loaded with a rebuild, and pg_dump sees no difference."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import psycopg
import pytest

from penstock.core.values.job import LoadRules
from support.files import write_to
from support.loads import Loads, indexes_of, target
from support.zoo import can_describe, describe_schema

if TYPE_CHECKING:
    from pathlib import Path

    from support.servers import PgServer

TREES_PER_SERVER = 4
ROWS = 40

TREE = """
    CREATE SCHEMA zoo; SET search_path = zoo;
    CREATE TABLE referred (id int PRIMARY KEY);
    INSERT INTO referred SELECT generate_series(0, 100);
    CREATE TABLE t (id int NOT NULL, a int NOT NULL, b text) PARTITION BY RANGE (id);
    CREATE TABLE t1 PARTITION OF t FOR VALUES FROM (MINVALUE) TO (10);
    CREATE TABLE t2 PARTITION OF t FOR VALUES FROM (10) TO (20) PARTITION BY HASH (id);
    CREATE TABLE t2a PARTITION OF t2 FOR VALUES WITH (MODULUS 2, REMAINDER 0);
    CREATE TABLE t2b PARTITION OF t2 FOR VALUES WITH (MODULUS 2, REMAINDER 1);
    CREATE TABLE t3 PARTITION OF t DEFAULT;
"""
OF_ALL = (
    "ALTER TABLE t ADD PRIMARY KEY (id)",
    "ALTER TABLE t ADD UNIQUE (id, a) WITH (fillfactor = 61)",
    "CREATE INDEX t_expression ON t ((a % 10), lower(b))",
    "CREATE INDEX t_b ON t (b)",
    "CREATE UNIQUE INDEX t_unique ON t (a, id)",
    "ALTER TABLE t ADD CONSTRAINT refers FOREIGN KEY (a) REFERENCES referred",
)
OF_A_LEAF = (
    "CREATE INDEX {leaf}_own ON {leaf} ((a + 1)) WITH (fillfactor = 44)",
    "ALTER TABLE {leaf} ADD CONSTRAINT {leaf}_key UNIQUE (id, b)",
)
LEAVES = ("t1", "t2a", "t2b", "t3")


def add_properties(connection: psycopg.Connection[tuple[object, ...]], rng: random.Random) -> list[str]:
    """Give each index of the tree random properties, parents and leaves in random order; return the statements."""
    indexes = connection.execute(
        "SELECT c.relname, t.relname, c.relkind = 'I', i.indisunique,"
        " ARRAY(SELECT a.attnum FROM pg_attribute AS a WHERE a.attrelid = c.oid AND i.indkey[a.attnum - 1] = 0)"
        " FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid JOIN pg_class AS t ON t.oid = i.indrelid"
        " WHERE c.relnamespace = 'zoo'::regnamespace AND t.relname <> 'referred' ORDER BY 1"
    ).fetchall()
    rng.shuffle(indexes)
    done: list[str] = []
    for index, table, is_parent, is_unique, expressions in indexes:
        targets = (f"ALTER INDEX {index} ALTER COLUMN {n} SET STATISTICS {rng.randint(0, 999)}" for n in expressions)
        possible = [f"COMMENT ON INDEX {index} IS 'comment {rng.randint(0, 999)}'", *targets]
        if not is_parent:
            possible += [
                f"ALTER TABLE {table} CLUSTER ON {index}",
                f"ALTER INDEX {index} SET (fillfactor = {rng.randint(50, 99)})",
            ]
        if is_unique and "_key" not in index:
            possible.append(f"ALTER TABLE {table} REPLICA IDENTITY USING INDEX {index}")
        done += rng.sample(possible, rng.randint(0, len(possible)))
    for statement in done:
        connection.execute(statement.encode())
    return done


@pytest.mark.part("rest")
def test_pg_dump_sees_no_difference_after_a_rebuild(pg: PgServer, seed: int, tmp_path: Path) -> None:
    """Statistics targets, comments, CLUSTER marks, replica identities, parameters: each of the index that had them."""
    if not can_describe(pg):
        pytest.skip("no pg_dump here reads this server (Debian's package postgresql-15)")
    rng = random.Random(f"{seed} {pg.major}")
    path = write_to(tmp_path / "rows.csv", "id,a,b\n" + "".join(f"{n},{n},row {n}\n" for n in range(ROWS)))
    for _ in range(TREES_PER_SERVER):
        database = pg.fresh_database()
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute(TREE)
            own = [text.format(leaf=leaf) for leaf in LEAVES for text in OF_A_LEAF if rng.random() < 0.4]
            for statement in (*rng.sample(OF_ALL, rng.randint(2, len(OF_ALL))), *own):
                connection.execute(statement.encode())
            done = add_properties(connection, rng)
        before = describe_schema(pg, database)
        outcome = Loads(database).run(target(path, into="zoo.t"), rules=LoadRules(retry_for=0.0, indexes="rebuild"))
        assert outcome.rows == ROWS
        assert indexes_of(outcome).rebuilt
        assert describe_schema(pg, database) == before, done
