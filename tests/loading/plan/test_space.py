"""What a load is expected to take of the disk."""

from __future__ import annotations

import gzip
from dataclasses import replace
from typing import TYPE_CHECKING

import psycopg
import pytest

from penstock.core.catalogue.catalog import read_table_storage
from penstock.core.connect.connection import ConnectionFactory
from penstock.core.values.job import LoadJob, TargetJob
from penstock.loading.loader import Loader
from penstock.loading.plan.space import estimate_needs, estimate_wal
from penstock.loading.values.objects import all_objects
from support.loads import IMPATIENT, Loads, target

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.core.catalogue.catalog import SpaceNeed


def estimate(loads: Loads, job: TargetJob) -> list[SpaceNeed]:
    """Return what a load of one target is expected to need."""
    with Loader(ConnectionFactory(loads.conninfo)) as loader:
        plan = loader.plan(LoadJob(targets=(job,), rules=IMPATIENT))
    with ConnectionFactory(loads.conninfo).connect() as connection:
        facts = plan.targets[0].facts
        places = read_table_storage(connection, [0 if facts is None else facts.oid])
    works = all_objects(plan.targets)
    needs = estimate_needs(works, places, wal_bytes=0)
    # All that is written to tables is written to the WAL first.
    wal_bytes = sum(need.needed_bytes for need in needs if need.what == "WAL")
    assert wal_bytes == estimate_wal(works, places)
    return [need for need in needs if need.what != "WAL"]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Provide 100,000 records, 2.8 MB."""
    path = tmp_path / "file.csv"
    path.write_text("".join(f"{number:06},{number * 7919 % 100_003:020}\n" for number in range(100_000)))
    return path


@pytest.mark.part("rest")
@pytest.mark.parametrize(
    ("definition", "what"),
    [
        ("a int, b text", "table public.t"),
        ("a int PRIMARY KEY, b text", "table public.t, 1 index"),
        ("a int PRIMARY KEY, b text UNIQUE", "table public.t, 2 indexes"),
    ],
)
def test_table_takes_about_what_was_expected(database18: str, file: Path, definition: str, what: str) -> None:
    """benchmarks/disk_space.py has the exact errors, and those of merges and replaced tables."""
    loads = Loads(database18, setup=f"CREATE TABLE t ({definition})")
    job = target(file, format="csv", has_header=False)
    (need,) = estimate(loads, job)
    loads.run(job, sessions=1)
    assert need.what == what
    assert need.needed_bytes == pytest.approx(loads.execute("SELECT pg_total_relation_size('t')")[0][0], rel=0.6)


@pytest.mark.part("rest")
def test_staging_table_is_needed_beside(database18: str, file: Path) -> None:
    """And what the merge sorts."""
    loads = Loads(database18, setup="CREATE TABLE t (a int PRIMARY KEY, b text)")
    job = target(file, format="csv", has_header=False)
    (appended,) = estimate(loads, job)
    (merged,) = estimate(loads, replace(job, mode="upsert", key=("a",)))
    assert merged.what == "table public.t, 1 index, staging table"
    assert merged.needed_bytes > 2 * appended.needed_bytes


def test_skipped_columns_take_no_space(database18: str, tmp_path: Path) -> None:
    """The share of the text that is loaded is that of the first lines."""
    path = tmp_path / "wide.csv"
    path.write_text("a,b,c\n" + f"1,{'x' * 96},2\n" * 1000)
    loads = Loads(database18, setup="CREATE TABLE t (a int, b text, c int)")
    (whole, *_), (part, *_) = (
        estimate(loads, target(path)),
        estimate(loads, target(path, skip=["b"], constants={"b": ""})),
    )
    assert 0.03 < part.needed_bytes / whole.needed_bytes < 0.05


@pytest.mark.part("rest")
def test_compressed_objects_are_taken_as_what_they_expand_to(database18: str, file: Path) -> None:
    """By compressing the sample again; the table is still to be created."""
    loads = Loads(database18)
    packed = file.with_suffix(".csv.gz")
    packed.write_bytes(gzip.compress(file.read_bytes(), mtime=0))
    plain, found = (estimate(loads, target(path, create=True, has_header=True)) for path in (file, packed))
    assert found[0].needed_bytes == pytest.approx(plain[0].needed_bytes, rel=0.2)


def test_role_without_rights_knows_no_directories(database18: str) -> None:
    """Where the server's directories are is not for everyone: nothing is forecast then."""
    loads = Loads(database18)
    loads.execute("CREATE TABLE t (a int PRIMARY KEY); DROP ROLE IF EXISTS penstock_space; CREATE ROLE penstock_space")
    loads.execute("GRANT SELECT ON t TO penstock_space")
    with ConnectionFactory(database18, role="penstock_space").connect() as connection:
        oid = connection.execute("SELECT 'public.t'::regclass::oid").fetchone()
        assert oid is not None
        (place,) = read_table_storage(connection, [oid[0]])
    assert (place.path, place.wal_path, place.index_count) == (None, None, 1)
    with psycopg.connect(database18, autocommit=True) as connection:
        connection.execute("DROP OWNED BY penstock_space; DROP ROLE penstock_space")


def test_rows_that_are_truncated_make_room(database18: str, file: Path) -> None:
    """In the data directory, where the database's own tables are."""
    loads = Loads(database18, setup="CREATE TABLE t (a int, b text); INSERT INTO t SELECT generate_series(1, 10000)")
    loads.execute("VACUUM t")
    needs = estimate(loads, replace(target(file, format="csv", has_header=False), mode="truncate"))
    (directory,) = loads.execute("SELECT current_setting('data_directory')")[0]
    assert {need.path for need in needs} == {directory}
    assert needs[1].needed_bytes == -loads.execute("SELECT pg_relation_size('t')")[0][0]


def test_wal_that_a_slot_keeps_is_expected_to_stay(database: str, file: Path) -> None:
    """Without one, the WAL grows up to max_wal_size."""
    loads = Loads(database, setup="CREATE TABLE t (a int, b text)")
    with Loader(ConnectionFactory(loads.conninfo)) as loader:
        job = target(file, format="csv", has_header=False)
        works = all_objects(loader.plan(LoadJob(targets=(job,), rules=IMPATIENT)).targets)
    with ConnectionFactory(loads.conninfo).connect() as connection:
        (free,) = read_table_storage(connection, [0])
        connection.execute("SELECT pg_create_physical_replication_slot('left', true)")
        try:
            (kept,) = read_table_storage(connection, [0])
        finally:
            connection.execute("SELECT pg_drop_replication_slot('left')")
    assert (free.wal_limit_bytes is None, free.wal_kept_for) == (False, None)
    assert (kept.wal_limit_bytes, kept.wal_kept_for) == (None, "slot left")
    full_bytes = free.wal_limit_bytes
    assert [each.what for each in estimate_needs(works, [free], wal_bytes=full_bytes or 0)] == ["table public.t"]
    (_, wal) = estimate_needs(works, [kept], wal_bytes=full_bytes or 0)
    assert (wal.what, wal.needed_bytes) == ("WAL, kept for slot left", estimate_wal(works, [kept]))
