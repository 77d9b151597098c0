"""A table with a primary key, four indexes and a foreign key: psql's COPY into it, and a load that drops them."""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING

from benchmarks.data import PENSTOCK
from benchmarks.processes import Cost, run_measured
from benchmarks.record import save, spread, summarize
from benchmarks.rounds import WrongRows
from benchmarks.server import Target, bench_server
from benchmarks.tpch import LINEITEM, Warehouse, lineitem_rows, write_lineitem
from penstock.lab.installations import default_installation

if TYPE_CHECKING:
    from benchmarks.options import Options

_PSQL, _KEEP, _REBUILD = "psql COPY", "penstock --indexes keep", "penstock --indexes rebuild"


def run(options: Options) -> None:
    """Run it and write the results."""
    rows = lineitem_rows(options.scale)
    path = write_lineitem(options.data, options.scale)
    with bench_server(options.data) as server, Warehouse(server.conninfo()) as warehouse:
        psql = default_installation().program("psql")
        copy = f"\\copy {LINEITEM} FROM '{path}' (FORMAT csv)"
        load = [PENSTOCK, "load", str(path), "--into", LINEITEM, "--to", server.conninfo(), "--quiet", "--again"]
        load += ["--no-header", "--no-vacuum"]
        ways = {
            _PSQL: [psql, "-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", server.conninfo(), "-c", copy],
            _KEEP: [*load, "--indexes", "keep"],
            _REBUILD: [*load, "--indexes", "rebuild"],
        }
        costs: dict[str, list[Cost]] = {name: [] for name in ways}
        vacuum_s: dict[str, list[float]] = {name: [] for name in ways}
        warehouse.make(rows)
        warehouse.renew(has_indexes=True)
        whole = warehouse.describe()
        for number in range(-1, options.runs):
            for name, argv in ways.items():
                warehouse.renew(has_indexes=True)
                cost = run_measured(argv)
                if warehouse.count() != rows or warehouse.describe() != whole:
                    raise WrongRows(f"{name} left another table than it should")
                began_s = time.perf_counter()
                warehouse.vacuum()
                taken_s = time.perf_counter() - began_s
                print(f"{name}: {cost.seconds:.2f} s, VACUUM {taken_s:.2f} s", flush=True)
                if number >= 0:
                    costs[name].append(cost)
                    vacuum_s[name].append(taken_s)
        with Target(server.conninfo()) as target:
            postgresql = target.settings()
        save(
            "indexed_load",
            options=options,
            postgresql=postgresql,
            settings={"rows": rows, "file_bytes": path.stat().st_size},
            results={name: summarize(runs) | {"vacuum_s": spread(vacuum_s[name])} for name, runs in costs.items()},
            table=_table(costs, vacuum_s),
            notes=["The table is empty at the start. Times have the rebuild in them; VACUUM (ANALYZE) comes after."],
        )


def _table(costs: dict[str, list[Cost]], vacuum_s: dict[str, list[float]]) -> list[tuple[str, ...]]:
    median_s = {name: statistics.median(cost.seconds for cost in found) for name, found in costs.items()}
    table: list[tuple[str, ...]] = [("way", "median s", "times as fast as psql", "VACUUM s")]
    for name, seconds in median_s.items():
        vacuum = statistics.median(vacuum_s[name])
        table.append((name, f"{seconds:.2f}", f"{median_s[_PSQL] / seconds:.2f}", f"{vacuum:.2f}"))
    return table
