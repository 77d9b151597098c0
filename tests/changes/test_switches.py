"""Triggers that a load disables and autovacuum that it pauses are as they were afterwards, whatever ended the load."""

from __future__ import annotations

import secrets
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from penstock.changes.tables.kind import TableSwitch
from penstock.core.errors import DataError, PenstockError, TargetError
from penstock.core.values.job import LoadJob
from penstock.loading.indexes.table_changes import TableChanges
from support.files import write_to
from support.loads import IMPATIENT, Loads, share_ledger, target
from support.modes import Killed

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future
    from pathlib import Path

    from penstock.loading.values.outcome import LoadOutcome

DISABLE = replace(IMPATIENT, triggers="disable", vacuum=False)
NEVER = replace(IMPATIENT, vacuum=False)
PAUSE = replace(IMPATIENT, autovacuum="pause", vacuum=False)
_LOOKS = 300

# One trigger of each state, one that an INSERT does not fire, and one that records what it saw.
TABLE = """
    CREATE TABLE seen (who text, options text[], toast_options text[]);
    CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        INSERT INTO public.seen
        SELECT TG_NAME, c.reloptions, o.reloptions
          FROM pg_class AS c
          LEFT JOIN pg_class AS o ON o.oid = c.reltoastrelid
         WHERE c.oid = TG_RELID;
        RETURN NULL;
    END $$;
    CREATE FUNCTION stop() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'fired'; END $$;
    CREATE TABLE t (id int, name text);
    CREATE TRIGGER origin BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION stop();
    CREATE TRIGGER "al Ways" AFTER INSERT ON t FOR EACH ROW EXECUTE FUNCTION stop();
    CREATE TRIGGER replica AFTER INSERT ON t EXECUTE FUNCTION stop();
    CREATE TRIGGER disabled AFTER INSERT ON t EXECUTE FUNCTION stop();
    CREATE TRIGGER other AFTER DELETE ON t EXECUTE FUNCTION note();
    ALTER TABLE t ENABLE ALWAYS TRIGGER "al Ways", ENABLE REPLICA TRIGGER replica, DISABLE TRIGGER disabled;
"""
STATES = [("al Ways", "A"), ("disabled", "D"), ("origin", "O"), ("other", "O"), ("replica", "R")]


@pytest.fixture
def people(tmp_path: Path) -> Path:
    """Provide a file of three records."""
    return write_to(tmp_path / "people.csv", "id,name\n1,Ada\n2,Grace\n3,Edsger\n")


def states(loads: Loads, table: str = "t") -> list[tuple[Any, ...]]:
    """Return a table's triggers with their states."""
    return loads.execute(
        f"SELECT tgname, tgenabled::text FROM pg_trigger WHERE tgrelid = '{table}'::regclass AND tgconstraint = 0"
        " ORDER BY tgname"
    )


def options(loads: Loads, table: str = "t") -> tuple[Any, ...]:
    """Return the storage parameters of a table and of its TOAST table; their order means nothing."""
    (row,) = loads.execute(
        "SELECT c.reloptions, o.reloptions FROM pg_class AS c LEFT JOIN pg_class AS o ON o.oid = c.reltoastrelid"
        f" WHERE c.oid = '{table}'::regclass"
    )
    return tuple(found and sorted(found) for found in row)


def records(loads: Loads) -> int:
    """Return how many changes the ledger knows of."""
    return int(loads.execute("SELECT count(*) FROM penstock.changes")[0][0])


def test_triggers_do_not_fire_and_are_as_they_were(database: str, people: Path) -> None:
    """Each in its own state: origin, replica, always, disabled."""
    loads = Loads(database, setup=TABLE)
    assert loads.run(target(people), rules=DISABLE).rows == 3
    assert states(loads) == STATES
    assert records(loads) == 0
    assert 'disabling at "public.t"' in loads.notices[0]


def test_triggers_are_kept_by_default(ledger18: str, people: Path) -> None:
    """And fire."""
    loads = Loads(ledger18, setup=TABLE)
    with pytest.raises(PenstockError, match="fired"):
        loads.run(target(people))


def test_triggers_of_partitions_are_as_they_were(database: str, people: Path) -> None:
    """Those of their own, and the copies of their parent's, which may have states of their own."""
    loads = Loads(database)
    loads.execute(
        TABLE.replace("CREATE TABLE t (id int, name text)", "CREATE TABLE t (id int, name text) PARTITION BY LIST (id)")
    )
    loads.execute("CREATE TABLE p PARTITION OF t DEFAULT")
    loads.execute("CREATE TRIGGER own BEFORE INSERT ON p FOR EACH ROW EXECUTE FUNCTION stop()")
    loads.execute("ALTER TABLE ONLY p ENABLE REPLICA TRIGGER origin")
    before = states(loads), states(loads, "p")
    assert ("origin", "R") in before[1]
    assert loads.run(target(people), rules=DISABLE).rows == 3
    assert (states(loads), states(loads, "p")) == before


def test_triggers_of_a_partition_that_comes_meanwhile_are_enabled(ledger18: str, people: Path) -> None:
    """PostgreSQL copies the state of the parent's trigger, and no record would name the partition."""
    loads = Loads(ledger18, piece_bytes=100)
    loads.execute(
        TABLE.replace("CREATE TABLE t (id int, name text)", "CREATE TABLE t (id int, name text) PARTITION BY LIST (id)")
    )
    loads.execute("CREATE TABLE p PARTITION OF t FOR VALUES IN (1, 2, 3); CREATE TABLE late (id int, name text)")

    def attach(piece: int) -> None:
        if records(loads) and not states(loads, "late"):
            loads.execute("ALTER TABLE t ATTACH PARTITION late FOR VALUES IN (4)")

    loads.at_piece = attach
    before = states(loads), states(loads, "p")
    assert loads.run(target(people), rules=DISABLE).rows == 3
    assert (states(loads), states(loads, "p")) == before
    assert states(loads, "late") == before[1]


@pytest.mark.part("rest")
def test_upsert_disables_triggers_of_updates_too(ledger18: str, people: Path) -> None:
    """The statement at its end would fire them."""
    loads = Loads(ledger18, setup=TABLE + "ALTER TABLE t ADD PRIMARY KEY (id); DROP TRIGGER other ON t;")
    loads.execute("CREATE TRIGGER changed BEFORE UPDATE ON t FOR EACH ROW EXECUTE FUNCTION stop()")
    loads.run(target(people), rules=DISABLE)
    loads.execute("ALTER TABLE t DISABLE TRIGGER disabled")
    job = replace(target(people), mode="upsert", key=("id",))
    assert loads.run(job, rules=replace(DISABLE, again=True)).updated == 3
    assert ("changed", "O") in states(loads)
    assert records(loads) == 0


@pytest.mark.parametrize(
    ("with_options", "expected"),
    [
        ("", (None, None)),
        ("WITH (fillfactor = 70)", (["fillfactor=70"], None)),
        (
            "WITH (autovacuum_enabled = On, fillfactor = 70, toast.autovacuum_enabled = true)",
            (["autovacuum_enabled=on", "fillfactor=70"], ["autovacuum_enabled=true"]),
        ),
        ("WITH (fillfactor = 70, autovacuum_enabled = off)", (["autovacuum_enabled=off", "fillfactor=70"], None)),
    ],
)
def test_autovacuum_is_paused_and_its_setting_as_it_was(
    database: str, people: Path, with_options: str, expected: tuple[Any, ...]
) -> None:
    """Unset stays unset, a value keeps its spelling and its place; the TOAST table's too."""
    loads = Loads(database, setup=TABLE.replace("(id int, name text)", f"(id int, name text) {with_options}"))
    loads.execute('DROP TRIGGER origin ON t; DROP TRIGGER "al Ways" ON t')
    loads.execute("CREATE TRIGGER note AFTER INSERT ON t EXECUTE FUNCTION note()")
    assert options(loads) == expected
    loads.run(target(people), rules=PAUSE)
    assert options(loads) == expected
    seen = loads.execute("SELECT options, toast_options FROM seen WHERE who = 'note'")
    assert all(any(item.startswith("autovacuum_enabled=") for item in each) for row in seen for each in row)
    assert not any("=on" in item or "=true" in item for row in seen for each in row for item in each)
    assert records(loads) == 0


def test_autovacuum_is_paused_at_a_table_made_for_the_load(ledger18: str, people: Path) -> None:
    """It is the load's own, and others may write to it at once."""
    loads = Loads(ledger18, piece_bytes=8)
    seen: list[tuple[Any, ...]] = []
    loads.at_piece = lambda _number: seen.append(options(loads, "made.people"))
    assert loads.run(target(people, into="made.people", create=True), rules=PAUSE).rows == 3
    assert seen[-1] == (["autovacuum_enabled=false"], ["autovacuum_enabled=false"])
    assert (options(loads, "made.people"), records(loads)) == ((None, None), 0)


def test_table_made_for_a_load_that_failed_leaves_no_record(ledger18: str, tmp_path: Path) -> None:
    """It is dropped, and with it what was to be put back."""
    loads = Loads(ledger18)
    bad = write_to(tmp_path / "bad.csv", "id,name\n1,Ada\n2\n")
    with pytest.raises(DataError):
        loads.run(target(bad, into="made.people", create=True), rules=PAUSE)
    assert (loads.has_table("made.people"), records(loads)) == (False, 0)


def test_autovacuum_is_paused_at_each_partition(ledger18: str, people: Path) -> None:
    """A partitioned table has no such setting."""
    loads = Loads(ledger18, setup="CREATE TABLE t (id int, name text) PARTITION BY LIST (id)")
    loads.execute("CREATE TABLE p PARTITION OF t DEFAULT WITH (autovacuum_enabled = true)")
    loads.run(target(people), rules=PAUSE)
    assert options(loads, "p") == (["autovacuum_enabled=true"], None)


def test_what_others_set_meanwhile_stays(ledger18: str, people: Path) -> None:
    """A trigger that was enabled, a parameter that was set, while the load ran."""
    loads = Loads(ledger18, piece_bytes=16, setup=TABLE + 'DROP TRIGGER origin ON t; DROP TRIGGER "al Ways" ON t;')
    loads.execute("CREATE TRIGGER mine AFTER INSERT ON t EXECUTE FUNCTION note()")

    def alter(number: int) -> None:
        if number == 1:
            loads.execute("ALTER TABLE t SET (fillfactor = 50, autovacuum_enabled = true)")

    loads.at_piece = alter
    loads.run(target(people), rules=replace(PAUSE, triggers="disable"))
    assert options(loads) == (["autovacuum_enabled=true", "fillfactor=50"], None)
    assert ("mine", "O") in states(loads)


def test_triggers_that_another_load_has_disabled_stay_so_until_the_last_one_ends(ledger18: str, people: Path) -> None:
    """The second finds nothing to disable, and its rows come when the first has ended."""
    first, second = Loads(ledger18, piece_bytes=8), Loads(ledger18, piece_bytes=8)
    first.execute(TABLE)
    others = people.with_name("others.csv")
    others.write_text("id,name\n4,Barbara\n5,Donald\n")
    has_first_ended = threading.Event()

    def are_both_holding() -> bool:
        return first.execute("SELECT count(*) FROM penstock.holds") == [(2,)]

    def wait_for_first(_number: int) -> None:
        if are_both_holding():
            assert has_first_ended.wait(60)

    second.at_piece = wait_for_first
    with ThreadPoolExecutor(1) as pool:
        running: list[Future[LoadOutcome]] = []

        def begin_second(_number: int) -> None:
            if not running:
                running.append(pool.submit(second.run, target(others), rules=DISABLE))
                wait_until(are_both_holding)

        first.at_piece = begin_second
        try:
            assert first.run(target(people), rules=DISABLE).rows == 3
            assert ("origin", "D") in states(first)
        finally:
            has_first_ended.set()
        assert running[0].result().rows == 2
    assert (states(first), records(first)) == (STATES, 0)


def test_failed_load_puts_everything_back(database: str, tmp_path: Path) -> None:
    """As any other way out does."""
    loads = Loads(database, setup=TABLE)
    bad = write_to(tmp_path / "bad.csv", "id,name\n1,Ada\nx,Grace\n")
    with pytest.raises(DataError):
        loads.run(target(bad), rules=replace(DISABLE, autovacuum="pause"))
    assert (states(loads), options(loads), records(loads)) == (STATES, (None, None), 0)


def test_role_that_does_not_own_the_table_is_refused(ledger18: str, people: Path) -> None:
    """Before anything is done; the plan says so too."""
    loads = Loads(ledger18, setup=TABLE)
    loads.execute("DROP ROLE IF EXISTS switch_clerk; CREATE ROLE switch_clerk; GRANT INSERT ON t TO switch_clerk")
    share_ledger(loads, "switch_clerk")
    clerk = Loads(ledger18, role="switch_clerk")
    with clerk.loader() as loader, pytest.raises(TargetError, match="--triggers disable and --autovacuum pause needs"):
        loader.plan(LoadJob(targets=(target(people),), rules=replace(DISABLE, autovacuum="pause")))
    loads.execute("DROP OWNED BY switch_clerk; DROP ROLE switch_clerk")


def test_load_that_is_gone_on_with_puts_back_what_its_first_run_switched_off(
    ledger18: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This applies also if the second run asks to disable nothing. It stores no row, as none would fire a trigger."""
    setup = TABLE + "ALTER TABLE t ADD CONSTRAINT small CHECK (id < 500)"
    loads = Loads(ledger18, piece_bytes=64, chunk_bytes=64, setup=setup)
    path = write_to(tmp_path / "people.csv", "id,name\n" + "".join(f"{number},x\n" for number in range(501)))
    with monkeypatch.context() as patch:
        patch.setattr(TableChanges, "on_failure", lambda *_: None)
        with pytest.raises(DataError):
            loads.run(target(path), rules=DISABLE, batch_bytes=64)
    assert 0 < loads.count() < 500
    assert ("origin", "D") in states(loads)
    loads.execute("ALTER TABLE t DROP CONSTRAINT small")
    before = loads.count()
    with pytest.raises(TargetError, match="had --triggers disable") as caught:
        loads.run(target(path), rules=NEVER)
    assert "penstock resume" not in str(caught.value.hint)
    assert (("origin", "D") in states(loads), loads.count()) == (True, before)
    loads.run(target(path), rules=DISABLE)
    assert (states(loads), records(loads), loads.count()) == (STATES, 0, 501)


def test_what_is_set_after_a_load_died_before_its_pause_comes_back(
    ledger18: str, people: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The load's record has the state before that, and is written again."""
    loads = Loads(ledger18, setup="CREATE TABLE t (id int, name text)")

    def die(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(TableSwitch, "apply", die)
        with pytest.raises(Killed):
            loads.run(target(people), rules=PAUSE)
    assert records(loads) == 2
    loads.execute("ALTER TABLE t SET (autovacuum_enabled = yes)")
    assert loads.run(target(people), rules=PAUSE).rows == 3
    assert (options(loads), records(loads)) == ((["autovacuum_enabled=yes"], None), 0)


def wait_until(is_so: Callable[[], bool]) -> None:
    """Look again and again, for half a minute at the most."""
    for _ in range(_LOOKS):
        if is_so():
            return
        time.sleep(0.1)
    pytest.fail("it never came to be")


@pytest.mark.part("rest")
@pytest.mark.parametrize("way", ["repair", "load"])
def test_killed_load_is_put_back(database: str, people: Path, way: str) -> None:
    """By penstock repair, and by the next load of the table; a load at work is let be."""
    loads = Loads(database, setup=TABLE)
    repair = [sys.executable, "-m", "penstock", "repair", "--to", database]
    argv = [sys.executable, "-m", "penstock", "load", "-", "--into", "t", "--to", database, "--triggers", "disable"]
    argv += ["--autovacuum", "pause", "--header"]
    loading = subprocess.Popen(argv, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    assert loading.stdin is not None
    try:
        # More than a sample; what follows never comes.
        loading.stdin.write(b"id,name\n" + b"1,x\n" * 500_000)
        loading.stdin.flush()
        wait_until(lambda: ("origin", "D") in states(loads) and options(loads) != (None, None))
        subprocess.run(repair, check=True, capture_output=True)
        assert ("origin", "D") in states(loads)
    finally:
        loading.kill()
        loading.communicate()
    assert ("origin", "D") in states(loads)
    others = sql.SQL(
        "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'penstock%' AND datname = current_database()"
    )
    with psycopg.connect(database, autocommit=True) as connection:
        wait_until(lambda: connection.execute(others).fetchone() == (0,))
    if way == "repair":
        shown = subprocess.run([*repair, "--plan"], check=True, capture_output=True, text=True).stdout
        assert [line.split()[4] for line in shown.splitlines()[1:] if "origin" in line] == ["restore"]
        assert "public.t  trigger" in subprocess.run(repair, check=True, capture_output=True, text=True).stdout
    else:
        with pytest.raises(PenstockError, match="fired"):
            loads.run(target(people))
    assert (states(loads), options(loads), records(loads)) == (STATES, (None, None), 0)


def test_what_another_role_has_written_down_is_not_switched_off(
    ledger18: str, people: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It could be put back as that role alone."""
    loads = Loads(ledger18, setup=TABLE)
    one, other, both = (f"user_{secrets.token_hex(4)}" for _ in range(3))
    loads.execute(
        f"CREATE ROLE {both}; CREATE ROLE {one} LOGIN IN ROLE {both}; CREATE ROLE {other} LOGIN IN ROLE {both}"
    )
    share_ledger(loads, both)
    loads.execute(f"GRANT CREATE ON SCHEMA public TO {both}; ALTER TABLE t OWNER TO {both}")

    def die(*_: object) -> None:
        raise Killed

    try:
        with monkeypatch.context() as patch:
            patch.setattr(TableSwitch, "apply", die)
            with pytest.raises(Killed):
                Loads(make_conninfo(ledger18, user=one)).run(target(people), rules=DISABLE)
        others = people.with_name("others.csv")
        others.write_text(people.read_text())
        with pytest.raises(TargetError, match="nothing is disabled") as caught:
            Loads(make_conninfo(ledger18, user=other)).run(target(others), rules=DISABLE)
        assert one in str(caught.value.hint)
        assert states(loads) == STATES
    finally:
        loads.execute("ALTER TABLE t OWNER TO postgres")
        for name in (one, other, both):
            loads.execute(f"DROP OWNED BY {name} CASCADE; DROP ROLE {name}")
