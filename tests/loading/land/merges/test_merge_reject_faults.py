"""Loaders that are killed while their merge sorts records out: nothing of it stays, and the next one does it all."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

from penstock.core.values.job import LoadRules
from support.loads import Loads
from support.modes import await_gate, landing_tables, mode_target

if TYPE_CHECKING:
    from penstock.core.values.job import TargetJob

_GATE = 4242

# The trigger stops at the gate with a part of the records stored and others refused.
_SETUP = f"""
    CREATE TABLE t (k int PRIMARY KEY, v text NOT NULL CHECK (v <> 'no'));
    INSERT INTO t VALUES (0, 'old'), (1, 'old');
    CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        IF NEW.v = 'gate' THEN PERFORM pg_advisory_xact_lock_shared({_GATE}); END IF;
        RETURN NEW;
    END $$;
    CREATE TRIGGER wait BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION wait();
"""
_RULES = LoadRules(retry_for=0.0, on_error="reject")


@pytest.fixture
def loads(database18: str) -> Loads:
    """Provide loads into a database with table t."""
    return Loads(database18, piece_bytes=32, setup=_SETUP)


def _target(path: Path) -> TargetJob:
    return mode_target(path, "upsert", key=("k",), keep="last", format="csv", has_header=True)


@pytest.mark.parametrize("gate", [1, 60, 99])
def test_loader_that_is_killed_while_records_are_sorted_out(loads: Loads, tmp_path: Path, gate: int) -> None:
    """Its backend is in the middle of the statement, and goes on with it: that commits nothing."""
    values = {n: "no" if n % 7 == 3 else "gate" if n == gate else f"new {n}" for n in range(100)}
    # COPY refuses the first of these; the others have keys of records before them.
    records = [*(f"{n},{value}" for n, value in values.items()), "x,y", "17,again", "18,no"]
    path = tmp_path / "file.csv"
    path.write_text("k,v\n" + "".join(f"{record}\n" for record in records))
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([*sys.path, str(Path(__file__).parents[3])])}
    with psycopg.connect(loads.conninfo, autocommit=True) as watcher:
        watcher.execute("SELECT pg_advisory_lock(%s)", [_GATE])
        with subprocess.Popen([sys.executable, __file__, loads.conninfo, str(path)], env=environment) as process:
            try:
                await_gate(watcher, _GATE)
            finally:
                process.kill()
        assert process.returncode == -signal.SIGKILL
    assert loads.rows() == [(0, "old"), (1, "old")]
    found = loads.execute("SELECT state, (SELECT count(*) FROM penstock.rejects) FROM penstock.loads")
    assert found == [("running", 1)]
    outcome = loads.run(_target(path), rules=_RULES)
    # A record that gives way is not tried; the one before the refused one of key 18 is rejected with it.
    expected = {n: value for n, value in (values | {17: "again", 18: "no"}).items() if value != "no"}
    assert dict(loads.rows()) == expected
    rejected = [f"{n},{value}" for n, value in values.items() if n == 18 or (value == "no" and n != 17)]
    rejected += ["x,y", "18,no"]
    assert [row[0].decode() for row in loads.execute("SELECT raw FROM penstock.rejects ORDER BY start")] == [
        f"{record}\n" for record in rejected
    ]
    assert (outcome.rows, outcome.rejected, outcome.duplicates) == (len(expected), len(rejected), 1)
    sums = loads.execute("SELECT sum(records)::int, sum(rows)::int, sum(rejected)::int FROM penstock.ranges")
    assert sums == [(len(records), len(records) - len(rejected), len(rejected))]
    assert landing_tables(loads) == []
    assert loads.lingering() == 0


if __name__ == "__main__":
    conninfo, source = sys.argv[1:]
    Loads(conninfo, piece_bytes=32).run(_target(Path(source)), rules=_RULES)
