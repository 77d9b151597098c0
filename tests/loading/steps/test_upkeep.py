"""What follows a load: VACUUM (ANALYZE), a CHECKPOINT where it is asked for, and never a failure."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg import sql

from penstock.core.connect.connection import ConnectionFactory
from penstock.core.values.job import LoadJob
from penstock.loading.run import run_load
from penstock.loading.steps import upkeep as upkeep_step
from penstock.loading.steps import upkeep as vacuum
from support.loads import IMPATIENT, Loads, share_ledger, target, upkeep_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from penstock.core.catalogue.settings import LeasedSetting
    from penstock.core.connect.connection import Connection
    from penstock.loading.values.objects import PlannedObject
    from penstock.loading.values.plan import VacuumStep

# As many as the collector of a busy machine may need.
_STATISTICS_LOOKS = 100

NEVER = replace(IMPATIENT, vacuum=False)


@pytest.fixture
def people(tmp_path: Path) -> Path:
    """Provide a file of 3,000 records with a number and a name."""
    path = tmp_path / "people.csv"
    path.write_text("id,name\n" + "".join(f"{number},name {number}\n" for number in range(3000)))
    return path


def vacuums(loads: Loads, table: str = "t", *, expected: int = 0) -> int:
    """Return how often a table was vacuumed."""
    return await_statistic(loads, "vacuum_count", table, expected=expected)


def await_statistic(loads: Loads, name: str, table: str, *, expected: int) -> int:
    """Return a counter of a table; a session that ends, and PostgreSQL 14's collector, are given time to report it."""
    for _ in range(_STATISTICS_LOOKS):
        count = int(loads.execute(f"SELECT pg_stat_get_{name}('{table}'::regclass)")[0][0])
        if count >= expected:
            break
        time.sleep(0.1)
    return count


def has_statistics(loads: Loads, table: str, *, inherited: bool = False) -> bool:
    """Return whether ANALYZE has run."""
    query = f"SELECT count(*) FROM pg_stats WHERE tablename = '{table}' AND inherited = {inherited}"
    return loads.execute(query) != [(0,)]


def make_table(loads: Loads, name: str = "t", more: str = "") -> None:
    """Make a table that autovacuum leaves alone."""
    loads.execute(f"CREATE TABLE {name} (id int, name text{more}) WITH (autovacuum_enabled = off)")


def make_role(loads: Loads, name: str) -> str:
    """Make a role with INSERT on table t and the use of the ledger."""
    role = sql.Identifier(name).as_string(None)
    loads.execute(f"DROP ROLE IF EXISTS {role}")
    loads.execute(f"CREATE ROLE {role}; GRANT INSERT ON t TO {role}")
    share_ledger(loads, name)
    return name


def test_load_is_followed_by_vacuum_and_analyze(database: str, people: Path) -> None:
    """Index-only scans and the planner's estimates are right as soon as the load is done."""
    loads = Loads(database)
    make_table(loads)
    outcome = loads.run(target(people))
    assert vacuums(loads, expected=1) == 1
    assert has_statistics(loads, "t")
    assert (upkeep_of(outcome).vacuumed, upkeep_of(outcome).analyzed) == (("public.t",), ("public.t",))
    assert upkeep_of(outcome).vacuum_s > 0
    assert loads.notices == []


def test_long_vacuum_is_told_while_it_lasts(database18: str, people: Path) -> None:
    """Whoever watches the load sees why it has not ended."""
    loads = Loads(database18, long_vacuum_bytes=1)
    make_table(loads)
    told: list[str] = []
    loads.run(target(people), on_progress=lambda progress: told.append(progress.activity))
    assert told[-1] == "vacuuming public.t"


def test_load_can_do_without_vacuum(database18: str, people: Path) -> None:
    """What was said counts."""
    loads = Loads(database18)
    make_table(loads)
    outcome = loads.run(target(people), rules=NEVER)
    assert (vacuums(loads), has_statistics(loads, "t")) == (0, False)
    assert (upkeep_of(outcome).vacuumed, upkeep_of(outcome).vacuum_s) == ((), 0.0)


def test_partitions_that_got_rows_are_vacuumed_one_by_one(database: str, people: Path) -> None:
    """Others keep what they had to be vacuumed for; the parent is analyzed, which autovacuum never does."""
    loads = Loads(database, setup="CREATE TABLE t (id int, name text) PARTITION BY RANGE (id)")
    for name, start, end in (("a", 0, 1000), ("b", 1000, 5000), ("old", 5000, 9000)):
        loads.execute(
            f"CREATE TABLE {name} PARTITION OF t FOR VALUES FROM ({start}) TO ({end}) WITH (autovacuum_enabled = off)"
        )
    loads.execute("INSERT INTO t SELECT 5000 + i, 'old' FROM generate_series(1, 3000) AS i")
    # Reported later, the partition would seem to have got rows of the load.
    assert await_statistic(loads, "tuples_inserted", "old", expected=3000) == 3000
    outcome = loads.run(target(people))
    assert upkeep_of(outcome).vacuumed == ("public.a", "public.b")
    assert "public.t" in upkeep_of(outcome).analyzed
    assert vacuums(loads, "a", expected=1) == vacuums(loads, "b", expected=1) == 1
    assert vacuums(loads, "old") == 0
    assert has_statistics(loads, "t", inherited=True)
    assert has_statistics(loads, "a")


def test_sub_partitions_are_vacuumed(database18: str, people: Path) -> None:
    """However deep they are."""
    loads = Loads(database18, setup="CREATE TABLE t (id int, name text) PARTITION BY RANGE (id)")
    loads.execute("CREATE TABLE m PARTITION OF t FOR VALUES FROM (0) TO (9000) PARTITION BY LIST ((id % 2))")
    loads.execute(
        "CREATE TABLE even PARTITION OF m FOR VALUES IN (0); CREATE TABLE odd PARTITION OF m FOR VALUES IN (1)"
    )
    assert upkeep_of(loads.run(target(people))).vacuumed == ("public.even", "public.odd")


def test_merge_vacuums_the_table_and_not_its_staging_table(database18: str, people: Path) -> None:
    """An upsert leaves dead rows behind, and its staging table is gone."""
    loads = Loads(database18)
    make_table(loads, more=", PRIMARY KEY (id)")
    loads.execute("INSERT INTO t SELECT i, 'before' FROM generate_series(1, 2000) AS i")
    job = replace(target(people), mode="upsert", key=("id",))
    assert upkeep_of(loads.run(job)).vacuumed == ("public.t",)
    counts = "n_dead_tup, n_mod_since_analyze, n_ins_since_vacuum"
    # Statistics of the load that came in later would have autovacuum do the same again.
    assert loads.execute(f"SELECT {counts} FROM pg_stat_user_tables WHERE relname = 't'") == [(0, 0, 0)]


def test_table_whose_functions_need_the_users_search_path_is_vacuumed_and_not_analyzed(
    database: str, people: Path
) -> None:
    """ANALYZE would run the functions of its indexes."""
    loads = Loads(database)
    make_table(loads)
    loads.execute(
        "CREATE FUNCTION inner_one(int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RETURN $1 + 1; END';"
        "CREATE FUNCTION outer_one(int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RETURN inner_one($1); END';"
        "CREATE INDEX ON t (outer_one(id))"
    )
    outcome = loads.run(target(people))
    assert vacuums(loads, expected=1) >= 1
    assert (upkeep_of(outcome).vacuumed, upkeep_of(outcome).analyzed) == (("public.t",), ())
    assert loads.notices == ['not analyzed: "public.t"; function inner_one(integer) does not exist']


def test_replacement_is_vacuumed(database18: str, people: Path) -> None:
    """It was analyzed before it took the old one's place."""
    loads = Loads(database18)
    make_table(loads)
    outcome = loads.run(replace(target(people), mode="replace"))
    assert (upkeep_of(outcome).vacuumed, upkeep_of(outcome).analyzed) == (("public.t",), ())
    assert has_statistics(loads, "t")


def test_nothing_to_load_vacuums_nothing(database18: str, people: Path) -> None:
    """A load that finds everything loaded ends at once."""
    loads = Loads(database18)
    make_table(loads)
    loads.run(target(people))
    assert upkeep_of(loads.run(target(people))).vacuumed == ()


def test_role_without_the_right_is_told(database: str, people: Path) -> None:
    """VACUUM itself would skip the table with a warning, and the load would look as if it had been done."""
    loads = Loads(database)
    make_table(loads)
    role = make_role(loads, "upkeep_clerk")
    clerk = Loads(database, role=role)
    outcome = clerk.run(target(people))
    assert (outcome.rows, upkeep_of(outcome).vacuumed) == (3000, ())
    assert [notice.split(";")[0] for notice in clerk.notices] == ['not vacuumed: "public.t"']
    assert (vacuums(loads), has_statistics(loads, "t")) == (0, False)
    loads.execute(f'DROP OWNED BY "{role}"; DROP ROLE "{role}"')


@pytest.mark.pg(">= 17")
def test_maintain_is_right_enough(database: str, people: Path) -> None:
    """From PostgreSQL 17 it can be granted."""
    loads = Loads(database)
    make_table(loads)
    role = make_role(loads, "upkeep_keeper")
    loads.execute(f'GRANT MAINTAIN ON t TO "{role}"')
    keeper = Loads(database, role=role)
    assert upkeep_of(keeper.run(target(people))).vacuumed == ("public.t",)
    assert keeper.notices == []
    loads.execute(f'DROP OWNED BY "{role}"; DROP ROLE "{role}"')


def test_table_of_more_than_ten_times_what_was_loaded_is_only_analyzed(database18: str, people: Path) -> None:
    """A few rows into a large table that was never vacuumed do not have all of it read."""
    loads = Loads(database18, long_vacuum_bytes=0)
    make_table(loads)
    loads.execute("INSERT INTO t SELECT i, repeat('x', 500) FROM generate_series(1, 5000) AS i")
    outcome = loads.run(target(people))
    assert (upkeep_of(outcome).vacuumed, upkeep_of(outcome).analyzed) == ((), ("public.t",))
    assert loads.notices == []
    assert vacuums(loads) == 0


def test_locked_table_is_told_with_its_holder(database18: str, people: Path) -> None:
    """The load is complete; nobody waits long for a vacuum."""
    loads = Loads(database18, vacuum_lock_timeout_s=0.05)
    make_table(loads)
    with psycopg.connect(database18) as other:
        other.execute("LOCK TABLE t IN SHARE UPDATE EXCLUSIVE MODE")
        outcome = loads.run(target(people))
        assert (outcome.rows, upkeep_of(outcome).vacuumed) == (3000, ())
        assert f"pid {other.info.backend_pid}" in loads.notices[0]


def test_users_own_shorter_lock_timeout_stays(database18: str) -> None:
    """And the session has it again afterwards."""
    with ConnectionFactory(database18).connect() as connection:
        connection.execute("SELECT set_config('lock_timeout', '70ms', false)")
        with vacuum.limited_lock_wait(connection, 5.0):
            assert connection.execute("SHOW lock_timeout").fetchone() == ("70ms",)


def test_interrupt_that_leaves_a_statement_under_way_stays_an_interrupt(database18: str) -> None:
    """The session can do nothing more. An error about that would hide the interrupt."""
    connection = ConnectionFactory(database18).connect()
    with pytest.raises(KeyboardInterrupt), vacuum.limited_lock_wait(connection, 5.0):
        connection.pgconn.send_query(b"SELECT pg_sleep(60)")
        raise KeyboardInterrupt
    connection.close()


def fail_by(statement: str) -> Callable[[Connection, VacuumStep], None]:
    """Return what takes the place of VACUUM: its session meets a fault of the server's."""

    def run(connection: Connection, step: VacuumStep) -> None:
        with vacuum.translate_errors(f"vacuuming table {step.relation}"):
            connection.execute(statement)

    return run


@pytest.mark.parametrize("function", ["pg_cancel_backend", "pg_terminate_backend"])
def test_fault_of_vacuum_is_no_failed_load(
    database18: str, people: Path, monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    """Somebody cancels it, or its session is lost."""
    monkeypatch.setattr(upkeep_step, "run_vacuum", fail_by(f"SELECT {function}(pg_backend_pid())"))
    loads = Loads(database18)
    make_table(loads)
    outcome = loads.run(target(people))
    assert (outcome.state, outcome.rows, upkeep_of(outcome).vacuumed) == ("complete", 3000, ())
    assert len(loads.notices) == 1
    assert loads.execute("SELECT state FROM penstock.loads") == [("complete",)]


def test_interrupted_vacuum_is_no_failed_load(database18: str, people: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C ends the vacuum; the rows are in."""

    def interrupt(connection: Connection, step: VacuumStep) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(upkeep_step, "run_vacuum", interrupt)
    loads = Loads(database18)
    make_table(loads)
    assert loads.run(target(people)).rows == 3000
    assert loads.notices == ["the load is complete, but vacuuming was interrupted"]


def last_checkpoint(loads: Loads) -> object:
    """Return where the log begins that recovery would need."""
    return loads.execute("SELECT redo_lsn FROM pg_control_checkpoint()")[0][0]


def test_checkpoint_follows_where_it_is_asked_for(database: str, people: Path) -> None:
    """A superuser may."""
    loads = Loads(database)
    make_table(loads)
    before = last_checkpoint(loads)
    assert upkeep_of(loads.run(target(people), rules=replace(IMPATIENT, checkpoint=True))).checkpoint_s > 0
    assert last_checkpoint(loads) != before


def test_role_that_may_not_checkpoint_is_told(database: str, people: Path) -> None:
    """The load is complete all the same."""
    loads = Loads(database)
    make_table(loads)
    role = make_role(loads, "upkeep_writer")
    writer = Loads(database, role=role)
    outcome = writer.run(target(people), rules=replace(NEVER, checkpoint=True))
    assert outcome.rows == 3000
    assert writer.notices[0].startswith("the load is complete, but the checkpoint failed: ")
    assert upkeep_of(outcome).describe() == []
    loads.execute(f'DROP OWNED BY "{role}"; DROP ROLE "{role}"')


@pytest.mark.pg(">= 15")
def test_member_of_pg_checkpoint_may(database: str, people: Path) -> None:
    """From PostgreSQL 15 it is a role."""
    loads = Loads(database)
    make_table(loads)
    role = make_role(loads, "upkeep_pointer")
    loads.execute(f'GRANT pg_checkpoint TO "{role}"')
    pointer = Loads(database, role=role)
    pointer.run(target(people), rules=replace(NEVER, checkpoint=True))
    assert pointer.notices == []
    loads.execute(f'DROP OWNED BY "{role}"; DROP ROLE "{role}"')


@dataclass
class TakenLease:
    """A lease that changes nothing: what follows the load goes by its id alone."""

    lease_id: str | None = "0"
    settings: tuple[LeasedSetting, ...] = ()

    def take(self, works: Sequence[PlannedObject]) -> None:
        """Nothing is changed."""

    def release(self, *, is_patient: bool) -> None:
        """Nothing is restored."""


def test_checkpoint_follows_a_load_for_which_settings_were_changed(database18: str, people: Path) -> None:
    """Where it was large enough, unasked."""
    loads = Loads(database18, least_checkpoint_bytes=0)
    make_table(loads)
    before = last_checkpoint(loads)
    with loads.loader() as loader:
        plan = loader.plan(LoadJob(targets=(target(people),), rules=NEVER))
        outcome = run_load(plan, replace(loader._tools(plan), lease=TakenLease()))
    assert upkeep_of(outcome).checkpoint_s > 0
    assert last_checkpoint(loads) != before


@pytest.mark.part("rest")
def test_interrupt_cancels_vacuum_and_the_load_has_succeeded(database: str, people: Path) -> None:
    """Ctrl-C of a real process, whose VACUUM waits: exit code 0, and nothing waits any more."""
    loads = Loads(database)
    make_table(loads)
    waiting = "SELECT FROM pg_stat_activity WHERE query LIKE 'VACUUM%' AND wait_event_type = 'Lock'"
    with psycopg.connect(database) as other:
        other.execute("LOCK TABLE t IN SHARE UPDATE EXCLUSIVE MODE")
        argv = [sys.executable, "-m", "penstock", "load", str(people), "--into", "t", "--to", database]
        loading = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        while not loads.execute(waiting):
            assert loading.poll() is None
            time.sleep(0.01)
        loading.send_signal(signal.SIGINT)
        out, err = loading.communicate()
        assert loading.returncode == 0, err
        assert "the load is complete, but vacuuming was interrupted" in err
        assert out.startswith("loaded 3,000 rows")
        assert loads.execute(waiting) == []


def test_view_with_a_trigger_is_loaded_and_not_vacuumed(database18: str, people: Path) -> None:
    """There is nothing to vacuum; where its trigger put the rows is not known."""
    loads = Loads(database18)
    make_table(loads, "below")
    loads.execute("CREATE VIEW t AS SELECT * FROM below")
    loads.execute(
        "CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS"
        " 'BEGIN INSERT INTO below VALUES (new.id, new.name); RETURN new; END'"
    )
    loads.execute("CREATE TRIGGER g INSTEAD OF INSERT ON t FOR EACH ROW EXECUTE FUNCTION f()")
    assert upkeep_of(loads.run(target(people))).vacuumed == ()
    assert loads.notices == []
