"""What a load is expected to take of the disk, held against what it takes."""

from __future__ import annotations

import gzip
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from penstock.api import Loader
from penstock.loading import rebuild_plan
from penstock.loading.space import SpaceInput, estimate_needs
from penstock.loading.work import all_objects
from penstock.model.job import LoadJob, LoadRules, TargetJob
from penstock.server.connection import ConnectionFactory
from penstock.server.space import read_table_spaces
from support.loads import IMPATIENT, Loads, target

if TYPE_CHECKING:
    import random
    from pathlib import Path

    from penstock.model.space import SpaceNeed


def estimate(loads: Loads, job: TargetJob, *, rules: LoadRules = IMPATIENT, **known: Any) -> list[SpaceNeed]:
    """Return what a load of one target is expected to need; `known` is what SpaceInput takes."""
    with Loader(ConnectionFactory(loads.conninfo)) as loader:
        plan = loader.plan(LoadJob(targets=(job,), rules=rules))
        sample = loader._sources.sample(plan.targets[0].objects[0])
    with ConnectionFactory(loads.conninfo).connect() as connection:
        facts = plan.targets[0].facts
        (space,) = read_table_spaces(connection, [0 if facts is None else facts.oid])
    return estimate_needs(all_objects(plan.targets), [SpaceInput(sample=sample, space=space, **known)], wal_bytes=0)


def needed(needs: list[SpaceNeed], what: str) -> int:
    """Return the bytes of one need."""
    return next(need.needed_bytes for need in needs if need.what == what)


def filled_bytes(loads: Loads) -> int:
    """Return the size of the pages that have rows: tables are extended by many pages at once."""
    return int(loads.execute("SELECT (max((ctid::text::point)[0]) + 1) * 8192 FROM t")[0][0])


TABLES = {
    "narrow": ("a int, b int", lambda rng: f"{rng.randrange(10**6)},{rng.randrange(10**6)}"),
    "aligned": (
        "a bool, b bigint, c bool, d timestamptz",
        lambda rng: f"t,{rng.randrange(10**9)},f,2024-05-06 07:08:09",
    ),
    "texts": ("a text, b varchar(40), c text", lambda rng: f"{'x' * rng.randrange(60)},{'y' * rng.randrange(40)},"),
    "numbers": (
        "a numeric, b numeric(10,2), c float8",
        lambda rng: f"{rng.random() * 10**9:.6f},{rng.randrange(10**6)}.25,1.5",
    ),
    "nulls": (
        "a int, b text, c date, d text",
        lambda rng: f"{rng.randrange(9)},,{'2024-01-02' if rng.random() < 0.5 else ''},",
    ),
    "long": ("a int, b text", lambda rng: f"1,{'z' * rng.randrange(100, 900)}"),
    "uuids": (
        "a uuid, b smallint, c interval",
        lambda rng: f"{rng.randrange(16**32):032x},{rng.randrange(99)},3 days",
    ),
}


@pytest.mark.parametrize("kind", TABLES)
def test_table_takes_what_was_expected(database18: str, tmp_path: Path, rng: random.Random, kind: str) -> None:
    """To some per cent, whatever its types."""
    loads = Loads(database18)
    columns, make = TABLES[kind]
    loads.execute(f"CREATE TABLE t ({columns})")
    path = tmp_path / "file.csv"
    path.write_text("".join(f"{make(rng)}\n" for _ in range(20_000)))
    job = target(path, format="csv", has_header=False)
    needs = estimate(loads, job)
    loads.run(job, sessions=1)
    assert needed(needs, "table public.t") == pytest.approx(filled_bytes(loads), rel=0.03)


def test_compressed_objects_are_taken_as_what_they_expand_to(
    database18: str, tmp_path: Path, rng: random.Random
) -> None:
    """By compressing the sample again; a table that is still to be made has text columns."""
    loads = Loads(database18)
    text = "".join(f"{number},name {rng.randrange(1000)},{rng.randrange(10**9)}\n" for number in range(100_000))
    path = tmp_path / "file.csv.gz"
    path.write_bytes(gzip.compress(f"a,b,c\n{text}".encode(), mtime=0))
    job = target(path, create=True)
    needs = estimate(loads, job)
    loads.run(job)
    assert needed(needs, "table t") == pytest.approx(filled_bytes(loads), rel=0.2)


def test_indexes_take_no_more_than_was_expected(database18: str, tmp_path: Path, rng: random.Random) -> None:
    """And not much less: keys in any order, several columns, one that holds next to nothing."""
    loads = Loads(database18)
    loads.execute("CREATE TABLE t (a int PRIMARY KEY, b text, c int); CREATE INDEX ON t (b, c)")
    loads.execute("CREATE INDEX ON t USING brin (c)")
    numbers = list(range(50_000))
    rng.shuffle(numbers)
    path = tmp_path / "file.csv"
    path.write_text("".join(f"{n},name {rng.randrange(10**6)},{rng.randrange(10**6)}\n" for n in numbers))
    job = target(path, format="csv", has_header=False)
    needs = estimate(loads, job)
    loads.run(job, sessions=1)
    took = loads.execute("SELECT pg_indexes_size('t')")[0][0]
    assert 0.9 * took <= needed(needs, "indexes of public.t") <= 1.5 * took


def test_sorts_of_parked_indexes_spill_what_was_expected(
    database18: str, tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the server counts the bytes of its temporary files, one session making one index after another."""
    loads = Loads(database18)
    path = tmp_path / "file.csv"
    path.write_text("".join(f"{rng.randrange(10**9)},name {rng.randrange(10**6)}\n" for _ in range(100_000)))
    loads.execute("CREATE TABLE t (a int, b text); CREATE INDEX one ON t (a, b)")
    loads.execute("CREATE INDEX two ON t USING brin (a)")
    job = target(path, format="csv", has_header=False)
    monkeypatch.setattr(rebuild_plan, "_LEAST_MEMORY_BYTES", 2**20)
    needs = estimate(loads, job, rules=replace(IMPATIENT, indexes="rebuild"), cpu_count=1, memory_bytes=2**20)
    assert not [need for need in estimate(loads, job) if "sorting" in need.what]
    loads.run(job)
    query = "SELECT temp_bytes FROM pg_stat_database WHERE datname = current_database()"
    with psycopg.connect(database18, autocommit=True) as connection:
        connection.execute("SET maintenance_work_mem = '1MB'; SET max_parallel_maintenance_workers = 0")
        before = connection.execute(query).fetchone()
        connection.execute("REINDEX INDEX one; SELECT pg_stat_force_next_flush()")
        after = connection.execute(query).fetchone()
    assert before is not None and after is not None
    assert needed(needs, "sorting indexes of public.t") == pytest.approx(after[0] - before[0], rel=0.3)


def test_merges_that_sort_out_need_a_copy_of_their_rows(database18: str, tmp_path: Path) -> None:
    """Beside the staging table."""
    loads = Loads(database18)
    loads.execute("CREATE TABLE t (a int PRIMARY KEY, b text)")
    path = tmp_path / "file.csv"
    path.write_text("".join(f"{number},name {number}\n" for number in range(20_000)))
    job = replace(target(path, format="csv", has_header=False), mode="upsert", key=("a",))
    needs = estimate(loads, job, sorts_out=True)
    assert needed(needs, "merging rows of public.t") == needed(needs, "table public.t")
    assert not [need for need in estimate(loads, job) if need.what.startswith("merging")]


def test_role_without_rights_knows_no_directories(database18: str, tmp_path: Path) -> None:
    """Where the server's directories are is not for everyone: nothing is forecast then."""
    loads = Loads(database18)
    loads.execute("CREATE TABLE t (a int); DROP ROLE IF EXISTS penstock_space; CREATE ROLE penstock_space")
    loads.execute("GRANT SELECT ON t TO penstock_space")
    with ConnectionFactory(database18, role="penstock_space").connect() as connection:
        oid = connection.execute("SELECT 'public.t'::regclass::oid").fetchone()
        assert oid is not None
        (space,) = read_table_spaces(connection, [oid[0]])
    assert (space.place.path, space.place.temp_path, space.place.wal_path) == (None, None, None)
    assert [column.name for column in space.columns] == ["a"]
    with psycopg.connect(database18, autocommit=True) as connection:
        connection.execute("DROP OWNED BY penstock_space; DROP ROLE penstock_space")


def test_tables_of_another_tablespace_are_placed_there(
    database18: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """And those of the database's own in its directory; what is truncated makes room."""
    loads = Loads(database18)
    loads.execute("CREATE TABLE t (a int); INSERT INTO t SELECT generate_series(1, 10000)")
    loads.execute("VACUUM t")
    (directory,) = loads.execute("SELECT current_setting('data_directory')")[0]
    path = tmp_path / "file.csv"
    path.write_text("1\n" * 1000)
    job = replace(target(path, format="csv", has_header=False), mode="truncate")
    needs = estimate(loads, job)
    assert {need.path for need in needs if need.what != "WAL"} == {directory}
    freed = needed(needs, "rows of public.t that are truncated")
    assert freed == -loads.execute("SELECT pg_relation_size('t')")[0][0]
