"""temp place and remove killed with -9 around every statement that changes anything: each remedy ends it."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import psycopg
import pytest

from penstock.ledger.ledger import Ledger
from support.placed import placed_server

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from support.placed import PlacedServer
    from support.servers import ServerPool

# Places and removes, and kills itself before its nth statement that is no query; prints how many there were.
_PROGRAM = """
import os, signal, sys
import psycopg
from penstock.core.values.temp_place import parse_scope
from penstock.core.connect.connection import ConnectionFactory
from penstock.temp.place.place import PlaceKeeper, PlaceRequest

conninfo, directory, scope, last = sys.argv[1:]
count = 0
execute = psycopg.Cursor.execute

def counted(cursor, query, *args, **options):
    global count
    text = query if isinstance(query, str) else query.decode() if isinstance(query, bytes) else query.as_string(None)
    if not text.lstrip().startswith(("SELECT", "WITH", "--", "SET")) or "pg_reload_conf" in text:
        count += 1
        if count == int(last):
            os.kill(os.getpid(), signal.SIGKILL)
    return execute(cursor, query, *args, **options)

psycopg.Cursor.execute = counted
keeper = PlaceKeeper(ConnectionFactory(conninfo), tell=lambda _: None)
request = PlaceRequest(directory=directory, scope=parse_scope(scope), allows_same_device=True)
keeper.place(request)
placing = count
keeper.remove()
print(placing, count)
"""


def _run(placed: PlacedServer, scope: str, last: int) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", _PROGRAM, placed.server.conninfo, str(placed.directory), scope, str(last)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.part("rest")
@pytest.mark.parametrize(
    ("major", "scope", "ending"),
    [
        (18, "server", "remove"),
        (18, "role:reports", "place"),
        (16, "server", "repair"),
        (15, "database:postgres", "repair"),
        (14, "server", "place"),
    ],
)
def test_killed_at_every_statement(
    servers: ServerPool,
    some: Callable[[Sequence[int], int], list[int]],
    major: int,
    scope: str,
    ending: str,
) -> None:
    """What was before is there again, settings, catalogues and file; and nothing is written down any more."""
    with placed_server(servers, major) as placed:
        placed.server.execute("DROP ROLE IF EXISTS reports", "CREATE ROLE reports")
        placed.server.execute("ALTER SYSTEM SET temp_tablespaces = 'pg_default'")
        placed.server.reload()
        with psycopg.connect(placed.server.conninfo, autocommit=True) as connection:
            # In one transaction, of which no part is found.
            Ledger().ensure(connection)
        before = placed.snapshot()
        whole = _run(placed, scope, 0)
        assert whole.returncode == 0, whole.stderr
        placing, count = map(int, whole.stdout.split())
        for last in some(range(1, count + 1), 3):
            killed = _run(placed, scope, last)
            assert killed.returncode == -signal.SIGKILL, killed.stderr
            placed.await_alone()
            _end(placed, scope, ending)
            assert placed.snapshot() == before, f"killed before statement {last} of {placing} and {count - placing}"
            assert not any(placed.directory.iterdir())
        placed.server.execute("DROP ROLE reports")


def _end(placed: PlacedServer, scope: str, ending: str) -> None:
    """End what was interrupted; a place that was completed is removed."""
    if ending == "place":
        placed.place(scope)
        assert placed.check().problems == ()
    elif ending == "repair":
        placed.repair()
        assert placed.is_placed() in {None, True}
    if placed.is_placed() is not None:
        placed.remove()
    assert placed.is_placed() is None
