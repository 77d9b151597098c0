"""One load by three hosts against one, each behind a network of 20 MB/s; and what --join costs one host.

Also the CPU of a GB of text, of the server and of clients that decompress it, from which docs/hosts.md reckons how many
hosts a server can feed on.
"""

from __future__ import annotations

import gzip
import lzma
import shutil
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING

from psycopg.conninfo import make_conninfo

from benchmarks.cpu import Run, run_once, summarize_runs
from benchmarks.data import PENSTOCK, principals
from benchmarks.processes import Cost, run_measured
from benchmarks.record import markdown, save, spread, summarize
from benchmarks.relay import relay
from benchmarks.rounds import WrongRows
from benchmarks.server import QUALIFIED, SCHEMA, Target, bench_server, make_open_dir
from benchmarks.ways import AS_COPY
from penstock.core.units import GB
from penstock_lab.datasets.people import expected_rows

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.options import Options
    from penstock.embedded.server import EmbeddedServer

# A host's network, or what its xz lets through: far below what the server takes.
_BYTES_PER_S = 20e6
_HOSTS = 3

# At the scale of the other benchmarks, 1/9: 1.2 GB, which one host loads in a minute. That three processes start on
# the same processors takes a second of the 22 that they take.
_OBJECTS_AT_FULL_SCALE = 2700
# One host without a limit takes a tenth of the time, and its runs spread by a quarter.
_PAIRS_FOR_EACH_RUN = 3
_RECORDS = 40_000
_TEXT = "x" * 90

# CPU is measured of a part of title.principals: xz takes minutes to write all of it.
_CPU_PART = 1 / 3


def run(options: Options) -> None:
    """Run it and write the results."""
    count = max(_HOSTS, round(_OBJECTS_AT_FULL_SCALE * options.scale))
    folder = _objects(options.data, count)
    with ExitStack() as stack:
        server = stack.enter_context(bench_server(options.data))
        target = stack.enter_context(Target(server.conninfo()))
        near = server.conninfo()
        port = int(_word(server.tcp_conninfo(), "port"))
        ports = [stack.enter_context(relay(port, delay_ms=0, bytes_per_s=_BYTES_PER_S)) for _ in range(_HOSTS)]
        far = [make_conninfo(server.tcp_conninfo(), port=each, sslmode="disable") for each in ports]
        behind = {
            "one host behind 20 MB/s": ([far[0]], True),
            "three hosts, each behind 20 MB/s": (far, True),
        }
        beside = {
            "one host, no limit, without --join": ([near], False),
            "one host, no limit, with --join": ([near], True),
        }
        rows = count * _RECORDS
        costs = _run_ways(behind, folder, target, rows=rows, runs=options.runs)
        costs |= _run_ways(beside, folder, target, rows=rows, runs=_PAIRS_FOR_EACH_RUN * options.runs)
        cpu = _measure_cpu(options, server, target)
        one, three = (statistics.median(cost.seconds for cost in costs[name]) for name in behind)
        alone, joint = (costs[name] for name in beside)
        percent = spread([100 * (each.seconds / other.seconds - 1) for other, each in zip(alone, joint, strict=True)])
        save(
            "many_hosts",
            options=options,
            postgresql=target.settings(),
            settings={"objects": count, "records_each": _RECORDS, "bytes_per_s": _BYTES_PER_S, "hosts": _HOSTS},
            results={
                **{name: summarize(found) for name, found in costs.items()},
                "join_percent": percent,
                "cpu_s_per_gb": {name: spread(found) for name, found in _per_gb(cpu).items()},
                "cpu": {name: {"plain_bytes": size, **summarize_runs(runs)} for name, (size, runs) in cpu.items()},
            },
            table=[("run", "median s", "client CPU s"), *(_row(name, found) for name, found in costs.items())],
            notes=[
                f"Three hosts are {one / three:.2f} times as fast as one.",
                (
                    f"--join costs one host {percent['median']:.1f} %, the median of {len(joint)} pairs of runs "
                    f"({percent['lowest']:.1f} to {percent['highest']:.1f} %)."
                ),
                f"{count} csv files of {_RECORDS:,} records. Each host is a process, behind a relay of its own.",
                "",
                *markdown([("CPU s/GB of decompressed text", "median", "lowest", "highest"), *_cpu_rows(cpu)]),
                "",
                "title.principals by one host, user and system time. The server's: COPY, WAL and heap.",
            ],
        )


def _run_ways(
    ways: dict[str, tuple[list[str], bool]], folder: Path, target: Target, *, rows: int, runs: int
) -> dict[str, list[Cost]]:
    """Return what each way costs in each round behind the first. Every second round has the ways in reverse order."""
    costs: dict[str, list[Cost]] = {name: [] for name in ways}
    for number in range(-1, runs):
        for name in reversed(ways) if number % 2 else ways:
            conninfos, is_joint = ways[name]
            target.renew_small()
            cost = _load(folder, conninfos, is_joint=is_joint)
            print(f"{name}: {cost.seconds:.2f} s, {cost.cpu_s or 0.0:.2f} CPU s", flush=True)
            if (found := target.count_small()) != rows:
                raise WrongRows(f"{found} rows of {rows}")
            if number >= 0:
                costs[name].append(cost)
    return costs


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


# Of each compression: the bytes that are decompressed, and the runs.
_Cpu = dict[str, tuple[int, list[Run]]]


def _measure_cpu(options: Options, server: EmbeddedServer, target: Target) -> _Cpu:
    """Load the same rows from gzip and from xz, and return what client and server used of CPU."""
    scale = options.scale * _CPU_PART
    packed = principals(options.data, scale)
    with gzip.open(packed) as file:
        plain_bytes = sum(map(len, iter(lambda: file.read(1 << 20), b"")))
    found: _Cpu = {"gzip": (plain_bytes, []), "xz": (plain_bytes, [])}
    paths = {"gzip": packed, "xz": _as_xz(packed)}
    for number in range(-1, options.runs):
        for name, path in paths.items():
            target.renew()
            argv = [PENSTOCK, "load", str(path), "--into", QUALIFIED, "--to", server.conninfo()]
            argv += ["--quiet", "--again", "--no-record", *AS_COPY]
            run = run_once(argv, server, target, rows=expected_rows("title.principals", scale))
            print(f"{name}: client {run.client_cpu_s:.2f}, server {run.server_cpu_s:.2f} CPU s", flush=True)
            if number >= 0:
                found[name][1].append(run)
    return found


def _per_gb(cpu: _Cpu) -> dict[str, list[float]]:
    """Return CPU seconds per GB: of the server in all runs, and of the client by compression."""
    server = [run.server_cpu_s * GB / size for size, runs in cpu.values() for run in runs]
    clients = {f"client: {name}": [run.client_cpu_s * GB / size for run in runs] for name, (size, runs) in cpu.items()}
    return {"server": server, **clients}


def _cpu_rows(cpu: _Cpu) -> list[tuple[str, ...]]:
    return [
        (name, *(f"{choose(values):.1f}" for choose in (statistics.median, min, max)))
        for name, values in _per_gb(cpu).items()
    ]


def _as_xz(packed: Path) -> Path:
    """Return a gzip file's content as xz; it is written once."""
    path = packed.with_suffix(".xz")
    if not path.exists():
        unfinished = path.with_suffix(".new")
        with gzip.open(packed) as plain, lzma.open(unfinished, "wb") as file:
            shutil.copyfileobj(plain, file, 1 << 20)
        unfinished.replace(path)
    return path


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
