"""One load by three hosts against one, each behind a network of 20 MB/s; and what --join costs one host."""

from __future__ import annotations

import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING

from psycopg.conninfo import make_conninfo

from benchmarks.data import PENSTOCK
from benchmarks.processes import Cost, run_measured
from benchmarks.record import save, summarize
from benchmarks.relay import relay
from benchmarks.rounds import WrongRows
from benchmarks.server import SCHEMA, Target, bench_server, make_open_dir
from benchmarks.ways import AS_COPY

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.options import Options

# A host's network, or what its xz lets through: far below what the server takes.
_BYTES_PER_S = 20e6
_HOSTS = 3

# At the scale of the other benchmarks, 1/9: 1.2 GB, which one host loads in a minute. That three processes start on
# the same processors takes a second of the 22 that they take.
_OBJECTS_AT_FULL_SCALE = 2700
_RECORDS = 40_000
_TEXT = "x" * 90


def run(options: Options) -> None:
    """Run it and write the results."""
    count = max(_HOSTS, round(_OBJECTS_AT_FULL_SCALE * options.scale))
    folder = _objects(options.data, count)
    costs: dict[str, list[Cost]] = {}
    with ExitStack() as stack:
        server = stack.enter_context(bench_server(options.data))
        target = stack.enter_context(Target(server.conninfo()))
        near = server.conninfo()
        port = int(_word(server.tcp_conninfo(), "port"))
        ports = [stack.enter_context(relay(port, delay_ms=0, bytes_per_s=_BYTES_PER_S)) for _ in range(_HOSTS)]
        far = [make_conninfo(server.tcp_conninfo(), port=each, sslmode="disable") for each in ports]
        ways = {
            "one host behind 20 MB/s": ([far[0]], True),
            "three hosts, each behind 20 MB/s": (far, True),
            "one host, no limit, without --join": ([near], False),
            "one host, no limit, with --join": ([near], True),
        }
        for number in range(-1, options.runs):
            for name, (conninfos, is_joint) in ways.items():
                target.renew_small()
                cost = _load(folder, conninfos, is_joint=is_joint)
                print(f"{name}: {cost.seconds:.2f} s, {cost.cpu_s or 0.0:.2f} CPU s", flush=True)
                if (rows := target.count_small()) != count * _RECORDS:
                    raise WrongRows(f"{rows} rows of {count * _RECORDS}")
                if number >= 0:
                    costs.setdefault(name, []).append(cost)
        seconds = {name: statistics.median(cost.seconds for cost in found) for name, found in costs.items()}
        one, three, alone, joint = seconds.values()
        save(
            "many_hosts",
            options=options,
            postgresql=target.settings(),
            settings={"objects": count, "records_each": _RECORDS, "bytes_per_s": _BYTES_PER_S, "hosts": _HOSTS},
            results={name: summarize(found) for name, found in costs.items()},
            table=[("run", "median s", "client CPU s"), *(_row(name, found) for name, found in costs.items())],
            notes=[
                f"Three hosts are {one / three:.2f} times as fast as one.",
                f"--join costs one host {100 * (joint / alone - 1):.1f} %.",
                f"{count} csv files of {_RECORDS:,} records. Each host is a process, behind a relay of its own.",
            ],
        )


def _load(folder: Path, conninfos: list[str], *, is_joint: bool) -> Cost:
    """Run the same command on each host at once; return the time until all have ended, and the CPU of all."""
    commands = [
        [PENSTOCK, "load", str(folder), "--into", f"{SCHEMA}.small", "--to", to, "--quiet", "--no-record", *AS_COPY]
        + (["--join"] if is_joint else [])
        for to in conninfos
    ]
    began_s = time.perf_counter()
    with ThreadPoolExecutor(len(commands)) as pool:
        found = list(pool.map(run_measured, commands))
    return Cost(seconds=time.perf_counter() - began_s, cpu_s=sum(each.cpu_s or 0.0 for each in found))


def _row(name: str, costs: list[Cost]) -> tuple[str, ...]:
    return (
        name,
        f"{statistics.median(cost.seconds for cost in costs):.2f}",
        f"{statistics.median(cost.cpu_s or 0.0 for cost in costs):.2f}",
    )


def _word(conninfo: str, name: str) -> str:
    return next(word.partition("=")[2] for word in conninfo.split() if word.startswith(f"{name}="))


def _objects(data: Path, count: int) -> Path:
    """Return a folder of that many csv files."""
    folder = data / f"hosts-{count}"
    if not folder.exists():
        make_open_dir(data)
        unfinished = folder.with_suffix(".new")
        unfinished.mkdir(parents=True, exist_ok=True)
        for number in range(count):
            records = "".join(f"{number * _RECORDS + each},{_TEXT}{each}\n" for each in range(_RECORDS))
            (unfinished / f"{number:04}.csv").write_text(f"a,b\n{records}", encoding="ascii")
        unfinished.rename(folder)
    return folder
