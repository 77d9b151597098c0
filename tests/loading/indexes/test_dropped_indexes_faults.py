"""Loaders that die while indexes are dropped: a repair puts everything back, and the load goes on after it."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import psycopg
import pytest

from penstock.core.connect.connection import ConnectionFactory
from penstock.core.errors import DataError, PenstockError, TargetError
from penstock.core.values.job import LoadRules
from penstock.core.values.table import TableName
from penstock.preflight.doctor import inspect_table
from penstock.restore.repair import Repairer
from support.codes import has_code
from support.files import write_to
from support.loads import Loads, await_end_of_backends, indexes_of, target
from support.modes import Killed, killing_at
from support.zoo import can_describe, describe_schema, make_zoo

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from penstock.changes.context import Restored
    from penstock.core.values.job import TargetJob
    from penstock.embedded.server import EmbeddedServer
    from penstock.loading.values.outcome import LoadProgress
    from support.servers import PgServer

REBUILD = LoadRules(retry_for=0.0, indexes="rebuild")
ROWS = 40
MANY = ("many_pkey", "many_a_key", "many_b_idx", "many_b_a_idx", "many_a_b_idx", "many_expr_idx", "many_a_idx")
TABLES = ("parent", "child", "child_full", "circle_1", "circle_2", "clustered_key", "commented", "excluding", "partial")
TREE = ("parent", "tree", "to_leaf")
# Enough to have dropping, loading, each kind of rebuild and the end among them.
POINTS = {TABLES: 7, TREE: 3}
# The first repair dies before it has done anything; each later one some statements later, and goes on from there.
FIRST_DEATH, LATER_BY = 20, 2


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Provide a csv file that fits every table of the zoo."""
    return write_to(tmp_path / "rows.csv", "id,a,b\n" + "".join(f"{n},{n},row {n}\n" for n in range(1, ROWS + 1)))


@pytest.fixture
def loads(database18: str) -> Loads:
    """Provide loads into an empty database."""
    return Loads(database18, piece_bytes=200)


def targets(path: Path, tables: Sequence[str]) -> list[TargetJob]:
    """Return targets of tables of the zoo."""
    return [target(path, into=f"zoo.{table}") for table in tables]


def repair(conninfo: str, *, role: str | None = None) -> Restored:
    """Repair as from another host."""
    with Repairer(ConnectionFactory(conninfo, role=role)) as repairer:
        return repairer.run()


def dropped(loads: Loads) -> list[str]:
    """Return the names of what is dropped."""
    return [name for (name,) in loads.execute("SELECT name::text FROM penstock.changes ORDER BY target_oid, number")]


@pytest.mark.pg("!= 17")
@pytest.mark.part("rest")
@pytest.mark.parametrize("tables", [TABLES, TREE], ids=["tables", "partitions"])
def test_whatever_kills_a_loader_a_repair_puts_all_back(
    pg: PgServer,
    database: str,
    path: Path,
    rng: random.Random,
    some: Callable[[Sequence[int], int], list[int]],
    tables: tuple[str, ...],
) -> None:
    """At statements chosen by the seed; then the load goes on, drops once more and ends as it should."""
    if not can_describe(pg):
        pytest.skip("no pg_dump here reads this server (Debian's package postgresql-15)")
    make_zoo(pg, database)
    before = describe_schema(pg, database)
    loads = Loads(database)
    names = ", ".join(f"zoo.{table}" for table in tables)

    def begin_anew() -> None:
        loads.execute(f"TRUNCATE {names} CASCADE; DELETE FROM penstock.loads")

    # The first load makes the ledger; those that follow send less, and not always the same.
    for _ in range(2):
        with killing_at(-1) as sent:
            loads.run(*targets(path, tables), rules=REBUILD)
        begin_anew()
    points = sorted(rng.sample(range(20, sent[0] - 5), POINTS[tables]))
    for number, point in enumerate(some(points, 2)):
        begin_anew()
        with killing_at(point), pytest.raises(Killed):
            loads.run(*targets(path, tables), rules=REBUILD)
        if number % 2:
            assert [str(error) for error in repair(database).errors] == [], f"killed at {point}"
            assert describe_schema(pg, database) == before, f"killed at {point}"
        loads.run(*targets(path, tables), rules=REBUILD)
        assert describe_schema(pg, database) == before, f"killed at {point}"
        assert loads.count("zoo.parent") == ROWS
        assert dropped(loads) == []


def die_while_loading(loads: Loads, *jobs: TargetJob) -> None:
    """Have the loader die when its indexes are dropped and its rows are under way."""

    def die(_number: int) -> None:
        raise Killed

    loads.at_piece = die
    with pytest.raises(Killed):
        loads.run(*jobs, rules=REBUILD)
    loads.at_piece = None
    assert dropped(loads)


def test_a_hold_that_a_forgotten_load_left_keeps_nothing_dropped(loads: Loads, path: Path) -> None:
    """The same files load again under the same lock, by which the old hold would seem to be wanted."""
    loads.execute("CREATE TABLE t (id int PRIMARY KEY, a int, b text)")
    job = target(path, into="t")
    loads.run(job, rules=REBUILD)
    loads.execute(
        "INSERT INTO penstock.holds (holder, origin, target_oid, lock_key, names, client, reason)"
        " SELECT l.id, o.origin, o.target_oid, l.lock_key, '{}', '', '' FROM penstock.loads AS l"
        " JOIN penstock.objects AS o ON o.load = l.id; DELETE FROM penstock.loads; TRUNCATE t"
    )
    loads.run(job, rules=REBUILD)
    assert loads.count("t") == ROWS
    assert dropped(loads) == []
    assert loads.execute("SELECT count(*) FROM penstock.holds") == [(0,)]
    assert index_names(loads, "t") == ["t_pkey"]


@pytest.mark.part("rest")
def test_a_killed_process_is_repaired_by_another(pg18: PgServer, database18: str, path: Path) -> None:
    """By kill -9 while its rows are under way; --plan says what would be done, and nothing is done twice."""
    make_zoo(pg18, database18)
    loads = Loads(database18)
    loads.execute(
        "CREATE FUNCTION zoo.wait() RETURNS trigger LANGUAGE plpgsql AS"
        " 'BEGIN PERFORM pg_advisory_xact_lock(42); RETURN NEW; END';"
        "CREATE TRIGGER wait BEFORE INSERT ON zoo.many FOR EACH ROW EXECUTE FUNCTION zoo.wait()"
    )
    before = describe_schema(pg18, database18)
    command = [sys.executable, "-m", "penstock"]
    argv = [*command, "load", str(path), "--into", "zoo.many", "--to", database18, "--indexes", "rebuild"]
    with psycopg.connect(database18) as blocker:
        blocker.execute("SELECT pg_advisory_lock(42)")
        process = subprocess.Popen(argv)
        while not loads.execute("SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"):
            assert process.poll() is None
            time.sleep(0.02)
        assert index_names(loads) == []
        process.send_signal(signal.SIGKILL)
        process.wait()
        plan = subprocess.run(
            [*command, "repair", "--plan", "--json", "--to", database18], capture_output=True, check=True
        )
    steps = json.loads(plan.stdout)["steps"]
    assert {step["action"] for step in steps} <= {"rebuild", "wait"}
    assert len(steps) == len(MANY)
    await_end_of_backends(loads)
    done = subprocess.run([*command, "repair", "--json", "--to", database18], capture_output=True, check=True)
    assert {each["name"] for each in json.loads(done.stdout)["rebuilt"]} == set(MANY)
    assert describe_schema(pg18, database18) == before
    again = subprocess.run([*command, "repair", "--to", database18], capture_output=True, check=True, text=True)
    assert again.stdout.startswith("nothing to repair on ")


def index_names(loads: Loads, table: str = "zoo.many") -> list[str]:
    """Return the names of a table's indexes."""
    return [
        name
        for (name,) in loads.execute(
            f"SELECT indexrelid::regclass::text FROM pg_index WHERE indrelid = '{table}'::regclass"
        )
    ]


def test_doctor_names_what_a_killed_load_has_dropped(loads: Loads, path: Path) -> None:
    """A load could begin, but rows that violate the key would be stored until then."""
    loads.execute("CREATE TABLE t (id int PRIMARY KEY, a int, b text)")
    die_while_loading(loads, target(path))
    await_end_of_backends(loads)
    with ConnectionFactory(loads.conninfo).connect() as connection:
        look = partial(inspect_table, connection, TableName(schema=None, name="t"), user="postgres")
        assert look(ledger_schema="penstock").lacking == ('constraint "t_pkey"',)
        repair(loads.conninfo)
        assert look(ledger_schema="penstock").lacking == ()


def test_a_load_by_another_ledger_waits_until_what_a_killed_load_dropped_is_repaired(loads: Loads, path: Path) -> None:
    """It would replace the table by one without the indexes, which a repair could then not find."""
    loads.execute("CREATE TABLE t (id int PRIMARY KEY, a int, b text)")
    die_while_loading(loads, target(path))
    await_end_of_backends(loads)
    other, job = Loads(loads.conninfo, ledger_schema="other"), replace(target(path), mode="replace")
    rules = LoadRules(retry_for=0.0, again=True)
    with pytest.raises(TargetError, match=r'is changed by load .* of the ledger in schema "penstock"') as caught:
        other.run(job, rules=rules)
    assert str(caught.value.detail) == 'Recorded as changed: constraint "t_pkey".'
    with ConnectionFactory(loads.conninfo).connect() as connection:
        look = partial(inspect_table, connection, TableName(schema=None, name="t"), user="postgres")
        assert look(ledger_schema="other", is_repeating=True).refusal is not None
    repair(loads.conninfo)
    assert other.run(job, rules=rules).rows == ROWS
    assert index_names(loads, "t") == ["t_pkey"]


@pytest.mark.part("rest")
@pytest.mark.pg("!= 17, != 16, != 15")
def test_repairs_that_die_one_after_another_end_all_the_same(pg: PgServer, database: str, path: Path) -> None:
    """Each goes on with what the one before has left of a partitioned table: half of its parts, or none attached."""
    if not can_describe(pg):
        pytest.skip("no pg_dump here reads this server (Debian's package postgresql-15)")
    make_zoo(pg, database)
    before = describe_schema(pg, database)
    loads = Loads(database, piece_bytes=200)
    die_while_loading(loads, *targets(path, ("parent", "tree")))
    left = [len(dropped(loads))]
    for death in itertools.count(FIRST_DEATH, LATER_BY):
        try:
            with killing_at(death):
                assert [str(error) for error in repair(database).errors] == []
        except Killed:
            left.append(len(dropped(loads)))
        else:
            break
    assert describe_schema(pg, database) == before
    assert dropped(loads) == []
    assert left == sorted(left, reverse=True)
    assert len(set(left)) >= 10


@pytest.mark.part("rest")
def test_the_last_of_two_loads_rebuilds(pg18: PgServer, loads: Loads, path: Path, tmp_path: Path) -> None:
    """The one that ends first leaves things dropped for the other, whichever began."""
    make_zoo(pg18, loads.conninfo)
    before = describe_schema(pg18, loads.conninfo)
    second_path = tmp_path / "second.csv"
    second_path.write_text("id,a,b\n" + "".join(f"{n},{n},row {n}\n" for n in range(1001, 1001 + ROWS)))
    second = Loads(loads.conninfo, piece_bytes=200)
    may_begin, may_end, seen = threading.Event(), threading.Event(), []
    loads.at_piece = lambda number: None if number else seen.append(index_names(loads))

    def hold(number: int) -> None:
        if number == 1:
            may_begin.set()
            may_end.wait(60)

    second.at_piece = hold
    errors: list[BaseException] = []

    def run_second() -> None:
        try:
            second.run(target(second_path, into="zoo.many"), rules=REBUILD)
        except BaseException as error:  # noqa: BLE001 (told below)
            errors.append(error)

    thread = threading.Thread(target=run_second)
    thread.start()
    may_begin.wait(60)
    first = loads.run(target(path, into="zoo.many"), rules=LoadRules(retry_for=0.0))
    assert indexes_of(first).rebuilt == ()
    assert seen == [[]]
    assert sorted(dropped(loads)) == sorted(MANY)
    assert any("is being loaded by load" in text for text in loads.notices)
    may_end.set()
    thread.join()
    assert errors == []
    assert describe_schema(pg18, loads.conninfo) == before
    assert loads.count("zoo.many") == 2 * ROWS
    assert dropped(loads) == []


@pytest.mark.part("rest")
def test_rows_that_break_a_key_stay_and_the_rest_is_rebuilt(pg18: PgServer, loads: Loads, tmp_path: Path) -> None:
    """The error names index and key; without the duplicates a repair puts all back, and the load ends."""
    make_zoo(pg18, loads.conninfo)
    before = describe_schema(pg18, loads.conninfo)
    path = write_to(tmp_path / "twice.csv", "id,a,b\n1,1,x\n2,2,y\n2,3,z\n")
    with pytest.raises(DataError, match='rebuild constraint "many_pkey"') as caught:
        loads.run(target(path, into="zoo.many"), rules=REBUILD)
    assert "(id)=(2)" in str(caught.value.detail)
    assert "penstock repair" in str(caught.value.hint)
    assert loads.count("zoo.many") == 3
    assert dropped(loads) == ["many_pkey"]
    assert len(index_names(loads)) == len(MANY) - 1
    assert repair(loads.conninfo).errors[0].sqlstate == "23505"
    loads.execute("DELETE FROM zoo.many WHERE a = 3")
    repair(loads.conninfo).raise_first()
    assert describe_schema(pg18, loads.conninfo) == before
    assert loads.run(target(path, into="zoo.many"), rules=REBUILD).rows == 0
    assert loads.execute("SELECT state FROM penstock.loads") == [("complete",)]


@pytest.mark.part("rest")
def test_a_load_that_fails_puts_everything_back(pg18: PgServer, loads: Loads, tmp_path: Path) -> None:
    """A bad record ends the load, and what was dropped is there again."""
    make_zoo(pg18, loads.conninfo)
    before = describe_schema(pg18, loads.conninfo)
    path = write_to(tmp_path / "bad.csv", "id,a,b\n1,1,x\nnone,2,y\n")
    with pytest.raises(DataError, check=has_code("22P02")):
        loads.run(target(path, into="zoo.many"), target(path, into="zoo.circle_1"), rules=REBUILD)
    assert describe_schema(pg18, loads.conninfo) == before
    assert dropped(loads) == []
    assert loads.execute("SELECT count(*) FROM penstock.holds") == [(0,)]


def test_a_column_that_changed_is_not_built_upon(pg18: PgServer, loads: Loads, path: Path) -> None:
    """What was dropped for a column of another type is left to whoever changed it."""
    make_zoo(pg18, loads.conninfo)
    die_while_loading(loads, target(path, into="zoo.many"))
    loads.execute("ALTER TABLE zoo.many ALTER a TYPE bigint")
    errors: list[PenstockError] = repair(loads.conninfo).errors
    assert 'column "a" was changed' in errors[0].message
    assert "was integer, and is now bigint" in str(errors[0].detail)


@pytest.mark.parametrize("body", ["USING btree (a); DROP TABLE zoo.plain", "USING btree (a  )"])
def test_a_record_that_was_tampered_with_does_nothing_else(pg18: PgServer, loads: Loads, path: Path, body: str) -> None:
    """One statement is sent for a record, and what comes of it is what the record says."""
    make_zoo(pg18, loads.conninfo)
    die_while_loading(loads, target(path, into="zoo.plain"))
    changed = f"UPDATE penstock.changes SET record = jsonb_set(record, '{{index,body}}', to_jsonb('{body}'::text))"
    loads.execute(changed)
    assert repair(loads.conninfo).errors
    assert loads.count("zoo.plain") >= 0
    assert index_names(loads, "zoo.plain") == []


@pytest.mark.part("rest")
def test_a_server_that_crashes_while_indexes_are_rebuilt_is_waited_for(
    new_server: Callable[..., EmbeddedServer], path: Path
) -> None:
    """What had been rebuilt stays, the rest follows, and then the load is complete."""
    server = new_server()
    loads = Loads(server.ensure_running())
    loads.execute("CREATE TABLE t (id int PRIMARY KEY, a int UNIQUE, b text); CREATE INDEX i ON t (b)")
    crashed: list[str] = []

    def crash(progress: LoadProgress) -> None:
        if progress.activity and not crashed:
            crashed.append(progress.activity)
            query = "SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'penstock %' ORDER BY {} DESC"
            # One that rebuilds, if it has come and not gone. Any that dies so takes the whole server through recovery.
            query = query.format("application_name LIKE 'penstock rebuild%'")
            os.kill(loads.execute(query)[0][0], signal.SIGKILL)

    rules = LoadRules(retry_for=60.0, indexes="rebuild")
    outcome = loads.run(target(path), rules=rules, on_progress=crash)
    assert crashed
    assert outcome.rows == ROWS
    assert len(index_names(loads, "t")) == 3
    assert dropped(loads) == []
    assert loads.execute("SELECT state FROM penstock.loads") == [("complete",)]


@pytest.mark.part("rest")
def test_a_load_whose_server_is_gone_says_what_stays_dropped(
    new_server: Callable[..., EmbeddedServer], path: Path
) -> None:
    """Nothing can be put back then; a repair does it when the server is there again."""
    server = new_server()
    loads = Loads(server.ensure_running(), piece_bytes=200)
    loads.execute("CREATE TABLE t (id int PRIMARY KEY, a int UNIQUE, b text); CREATE INDEX i ON t (b)")
    loads.at_piece = lambda number: None if number else stop(server)
    with pytest.raises(PenstockError):
        loads.run(target(path), rules=REBUILD)
    assert any(
        "indexes, keys or triggers were not restored" in text and "penstock repair" in text for text in loads.notices
    )
    conninfo = server.ensure_running()
    assert repair(conninfo).errors == []
    assert len(index_names(Loads(conninfo), "t")) == 3


def stop(server: EmbeddedServer) -> None:
    """Stop a server whoever is connected."""
    server.stop()
