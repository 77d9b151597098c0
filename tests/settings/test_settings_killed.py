"""A process that changes settings and is killed with -9 between any two statements: restore puts everything back."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from support.changed_server import records, restore
from support.parts import rest

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence

    from support.changed_server import ChangedServer

# Takes a lease and releases it, and kills itself before its nth statement; prints how many there were at the end.
_PROGRAM = """
import os, signal, sys
import psycopg
from penstock.core.connect.connection import ConnectionFactory
from penstock.settings.backend import system_leases
from penstock.settings.lease import LeaseRequest
from penstock.settings.decide import BULK_LOAD

count, last = 0, int(sys.argv[2])
execute = psycopg.Connection.execute

def counted(connection, *args, **options):
    global count
    count += 1
    if count == last:
        os.kill(os.getpid(), signal.SIGKILL)
    return execute(connection, *args, **options)

with ConnectionFactory(sys.argv[1]).connect() as connection:
    psycopg.Connection.execute = counted
    leases = system_leases(connection)
    report, _ = leases.take(LeaseRequest(profile=BULK_LOAD, client="victim", reason="test"))
    leases.release(report.lease_ids[0])
    print(count)
"""


def _run(server: ChangedServer, last: int) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", _PROGRAM, server.conninfo, str(last)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("is_set", [False, rest(True)], ids=["unset", "in auto.conf"])
def test_killed_between_any_two_statements(
    changed: ChangedServer, is_set: bool, rng: random.Random, some: Callable[[Sequence[int], int], list[int]]
) -> None:
    """At seeded moments of a run, from the first statement to the last."""
    if is_set:
        changed.execute("ALTER SYSTEM SET checkpoint_timeout = '6min'", "ALTER SYSTEM SET max_wal_size = '2GB'")
        changed.reload()
    before = changed.snapshot()
    whole = _run(changed, 0)
    assert whole.returncode == 0, whole.stderr
    for last in some(sorted(rng.sample(range(1, int(whole.stdout) + 1), 4)), 2):
        # How often a reload is looked for differs, so a run may end before that statement.
        assert _run(changed, last).returncode in {-signal.SIGKILL, 0}
        while changed.execute("SELECT FROM pg_locks WHERE locktype = 'advisory'"):
            time.sleep(0.01)
        with changed.connect() as connection:
            restore(connection)
            assert records(connection) == []
        assert changed.snapshot() == before, f"killed before statement {last}"


# Runs penstock settings apply, and sends itself a signal when the settings are set, and another when they are restored.
_APPLYING = """
import os, signal, sys
from penstock.settings.kinds import AlterSystem
from penstock.cli.main import main

apply = AlterSystem.apply

def set_(*args):
    apply(*args)
    AlterSystem.apply = restore
    os.kill(os.getpid(), int(sys.argv[2]))

def restore(*args):
    os.kill(os.getpid(), int(sys.argv[2]))
    apply(*args)

AlterSystem.apply = set_
# What runs the tests may ignore SIGHUP, as nohup does.
if signal.getsignal(int(sys.argv[2])) == signal.SIG_IGN:
    signal.signal(int(sys.argv[2]), signal.SIG_DFL)
sys.exit(main(["settings", "apply", "max_wal_size=2GB", "--to", sys.argv[1]]))
"""


@pytest.mark.part("rest")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signal_ends_apply_and_restores(changed18: ChangedServer, number: signal.Signals) -> None:
    """And a second signal, while they are restored, waits: the settings would stay for the 12 hours of the lease."""
    before = changed18.snapshot()
    command = [sys.executable, "-c", _APPLYING, changed18.conninfo, str(int(number))]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (finished.returncode, finished.stderr) == (130, "error: interrupted\n")
    assert changed18.snapshot() == before
    with changed18.connect() as connection:
        assert records(connection) == []
