"""Tables that a publication FOR ALL TABLES excludes, and publications of sequences, which PostgreSQL 19 has."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from penstock.changes.tables.parts import ShapeTable
from penstock.core.errors import TargetError
from penstock.core.sql import fetch_rows
from penstock.core.values.names import parse_table_name
from support.ddl import capture, find_obstacles
from support.files import write_to
from support.loads import Loads, target
from support.modes import mode_target

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from penstock.core.connect.connection import Connection
    from penstock.embedded.server import EmbeddedServer

pytestmark = pytest.mark.pg(">= 19")

_UNPUBLISHED = 'table "public.t" is not replicated to subscribers'
_PATIENCE_S = 30.0


@pytest.fixture
def numbers(tmp_path: Path) -> Path:
    """Provide a file of three records."""
    return write_to(tmp_path / "numbers.csv", "k\n1\n2\n3\n")


def shape(connection: Connection, name: str) -> ShapeTable:
    """Return what is asked about a table before its keys are dropped."""
    ((oid,),) = connection.execute("SELECT %s::regclass::oid", [name]).fetchall()
    (found,) = fetch_rows(connection, "changes/table", ShapeTable, oid=oid)
    return found


def test_excluded_table_is_not_published(connection: Connection) -> None:
    """Nor are the partitions of an excluded one; others are."""
    connection.execute(
        "CREATE TABLE t (k int PRIMARY KEY); CREATE TABLE u (k int); CREATE TABLE r (k int) PARTITION BY RANGE (k);"
        " CREATE TABLE r1 PARTITION OF r FOR VALUES FROM (0) TO (9);"
        " CREATE PUBLICATION p FOR ALL TABLES EXCEPT (TABLE t, r); CREATE PUBLICATION q FOR TABLE u"
    )
    published = {name: [each.name for each in capture(connection, name).publications] for name in ("t", "u", "r1")}
    assert published == {"t": [], "u": ["p", "q"], "r1": []}
    assert [shape(connection, name).is_published for name in ("t", "u", "r", "r1")] == [False, True, False, False]


def test_excluded_table_is_not_replaced(connection: Connection) -> None:
    """Its replacement would be published; who owns the publication makes no difference."""
    connection.execute("CREATE TABLE t (k int); CREATE PUBLICATION p FOR ALL TABLES EXCEPT (TABLE t)")
    found = find_obstacles(connection, capture(connection, "t"))
    assert [(each.kind, each.description) for each in found] == [
        ("publication", "table public.t is excluded from publication p")
    ]


def test_no_partition_of_an_excluded_table_is_made_aside(database: str, numbers: Path) -> None:
    """It is a plain table until it is attached, which the publication has."""
    loads = Loads(database, setup="CREATE TABLE r (k int) PARTITION BY RANGE (k)")
    loads.execute("CREATE TABLE r1 PARTITION OF r FOR VALUES FROM (0) TO (9)")
    loads.run(target(numbers, into="r"))
    loads.execute("CREATE PUBLICATION p FOR ALL TABLES EXCEPT (TABLE r)")
    new = replace(target(numbers, into="r2"), partition_of=parse_table_name("r"), for_values="FROM (9) TO (20)")
    for job in (new, mode_target(numbers, "replace", into="r1")):
        with pytest.raises(TargetError) as caught:
            loads.run(job)
        assert "table public.r is excluded from publication p" in str(caught.value.detail)


@pytest.mark.parametrize(
    ("publication", "warned"),
    [
        ("FOR ALL TABLES EXCEPT (TABLE u)", []),
        ("FOR ALL TABLES EXCEPT (TABLE t)", [_UNPUBLISHED]),
        ("FOR ALL SEQUENCES", []),
        ("FOR ALL TABLES EXCEPT (TABLE t), ALL SEQUENCES", [_UNPUBLISHED]),
    ],
)
def test_excluded_table_is_warned_of(database: str, numbers: Path, publication: str, warned: list[str]) -> None:
    """A publication of sequences alone has no tables that this one could be missing among."""
    loads = Loads(database, setup="CREATE TABLE t (k int); CREATE TABLE u (k int)")
    # Before a publication for all tables: the ledger would be published.
    loads.run(target(numbers, into="u"))
    loads.execute(f"CREATE PUBLICATION news {publication}")
    assert [warning.message for warning in loads.run(target(numbers)).warnings] == warned


@pytest.mark.part("rest")
def test_subscriber_goes_on_beside_loads_of_an_excluded_table(
    new_server: Callable[..., EmbeddedServer], pg_major: int, numbers: Path
) -> None:
    """The replacement is refused before its first row, and what is loaded otherwise does not reach the subscriber."""
    publisher, subscriber = new_server(pg_major, wal_level="logical"), new_server()
    here, there = Loads(publisher.ensure_running()), Loads(subscriber.ensure_running())
    for loads in (here, there):
        loads.execute("CREATE TABLE t (k int PRIMARY KEY); CREATE TABLE u (k int PRIMARY KEY)")
    # The ledger is made first, and excluded: the subscriber has none.
    here.run(target(numbers, into="u"))
    (ledger,) = here.execute(
        "SELECT string_agg(oid::regclass::text, ', ') FROM pg_class"
        " WHERE relnamespace = 'penstock'::regnamespace AND relkind = 'r'"
    )[0]
    here.execute(f"CREATE PUBLICATION p FOR ALL TABLES EXCEPT (TABLE t, {ledger})")
    there.execute(f"CREATE SUBSCRIPTION s CONNECTION '{publisher.conninfo()}' PUBLICATION p")
    _await(there, "SELECT count(*) FROM u", 3)
    with pytest.raises(TargetError, match="cannot replace table") as caught:
        here.run(mode_target(numbers, "replace"))
    assert "is excluded from publication p" in str(caught.value.detail)
    assert here.execute("SELECT count(*) FROM pg_class WHERE relname LIKE 'penstock\\_%'") == [(0,)]
    here.run(mode_target(numbers, "truncate"))
    here.execute("INSERT INTO u VALUES (4)")
    _await(there, "SELECT count(*) FROM u", 4)
    assert there.execute("SELECT count(*) FROM t") == [(0,)]
    assert there.execute("SELECT apply_error_count FROM pg_stat_subscription_stats") == [(0,)]


def _await(loads: Loads, query: str, wanted: Any) -> None:
    """Wait until a query returns a value."""
    deadline_s = time.monotonic() + _PATIENCE_S
    while loads.execute(query) != [(wanted,)]:
        assert time.monotonic() < deadline_s, f"{query} is not {wanted}"
        time.sleep(0.1)
