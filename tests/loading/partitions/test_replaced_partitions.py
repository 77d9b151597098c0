"""A partition is replaced by one that is built aside: it is as it was but for its rows, which are seen all or not."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import psycopg
import pytest

import penstock
from loading.partitions.test_partitions import (
    PARENT,
    assert_refused,
    day,
    left_tables,
    list_constraints,
    list_indexes,
    listen,
    partition,
)
from penstock.core.errors import PenstockError, TargetError
from support.command import run_process
from support.loads import IMPATIENT, Loads, target

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.core.values.job import TargetJob

FORMER = """
    CREATE TABLE events_2 PARTITION OF events FOR VALUES FROM ('2026-11-26') TO ('2026-11-27');
    INSERT INTO events VALUES (1, '2026-11-26 12:00Z', 1), (2, '2026-11-26 12:00Z', 2), (3, '2026-11-26 12:00Z', 3);
"""

# What a partition may have of its own, and of its parent.
OWN = """
    CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION $$fired$$; END';
    CREATE TRIGGER a BEFORE INSERT ON events FOR EACH ROW EXECUTE FUNCTION f();
    CREATE TRIGGER b AFTER UPDATE ON events FOR EACH ROW EXECUTE FUNCTION f();
    CREATE TRIGGER c AFTER INSERT ON events_2 FOR EACH ROW EXECUTE FUNCTION f();
    ALTER TABLE events_2 DISABLE TRIGGER b;
    CREATE INDEX own ON events_2 (note);
    ALTER TABLE events_2 ADD CHECK (kind < 100);
    ALTER TABLE events_2 SET (fillfactor = 70);
    COMMENT ON TABLE events_2 IS 'of one day';
    GRANT SELECT ON events_2 TO PUBLIC;
"""


def replacing(path: Path, *, into: str = "events_2") -> TargetJob:
    """Return a target that replaces a partition."""
    return replace(target(path, into=into), mode="replace")


@pytest.fixture
def loads(ledger18: str) -> Loads:
    """Provide loads in small blocks into a database with a partitioned table."""
    return Loads(ledger18, piece_bytes=3000, chunk_bytes=3000, setup="SET timezone = 'UTC';" + PARENT + FORMER)


def describe(loads: Loads) -> list[object]:
    """Return what the catalogue has of the partition."""
    return [
        list_indexes(loads, "events_2"),
        list_constraints(loads, "events_2"),
        loads.execute(
            "SELECT relacl::text, reloptions, obj_description(oid), pg_get_expr(relpartbound, oid),"
            " pg_get_partition_constraintdef(oid) FROM pg_class WHERE oid = 'events_2'::regclass"
        ),
        loads.execute(
            "SELECT tgname, pg_get_triggerdef(oid), tgenabled, tgparentid <> 0 FROM pg_trigger"
            " WHERE tgrelid = 'events_2'::regclass AND NOT tgisinternal ORDER BY 1"
        ),
    ]


def test_only_the_rows_differ(loads: Loads, tmp_path: Path) -> None:
    """All that the partition has of its parent and of its own is there again, and no trigger has fired."""
    loads.execute(OWN)
    before = describe(loads)
    outcome = loads.run(replacing(day(tmp_path / "day.csv.gz")))
    assert (outcome.rows, loads.count("events"), loads.count("events_2")) == (500, 501, 500)
    assert describe(loads) == before
    assert left_tables(loads) == []


def test_rows_outside_the_bounds_are_refused(loads: Loads, tmp_path: Path) -> None:
    """With file and line; the former rows stay."""
    with pytest.raises(PenstockError, match="penstock_bounds") as caught:
        loads.run(replacing(day(tmp_path / "day.csv.gz", outside=444)))
    assert caught.value.location is not None
    assert caught.value.location.line == 446
    assert (loads.count("events"), loads.count("events_2")) == (4, 3)


REFUSALS = {
    "publication": ("CREATE PUBLICATION p FOR TABLE events", 'publication "p" publishes it'),
    "index of the parent only": ("CREATE INDEX lonely ON ONLY events (note)", "index public.lonely is not valid"),
    "foreign key": (
        "CREATE TABLE refs (id bigint, at timestamptz, FOREIGN KEY (id, at) REFERENCES events)",
        "foreign key",
    ),
    "default partition": (
        "ALTER TABLE events DETACH PARTITION events_2; ALTER TABLE events ATTACH PARTITION events_2 DEFAULT",
        "default partition: its bounds change",
    ),
    "view": ("CREATE VIEW v AS SELECT * FROM events_2", "view"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_partitions_are_refused_by_name(loads: Loads, tmp_path: Path, name: str) -> None:
    """Before the first row, with what stands in the way."""
    job = replacing(day(tmp_path / "day.csv.gz"))
    assert_refused(loads, job, *REFUSALS[name], message=r"cannot replace (partition|table)")
    assert loads.count("events_2") == 3


def test_the_plan_says_that_indexes_are_built_without_a_pause(loads: Loads, tmp_path: Path) -> None:
    """As the builds of a load that drops indexes are."""
    path = str(day(tmp_path / "day.csv.gz"))
    options = ("--into", "events_2", "--mode", "replace", "--max-wal", "9GB", "--plan")
    assert "does not pause during builds of indexes" in run_process("load", path, "--to", loads.conninfo, *options).out


def test_wider_types_are_refused(loads: Loads, tmp_path: Path) -> None:
    """By the server, before the first row: those of the parent must be the same."""
    path = tmp_path / "day.csv"
    path.write_text("id,at,kind,note,extent\n1,2026-11-26 12:00:00Z,1,x,1234567890123\n")
    loads.execute("ALTER TABLE events ADD COLUMN extent int")
    with pytest.raises(PenstockError, match='cannot alter inherited column "extent"'):
        loads.run(replace(replacing(path), types="widen"))
    assert loads.count("events_2") == 3


def test_a_partition_that_was_detached_meanwhile_stays(loads: Loads, tmp_path: Path) -> None:
    """Also one with other bounds than before."""
    job = replacing(day(tmp_path / "day.csv.gz"))
    with psycopg.connect(loads.conninfo, autocommit=True) as other:
        other.execute("BEGIN; SELECT FROM events_2 LIMIT 1")
        with pytest.raises(PenstockError, match="could not get a lock") as caught:
            loads.run(job)
        assert f"pid {other.info.backend_pid}" in (caught.value.detail or "")
        other.execute("COMMIT")
    loads.execute(
        "ALTER TABLE events DETACH PARTITION events_2;"
        "ALTER TABLE events ATTACH PARTITION events_2 FOR VALUES FROM ('2026-11-26') TO ('2026-11-28')"
    )
    outcome = loads.run(job)
    assert (outcome.rows, loads.count("events_2")) == (500, 500)
    assert "2026-11-28" in str(describe(loads))
    assert left_tables(loads) == []


def test_a_partition_that_is_being_detached_is_refused(loads: Loads, tmp_path: Path) -> None:
    """Attached anew, it would be seen by the readers of the parent again."""
    with psycopg.connect(loads.conninfo) as reader, psycopg.connect(loads.conninfo, autocommit=True) as other:
        reader.execute("SELECT FROM events LIMIT 1")
        other.execute("SET statement_timeout = '300ms'")
        with pytest.raises(psycopg.errors.QueryCanceled):
            other.execute("ALTER TABLE events DETACH PARTITION events_2 CONCURRENTLY")
    job = replacing(day(tmp_path / "day.csv.gz"))
    with pytest.raises(TargetError, match="cannot replace partition") as caught:
        loads.run(job)
    assert "FINALIZE" in (caught.value.detail or "")
    loads.execute("ALTER TABLE events DETACH PARTITION events_2 FINALIZE")
    loads.run(job)
    assert (loads.count("events"), loads.count("events_2")) == (1, 500)


def test_readers_of_another_partition_are_not_waited_for(loads: Loads, tmp_path: Path) -> None:
    """The parent alone is locked with the partition, not all that it has."""
    with psycopg.connect(loads.conninfo) as other:
        other.execute("SELECT FROM events_1")
        loads.run(replacing(day(tmp_path / "day.csv.gz")))
    assert loads.count("events_2") == 500


def test_a_reader_of_the_default_partition_is_named(loads: Loads, tmp_path: Path) -> None:
    """DROP TABLE of a partition and ATTACH lock it."""
    loads.execute("CREATE TABLE rest PARTITION OF events DEFAULT")
    job = replacing(day(tmp_path / "day.csv.gz"))
    with psycopg.connect(loads.conninfo) as other:
        other.execute("SELECT FROM rest")
        with pytest.raises(PenstockError, match="could not get a lock") as caught:
            loads.run(job)
        assert f"pid {other.info.backend_pid}" in (caught.value.detail or "")
    loads.run(job)
    assert loads.count("events_2") == 500


def test_attach_reads_no_row(loads: Loads, tmp_path: Path) -> None:
    """As the server says at DEBUG1."""
    seen = listen(loads, replacing(day(tmp_path / "day.csv.gz")))
    assert 'partition constraint for table "events_2" is implied by existing constraints' in seen


def test_rows_of_the_same_load_are_not_dropped(loads: Loads, tmp_path: Path) -> None:
    """A load that replaces a partition and fills its parent is refused; with other partitions it is not."""
    path = tmp_path / "some.csv"
    path.write_text("id,at,kind,note\n7,2026-11-26 12:00:00Z,1,x\n8,2026-11-25 12:00:00Z,1,x\n")
    job = replacing(day(tmp_path / "day.csv.gz"))
    with pytest.raises(TargetError, match=r'cannot replace table "public.events_2" and fill table "public.events"'):
        loads.run(job, target(path, into="events"))
    (tmp_path / "after.csv").write_text("id,at,kind,note\n7,2026-11-27 12:00:00Z,1,x\n")
    after = "FROM ('2026-11-27') TO ('2026-11-28')"
    loads.run(job, partition(tmp_path / "after.csv", into="events_3", values=after))
    assert (loads.count("events"), loads.count("events_2")) == (502, 500)


@pytest.mark.parametrize("change", ["CREATE INDEX IF NOT EXISTS late ON events (note)", "DROP INDEX IF EXISTS own"])
def test_an_index_that_was_made_or_dropped_meanwhile_is_noticed(loads: Loads, tmp_path: Path, change: str) -> None:
    """The next run makes the table as the partition is then."""
    loads.execute("CREATE INDEX own ON events (note)")
    loads.at_piece = lambda _: loads.execute(change)
    job = replacing(day(tmp_path / "day.csv.gz"))
    with pytest.raises(TargetError, match="was altered while its replacement was loaded"):
        loads.run(job)
    assert loads.count("events_2") == 3
    loads.run(job)
    assert (loads.count("events_2"), left_tables(loads)) == (500, [])


@pytest.mark.versions
def test_identities_bounds_and_ancestors(ledger: str, tmp_path: Path) -> None:
    """Of a partition of a partition by hash, on all versions."""
    loads = Loads(
        ledger,
        setup="""
        CREATE TABLE p (id bigint GENERATED ALWAYS AS IDENTITY, day date, kind int) PARTITION BY RANGE (day);
        CREATE TABLE q PARTITION OF p FOR VALUES FROM ('2026-01-01') TO ('2027-01-01') PARTITION BY HASH (kind);
        CREATE TABLE r PARTITION OF q FOR VALUES WITH (MODULUS 1, REMAINDER 0);
        INSERT INTO p (day, kind) VALUES ('2026-03-01', 1), ('2026-03-02', 2);
        """,
    )
    query = "SELECT attname, attidentity, atthasdef, attnotnull FROM pg_attribute WHERE attnum > 0 AND attrelid = "
    before = loads.execute(f"{query} 'r'::regclass")
    path = tmp_path / "rows.csv"
    major = loads.execute("SELECT current_setting('server_version_num')::int / 10000")[0][0]
    # Before 17, the partition itself has no identity.
    path.write_text("day,kind\n2026-04-01,1\n" if major >= 17 else "id,day,kind\n3,2026-04-01,1\n")
    loads.run(replacing(path, into="r"))
    assert loads.execute("SELECT id::int, kind FROM p") == [(3, 1)]
    assert loads.execute(f"{query} 'r'::regclass") == before
    path.write_text("id,day,kind\n3,2025-04-01,1\n")
    with pytest.raises(PenstockError, match="penstock_bounds"):
        loads.run(replacing(path, into="r"), rules=replace(IMPATIENT, changed="load"))
    assert loads.execute("SELECT id::int FROM p") == [(3,)]


def test_a_replaced_partition_is_verified(loads: Loads, tmp_path: Path) -> None:
    """As other tables that a load has replaced."""
    load_id = loads.run(replacing(day(tmp_path / "day.csv.gz"))).load_id
    assert penstock.verify(load_id, to=loads.conninfo, values=True).is_verified


def test_a_load_into_the_parent_is_verified_until_its_rows_are_replaced(loads: Loads, tmp_path: Path) -> None:
    """A partition that is made beside it takes nothing away; one that is replaced may."""
    path = tmp_path / "some.csv"
    path.write_text("id,at,kind,note\n7,2026-11-26 12:00:00Z,1,x\n8,2026-11-25 12:00:00Z,1,x\n")
    load_id = loads.run(target(path, into="events")).load_id
    after = "FROM ('2026-11-27') TO ('2026-11-28')"
    (tmp_path / "after.csv").write_text("id,at,kind,note\n7,2026-11-27 12:00:00Z,1,x\n")
    made = loads.run(partition(tmp_path / "after.csv", into="events_3", values=after)).load_id
    assert penstock.verify(load_id, to=loads.conninfo, values=True).is_verified
    loads.run(replacing(day(tmp_path / "day.csv.gz")))
    with pytest.raises(PenstockError, match="may not have the rows"):
        penstock.verify(load_id, to=loads.conninfo, values=True)
    assert penstock.verify(made, to=loads.conninfo, values=True).is_verified


def test_a_load_into_the_parent_is_undone_beside_a_new_partition(loads: Loads, tmp_path: Path) -> None:
    """Whose rows stay."""
    path = tmp_path / "some.csv"
    path.write_text("id,at,kind,note\n7,2026-11-26 12:00:00Z,1,x\n8,2026-11-25 12:00:00Z,1,x\n")
    load_id = loads.run(target(path, into="events")).load_id
    (tmp_path / "after.csv").write_text("id,at,kind,note\n7,2026-11-27 12:00:00Z,1,x\n")
    after = "FROM ('2026-11-27') TO ('2026-11-28')"
    loads.run(partition(tmp_path / "after.csv", into="events_3", values=after))
    penstock.undo(load_id, to=loads.conninfo)
    assert (loads.count("events"), loads.count("events_3")) == (5, 1)
