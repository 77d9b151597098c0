"""Loads into partitioned tables that drop: what becomes of partitions that come and go meanwhile, and what stays."""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import psycopg
import pytest

from penstock.changes.tables.indexes import IndexesAndKeys, drop_parts
from penstock.core.connect.connection import ConnectionFactory
from penstock.core.errors import DataError, ServerError, TargetError
from penstock.core.values.job import LoadRules
from penstock.restore.command import describe_steps
from penstock.restore.repair import Repairer
from support.codes import has_code
from support.files import write_to
from support.loads import Loads, indexes_of, share_ledger, target
from support.modes import Killed

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from penstock.changes.values import Change
    from penstock.core.connect.connection import Connection
    from support.loads import Row
    from support.servers import PgServer

REBUILD = LoadRules(retry_for=0.0, indexes="rebuild")
ROWS = 20

TREE = """
    CREATE TABLE parent (id int PRIMARY KEY);
    INSERT INTO parent SELECT generate_series(0, 100);
    CREATE TABLE t (id int, a int REFERENCES parent, b text, PRIMARY KEY (id)) PARTITION BY RANGE (id);
    CREATE INDEX ON t (b);
    CREATE TABLE t1 PARTITION OF t FOR VALUES FROM (0) TO (10);
    CREATE TABLE t2 PARTITION OF t FOR VALUES FROM (10) TO (100) PARTITION BY HASH (id);
    CREATE TABLE t2a PARTITION OF t2 FOR VALUES WITH (MODULUS 1, REMAINDER 0);
    CREATE SCHEMA elsewhere;
    CREATE TABLE elsewhere.t1 PARTITION OF t FOR VALUES FROM (100) TO (110);
    CREATE TABLE other (LIKE t INCLUDING ALL) PARTITION BY RANGE (id);
"""
EQUAL = """
    CREATE TABLE t9 (b text, id int CONSTRAINT mine PRIMARY KEY, a int CONSTRAINT refers REFERENCES parent);
    CREATE INDEX odd ON t9 (b) WITH (fillfactor = 50);
    ALTER TABLE t ATTACH PARTITION t9 FOR VALUES FROM (200) TO (300)
"""
BARE = """
    CREATE TABLE t8 (b text, id int NOT NULL, a int);
    INSERT INTO t8 VALUES ('x', 300, 1), ('y', 301, 2);
    ALTER TABLE t ATTACH PARTITION t8 FOR VALUES FROM (300) TO (400)
"""
SUBPARTITIONED = """
    CREATE TABLE t9 PARTITION OF t FOR VALUES FROM (200) TO (300) PARTITION BY HASH (id);
    CREATE TABLE t9a PARTITION OF t9 FOR VALUES WITH (MODULUS 1, REMAINDER 0)
"""
MOVED = """
    ALTER TABLE t DETACH PARTITION t1;
    ALTER TABLE t2 DETACH PARTITION t2a;
    CREATE TABLE t2b PARTITION OF t2 FOR VALUES WITH (MODULUS 1, REMAINDER 0)
"""


@pytest.fixture
def loads(ledger18: str) -> Loads:
    """Provide loads into a database with a partitioned table."""
    return Loads(ledger18, piece_bytes=50, setup=TREE)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Provide a csv file."""
    return write_to(tmp_path / "rows.csv", "id,a,b\n" + "".join(f"{n},{n},row {n}\n" for n in range(ROWS)))


def shape(loads: Loads) -> list[Row]:
    """Return indexes and foreign keys: where they are, whether they are valid, to which they are attached."""
    return loads.execute(
        """
        SELECT i.indrelid::regclass::text, i.indexrelid::regclass::text, i.indisvalid, h.inhparent::regclass::text,
               pg_get_indexdef(i.indexrelid)
          FROM pg_index AS i
          LEFT JOIN pg_inherits AS h ON h.inhrelid = i.indexrelid
         WHERE i.indrelid::regclass::text ~ '^(elsewhere.)?t[0-9]*[a-z]?$'
         UNION ALL
        SELECT k.conrelid::regclass::text, k.conname, k.convalidated, p.conrelid::regclass::text || '.' || p.conname,
               pg_get_constraintdef(k.oid)
          FROM pg_constraint AS k
          LEFT JOIN pg_constraint AS p ON p.oid = k.conparentid
         WHERE k.conrelid::regclass::text ~ '^(elsewhere.)?t[0-9]*[a-z]?$'
           AND k.contype IN ('f', 'p', 'u')
         ORDER BY 1, 2, 5
        """
    )


def die_while_loading(loads: Loads, path: Path) -> None:
    """Have the loader die while its rows are under way, and everything is dropped."""

    def die(_number: int) -> None:
        raise Killed

    loads.at_piece = die
    with pytest.raises(Killed):
        loads.run(target(path), rules=REBUILD)
    loads.at_piece = None
    assert shape(loads) == []


def records(loads: Loads) -> int:
    """Return how many things are written down as dropped."""
    return int(loads.execute("SELECT count(*) FROM penstock.changes")[0][0])


@pytest.mark.pg("!= 17")
@pytest.mark.parametrize(
    "statements",
    [
        "CREATE TABLE t9 PARTITION OF t FOR VALUES FROM (200) TO (300); DROP TABLE t1",
        "CREATE TABLE t9 PARTITION OF t DEFAULT; DROP TABLE t2",
        "ALTER TABLE t DETACH PARTITION t1; ALTER TABLE t DETACH PARTITION t2",
        "ALTER TABLE t DETACH PARTITION t1; ALTER TABLE other ATTACH PARTITION t1 FOR VALUES FROM (0) TO (10)",
        f"{EQUAL}; {BARE}",
        f"{SUBPARTITIONED}; {MOVED}",
    ],
)
def test_partitions_that_come_and_go_meanwhile_get_what_they_would_have_had(
    pg: PgServer, path: Path, statements: str
) -> None:
    """The same as where nothing was dropped."""
    intact, dropped = Loads(pg.fresh_database()), Loads(pg.fresh_database(), piece_bytes=50)
    for loads in (intact, dropped):
        loads.execute(TREE)
    die_while_loading(dropped, path)
    for loads in (intact, dropped):
        loads.execute(statements)
    dropped.repair().raise_first()
    assert records(dropped) == 0
    assert shape(dropped) == shape(intact)


@pytest.mark.part("rest")
def test_rows_of_a_partition_that_was_added_are_looked_at(loads: Loads, path: Path) -> None:
    """A row there that violates a key is reported, and the rest stays dropped."""
    die_while_loading(loads, path)
    loads.execute(BARE.replace("301", "300"))
    error = loads.repair().errors[0]
    assert isinstance(error, DataError)
    assert "(id)=(300)" in str(error.detail)
    loads.execute("DELETE FROM t WHERE b = 'y'")
    loads.repair().raise_first()
    assert records(loads) == 0


@pytest.mark.part("rest")
def test_a_foreign_table_that_was_attached_is_named(loads: Loads, path: Path) -> None:
    """It can have no index; once it is detached, a repair ends."""
    before = shape(loads)
    die_while_loading(loads, path)
    loads.execute(
        "CREATE FOREIGN DATA WRAPPER nowhere; CREATE SERVER s FOREIGN DATA WRAPPER nowhere;"
        "CREATE FOREIGN TABLE far PARTITION OF t FOR VALUES FROM (500) TO (600) SERVER s"
    )
    error = loads.repair().errors[0]
    assert isinstance(error, TargetError)
    assert "public.far is a foreign table" in error.message
    assert "Detach it" in str(error.hint)
    loads.execute("ALTER TABLE t DETACH PARTITION far")
    loads.repair().raise_first()
    assert shape(loads) == before


@pytest.mark.part("rest")
def test_what_was_made_at_the_parent_meanwhile_is_not_made_twice(loads: Loads, path: Path) -> None:
    """Under the same names it is there; where a partition has another one attached, that is said."""
    loads.execute("ALTER INDEX t1_pkey RENAME TO odd")
    die_while_loading(loads, path)
    loads.execute("CREATE INDEX t_b_idx ON t (b)")
    loads.execute("ALTER TABLE t ADD PRIMARY KEY (id)")
    error = loads.repair().errors[0]
    assert 'public.t1 has "t1_pkey" in the place of "odd"' in error.message
    assert "repair" in str(error.hint)
    loads.execute("ALTER TABLE t DROP CONSTRAINT t_pkey")
    loads.repair().raise_first()
    assert records(loads) == 0
    assert [name for _, name, *_ in shape(loads) if name == "odd"] == ["odd", "odd"]


def test_a_load_of_a_partition_leaves_what_is_attached(loads: Loads, path: Path, tmp_path: Path) -> None:
    """Only what is its own is dropped."""
    loads.execute("CREATE INDEX own ON t1 (a)")
    small = write_to(tmp_path / "small.csv", "id,a,b\n1,1,x\n")
    seen: list[list[str]] = []
    loads.at_piece = lambda _: seen.append([name for table, name, *_ in shape(loads) if table == "t1"])
    before = shape(loads)
    outcome = loads.run(target(small, into="t1"), rules=REBUILD)
    assert [each.name for each in indexes_of(outcome).rebuilt] == ["own"]
    assert "t1_pkey" in seen[0]
    assert "own" not in seen[0]
    assert shape(loads) == before


@pytest.mark.part("rest")
@pytest.mark.parametrize("other", ["t1", "t2a"])
def test_a_load_of_a_partition_puts_back_what_another_left_of_the_whole(
    loads: Loads, path: Path, tmp_path: Path, other: str
) -> None:
    """As the next load of the whole would."""
    before = shape(loads)
    die_while_loading(loads, path)
    small = write_to(tmp_path / "small.csv", "id,a,b\n" + ("1,1,x\n" if other == "t1" else "11,1,x\n"))
    loads.run(target(small, into=other), rules=LoadRules(retry_for=0.0))
    assert shape(loads) == before
    assert records(loads) == 0


@pytest.mark.part("rest")
def test_an_ordinary_owner_drops_partitions_and_a_superuser_repairs(loads: Loads, path: Path) -> None:
    """As the owner; one that is somebody else's keeps what belongs to all, not what others have of their own."""
    role = f"user_{secrets.token_hex(4)}"
    owned = "".join(
        f"ALTER TABLE {table} OWNER TO {role};" for table in ("t", "t1", "elsewhere.t1", "t2", "t2a", "parent")
    )
    loads.execute(f"CREATE ROLE {role} LOGIN; GRANT CREATE, USAGE ON SCHEMA public, elsewhere TO {role}; {owned}")
    share_ledger(loads, role)
    try:
        before = shape(loads)
        owner = Loads(loads.conninfo, role=role, piece_bytes=50)
        die_while_loading(owner, path)
        loads.repair().raise_first()
        assert shape(loads) == before
        loads.execute("CREATE INDEX own ON t2a (a); ALTER TABLE t1 OWNER TO postgres; DELETE FROM penstock.loads")
        before = shape(loads)
        assert [each.name for each in indexes_of(owner.run(target(path), rules=REBUILD)).rebuilt] == ["own"]
        assert shape(loads) == before
    finally:
        loads.execute(f"DROP OWNED BY {role} CASCADE; DROP ROLE {role}")


def test_a_foreign_key_to_a_partitioned_table_stays_with_the_key(loads: Loads, path: Path) -> None:
    """Its parts would get other names; the other index is dropped."""
    loads.execute("CREATE TABLE child (id int REFERENCES t)")
    loads.execute("DROP TABLE other")
    before = shape(loads)
    outcome = loads.run(target(path), rules=REBUILD)
    assert {each.name for each in indexes_of(outcome).rebuilt} == {"t_b_idx", "t_a_fkey"}
    assert shape(loads) == before


def test_a_partitioned_child_is_dropped_with_the_key_that_it_refers_to(loads: Loads, tmp_path: Path) -> None:
    """The load is of the table that is referred to."""
    before = shape(loads)
    path = write_to(tmp_path / "parents.csv", "id\n500\n501\n")
    seen: list[int] = []
    loads.at_piece = lambda _: seen.append(len([row for row in shape(loads) if row[4].startswith("FOREIGN")]))
    outcome = loads.run(target(path, into="parent"), rules=REBUILD)
    assert {each.name for each in indexes_of(outcome).rebuilt} == {"parent_pkey", "t_a_fkey"}
    assert seen[0] == 0
    assert shape(loads) == before


@pytest.mark.part("rest")
def test_the_plan_has_a_line_for_all_partitions(loads: Loads, path: Path) -> None:
    """With their number, and the reason of what stays."""
    for number in range(5):
        loads.execute(f"CREATE TABLE p{number} PARTITION OF t FOR VALUES FROM ({900 + number}) TO ({901 + number})")
        loads.execute(f"CREATE INDEX own{number} ON p{number} (a)")
    argv = [sys.executable, "-m", "penstock", "load", str(path), "--into", "t", "--to", loads.conninfo, "--plan"]
    shown = subprocess.run([*argv, "--indexes", "rebuild"], capture_output=True, text=True, check=True).stdout
    assert "  drop  primary key  t_pkey, with 9 on partitions" in shown
    assert "  drop  foreign key  t_a_fkey, with 9 on partitions" in shown
    assert "  drop  index        own0 and 4 more on partitions" in shown
    assert "t1_pkey" not in shown
    done = subprocess.run([*argv, "--json"], capture_output=True, text=True, check=True).stdout
    told = json.loads(done)["steps"]["changes"]["tables"][0]["indexes"]
    assert {"name": "t_pkey", "attached": 9} in [
        {key: part[key] for key in ("name", "attached")} for part in told["kept"]
    ]


@pytest.mark.part("rest")
def test_an_empty_partitioned_table_parks_where_it_pays(loads: Loads, path: Path) -> None:
    """Every index of a partition asks for its share of bytes; a table with rows in any partition keeps all."""
    loads.tune(least_dropping_bytes=0)
    auto = LoadRules(retry_for=0.0, again=True)
    assert indexes_of(loads.run(target(path), rules=auto)).rebuilt == ()
    loads.tune(least_part_bytes=1)
    loads.execute("DELETE FROM t WHERE id < 19")
    more = path.with_name("more.csv")
    more.write_text("id,a,b\n50,1,x\n")
    assert indexes_of(loads.run(target(more), rules=auto)).rebuilt == ()
    loads.execute("TRUNCATE t")
    assert {each.name for each in indexes_of(loads.run(target(path), rules=auto)).rebuilt} == {"t_b_idx", "t_a_fkey"}
    loads.execute("TRUNCATE t")
    rebuilt = indexes_of(loads.run(target(path), rules=replace(auto, indexes="rebuild"))).rebuilt
    assert {each.name for each in rebuilt} == {"t_pkey", "t_b_idx", "t_a_fkey"}


@pytest.mark.part("rest")
def test_who_reads_a_partition_is_named(loads: Loads, path: Path) -> None:
    """And nothing has changed."""
    before = shape(loads)
    with psycopg.connect(loads.conninfo, application_name="someone else") as reader:
        reader.execute("SELECT count(*) FROM t2a")
        with pytest.raises(ServerError, check=has_code("55P03")) as caught:
            loads.run(target(path), rules=REBUILD)
    assert "someone else" in str(caught.value.detail)
    assert shape(loads) == before
    assert records(loads) == 0


@pytest.mark.part("rest")
def test_a_partition_that_is_made_behind_the_records_ends_the_load(
    loads: Loads, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What would fall with the table's index was not written down; all stays, and the next run drops it too."""

    def make_before(connection: Connection, oid: int, changes: Sequence[Change]) -> None:
        loads.execute("CREATE TABLE IF NOT EXISTS t9 PARTITION OF t FOR VALUES FROM (200) TO (300)")
        drop_parts(connection, oid, changes)

    monkeypatch.setattr(IndexesAndKeys, "apply", staticmethod(make_before))
    with pytest.raises(TargetError, match="was created, altered or dropped meanwhile"):
        loads.run(target(path), rules=REBUILD)
    assert records(loads) == 0
    before = shape(loads)
    assert "t9_pkey" in {name for _, name, *_ in before}
    assert loads.run(target(path), rules=REBUILD).rows == ROWS
    assert shape(loads) == before


def test_a_row_that_refers_to_nothing_is_told_once(loads: Loads, path: Path) -> None:
    """The key of its partition is not there, and so that of the whole is not tried; the others are."""
    before = shape(loads)
    path.write_text("id,a,b\n1,1,x\n11,999,y\n")
    with pytest.raises(DataError, check=has_code("23503")) as caught:
        loads.run(target(path), rules=REBUILD)
    assert "(a)=(999)" in str(caught.value.detail)
    assert "more could not be rebuilt" not in str(caught.value.detail)
    found = {row[0]: row[2] for row in shape(loads) if row[1] == "t_a_fkey"}
    assert found == {"elsewhere.t1": True, "t1": True, "t2a": False}
    loads.execute("UPDATE t SET a = 1")
    loads.repair().raise_first()
    assert shape(loads) == before


def test_a_repairs_plan_counts_what_is_attached(loads: Loads, path: Path) -> None:
    """Parts that exist already and must only be attached are counted separately."""
    die_while_loading(loads, path)
    with Repairer(ConnectionFactory(loads.conninfo)) as repairer:
        assert {(step.name, step.action, step.attached) for step in repairer.plan()} == {
            ("t_pkey", "rebuild", 4),
            ("t_b_idx", "rebuild", 4),
            ("t_a_fkey", "rebuild", 4),
        }
        loads.execute("CREATE INDEX t1_b_idx ON t1 (b)")
        steps = {step.name: step for step in repairer.plan()}
    assert steps["t_b_idx"].attached == 3
    assert (steps["t1_b_idx"].action, steps["t1_b_idx"].attached) == ("finish", 0)
    assert "not attached" in steps["t1_b_idx"].reason
    assert [line.split("  ")[2] for line in describe_steps(list(steps.values())) if "on partitions" in line]
