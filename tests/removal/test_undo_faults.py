"""An undo whose process, session or server dies at any moment removes exactly the rows of its load, or none."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import TYPE_CHECKING

import psycopg
import pytest

from support.loads import Loads, target
from support.modes import mode_target

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from penstock.embedded.server import EmbeddedServer

pytestmark = pytest.mark.part("rest")

POINTS = 300
ROWS = 200
_WAITS = "SELECT pid FROM pg_stat_activity WHERE query LIKE 'DELETE FROM%' AND pid <> pg_backend_pid()"
# The rows take this long to delete in all.
_DELETE_S = 0.3
_SHAPES = {
    "plain": "CREATE TABLE t (a int PRIMARY KEY, b text)",
    "partitioned": (
        "CREATE TABLE t (a int PRIMARY KEY, b text) PARTITION BY RANGE (a);"
        "CREATE TABLE t1 PARTITION OF t FOR VALUES FROM (MINVALUE) TO (100);"
        "CREATE TABLE t2 PARTITION OF t FOR VALUES FROM (100) TO (MAXVALUE)"
    ),
    "merged": "CREATE TABLE t (a int PRIMARY KEY, b text)",
}
_SLOW = f"""
    INSERT INTO t SELECT -n, 'old' FROM generate_series(1, 50) AS n;
    CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN PERFORM pg_catalog.pg_sleep({_DELETE_S / ROWS}); RETURN OLD; END $$;
    CREATE TRIGGER slow BEFORE DELETE ON t FOR EACH ROW EXECUTE FUNCTION slow()
"""


@pytest.mark.parametrize("shape", _SHAPES)
def test_rows_of_the_load_are_there_or_gone_as_a_whole(
    new_server: Callable[..., EmbeddedServer], tmp_path: Path, rng: random.Random, shape: str
) -> None:
    """At each of its moments: before the deletion, in it, at the commit and behind it."""
    server = new_server()
    Loads(server.ensure_running(), setup=f"{_SHAPES[shape]};{_SLOW}")
    path = tmp_path / "rows.csv"
    path.write_text("a,b\n" + "".join(f"{n},value {n}\n" for n in range(ROWS)))
    points = undone = 0
    while points < POINTS // len(_SHAPES):
        loads = Loads(server.ensure_running(), piece_bytes=509, chunk_bytes=500)
        job = mode_target(path, "insert-new", key=("a",)) if shape == "merged" else target(path)
        outcome = loads.run(job, batch_bytes=1000)
        assert outcome.rows == ROWS
        is_undone = False
        while not is_undone:
            _undo_and_break(server, loads.conninfo, rng)
            # A server that is started again has another port
            loads = Loads(server.ensure_running())
            points += 1
            ((count, known),) = loads.execute("SELECT (SELECT count(*) FROM t), (SELECT count(*) FROM penstock.loads)")
            assert (count, known) in ((50 + ROWS, 1), (50, 0))
            assert loads.execute("SELECT count(*) FROM t WHERE a < 0") == [(50,)]
            is_undone = count == 50
        undone += 1
    assert undone > 0


def _undo_and_break(server: EmbeddedServer, conninfo: str, rng: random.Random) -> None:
    """Undo the newest load, and break the process, the session or the server at some moment of the deletion."""
    argv = [sys.executable, "-m", "penstock", "undo", "latest", f"--to={conninfo}", "--quiet"]
    with (
        psycopg.connect(conninfo, autocommit=True) as watcher,
        subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process,
    ):
        while not (found := watcher.execute(_WAITS).fetchall()) and process.poll() is None:
            time.sleep(0.002)
        time.sleep(rng.uniform(0, 1.2 * _DELETE_S))
        how = rng.choice(["process", "session", "server"])
        if how == "server":
            server.stop("immediate")
        elif how == "session":
            _terminate(watcher, found)
        else:
            process.kill()
        process.wait()


def _terminate(watcher: psycopg.Connection, found: Sequence[tuple[int]]) -> None:
    for (pid,) in found:
        watcher.execute("SELECT pg_terminate_backend(%s)", [pid])
