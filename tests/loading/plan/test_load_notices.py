"""What a plan warns of: rows that a crash would take, rows that reach nobody else, and what triggers will do."""

from __future__ import annotations

import gzip
import os
import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from penstock.core.catalogue.catalog import find_table
from penstock.core.values.table import TableName
from support.files import write_to
from support.loads import Loads, target

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from penstock.core.connect.connection import Connection
    from penstock.core.values.table import TableFacts
    from penstock.embedded.server import EmbeddedServer

PARTITIONED = (
    "CREATE TABLE t (a int) PARTITION BY RANGE (a); CREATE {} TABLE p PARTITION OF t FOR VALUES FROM (0) TO (9)"
)


@pytest.fixture
def numbers(tmp_path: Path) -> Path:
    """Provide a file of five records."""
    return write_to(tmp_path / "numbers.csv", "a\n1\n2\n3\n4\n5\n")


def warnings(database: str, path: Path) -> list[str]:
    """Return what a load of a file into table t warns of."""
    loads = Loads(database)
    return [warning.message for warning in loads.run(target(path)).warnings]


@pytest.mark.parametrize("kind", ["plain", "gzip", "pipe"])
def test_source_without_text_is_warned_of(database: str, tmp_path: Path, kind: str) -> None:
    """Whatever its size is, none of it becomes a row."""
    Loads(database).execute("CREATE TABLE t (a int)")
    path = tmp_path / "source"
    if kind == "pipe":
        os.mkfifo(path)
        threading.Thread(target=path.write_bytes, args=(b"",), daemon=True).start()
    else:
        path.write_bytes(gzip.compress(b"") if kind == "gzip" else b"")
    assert warnings(database, path) == ["every source is empty"]


def test_unlogged_table_is_warned_of(database: str, numbers: Path) -> None:
    """Its rows do not outlive a crash."""
    Loads(database).execute("CREATE UNLOGGED TABLE t (a int)")
    assert warnings(database, numbers) == ['table "public.t" is unlogged']


def test_unlogged_partition_is_warned_of(database: str, numbers: Path) -> None:
    """A partitioned table itself does not show this."""
    Loads(database).execute(PARTITIONED.format("UNLOGGED"))
    assert warnings(database, numbers) == ['partitions of table "public.t" are unlogged: "public.p"']


@pytest.mark.parametrize(
    ("publication", "is_replicated"),
    [
        ("FOR ALL TABLES", True),
        ("FOR TABLE t", True),
        ("FOR TABLE other", False),
        ("FOR TABLE t WITH (publish = 'update')", False),
    ],
)
def test_table_that_no_publication_has_is_warned_of(
    database: str, numbers: Path, publication: str, is_replicated: bool
) -> None:
    """Where there are subscribers, they do not get its rows."""
    loads = Loads(database, setup="CREATE TABLE t (a int); CREATE TABLE other (a int)")
    # Before a publication for all tables: the ledger would be published.
    loads.run(target(numbers))
    loads.execute(f"CREATE PUBLICATION news {publication}")
    loads.execute("DELETE FROM penstock.loads")
    expected = [] if is_replicated else ['table "public.t" is not replicated to subscribers']
    assert warnings(database, numbers) == expected
    # It may be intended, so the warning is not repeated each night.
    more = numbers.with_name("more.csv")
    more.write_text("a\n6\n")
    assert warnings(database, more) == []


@pytest.mark.parametrize("publication", ["FOR TABLE t", "FOR TABLE p", "FOR TABLE t WITH (publish_via_partition_root)"])
def test_published_partitions_are_replicated(database: str, numbers: Path, publication: str) -> None:
    """By their own name, or by their parent's."""
    loads = Loads(database, setup=PARTITIONED.format(""))
    loads.execute(f"CREATE PUBLICATION news {publication}")
    assert warnings(database, numbers) == []


def test_database_without_publications_warns_of_nothing(database: str, numbers: Path) -> None:
    """Nobody subscribes to anything."""
    Loads(database).execute("CREATE TABLE t (a int)")
    assert warnings(database, numbers) == []


@pytest.mark.part("rest")
def test_server_that_replicates_nothing_is_warned_of(new_server: Callable[..., EmbeddedServer], numbers: Path) -> None:
    """With wal_level = minimal there is neither a standby nor point-in-time recovery."""
    server = new_server(wal_level="minimal", max_wal_senders="0")
    server.ensure_running()
    Loads(server.conninfo()).execute("CREATE TABLE t (a int)")
    assert warnings(server.conninfo(), numbers) == ["nothing that is loaded is replicated: wal_level is minimal"]


TRIGGERS = """
    CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN new; END';
    CREATE TABLE r (a int PRIMARY KEY);
    INSERT INTO r SELECT generate_series(0, 9);
    CREATE TABLE t (a int REFERENCES r) PARTITION BY RANGE (a);
    CREATE TABLE p PARTITION OF t FOR VALUES FROM (0) TO (9);
    CREATE TRIGGER before BEFORE INSERT ON p FOR EACH ROW EXECUTE FUNCTION f();
    CREATE TRIGGER after AFTER INSERT OR UPDATE ON t FOR EACH ROW EXECUTE FUNCTION f();
    CREATE TRIGGER off AFTER INSERT ON t FOR EACH ROW EXECUTE FUNCTION f();
    CREATE TRIGGER other AFTER DELETE ON t FOR EACH ROW EXECUTE FUNCTION f();
    CREATE TRIGGER once AFTER INSERT ON t EXECUTE FUNCTION f();
    CREATE TRIGGER never AFTER INSERT ON p EXECUTE FUNCTION f();
    ALTER TABLE t DISABLE TRIGGER off;
"""


def facts_of(connection: Connection) -> TableFacts:
    """Return the facts of table t."""
    found = find_table(connection, TableName(schema=None, name="t"))
    assert found is not None
    return found


def test_facts_name_the_triggers_that_an_insert_fires(connection: Connection) -> None:
    """Each once, though partitions have copies; not those of foreign keys, of other events, of other tables."""
    connection.execute(TRIGGERS)
    facts = facts_of(connection)
    assert facts.row_triggers == ("after ON t", "before ON p")
    assert facts.statement_triggers == ("once ON t",)


def test_plan_knows_how_often_row_triggers_fire(database18: str, numbers: Path) -> None:
    """As often as the files have records."""
    loads = Loads(database18, setup=TRIGGERS)
    with loads.loader() as loader:
        from penstock.core.values.job import LoadJob

        plan = loader.plan(LoadJob(targets=(replace(target(numbers)),)))
    assert plan.targets[0].estimated_records == 5
