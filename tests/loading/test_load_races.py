"""Two processes at one table or one load: each reports what happened, with the exit code for it."""

from __future__ import annotations

import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from penstock.changes.tables.definition import look_again
from penstock.changes.tables.parts import capture_tree
from penstock.core.connect.connection import ConnectionFactory
from penstock.core.connect.errors import in_transaction, translate_errors
from penstock.core.errors import PenstockError, TargetError
from penstock.core.sql import fetch_one
from penstock.core.values.job import Housekeeping, LoadJob, LoadRules
from penstock.loading.land.landing import check_landings
from penstock.loading.loader import Loader
from support.files import write_to
from support.loads import ChoppedSources, Loads
from support.modes import mode_target

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from penstock.loading.values.outcome import LoadOutcome
    from penstock.loading.values.plan import LoadPlan

_LONG_S = 60.0

ROWS = 2000


@pytest.fixture
def loads(database18: str) -> Loads:
    """Provide loads into a database with a table t and a row that no file has."""
    return Loads(database18, setup="CREATE TABLE t (a int PRIMARY KEY, b text); INSERT INTO t VALUES (-1, 'before')")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Provide a file for table t."""
    return write_to(tmp_path / "rows.csv", "a,b\n" + "".join(f"{n},value {n}\n" for n in range(ROWS)))


class Process:
    """A load as another process would do it: with connections and sources of its own."""

    def __init__(self, loads: Loads, path: Path, mode: str, *, at_piece: Callable[[int], None] | None = None) -> None:
        self.notices: list[str] = []
        self.on_notice: Callable[[str], None] = lambda _: None
        sources = partial(ChoppedSources, 500, at_piece)
        self._loader = Loader(ConnectionFactory(loads.conninfo), Housekeeping(no_record=True), sources=sources)
        self._job = LoadJob(targets=(mode_target(path, mode),), sessions=1, rules=LoadRules(retry_for=_LONG_S))

    def plan(self) -> LoadPlan:
        """Plan the load."""
        return self._loader.plan(self._job)

    def run(self, plan: LoadPlan | None = None) -> LoadOutcome:
        """Carry it out."""
        with self._loader:
            return self._loader.run(plan or self.plan(), on_notice=self._hear)

    def close(self) -> None:
        """Let go of the session that planning keeps."""
        self._loader.close()

    def _hear(self, text: str) -> None:
        self.notices.append(text)
        self.on_notice(text)


def end_sessions(loads: Loads) -> None:
    """End every session of penstock's in this database."""
    loads.execute(
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
        " WHERE datname = current_database() AND application_name LIKE 'penstock%'"
    )


def test_a_replaced_table_is_named_to_the_second_of_two_replaces(loads: Loads, path: Path) -> None:
    """Both were planned for the table that the first one has dropped."""
    first, second = Process(loads, path, "replace"), Process(loads, path, "replace")
    plan = second.plan()
    first.run()
    with pytest.raises(TargetError, match=r'table "public\.t" was replaced after the load was planned') as caught:
        second.run(plan)
    assert caught.value.hint == "Run the load again, if it is still wanted."
    assert loads.count() == ROWS


def test_a_replaced_table_is_named_at_the_swap(loads: Loads, path: Path, tmp_path: Path) -> None:
    """Replaces from two sources do not wait for each other: the table of the second is another when it would swap."""
    other = write_to(tmp_path / "other.csv", "a,b\n5,other\n")
    first = Process(
        loads, path, "replace", at_piece=lambda number: None if number else Process(loads, other, "replace").run()
    )
    with pytest.raises(PenstockError, match=r'table "public\.t" was replaced after the load was planned'):
        first.run()
    assert loads.rows() == [(5, "other")]


def test_a_dropped_table_is_named(loads: Loads, path: Path) -> None:
    """The error differs from the one for a table that another table has replaced."""
    process = Process(loads, path, "replace")
    plan = process.plan()
    loads.execute("DROP TABLE t")
    with pytest.raises(TargetError, match=r'table "public\.t" was dropped after the load was planned'):
        process.run(plan)


@pytest.mark.parametrize("looks_for", ["replace", "dropping"])
def test_planning_beside_a_load_that_drops(loads: Loads, path: Path, looks_for: str) -> None:
    """An index that is dropped while its table's definition is read is none; the reader waits for the dropper's lock.

    An expression's words need the table's lock, and those of the index after it are looked for behind that.
    """
    loads.execute("CREATE INDEX t_1 ON t ((a + 1)); CREATE INDEX t_2 ON t (b)")
    process = Process(loads, path, "replace")
    plan = process.plan()
    process.close()
    (facts,) = [target.facts for target in plan.targets]
    assert facts is not None
    found: list[Any] = []

    def look() -> None:
        with ConnectionFactory(loads.conninfo).connect(label="looks") as connection:
            if looks_for == "replace":
                check_landings(plan.targets, connection, ledger_schema="penstock")
                found.append([])
            else:
                tree = capture_tree(connection, facts.oid)
                assert tree is not None
                found.append([part.name for part in tree.indexes])

    looking = threading.Thread(target=look)
    with psycopg.connect(loads.conninfo) as dropping:
        dropping.execute("LOCK TABLE t IN ACCESS EXCLUSIVE MODE")
        dropping.execute("DROP INDEX t_2")
        looking.start()
        while not loads.execute("SELECT FROM pg_locks WHERE NOT granted AND relation = 't'::regclass"):
            assert looking.is_alive()
            time.sleep(0.01)
    looking.join(_LONG_S)
    assert found == ([[]] if looks_for == "replace" else [["t_1", "t_pkey"]])


@pytest.mark.part("rest")
@pytest.mark.parametrize("mode", ["append", "truncate", "replace"])
def test_a_load_that_another_process_completes_meanwhile_is_loaded(loads: Loads, path: Path, mode: str) -> None:
    """The first one's sessions are lost; before it has them again the second one has taken the load over."""
    second_waits, second_may_go = threading.Event(), threading.Event()

    def pause(number: int) -> None:
        if number == 0:
            second_waits.set()
            assert second_may_go.wait(_LONG_S)

    def lose(number: int) -> None:
        if number == 0:
            end_sessions(loads)

    first, second = Process(loads, path, mode, at_piece=lose), Process(loads, path, mode, at_piece=pause)
    running = threading.Thread(target=second.run)

    def hear(text: str) -> None:
        if "retrying in" in text and not second_waits.is_set():
            running.start()
            assert second_waits.wait(_LONG_S)
        if "another process that is running this load" in text:
            second_may_go.set()

    first.on_notice = hear
    outcome = first.run()
    running.join(_LONG_S)
    assert loads.count() == ROWS + (mode == "append")
    assert loads.execute("SELECT count(*), min(state) FROM penstock.loads") == [(1, "complete")]
    assert f"load {outcome.load_id} was completed by another process" in first.notices
    assert outcome.rows + outcome.rows_before == ROWS


def test_a_definition_is_read_again_in_a_transaction_of_the_callers(loads: Loads) -> None:
    """A part that is dropped meanwhile is an internal error of the server, which ends only that look."""
    looks: list[int] = []

    def read() -> int:
        looks.append(len(looks))
        with translate_errors("reading"):
            if len(looks) == 1:
                connection.execute("DO $$BEGIN RAISE 'gone' USING ERRCODE = 'internal_error'; END$$")
            return int(fetch_one(connection, "SELECT 7")[0])

    with ConnectionFactory(loads.conninfo).connect() as connection, in_transaction(connection):
        connection.execute("CREATE TABLE public.kept ()")
        assert look_again(read, connection) == 7
    assert looks == [0, 1]
    assert loads.has_table("kept")
