"""Sets of tables that foreign keys join are refreshed by one job, in whatever order it names them; readers' locks."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from penstock.core.errors import TargetError
from penstock.core.values.job import LoadJob, LoadRules
from penstock.loading.values.plan import ForeseenLoad
from penstock.loading.views.plan import describe_plan, plan_object
from support.files import write_to
from support.loads import AGAIN, Loads, share_ledger, target

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.core.values.job import TargetJob


@pytest.fixture
def loads(ledger18: str) -> Loads:
    """Provide three tables of which each refers to the one before."""
    loads = Loads(ledger18, setup="CREATE TABLE a (id int PRIMARY KEY)")
    loads.execute("CREATE TABLE b (id int PRIMARY KEY, a int NOT NULL REFERENCES a)")
    loads.execute("CREATE TABLE c (id int PRIMARY KEY, b int NOT NULL REFERENCES b) PARTITION BY RANGE (id)")
    loads.execute("CREATE TABLE c1 PARTITION OF c FOR VALUES FROM (0) TO (100000)")
    return loads


def _jobs(tmp_path: Path, order: str, mode: str = "truncate", *, first: int = 0) -> list[TargetJob]:
    """Return a target for each table, in that order, of rows that only refer to the others' new ones."""
    heads = {"a": "id", "b": "id,a", "c": "id,b"}
    return [_job(tmp_path / f"{table}.csv", table, heads[table], mode, first=first) for table in order]


def _job(path: Path, table: str, head: str, mode: str, *, first: int = 0) -> TargetJob:
    records = "".join(",".join([str(n)] * (head.count(",") + 1)) + "\n" for n in range(first, first + 1000))
    return replace(target(write_to(path, f"{head}\n{records}"), into=table, header=True), mode=mode)  # type: ignore[arg-type]


@pytest.mark.part("rest")
@pytest.mark.parametrize("is_atomic", [False, True])
@pytest.mark.parametrize("order", ["abc", "cba", "bca"])
def test_set_is_truncated_and_loaded_again(loads: Loads, tmp_path: Path, order: str, is_atomic: bool) -> None:
    """On day one and on day two, children first or last; keys are kept, so that they check each row."""
    rules = replace(AGAIN, atomic=is_atomic, indexes="keep")
    for first in (0, 5000):
        outcome = loads.run(*_jobs(tmp_path, order, first=first), rules=rules)
        assert outcome.rows == 3000
        for table in "abc":
            assert loads.execute(f"SELECT min(id), count(*) FROM {table}") == [(first, 1000)]


@pytest.mark.part("rest")
def test_set_is_merged_in_the_order_of_its_keys(loads: Loads, tmp_path: Path) -> None:
    """Rows that are staged are moved parents first."""
    jobs = [replace(job, key=("id",)) for job in _jobs(tmp_path, "cba", "upsert")]
    assert loads.run(*jobs, rules=AGAIN).inserted == 3000


def test_table_that_is_truncated_last_keeps_what_it_would_not_have_empty(database18: str, tmp_path: Path) -> None:
    """Staged, since it refers to a synced table, it has its rows until the end: its key to the other one stays."""
    loads = Loads(database18, least_dropping_bytes=0)
    loads.execute(
        "CREATE TABLE a (id int PRIMARY KEY); CREATE TABLE p (id int PRIMARY KEY);"
        "CREATE TABLE b (id int PRIMARY KEY, a int REFERENCES a, p int REFERENCES p);"
        "INSERT INTO a VALUES (1); INSERT INTO p VALUES (1); INSERT INTO b VALUES (1, 1, 1)"
    )
    synced = replace(_job(tmp_path / "a.csv", "a", "id", "sync"), key=("id",), max_delete="100%")
    jobs = [_job(tmp_path / "b.csv", "b", "id,a,p", "truncate", first=0), synced]
    jobs.append(_job(tmp_path / "p.csv", "p", "id", "append", first=2000))
    loads.execute("INSERT INTO p SELECT generate_series(2, 999); INSERT INTO p VALUES (0)")
    loads.run(*jobs, rules=replace(AGAIN, indexes="auto"))
    assert (loads.count("a"), loads.count("b"), loads.count("p")) == (1000, 1000, 2000)


def test_table_that_another_refers_to_is_still_refused(loads: Loads, tmp_path: Path) -> None:
    """The job does not name it; the hint says that it may."""
    with pytest.raises(TargetError) as caught:
        loads.run(*_jobs(tmp_path, "ba"))
    assert "Load these tables by the same job" in str(caught.value.hint)


def test_tables_that_land_in_different_ways_do_not_excuse_each_other(
    database: str, user_name: str, user_conninfo: str, tmp_path: Path
) -> None:
    """A child with policies is truncated at the end, before its staged rows are moved; its parent is before any row."""
    admin = Loads(database)
    admin.execute(
        "CREATE TABLE a (id int PRIMARY KEY); CREATE TABLE b (id int PRIMARY KEY, a int NOT NULL REFERENCES a);"
        "INSERT INTO a VALUES (1); INSERT INTO b VALUES (1, 1);"
        f'ALTER TABLE a OWNER TO "{user_name}"; ALTER TABLE b OWNER TO "{user_name}";'
        "ALTER TABLE b ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY; CREATE POLICY p ON b USING (true)"
    )
    share_ledger(admin, f'"{user_name}"')
    admin.execute(f'GRANT CREATE ON SCHEMA penstock TO "{user_name}"')
    with pytest.raises(TargetError):
        Loads(user_conninfo).run(*_jobs(tmp_path, "ab"), rules=replace(AGAIN, indexes="keep"))
    assert admin.execute("SELECT (SELECT count(*) FROM a), (SELECT count(*) FROM b)") == [(1, 1)]


@pytest.mark.part("rest")
@pytest.mark.parametrize("deferred", ["DEFERRABLE INITIALLY DEFERRED", "DEFERRABLE"])
def test_circle_is_said(loads: Loads, tmp_path: Path, deferred: str) -> None:
    """There is no order that keeps every key; with keys that can be checked at the end there is no need of one."""
    loads.execute(f"ALTER TABLE a ADD b int REFERENCES b {deferred}")
    a, *others = _jobs(tmp_path, "abc")
    jobs = (replace(a, set={"b": "1"}), *others)
    with loads.loader() as loader:
        plan = loader.plan(LoadJob(targets=jobs, rules=LoadRules(indexes="keep")))
    (notice,) = [notice for notice in plan.notices if "in a circle" in notice.message]
    assert '"public.a"' in notice.message
    assert '"public.b"' in notice.message
    assert '"public.c"' not in notice.message
    assert loads.run(*jobs, rules=replace(AGAIN, atomic=True, indexes="keep")).rows == 3000


@pytest.mark.part("rest")
def test_tables_beside_a_circle_keep_their_order(loads: Loads, tmp_path: Path) -> None:
    """Referenced ones first, whatever the job's order."""
    loads.execute("CREATE TABLE x (id int PRIMARY KEY); CREATE TABLE y (id int PRIMARY KEY, x int REFERENCES x)")
    loads.execute("ALTER TABLE x ADD y int REFERENCES y")
    jobs = _jobs(tmp_path, "cba")
    for table in "xy":
        path = write_to(tmp_path / f"{table}.csv", "id\n1\n")
        jobs.append(replace(target(path, into=table, header=True), mode="truncate", missing="default"))
    outcome = loads.run(*jobs, rules=replace(AGAIN, indexes="keep"))
    assert outcome.rows == 3002


@pytest.mark.part("rest")
def test_counts_of_files_are_their_own_when_keys_reorder_the_job(loads: Loads, tmp_path: Path) -> None:
    """Also where the ledger's counts replace those of the run."""
    jobs = _jobs(tmp_path, "cba")
    write_to(tmp_path / "b.csv", "id,a\n1,1\nx,2\n")
    outcome = loads.run(*jobs, rules=replace(AGAIN, indexes="keep", on_error="reject"))
    rows = {file.uri.rpartition("/")[2]: file.rows for file in outcome.files}
    assert (rows["a.csv"], rows["b.csv"], rows["c.csv"]) == (1000, 1, 1)


def test_plan_says_how_long_readers_wait(loads: Loads, tmp_path: Path) -> None:
    """With --mode truncate --atomic: replace is named."""
    with loads.loader() as loader:
        job = LoadJob(targets=tuple(_jobs(tmp_path, "abc")), rules=LoadRules(atomic=True))
        lines = describe_plan(loader.foresee(loader.plan(job)))
    ways = [line for line in lines if line.startswith("mode")]
    assert len(ways) == 3
    for way in ways:
        assert "readers see all or nothing, and wait from the TRUNCATE at the end" in way
        assert "with mode replace they hardly wait" in way


def test_view_in_the_way_of_replace_is_named_with_two_ways_out(loads: Loads, tmp_path: Path) -> None:
    """A view alone; where more is in the way, the two ways are for all of it."""
    loads.execute("CREATE TABLE t (id int); CREATE VIEW v AS SELECT id FROM t")
    path = write_to(tmp_path / "t.csv", "id\n1\n")
    with pytest.raises(TargetError, match="cannot replace") as caught:
        loads.run(replace(target(path), mode="replace"))
    hint = str(caught.value.hint)
    assert hint.startswith(
        "Drop view public.v before the load and create it anew after it; or load with --mode truncate"
    )


@pytest.mark.parametrize("mode", ["append", "truncate", "replace"])
def test_children_are_stored_after_their_upserted_parents(loads: Loads, tmp_path: Path, mode: str) -> None:
    """Whatever the child's mode: the parent's rows are merged at the end, and the child's rows are checked after."""
    loads.execute("CREATE TABLE d (id int PRIMARY KEY, a int NOT NULL REFERENCES a); INSERT INTO a VALUES (-1)")
    loads.execute("INSERT INTO d VALUES (-1, -1)")
    child = _job(tmp_path / "d.csv", "d", "id,a", mode)
    (parent,) = _jobs(tmp_path, "a", "upsert")
    outcome = loads.run(child, replace(parent, key=("id",)), rules=replace(AGAIN, indexes="keep"))
    assert outcome.rows == 2000
    assert loads.count("d") == 1000 + (mode == "append")


def test_grandchildren_are_stored_last(loads: Loads, tmp_path: Path) -> None:
    """A child that waits for its parent is waited for itself."""
    a, b, c = _jobs(tmp_path, "abc", "append")
    outcome = loads.run(c, b, replace(a, mode="upsert", key=("id",)), rules=replace(AGAIN, indexes="keep"))
    assert (outcome.rows, loads.count("c")) == (3000, 1000)


def test_only_children_of_rejected_parents_are_rejected(loads: Loads, tmp_path: Path) -> None:
    """A child is judged by what the parent's merge has stored."""
    b, a = _jobs(tmp_path, "ba", "append")
    write_to(tmp_path / "a.csv", "id\nx\n" + "".join(f"{number}\n" for number in range(1, 1000)))
    rules = replace(AGAIN, indexes="keep", on_error="reject")
    outcome = loads.run(b, replace(a, mode="upsert", key=("id",)), rules=rules)
    assert outcome.rejected == 2
    assert loads.execute("SELECT min(id), count(*) FROM b") == [(1, 999)]


def test_plan_names_the_tables_that_a_child_waits_for(loads: Loads, tmp_path: Path) -> None:
    """In its mode, and as a list for programs."""
    b, a = _jobs(tmp_path, "ba", "append")
    with loads.loader() as loader:
        job = LoadJob(targets=(b, replace(a, mode="upsert", key=("id",))), rules=LoadRules(indexes="keep"))
        plan = loader.plan(job)
        lines = describe_plan(ForeseenLoad(plan=plan))
        child, parent = plan_object(ForeseenLoad(plan=plan))["targets"]  # type: ignore[misc]
    assert any(line.startswith("mode") and 'after table "public.a"' in line for line in lines)
    assert (child["follows"], parent["follows"]) == (["public.a"], [])
