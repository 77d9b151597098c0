"""Retries of rejected records that are killed: each record is loaded once, and those that are still wrong stay."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

from penstock.api.connect import connect_to
from penstock.api.ledger_view import LedgerView
from penstock.core.errors import ServerError
from penstock.core.values.job import LoadRules
from support.loads import Loads, find_sums, target
from support.modes import Killed, await_gate, killing_at, mode_target

if TYPE_CHECKING:
    import random

    from penstock.ledger.rejects import RetryOutcome

_GATE = 4243
_SETUP = f"""
    CREATE TABLE parent (id int PRIMARY KEY, v text);
    CREATE TABLE child (id int PRIMARY KEY, parent int REFERENCES parent, v text);
    CREATE TABLE plain (id int, v text);
    CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        IF NEW.v = 'gate' THEN PERFORM pg_advisory_xact_lock_shared({_GATE}); END IF;
        RETURN NEW;
    END $$;
    CREATE TRIGGER wait BEFORE INSERT ON parent FOR EACH ROW EXECUTE FUNCTION wait();
    CREATE TRIGGER wait BEFORE INSERT ON child FOR EACH ROW EXECUTE FUNCTION wait();
    CREATE TRIGGER wait BEFORE INSERT ON plain FOR EACH ROW EXECUTE FUNCTION wait();
"""
_RULES = LoadRules(retry_for=0.0, on_error="reject")
_DATA = {
    "parent": "id,v\n1,ok\nx,{}\n",
    "child": "id,parent,v\n1,1,ok\n2,9,{}\ny,1,ok\n",
    "plain": "id,v\n1,ok\nx,{}\n",
}

# How far apart, on average, the statements are before which a retry dies; it sends about 60.
_STRIDE = 4


@pytest.fixture
def loads(database18: str) -> Loads:
    """Provide loads into a database with a merged parent and child, and a plain table."""
    return Loads(database18, setup=_SETUP)


def _load(loads: Loads, folder: Path, *, gate: str = "") -> str:
    """Load a bad record or two of each table, and return the load's id; those of table `gate` will wait at the gate."""
    for table, text in _DATA.items():
        (folder / table).write_text(text.format("gate" if table == gate else "ok"))
    outcome = loads.run(
        target(folder / "plain", into="plain", format="csv"),
        mode_target(folder / "child", "upsert", into="child", key=("id",), format="csv"),
        mode_target(folder / "parent", "upsert", into="parent", key=("id",), format="csv"),
        rules=_RULES,
    )
    assert (outcome.rejected, outcome.load_id is not None) == (4, True)
    return str(outcome.load_id)


def _correct(loads: Loads) -> None:
    """Make all rejected records right but one, as a retry of a table that was changed would find them."""
    loads.execute(
        "UPDATE penstock.rejects SET raw = convert_to(replace(convert_from(raw, 'UTF8'), 'x,', '9,'), 'UTF8')"
    )


def _retry(conninfo: str, load_id: str) -> RetryOutcome:
    with LedgerView(connect_to(conninfo)) as view:
        return view.retry(load_id)


def _state(loads: Loads) -> list[int]:
    tables = ", ".join(f"(SELECT count(*)::int FROM {table})" for table in (*_DATA, "penstock.rejects"))
    return list(loads.execute(f"SELECT {tables}")[0])


_BEFORE, _AFTER = [1, 1, 1, 4], [2, 2, 2, 1]


def _check_after(loads: Loads) -> None:
    assert _state(loads) == _AFTER
    assert find_sums(loads) == [(0, 2, 2, 0, 0), (1, 3, 2, 0, 1), (2, 2, 2, 0, 0)]
    assert loads.execute("SELECT rows FROM penstock.loads") == [(6,)]
    assert loads.execute("SELECT number, staged, inserted FROM penstock.targets ORDER BY number") == [
        (1, 2, 2),
        (2, 2, 2),
    ]


@pytest.mark.part("rest")
def test_retry_that_dies_before_any_statement_has_done_all_or_nothing(
    loads: Loads, tmp_path: Path, rng: random.Random
) -> None:
    """Whatever statement it is, of some that are spread over it; the next retry does the rest."""
    load_id = _load(loads, tmp_path)
    _correct(loads)
    point, has_died = 0, True
    while has_died:
        try:
            with killing_at(point):
                _retry(loads.conninfo, load_id)
            has_died = False
        except Killed:
            assert loads.lingering() == 0
            assert _state(loads) in (_BEFORE, _AFTER)
        point += rng.randint(1, 2 * _STRIDE)
    _check_after(loads)
    assert _retry(loads.conninfo, load_id).left == 1
    _check_after(loads)


@pytest.mark.part("rest")
@pytest.mark.parametrize("gate", list(_DATA))
def test_retry_that_is_killed_while_a_table_gets_its_records(loads: Loads, tmp_path: Path, gate: str) -> None:
    """By SIGKILL, with its backend in the middle of a statement, which commits nothing."""
    load_id = _load(loads, tmp_path, gate=gate)
    _correct(loads)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([*sys.path, str(Path(__file__).parents[2])])}
    with psycopg.connect(loads.conninfo, autocommit=True) as watcher:
        watcher.execute("SELECT pg_advisory_lock(%s)", [_GATE])
        with subprocess.Popen([sys.executable, __file__, loads.conninfo, load_id], env=environment) as process:
            try:
                await_gate(watcher, _GATE)
            finally:
                process.kill()
        assert process.returncode == -signal.SIGKILL
    assert loads.lingering() == 0
    assert _state(loads) == _BEFORE
    assert _retry(loads.conninfo, load_id).left == 1
    _check_after(loads)


@pytest.mark.parametrize("table", list(_DATA))
def test_retry_whose_session_is_ended_has_changed_nothing(loads: Loads, tmp_path: Path, table: str) -> None:
    """It is an error of the server, also of a merge: no ROLLBACK on the lost session takes its place."""
    load_id = _load(loads, tmp_path, gate=table)
    _correct(loads)
    loads.execute(
        "CREATE OR REPLACE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " IF NEW.v = 'gate' THEN PERFORM pg_terminate_backend(pg_backend_pid()); PERFORM pg_sleep(10); END IF;"
        " RETURN NEW; END $$"
    )
    with pytest.raises(ServerError) as caught:
        _retry(loads.conninfo, load_id)
    assert caught.value.exit_code == 7
    assert loads.lingering() == 0
    assert _state(loads) == _BEFORE


if __name__ == "__main__":
    _retry(*sys.argv[1:])
