"""What penstock watch costs at one sample a second: CPU of client and server, in pairs of stretches with and without.

Eight sessions work meanwhile, so that there is something to see; their own CPU is in both stretches.
"""

from __future__ import annotations

import math
import statistics
import subprocess
import threading
import time
from contextlib import contextmanager, suppress
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import psycopg

from benchmarks.data import PENSTOCK
from benchmarks.record import save
from benchmarks.server import Target, bench_server

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.options import Options

_PAIRS = 20
_STRETCH_S = 10.0
_SESSIONS = 8
# Often enough that a few are seen at each sample, and little work.
_STATEMENT = "SELECT pg_sleep(0.05), count(*) FROM generate_series(1, 100)"


def run(options: Options) -> None:
    """Run it and write the results."""
    stretch_s = _STRETCH_S if options.runs > 2 else 2.0
    pairs = max(_PAIRS, options.runs) if options.runs > 2 else options.runs
    with bench_server(options.data) as server, Target(server.conninfo()) as target, _working(server.conninfo()):
        postmaster = server.status().pid
        assert postmaster is not None
        measured: dict[str, list[_Cores]] = {"without": [], "with": []}
        for number in range(pairs):
            for name in ("without", "with") if number % 2 else ("with", "without"):
                cores = _measure(server.conninfo(), postmaster, stretch_s, watches=name == "with")
                measured[name].append(cores)
                print(f"{name}: {cores}", flush=True)
        differences = sorted(
            watched.client + watched.server - alone.server
            for watched, alone in zip(measured["with"], measured["without"], strict=True)
        )
        median = statistics.median(differences)
        low, high = differences[_outside(len(differences))], differences[-1 - _outside(len(differences))]
        own = statistics.median(each.client + each.own_backend for each in measured["with"])
        save(
            "sampler_cost",
            options=options,
            postgresql=target.settings(),
            settings={"pairs": pairs, "stretch_s": stretch_s, "sessions": _SESSIONS, "interval_s": 1},
            results={"cores": {"median": median, "low": low, "high": high, "own": own}, "runs": measured},
            table=[
                ("stretch", "client cores", "server cores", "of its own backend"),
                *(
                    (name, *(f"{statistics.median(of_stretch):.4f}" for of_stretch in zip(*found, strict=True)))
                    for name, found in measured.items()
                ),
            ],
            notes=[
                (
                    f"penstock watch --interval 1 costs {median:.4f} cores, client and server: the pairs' median "
                    f"difference; 95 % interval {low:.4f} to {high:.4f}. Its own two processes take {own:.4f}."
                ),
                "Counted from its first line on: its start takes a quarter of a second of CPU.",
            ],
        )


class _Cores(NamedTuple):
    """The cores that were busy in a stretch."""

    client: float
    # All processes of the server, and the backend of penstock watch among them.
    server: float
    own_backend: float


def _outside(pairs: int) -> int:
    """Return how many of the sorted differences lie on each side of the interval of their median (binomial, 95 %)."""
    chances = [math.comb(pairs, number) / 2**pairs for number in range(pairs + 1)]
    return max(0, sum(chance <= 0.025 for chance in accumulate(chances)) - 1)


def _measure(conninfo: str, postmaster: int, stretch_s: float, *, watches: bool) -> _Cores:
    """Return the cores that client and server took in a stretch."""
    before = _processes_of(postmaster)
    if not watches:
        return _count_cores(stretch_s, server=before)
    command = [PENSTOCK, "watch", "--to", conninfo, "--interval", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as watching:
        assert watching.stdout is not None
        watching.stdout.readline()
        server = _processes_of(postmaster)
        own = [pid for pid in server if pid not in before]
        cores = _count_cores(stretch_s, server=server, client=[watching.pid], own=own)
        watching.terminate()
    return cores


def _count_cores(
    stretch_s: float, *, server: Sequence[int], client: Sequence[int] = (), own: Sequence[int] = ()
) -> _Cores:
    before_s = {pid: _cpu_s(pid) for pid in (*client, *server)}
    time.sleep(stretch_s)
    # A process that has ended since did little: autovacuum has nothing to do here.
    gained_s = {pid: max(0.0, _cpu_s(pid) - cpu_s) for pid, cpu_s in before_s.items()}
    return _Cores(*(sum(gained_s[pid] for pid in pids) / stretch_s for pids in (client, server, own)))


def _processes_of(postmaster: int) -> list[int]:
    children = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text(encoding="ascii").split()
    return [postmaster, *map(int, children)]


def _cpu_s(pid: int) -> float:
    """Return the CPU that all threads of a process have had, to the nanosecond: ticks are as long as a sample takes."""
    spent_ns = 0
    # A worker of autovacuum may end at any moment.
    with suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").glob("*/schedstat"):
            spent_ns += int(thread.read_text(encoding="ascii").split()[0])
    return spent_ns / 1e9


@contextmanager
def _working(conninfo: str) -> Iterator[None]:
    stop = threading.Event()

    def work() -> None:
        with psycopg.connect(conninfo, autocommit=True, application_name="worker") as connection:
            while not stop.is_set():
                connection.execute(_STATEMENT)

    threads = [threading.Thread(target=work) for _ in range(_SESSIONS)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()
