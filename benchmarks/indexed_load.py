"""A table with a primary key, four indexes and a foreign key: loaded into them, or they are created after the rows.

penstock drops and rebuilds them in one process. By hand, psql drops them and copies the rows; then psql creates them,
one after another (each with the server's parallel workers), or two psql at a time. Each way by hand is run with the
maintenance_work_mem that tuning guides advise, with PostgreSQL's default, and with as little as penstock gives a sort.
"""

from __future__ import annotations

import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from benchmarks.data import PENSTOCK
from benchmarks.processes import Cost, run_measured
from benchmarks.record import save, spread, summarize
from benchmarks.rounds import WrongRows
from benchmarks.server import Target, bench_server
from benchmarks.tpch import ADD_KEYS, CREATE, DROP, HALVES, LINEITEM, Warehouse, lineitem_rows, write_lineitem
from penstock.embedded.installations import default_installation

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from benchmarks.options import Options

_BY_HAND = "by hand, "
_PSQL, _KEEP, _REBUILD = "psql \\copy into all indexes", "penstock --indexes keep", "penstock --indexes rebuild"
# The two that people use, and penstock's own for a table of this size.
_USUAL, _LITTLE = ("1GB", "64MB"), "12MB"
# How many times as fast as the best usual way by hand the rebuild must be.
_BAR = 1.25


@dataclass(frozen=True, slots=True)
class _ByHand:
    """Runs psql on one server."""

    conninfo: str
    copy: str

    def run(self, *statements: str, memory: str | None = None) -> float:
        """Run statements in one psql, and return its CPU."""
        setting = () if memory is None else (f"SET maintenance_work_mem = '{memory}'",)
        cost = run_measured(psql_argv(self.conninfo, *setting, *statements))
        return cost.cpu_s or 0.0

    def one_after_another(self, memory: str) -> Cost:
        """Drop, copy, and create everything in one psql."""
        began_s = time.perf_counter()
        cpu_s = self.run(*DROP, self.copy) + self.run(*CREATE.values(), *ADD_KEYS, memory=memory)
        return Cost(seconds=time.perf_counter() - began_s, cpu_s=cpu_s)

    def two_at_a_time(self, memory: str) -> Cost:
        """Drop and copy, create the indexes in two psql, without parallel workers, and the keys in one."""
        began_s = time.perf_counter()
        cpu_s = self.run(*DROP, self.copy)
        alone = "SET max_parallel_maintenance_workers = 0"
        with ThreadPoolExecutor(len(HALVES)) as pool:
            halves = [[CREATE[name] for name in names] for names in HALVES]
            cpu_s += sum(pool.map(lambda half: self.run(alone, *half, memory=memory), halves))
        cpu_s += self.run(*ADD_KEYS, memory=memory)
        return Cost(seconds=time.perf_counter() - began_s, cpu_s=cpu_s)


def psql_argv(conninfo: str, *commands: str) -> list[str]:
    """Return the command of a psql that ends at the first error."""
    psql = default_installation().program("psql")
    return [psql, "-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", conninfo, *(f"--command={each}" for each in commands)]


def run(options: Options) -> None:
    """Run it and write the results."""
    rows = lineitem_rows(options.scale)
    path = write_lineitem(options.data, options.scale)
    with bench_server(options.data) as server, Warehouse(server.conninfo()) as warehouse:
        ways = _list_ways(server.conninfo(), path)
        costs: dict[str, list[Cost]] = {name: [] for name in ways}
        vacuum_s: dict[str, list[float]] = {name: [] for name in ways}
        warehouse.make(rows)
        warehouse.renew(has_indexes=True)
        whole = warehouse.describe()
        for number in range(-1, options.runs):
            for name in _in_turn([*ways], number):
                cost, vacuum = _run_once(warehouse, name, ways[name], rows=rows, whole=whole)
                if number >= 0:
                    costs[name].append(cost)
                    vacuum_s[name].append(vacuum)
        with Target(server.conninfo()) as target:
            postgresql = target.settings()
        usual, little = (_compare(costs, memories) for memories in (_USUAL, (_LITTLE,)))
        save(
            "indexed_load",
            options=options,
            postgresql=postgresql,
            settings={"rows": rows, "file_bytes": path.stat().st_size, "bar": _BAR},
            results={
                "times_as_fast": {"usual": usual, "little": little},
                **{name: summarize(runs) | {"vacuum_s": spread(vacuum_s[name])} for name, runs in costs.items()},
            },
            table=_table(costs, vacuum_s),
            notes=[
                (
                    "The table is empty at the start. Every second round has the ways in reverse order. Times have "
                    "the dropping and the creation of indexes and keys in them, and no VACUUM on either side: VACUUM "
                    "(ANALYZE) runs behind each way, and its time stands in a column of its own."
                ),
                (
                    f"penstock --indexes rebuild is {usual['times']:.2f} times as fast as the best usual way by hand "
                    f"({usual['way']}); the bar is {_BAR}. Of a DBA who knows that sorts are faster in little memory "
                    f"({little['way']}) it is {little['times']:.2f} times as fast."
                ),
            ],
        )


def _list_ways(conninfo: str, path: Path) -> dict[str, Callable[[], Cost]]:
    copy = f"\\copy {LINEITEM} FROM '{path}' (FORMAT csv)"
    by_hand = _ByHand(conninfo, copy)
    load = [PENSTOCK, "load", str(path), "--into", LINEITEM, "--to", conninfo, "--quiet", "--again", "--no-header"]
    load += ["--no-vacuum", "--indexes"]
    ways: dict[str, Callable[[], Cost]] = {
        _PSQL: lambda: run_measured(psql_argv(conninfo, copy)),
        _KEEP: lambda: run_measured([*load, "keep"]),
        _REBUILD: lambda: run_measured([*load, "rebuild"]),
    }
    for memory in (*_USUAL, _LITTLE):
        ways[f"{_BY_HAND}one after another, {memory}"] = partial(by_hand.one_after_another, memory)
        ways[f"{_BY_HAND}two at a time, {memory}"] = partial(by_hand.two_at_a_time, memory)
    return ways


def _compare(costs: dict[str, list[Cost]], memories: Sequence[str]) -> dict[str, Any]:
    """Return the fastest way by hand with one of these memories, and how many times as fast the rebuild is."""
    ways = [name for name in costs if name.startswith(_BY_HAND) and name.endswith(tuple(memories))]
    best = min(ways, key=lambda name: _median_s(costs[name]))
    return {"way": best, "times": _median_s(costs[best]) / _median_s(costs[_REBUILD])}


def _in_turn(names: list[str], number: int) -> list[str]:
    return names if number % 2 else names[::-1]


def _run_once(
    warehouse: Warehouse, name: str, way: Callable[[], Cost], *, rows: int, whole: Sequence[str]
) -> tuple[Cost, float]:
    """Return the cost of a way and the seconds of the VACUUM behind it. Raises WrongRows."""
    warehouse.renew(has_indexes=True)
    cost = way()
    if warehouse.count() != rows or warehouse.describe() != whole:
        raise WrongRows(f"{name} left another table than it should")
    began_s = time.perf_counter()
    warehouse.vacuum()
    taken_s = time.perf_counter() - began_s
    print(f"{name}: {cost.seconds:.2f} s, VACUUM {taken_s:.2f} s", flush=True)
    return cost, taken_s


def _median_s(costs: Sequence[Cost]) -> float:
    return statistics.median(cost.seconds for cost in costs)


def _table(costs: dict[str, list[Cost]], vacuum_s: dict[str, list[float]]) -> list[tuple[str, ...]]:
    table: list[tuple[str, ...]] = [("way", "median s", "lowest", "highest", "of penstock's time", "VACUUM s")]
    own_s = _median_s(costs[_REBUILD])
    for name, found in costs.items():
        seconds = [cost.seconds for cost in found]
        shown = (f"{choose(seconds):.2f}" for choose in (statistics.median, min, max))
        table.append((name, *shown, f"{_median_s(found) / own_s:.2f}", f"{statistics.median(vacuum_s[name]):.2f}"))
    return table
