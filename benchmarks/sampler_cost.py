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
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg

from benchmarks.cpu import quantile_of
from benchmarks.data import PENSTOCK
from benchmarks.record import save
from benchmarks.server import Target, bench_server

if TYPE_CHECKING:
    from collections.abc import Iterator

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
        measured: dict[str, list[tuple[float, float]]] = {"without": [], "with": []}
        for number in range(pairs):
            for name in ("without", "with") if number % 2 else ("with", "without"):
                cores = _measure(server.conninfo(), postmaster, stretch_s, watches=name == "with")
                measured[name].append(cores)
                print(f"{name}: client {cores[0]:.4f}, server {cores[1]:.4f} cores", flush=True)
        differences = [
            sum(watched) - sum(alone) for watched, alone in zip(measured["with"], measured["without"], strict=True)
        ]
        mean = statistics.fmean(differences)
        half = quantile_of(len(differences) - 1) * statistics.stdev(differences) / math.sqrt(len(differences))
        client = statistics.fmean(client for client, _ in measured["with"])
        save(
            "sampler_cost",
            options=options,
            postgresql=target.settings(),
            settings={"pairs": pairs, "stretch_s": stretch_s, "sessions": _SESSIONS, "interval_s": 1},
            results={"cores": {"mean": mean, "low": mean - half, "high": mean + half}, "runs": measured},
            table=[
                ("stretch", "client cores", "server cores"),
                *(
                    (
                        name,
                        f"{statistics.fmean(client for client, _ in found):.4f}",
                        f"{statistics.fmean(backends for _, backends in found):.4f}",
                    )
                    for name, found in measured.items()
                ),
            ],
            notes=[
                (
                    f"penstock watch --interval 1 costs {mean:.4f} cores, client and server; 95 % interval "
                    f"{mean - half:.4f} to {mean + half:.4f}. Of that the client takes {client:.4f}."
                ),
                "Counted from its first line on: its start takes a quarter of a second of CPU.",
            ],
        )


def _measure(conninfo: str, postmaster: int, stretch_s: float, *, watches: bool) -> tuple[float, float]:
    """Return the cores that client and server took in a stretch."""
    if not watches:
        return 0.0, _count_cores(_processes_of(postmaster), stretch_s)[1]
    command = [PENSTOCK, "watch", "--to", conninfo, "--interval", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as watching:
        assert watching.stdout is not None
        watching.stdout.readline()
        cores = _count_cores(_processes_of(postmaster), stretch_s, client=watching.pid)
        watching.terminate()
    return cores


def _count_cores(server: list[int], stretch_s: float, *, client: int | None = None) -> tuple[float, float]:
    clients = [] if client is None else [client]
    before_s = [_cpu_s(pid) for pid in (*clients, *server)]
    time.sleep(stretch_s)
    gained_s = [_cpu_s(pid) - cpu_s for pid, cpu_s in zip((*clients, *server), before_s, strict=True)]
    # One that has ended since did little: autovacuum has nothing to do here.
    return sum(gained_s[: len(clients)]) / stretch_s, sum(
        max(0.0, each) for each in gained_s[len(clients) :]
    ) / stretch_s


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
